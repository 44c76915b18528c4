"""What a kernel computes, before any text: indexes, loops, regions, and why something is no part of a kernel."""
