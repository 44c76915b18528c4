"""Scalar: a counter of a module that changes from step to step."""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["Scalar"]

Scalar: TypeAlias = int | float
"""Annotates a module field that is a run-time number, such as an optimizer's step counter.

Other int and float fields are static: a compiled step is traced again when one changes.
"""
