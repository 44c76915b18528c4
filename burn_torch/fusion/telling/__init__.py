"""Reports of plans, for people."""
