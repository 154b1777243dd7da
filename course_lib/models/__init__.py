"""What is trained: the course's own small models, and others by name."""
