"""ONNX models in: as a module (`load`), or as Python source and a record (`ModelGen`); and out: `export`."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.onnx import operators as operators
from burn_torch.onnx import rows as rows
from burn_torch.onnx.exporting import Cannot as Cannot
from burn_torch.onnx.exporting import Comparison as Comparison
from burn_torch.onnx.exporting import ExportReport as ExportReport
from burn_torch.onnx.exporting import Size as Size
from burn_torch.onnx.exporting import Wire as Wire
from burn_torch.onnx.exporting import Writer as Writer
from burn_torch.onnx.exporting import export as export
from burn_torch.onnx.imported import ImportedModel as ImportedModel
from burn_torch.onnx.imported import load as load
from burn_torch.onnx.model_gen import *
from burn_torch.onnx.operators.registry import operator as operator
from burn_torch.onnx.reader import read_model as read_model
from burn_torch.onnx.report import Report as Report
from burn_torch.onnx.report import report_on as report_on
from burn_torch.onnx.rows.registry import row as row

_list_exports(globals(), "operators", "rows")
_check_exports(globals())
