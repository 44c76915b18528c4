"""ONNX models in: as a module (`load`), or as Python source and a record (`ModelGen`)."""

from burn_torch.onnx import operators
from burn_torch.onnx.imported import ImportedModel, load
from burn_torch.onnx.model_gen import ModelGen, as_tensor, parameter, state
from burn_torch.onnx.operators.registry import operator
from burn_torch.onnx.reader import read_model
from burn_torch.onnx.report import Report, report_on

__all__ = [
    "ImportedModel",
    "ModelGen",
    "Report",
    "as_tensor",
    "load",
    "operator",
    "operators",
    "parameter",
    "read_model",
    "report_on",
    "state",
]
