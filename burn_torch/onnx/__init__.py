"""ONNX models in: as a module (`load`), or as Python source and a record (`ModelGen`)."""

from burn_torch.onnx import operators
from burn_torch.onnx.imported import ImportedModel, load
from burn_torch.onnx.operators.registry import operator
from burn_torch.onnx.reader import read_model
from burn_torch.onnx.report import Report, report_on

__all__ = ["ImportedModel", "Report", "load", "operator", "operators", "read_model", "report_on"]
