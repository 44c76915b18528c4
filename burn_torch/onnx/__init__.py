"""ONNX models in: as a module (`load`), or as Python source and a record (`ModelGen`); and out: `export`."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.onnx import operators, rows
from burn_torch.onnx.exporting import Cannot, Comparison, ExportReport, Size, Wire, Writer, export
from burn_torch.onnx.imported import ImportedModel, load
from burn_torch.onnx.model_gen import ModelGen, as_tensor, parameter, state
from burn_torch.onnx.operators.registry import operator
from burn_torch.onnx.reader import read_model
from burn_torch.onnx.report import Report, report_on
from burn_torch.onnx.rows.registry import row

__all__ = [
    "Cannot",
    "Comparison",
    "ExportReport",
    "ImportedModel",
    "ModelGen",
    "Report",
    "Size",
    "Wire",
    "Writer",
    "as_tensor",
    "export",
    "load",
    "operator",
    "operators",
    "parameter",
    "read_model",
    "report_on",
    "row",
    "rows",
    "state",
]

_check_exports(globals())
