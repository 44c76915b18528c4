"""Records in files: the formats behind `module.save_file` and `load_file`."""

from burn_torch.module.record import FORMATS, ModuleRecord
from burn_torch.record.safetensors_file import SafetensorsFormat

__all__ = ["ModuleRecord", "SafetensorsFormat"]

FORMATS[".safetensors"] = SafetensorsFormat()
