"""Records in files: the formats behind `module.save_file` and `load_file`, and the recorders of the Burn book."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.module.record import DTypePolicy, ModuleRecord, RecordEntry
from burn_torch.record.bin_file import BinFormat
from burn_torch.record.burnpack_file import BurnpackFormat
from burn_torch.record.gzip_file import GzipFormat
from burn_torch.record.json_file import JsonFormat
from burn_torch.record.mpk_file import NamedMpkFormat
from burn_torch.record.precision import (
    DoublePrecisionSettings,
    FullPrecisionSettings,
    HalfPrecisionSettings,
    PrecisionSettings,
)
from burn_torch.record.recorders import (
    BinBytesRecorder,
    BinFileRecorder,
    BinGzFileRecorder,
    BytesRecorder,
    CompactRecorder,
    DefaultFileRecorder,
    DefaultRecorder,
    FileRecorder,
    JsonGzFileRecorder,
    NamedMpkBytesRecorder,
    NamedMpkFileRecorder,
    NamedMpkGzFileRecorder,
    NamedRecord,
    PrettyJsonFileRecorder,
    Recorder,
)
from burn_torch.record.safetensors_file import SafetensorsFormat
from burn_torch.record.safetensors_shards import ShardedSafetensorsFormat

__all__ = [
    "BinBytesRecorder",
    "BinFileRecorder",
    "BinFormat",
    "BinGzFileRecorder",
    "BurnpackFormat",
    "BytesRecorder",
    "CompactRecorder",
    "DTypePolicy",
    "DefaultFileRecorder",
    "DefaultRecorder",
    "DoublePrecisionSettings",
    "FileRecorder",
    "FullPrecisionSettings",
    "GzipFormat",
    "HalfPrecisionSettings",
    "JsonFormat",
    "JsonGzFileRecorder",
    "ModuleRecord",
    "NamedMpkBytesRecorder",
    "NamedMpkFileRecorder",
    "NamedMpkFormat",
    "NamedMpkGzFileRecorder",
    "NamedRecord",
    "PrecisionSettings",
    "PrettyJsonFileRecorder",
    "RecordEntry",
    "Recorder",
    "SafetensorsFormat",
    "ShardedSafetensorsFormat",
]

_check_exports(globals())
