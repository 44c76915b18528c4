"""Defines what ONNX operators mean here: functions of tensors, a family in each file.

Source that the importer writes calls them by these names.
"""

from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.onnx.operators.arithmetic import *
from burn_torch.onnx.operators.attending import *
from burn_torch.onnx.operators.control import *
from burn_torch.onnx.operators.elementwise import *
from burn_torch.onnx.operators.fused import *
from burn_torch.onnx.operators.fused_attention import *
from burn_torch.onnx.operators.fused_quantised import *
from burn_torch.onnx.operators.indexing import *
from burn_torch.onnx.operators.normalisation import *
from burn_torch.onnx.operators.products import *
from burn_torch.onnx.operators.quantised import *
from burn_torch.onnx.operators.recurrent import *
from burn_torch.onnx.operators.reduction import *
from burn_torch.onnx.operators.resampling import *
from burn_torch.onnx.operators.shape import *
from burn_torch.onnx.operators.signal import *
from burn_torch.onnx.operators.vision import *
from burn_torch.onnx.operators.windows import *

_list_exports(globals())
