"""Users' values: Tensor, Device, Gradients; functions of tensors; options."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.distribution import Distribution as Distribution
from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.core.quantization import *
from burn_torch.core.quantized_data import QuantizedData as QuantizedData
from burn_torch.core.spellings import refuse_calls as _refuse_calls
from burn_torch.tensor import activation as activation
from burn_torch.tensor import flex as flex
from burn_torch.tensor import functional as functional
from burn_torch.tensor import grid as grid
from burn_torch.tensor import linalg as linalg
from burn_torch.tensor import segments as segments
from burn_torch.tensor import signal as signal
from burn_torch.tensor import special as special
from burn_torch.tensor import stats as stats
from burn_torch.tensor._indexing import s as s
from burn_torch.tensor._protocols import HOMES as _HOMES
from burn_torch.tensor.broadcasting import BroadcastWarning as BroadcastWarning
from burn_torch.tensor.capturing import CapturedOperations as CapturedOperations
from burn_torch.tensor.capturing import CaptureScope as CaptureScope
from burn_torch.tensor.complex_tensor import *
from burn_torch.tensor.csr_tensor import *
from burn_torch.tensor.device import *
from burn_torch.tensor.gradients import ConstantGradientsWarning as ConstantGradientsWarning
from burn_torch.tensor.gradients import Gradients as Gradients
from burn_torch.tensor.jagged_tensor import *
from burn_torch.tensor.options import AttentionModuleOptions as AttentionModuleOptions
from burn_torch.tensor.options import ConvOptions as ConvOptions
from burn_torch.tensor.options import ConvTransposeOptions as ConvTransposeOptions
from burn_torch.tensor.options import DeformConvOptions as DeformConvOptions
from burn_torch.tensor.options import GridIndexing as GridIndexing
from burn_torch.tensor.options import GridSampleOptions as GridSampleOptions
from burn_torch.tensor.options import GridSamplePaddingMode as GridSamplePaddingMode
from burn_torch.tensor.options import GridSparsity as GridSparsity
from burn_torch.tensor.options import IndexingUpdateOp as IndexingUpdateOp
from burn_torch.tensor.options import IndexPos as IndexPos
from burn_torch.tensor.options import InterpolateMode as InterpolateMode
from burn_torch.tensor.options import InterpolateOptions as InterpolateOptions
from burn_torch.tensor.options import PaddedConvOptions as PaddedConvOptions
from burn_torch.tensor.options import PadMode as PadMode
from burn_torch.tensor.options import TensorCreationOptions as TensorCreationOptions
from burn_torch.tensor.options import UnfoldOptions as UnfoldOptions
from burn_torch.tensor.printing import PrintOptions as PrintOptions
from burn_torch.tensor.printing import set_print_options as set_print_options
from burn_torch.tensor.quantization import *
from burn_torch.tensor.report import check_closeness as check_closeness
from burn_torch.tensor.tensor import Tensor as Tensor
from burn_torch.tensor.transaction import *

_list_exports(globals(), "activation", "flex", "functional", "grid", "linalg", "segments", "signal", "special", "stats")
for _home in (linalg, functional, activation, signal, special, flex):
    _HOMES.update(dict.fromkeys(_home.__all__, _home.__name__.rpartition(".")[2]))
_refuse_calls(__name__, "Tensor.from_data(values, device)")
_check_exports(globals(), quick=True, but=("Tensor", "Gradients"))
