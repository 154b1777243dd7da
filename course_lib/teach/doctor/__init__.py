"""Is this computer ready for the course, and if not, what cures it? Behind `course doctor`."""
