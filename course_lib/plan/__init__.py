"""Before a run: predict the memory, time and cost of a training step without running it."""
