"""During a run: train for real, on a CPU or a GPU, and measure where the time goes."""
