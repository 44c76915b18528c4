"""The recipes of `burn-torch train`."""
