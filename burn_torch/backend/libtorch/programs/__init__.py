"""Whole graphs as straight-line Python over torch's functions, and where they write in place."""
