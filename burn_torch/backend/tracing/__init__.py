"""Tracing: while a function is traced, its devices compute on a leaf that writes a Graph."""

from burn_torch.backend.tracing.session import Bound, Session, TraceLeaf, active, suspended

__all__ = ["Bound", "Session", "TraceLeaf", "active", "suspended"]
