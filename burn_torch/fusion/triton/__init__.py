"""Bodies as Triton source, and the proof of what was written."""
