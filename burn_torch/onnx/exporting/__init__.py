"""Modules and functions as ONNX files: traced, unified over sizes, written row by row, compared."""

from burn_torch.onnx.exporting.checking import Comparison
from burn_torch.onnx.exporting.conversion import ExportReport, export
from burn_torch.onnx.exporting.sizes import Size
from burn_torch.onnx.exporting.writer import Cannot, Wire, Writer

__all__ = ["Cannot", "Comparison", "ExportReport", "Size", "Wire", "Writer", "export"]
