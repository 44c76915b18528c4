"""Bodies of kernels before any text: indexes, loops, regions, steps, and why something is no part of a kernel."""
