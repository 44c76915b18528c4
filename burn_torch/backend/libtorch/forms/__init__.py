"""Rows whose run-time numbers lie on the device, for programs that are recorded once and replayed."""

from __future__ import annotations

__all__: list[str] = []
