"""Files of tensors, and the way from their keys to a module's: filters, other names, PyTorch's layouts."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.module.twins import *
from burn_torch.record.stores.adapter import *
from burn_torch.record.stores.base import *
from burn_torch.record.stores.files import *
from burn_torch.record.stores.filter import PathFilter as PathFilter
from burn_torch.record.stores.peft import *
from burn_torch.record.stores.pytorch import PytorchStore as PytorchStore
from burn_torch.record.stores.remap import KeyRemapper as KeyRemapper
from burn_torch.record.stores.remap import map_indices_contiguous as map_indices_contiguous
from burn_torch.record.stores.result import *

_list_exports(globals())
_check_exports(globals(), hot=("twins", "stored"))
