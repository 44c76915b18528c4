"""Records in files: the formats behind `module.save_file` and `load_file`, and the recorders of the Burn book."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.module.record import DTypePolicy as DTypePolicy
from burn_torch.module.record import ModuleRecord as ModuleRecord
from burn_torch.module.record import RecordEntry as RecordEntry
from burn_torch.record.bin_file import *
from burn_torch.record.burnpack_file import BurnpackFormat as BurnpackFormat
from burn_torch.record.gzip_file import GzipFormat as GzipFormat
from burn_torch.record.json_file import *
from burn_torch.record.mpk_file import *
from burn_torch.record.precision import DoublePrecisionSettings as DoublePrecisionSettings
from burn_torch.record.precision import FullPrecisionSettings as FullPrecisionSettings
from burn_torch.record.precision import HalfPrecisionSettings as HalfPrecisionSettings
from burn_torch.record.precision import PrecisionSettings as PrecisionSettings
from burn_torch.record.recorders import *
from burn_torch.record.safetensors_file import SafetensorsFormat as SafetensorsFormat
from burn_torch.record.safetensors_shards import ShardedSafetensorsFormat as ShardedSafetensorsFormat

_list_exports(globals())
_check_exports(globals())
