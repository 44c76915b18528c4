"""Records in files: the formats behind `module.save_file` and `load_file`."""

from burn_torch.module.record import FORMATS, DTypePolicy, ModuleRecord
from burn_torch.record.burnpack_file import BurnpackFormat
from burn_torch.record.safetensors_file import SafetensorsFormat
from burn_torch.record.safetensors_shards import INDEX_ENDING, ShardedSafetensorsFormat

__all__ = ["BurnpackFormat", "DTypePolicy", "ModuleRecord", "SafetensorsFormat", "ShardedSafetensorsFormat"]

FORMATS[".bpk"] = BurnpackFormat()
FORMATS[".safetensors"] = SafetensorsFormat()
FORMATS[INDEX_ENDING] = ShardedSafetensorsFormat()
