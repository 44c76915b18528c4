"""Files of tensors, and the way from their keys to a module's: filters, other names, PyTorch's layouts."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.record.stores.adapter import (
    BurnToPyTorchAdapter,
    ChainAdapter,
    FloatCastAdapter,
    HalfPrecisionAdapter,
    IdentityAdapter,
    ModuleAdapter,
    PyTorchToBurnAdapter,
)
from burn_torch.record.stores.base import ModuleStore, WritableStore
from burn_torch.record.stores.files import BurnpackStore, SafetensorsStore
from burn_torch.record.stores.filter import PathFilter
from burn_torch.record.stores.places import Place, Twin, places
from burn_torch.record.stores.pytorch import PytorchStore
from burn_torch.record.stores.remap import KeyRemapper, map_indices_contiguous
from burn_torch.record.stores.result import ApplyError, ApplyResult

__all__ = [
    "ApplyError",
    "ApplyResult",
    "BurnToPyTorchAdapter",
    "BurnpackStore",
    "ChainAdapter",
    "FloatCastAdapter",
    "HalfPrecisionAdapter",
    "IdentityAdapter",
    "KeyRemapper",
    "ModuleAdapter",
    "ModuleStore",
    "PathFilter",
    "Place",
    "PyTorchToBurnAdapter",
    "PytorchStore",
    "SafetensorsStore",
    "Twin",
    "WritableStore",
    "map_indices_contiguous",
    "places",
]

_check_exports(globals(), hot=("twins", "stored"))
