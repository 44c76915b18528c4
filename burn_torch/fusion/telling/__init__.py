"""What fusion made of a graph, for people."""
