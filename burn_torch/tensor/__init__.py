"""Users' values: Tensor, Device, Gradients; functions of tensors; options."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.distribution import Distribution
from burn_torch.core.spellings import refuse_calls as _refuse_calls
from burn_torch.tensor import activation, functional, grid, stats
from burn_torch.tensor._indexing import s
from burn_torch.tensor.broadcasting import BroadcastWarning
from burn_torch.tensor.device import Device
from burn_torch.tensor.gradients import ConstantGradientsWarning, Gradients
from burn_torch.tensor.options import (
    AttentionModuleOptions,
    ConvOptions,
    ConvTransposeOptions,
    GridIndexing,
    GridSampleOptions,
    GridSamplePaddingMode,
    GridSparsity,
    IndexingUpdateOp,
    IndexPos,
    InterpolateMode,
    InterpolateOptions,
    PaddedConvOptions,
    PadMode,
    TensorCreationOptions,
    UnfoldOptions,
)
from burn_torch.tensor.printing import PrintOptions, set_print_options
from burn_torch.tensor.tensor import Tensor
from burn_torch.tensor.transaction import Transaction

__all__ = [
    "AttentionModuleOptions",
    "BroadcastWarning",
    "ConstantGradientsWarning",
    "ConvOptions",
    "ConvTransposeOptions",
    "Device",
    "Distribution",
    "Gradients",
    "GridIndexing",
    "GridSampleOptions",
    "GridSamplePaddingMode",
    "GridSparsity",
    "IndexPos",
    "IndexingUpdateOp",
    "InterpolateMode",
    "InterpolateOptions",
    "PadMode",
    "PaddedConvOptions",
    "PrintOptions",
    "Tensor",
    "TensorCreationOptions",
    "Transaction",
    "UnfoldOptions",
    "activation",
    "functional",
    "grid",
    "s",
    "set_print_options",
    "stats",
]

_refuse_calls(__name__, "Tensor.from_data(values, device)")
_check_exports(globals(), quick=True, but=("Tensor", "Gradients"))
