"""Rows whose run-time numbers lie on the device, for programs that are recorded once and replayed."""
