"""How each row of the table is written as ONNX operators: one small function a row, one file a family."""

from burn_torch.onnx.rows import elementwise, flow, indexing, products, quantised, reducing, shaping, spectra, windows
from burn_torch.onnx.rows.registry import row

__all__ = [
    "elementwise",
    "flow",
    "indexing",
    "products",
    "quantised",
    "reducing",
    "row",
    "shaping",
    "spectra",
    "windows",
]
