"""The recorders of the Burn book: records in files and in bytes, at a chosen precision.

    recorder = CompactRecorder()
    recorder.record(model.into_record(), "model")          # model.mpk
    model = model.load_record(recorder.load("model"))

They write modules, and whatever else can be a record: optimizers and schedules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar, final, overload

from burn_torch.core.checking import checked
from burn_torch.core.files import make_folder
from burn_torch.module.record import ModuleRecord
from burn_torch.record.bin_file import BinFormat
from burn_torch.record.file_format import FileFormat, writing
from burn_torch.record.gzip_file import GzipFormat
from burn_torch.record.json_file import JsonFormat
from burn_torch.record.mpk_file import NamedMpkFormat
from burn_torch.record.precision import FullPrecisionSettings, HalfPrecisionSettings, PrecisionSettings

__all__ = [
    "BinBytesRecorder",
    "BinFileRecorder",
    "BinGzFileRecorder",
    "BytesRecorder",
    "CompactRecorder",
    "DefaultFileRecorder",
    "DefaultRecorder",
    "FileRecorder",
    "JsonGzFileRecorder",
    "NamedMpkBytesRecorder",
    "NamedMpkFileRecorder",
    "NamedMpkGzFileRecorder",
    "NamedRecord",
    "PrettyJsonFileRecorder",
    "Recorder",
]


class NamedRecord(Protocol):
    """A record that can be told as named values: those of optimizers and schedules."""

    def into_named(self) -> ModuleRecord:
        """All that it holds, as entries, scalars and metadata."""

    @classmethod
    def from_named(cls, record: ModuleRecord) -> Self:
        """The record of such values.  Raises: RecordError for those of another kind of record."""


R = TypeVar("R", bound=NamedRecord)


@checked
class Recorder(ABC):
    """Writes and reads records in one format.  settings: the types that numbers are stored in."""

    def __init__(self, settings: PrecisionSettings | type[PrecisionSettings] | None = None) -> None:
        chosen = FullPrecisionSettings if settings is None else settings
        self.settings = chosen() if isinstance(chosen, type) else chosen

    @abstractmethod
    def format(self) -> FileFormat:
        """The format at these settings."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings.name})"


@checked
class FileRecorder(Recorder):
    """A recorder of files; `ending` is put behind the name of each that has it not."""

    ending: ClassVar[str]

    def path(self, path: str | Path) -> Path:
        """Returns where a record lies."""
        named = Path(path)
        return named if named.name.endswith(self.ending) else named.with_name(named.name + self.ending)

    def record(self, record: ModuleRecord | NamedRecord, path: str | Path) -> Path:
        """Writes a record, whole or not at all, and makes the folder if there is none; returns the file.

        Raises: ArtifactError where it cannot be written, RecordError for values beyond the precision's range.
        """
        target = self.path(path)
        with writing(target):
            make_folder(target.parent)
        self.format().save(_named(record), target)
        return target

    @overload
    def load(self, path: str | Path, device: object = None) -> ModuleRecord: ...
    @overload
    def load(self, path: str | Path, device: object = None, *, into: type[R]) -> R: ...
    def load(self, path: str | Path, device: object = None, *, into: object = None) -> Any:
        """The record of a file; values take the element types of the module that loads it.

        device: as in Burn; values lie in the file until a module or optimizer takes them to a device of its own.
        into: OptimizerRecord or LrSchedulerRecord, for a record of that kind.
        Raises: RecordError for a missing or damaged file.
        """
        return _of_kind(self.format().load(self.path(path)), into)


@checked
class BytesRecorder(Recorder):
    """A recorder of bytes."""

    def record(self, record: ModuleRecord | NamedRecord, args: tuple[()] = ()) -> bytes:
        """The bytes of a record.  Raises: RecordError for values beyond the precision's range."""
        return self.format().dump(_named(record))

    @overload
    def load(self, data: bytes, device: object = None) -> ModuleRecord: ...
    @overload
    def load(self, data: bytes, device: object = None, *, into: type[R]) -> R: ...
    def load(self, data: bytes, device: object = None, *, into: object = None) -> Any:
        """The record of bytes; see FileRecorder.load.  Raises: RecordError for damaged ones."""
        return _of_kind(self.format().parse(data), into)


def _named(record: ModuleRecord | NamedRecord) -> ModuleRecord:
    return record if isinstance(record, ModuleRecord) else record.into_named()


def _of_kind(record: ModuleRecord, into: Any) -> object:
    return record.cast_to_module_dtype() if into is None or into is ModuleRecord else into.from_named(record)


# -- files ----------------------------------------------------------------------------------------------
class NamedMpkFileRecorder(FileRecorder):
    """MessagePack with names, which Burn up to 0.21 reads too."""

    ending = ".mpk"

    def format(self) -> FileFormat:
        """MessagePack."""
        return NamedMpkFormat(self.settings)


@final
class NamedMpkGzFileRecorder(FileRecorder):
    """MessagePack with names under gzip."""

    ending = ".mpk.gz"

    def format(self) -> FileFormat:
        """MessagePack under gzip."""
        return GzipFormat(NamedMpkFormat(self.settings))


@final
class BinFileRecorder(FileRecorder):
    """bincode; not Burn's own, which only its Rust type can read."""

    ending = ".bin"

    def format(self) -> FileFormat:
        """bincode."""
        return BinFormat(self.settings)


@final
class BinGzFileRecorder(FileRecorder):
    """bincode under gzip."""

    ending = ".bin.gz"

    def format(self) -> FileFormat:
        """bincode under gzip."""
        return GzipFormat(BinFormat(self.settings))


@final
class JsonGzFileRecorder(FileRecorder):
    """JSON under gzip."""

    ending = ".json.gz"

    def format(self) -> FileFormat:
        """JSON under gzip."""
        return GzipFormat(JsonFormat(self.settings, pretty=False))


@final
class PrettyJsonFileRecorder(FileRecorder):
    """JSON that people can read."""

    ending = ".json"

    def format(self) -> FileFormat:
        """JSON with a line for each field."""
        return JsonFormat(self.settings)


DefaultFileRecorder = NamedMpkFileRecorder


@final
class DefaultRecorder(NamedMpkFileRecorder):
    """MessagePack with names, f32 and i32."""

    def __init__(self) -> None:
        super().__init__(FullPrecisionSettings)


@final
class CompactRecorder(NamedMpkFileRecorder):
    """MessagePack with names, f16 and i16: half the size."""

    def __init__(self) -> None:
        super().__init__(HalfPrecisionSettings)


# -- bytes -----------------------------------------------------------------------------------------------
@final
class BinBytesRecorder(BytesRecorder):
    """bincode in memory."""

    def format(self) -> FileFormat:
        """bincode."""
        return BinFormat(self.settings)


@final
class NamedMpkBytesRecorder(BytesRecorder):
    """MessagePack with names in memory."""

    def format(self) -> FileFormat:
        """MessagePack."""
        return NamedMpkFormat(self.settings)
