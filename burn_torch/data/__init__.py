"""Datasets, their transforms and sources, and the loader that makes batches of them.  Imports numpy, never torch."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.core.spellings import hint_missing as _hint_missing
from burn_torch.core.spellings.packages import DATA as _DATA
from burn_torch.data.dataset import *
from burn_torch.data.loader import *
from burn_torch.data.order import *
from burn_torch.data.sampling import *
from burn_torch.data.source.digits import *
from burn_torch.data.source.download import ProgressCallback as ProgressCallback
from burn_torch.data.source.download import cache_dir as cache_dir
from burn_torch.data.source.idx import *
from burn_torch.data.source.mnist import *
from burn_torch.data.transform import *

_list_exports(globals())
_check_exports(globals(), but=("DigitsDataset.train", "DigitsDataset.test"))
_hint_missing(globals(), _DATA, torch="utils.data")
