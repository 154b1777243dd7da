"""After a run: read what it left behind (messages, dumps, logs) and say what is wrong."""
