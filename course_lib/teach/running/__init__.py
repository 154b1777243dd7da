"""Run lessons without anybody watching, and report what happened. Behind `course run`."""
