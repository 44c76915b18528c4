"""Bodies as C source for a CPU, and the proof of what was written."""
