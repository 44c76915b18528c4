"""Files of a data set: in the folder that was named, else in the cache, else from their place on the network."""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, TypeAlias

from burn_torch.core.checking import checked
from burn_torch.core.errors import DataError
from burn_torch.core.files import replacing_file

__all__ = ["Folder", "ProgressCallback", "RemoteFile", "cache_dir", "find_file"]


class ProgressCallback(Protocol):
    """Is told how far a download is."""

    def __call__(self, name: str, done: int, total: int | None, /) -> None:
        """Name of the file, bytes so far, bytes in all if the server says so."""


TIMEOUT_S = 30.0  # of silence, not of the whole download
_CHUNK = 1 << 16


Folder: TypeAlias = str | os.PathLike[str] | None
"""The folder of a data set, where one was named."""


@dataclass(frozen=True)
class RemoteFile:
    """A gzipped file on the network, known by what is in it."""

    name: str
    """Without .gz."""
    size_bytes: int
    """Unpacked."""
    sha256: str
    """The digest of the unpacked bytes: the same file, packed by another program, is the same file."""


@checked(error=DataError)
def cache_dir(dataset: str) -> Path:
    """The folder of downloaded files: $BURN_TORCH_CACHE, else ~/.cache/burn_torch; in it one folder a data set."""
    named = os.environ.get("BURN_TORCH_CACHE")
    return (Path(named) if named else Path.home() / ".cache" / "burn_torch") / dataset


def find_file(
    dataset: str,
    file: RemoteFile,
    *,
    base_url: str,
    data_dir: Folder = None,
    progress: ProgressCallback | None = None,
) -> Path:
    """Returns where a file of a data set is, packed or not; it is downloaded into the cache if it is nowhere.

    A folder that was named is the only one searched: data from elsewhere in its stead would be a silent surprise.
    Raises: DataError if the folder lacks the file, or the download fails or brings other bytes.
    """
    names = (file.name, f"{file.name}.gz")
    folder = cache_dir(dataset) if data_dir is None else Path(data_dir)
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is not None:
        return path
    if data_dir is not None:
        raise DataError(
            f"{dataset}: {file.name} is not in the data directory",
            given=f"{folder.absolute()}, {_listing(folder)}",
            expected=f"{names[0]} or {names[1]} in it",
            mend="name the folder that has the files, or none: they are downloaded then",
        )
    return _download(dataset, file, f"{base_url.rstrip('/')}/{file.name}.gz", folder, progress or _default_progress())


def _download(dataset: str, file: RemoteFile, url: str, folder: Path, progress: ProgressCallback) -> Path:
    import http.client  # here and below: most runs download nothing, and this takes longer to import than all the rest

    target = folder / f"{file.name}.gz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing_file(target) as part:
            _copy(url, part, file, progress)
            part.flush()
            _verify(Path(part.name), file, url)
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{dataset}: {file.name} is not here and could not be downloaded",
            given=f"{url}: {error}; searched {folder}",
            expected=f"{file.name} or {file.name}.gz in that folder, or a network",
            mend=f"give the folder that has the files (--data, data_dir=), or put them into {folder}; "
            "BURN_TORCH_CACHE moves the cache",
        ) from error
    return target


def _copy(url: str, part: IO[bytes], file: RemoteFile, progress: ProgressCallback) -> None:
    import urllib.request

    if not url.startswith(("https://", "http://")):
        raise ValueError("only http and https are spoken")
    request = urllib.request.Request(url, headers={"User-Agent": "burn-torch"})
    limit = file.size_bytes + (1 << 20)  # gzip never makes a file that much longer
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        length = response.headers.get("Content-Length")
        total = int(length) if length is not None and length.isdecimal() else None
        done = 0
        progress(file.name, done, total)
        while chunk := response.read(_CHUNK):
            done += len(chunk)
            if done > limit:
                raise ValueError(f"the server sends more than the {limit} bytes that the file can have")
            part.write(chunk)
            progress(file.name, done, total)
    if total is not None and done != total:
        raise ValueError(f"the connection ended after {done} of {total} bytes")


def _verify(packed: Path, file: RemoteFile, url: str) -> None:
    digest, size = hashlib.sha256(), 0
    try:
        with gzip.open(packed) as inflated:
            while size <= file.size_bytes and (chunk := inflated.read(_CHUNK)):
                digest.update(chunk)
                size += len(chunk)
        received = f"{size} bytes with sha256 {digest.hexdigest()}"
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        received = f"damaged gzip data ({error})"
    if size != file.size_bytes or digest.hexdigest() != file.sha256:
        raise DataError(
            f"{file.name}: the downloaded file is not the right one",
            given=f"{url}: {received}",
            expected=f"{file.size_bytes} bytes with sha256 {file.sha256}, unpacked",
            mend="try again, or another mirror; nothing was kept",
        )


def _listing(folder: Path) -> str:
    if not folder.is_dir():
        return "which is a file" if folder.exists() else "which does not exist"
    names: Sequence[str] = sorted(entry.name for entry in folder.iterdir())
    return f"which has {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" if names else "which is empty"


def _default_progress() -> ProgressCallback:
    return _draw_bar if sys.stderr.isatty() else _say_nothing


def _say_nothing(name: str, done: int, total: int | None) -> None:
    """For a stderr that nobody watches."""


def _draw_bar(name: str, done: int, total: int | None) -> None:
    """One line that is drawn over, and left standing when the file is complete."""
    if total:
        filled = 30 * done // total
        text = f"{name} [{'#' * filled}{'.' * (30 - filled)}] {done / 1e6:.1f} of {total / 1e6:.1f} MB"
    else:
        text = f"{name} {done / 1e6:.1f} MB"
    sys.stderr.write(f"\r{text}" + ("\n" if done == total else ""))
    sys.stderr.flush()
