"""The files of a recipe's data: where they are looked for, and what is said where they are not.  Imports no torch.

    --data DIR              the only place that is searched, if it is given
    $BURN_TORCH_DATA/NAME   then $BURN_TORCH_DATA itself
    the cache               where --download puts what it can fetch

Nothing is ever downloaded because it is missing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

from burn_torch.config import Config, replace
from burn_torch.core.errors import DataError

__all__ = ["VARIABLE", "DataFiles"]

C = TypeVar("C", bound=Config)

VARIABLE = "BURN_TORCH_DATA"


@final
@dataclass(frozen=True)
class DataFiles:
    """The files that a data set consists of.

    files   what each file is for, with the names that it may have; the first one is what it is called
    source  where a person gets them
    """

    name: str
    files: Mapping[str, Sequence[str]]
    source: str
    cache: Path | None = None

    def located(self, config: C) -> C:
        """The settings with the folder of the files under `data_dir`, as an absolute path.  Raises: DataError."""
        data_dir: Any = getattr(config, "data_dir", None)
        return replace(config, data_dir=str(self.folder(data_dir).absolute()))

    def find(self, data_dir: str | None) -> dict[str, Path]:
        """The path of each file, by what it is for.  Raises: DataError."""
        folder = self.folder(data_dir)
        paths = self._in(folder)
        assert paths is not None
        return paths

    def folder(self, data_dir: str | None) -> Path:
        """The folder that has all files.  Raises: DataError that names every folder searched and what each lacks."""
        named = os.environ.get(VARIABLE)
        if data_dir is not None:
            folders = [Path(data_dir)]
        else:
            folders = [Path(named) / self.name, Path(named)] if named else []
            folders += [self.cache] if self.cache is not None else []
        for folder in folders:
            if self._in(folder) is not None:
                return folder
        lines = [self._lacks(folder) for folder in folders] or [f"no --data, and {VARIABLE} is not set"]
        wanted = ", ".join(" or ".join(names) for names in self.files.values())
        raise DataError(
            f"{self.name}: the data is not here",
            given="\n            ".join(lines),
            expected=f"a folder with {wanted}",
            mend=f"{self.source}; then name the folder: --data DIR, or {VARIABLE}=DIR with a folder {self.name}",
        )

    def _in(self, folder: Path) -> dict[str, Path] | None:
        paths = {}
        for purpose, names in self.files.items():
            path = next((folder / name for name in names if (folder / name).is_file()), None)
            if path is None:
                return None
            paths[purpose] = path
        return paths

    def _lacks(self, folder: Path) -> str:
        if not folder.is_dir():
            return f"{folder.absolute()}, which {'is a file' if folder.exists() else 'does not exist'}"
        absent = [names[0] for names in self.files.values() if not any((folder / n).is_file() for n in names)]
        return f"{folder.absolute()}, without {', '.join(absent)}"
