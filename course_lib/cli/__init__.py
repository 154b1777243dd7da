"""The `course` command: learn, take home, author."""
