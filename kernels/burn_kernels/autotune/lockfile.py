"""A lockfile pins every choice: with it the same config runs for the same key, whatever is measured later.

    {
     "format": "burn_kernels.lock",
     "version": 1,
     "choices": [
      {"key": "softmax rows<=8192 ...", "device": "NVIDIA H200 ...", "kernel": "01...", "config": {"block": 4096, ...}},
      ...

One choice a line, in order, so that it can be read and compared.  The form is strict: an unknown field, a second choice
for one key, or a config that is not whole numbers is an error that names all faults of the file.

A key that is not in the file: in mode `append` the choice that holds without measuring is taken and written to the file
(if that cannot be written, one warning, and the choice holds for this process); in mode `frozen` it is an error.  A
choice whose kernel source has changed since: in `append` one warning, and the choice holds; in `frozen` an error.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from burn_kernels.autotune.errors import AutotuneWarning, LockfileError
from burn_kernels.autotune.store import alone, is_config
from burn_kernels.errors import KernelArgumentError

__all__ = ["MODES", "Lockfile", "Pin"]

FORMAT, VERSION = "burn_kernels.lock", 1
MODES = ("append", "frozen")
MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class Pin:
    """One pinned choice."""

    key: str
    device: str
    kernel: str
    config: Mapping[str, int]


class Lockfile:
    """The choices of one file."""

    def __init__(self, path: Path, mode: str = "append") -> None:
        if mode not in MODES:
            raise KernelArgumentError(
                "autotune: no such mode of a lockfile",
                given=repr(mode),
                expected=f"one of {', '.join(MODES)}",
                mend="append adds what is missing; frozen makes it an error",
            )
        self.path, self.mode = path, mode
        self._guard = threading.Lock()
        self._warned: set[str] = set()
        if mode == "frozen" and not path.is_file():
            raise LockfileError(
                "autotune: there is no lockfile to hold to",
                given=f"{path}, mode 'frozen'",
                expected="a file that a run in mode 'append' wrote",
                mend="run once with mode='append'",
            )
        self.pins = _read(path)

    def find(self, key: str, device: str, kernel: str) -> Pin | None:
        """The choice for a key on a device; None if the file has none and may be appended to.

        Raises: LockfileError in mode frozen, if there is none or the kernel has changed.
        """
        pin = self.pins.get((key, device))
        if pin is None:
            if self.mode == "frozen":
                raise LockfileError(
                    "autotune: the lockfile has no choice for this key",
                    given=f"{key} on {device}, {self.path} in mode 'frozen'",
                    expected="a choice for every key that is used",
                    mend="run once with mode='append', and keep the file that it writes",
                )
            return None
        if pin.kernel != kernel:
            if self.mode == "frozen":
                raise LockfileError(
                    "autotune: a kernel has changed since the lockfile was written",
                    given=f"{key}: source {kernel}, {self.path} in mode 'frozen'",
                    expected=f"source {pin.kernel}",
                    mend="use the version of burn_kernels that wrote the file, or write it anew",
                )
            self._warn(f"{key}: the kernel's source is {kernel}, pinned was {pin.kernel}; the pinned config holds")
        return pin

    def append(self, pin: Pin) -> None:
        """Adds a choice that the file lacks, and writes it; what another process added meanwhile stays, and wins."""
        with self._guard:
            self.pins.setdefault((pin.key, pin.device), pin)
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with alone(self.path):
                    self.pins.update(_read(self.path))
                    _write(self.path, self.pins)
            except OSError as error:
                self._warn(f"{self.path} cannot be written ({error}); what it lacks holds for this process only")

    def unusable(self, pin: Pin, why: str) -> LockfileError:
        """The error for a pinned config that cannot run."""
        return LockfileError(
            "autotune: the pinned config cannot be used",
            given=f"{pin.key}: {dict(pin.config)} in {self.path}; {why}",
            expected="a config of this kernel that fits the problem",
            mend="take the line out of the file; mode='append' then writes another one",
        )

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(f"autotune: {message}", AutotuneWarning, stacklevel=2)


def _read(path: Path) -> dict[tuple[str, str], Pin]:
    if not path.is_file():
        return {}
    if path.stat().st_size > MAX_BYTES:
        raise _wrong(path, [f"{path.stat().st_size} bytes"])
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _wrong(path, [f"no JSON ({error})"]) from error
    except OSError as error:
        raise _wrong(path, [str(error)]) from error
    faults: list[str] = []
    if not isinstance(data, dict) or set(data) != {"format", "version", "choices"}:
        raise _wrong(path, ["other fields than format, version, choices"])
    if data["format"] != FORMAT or data["version"] != VERSION:
        raise _wrong(path, [f"format {data['format']!r} version {data['version']!r}"])
    pins: dict[tuple[str, str], Pin] = {}
    for number, item in enumerate(data["choices"] if isinstance(data["choices"], list) else [None]):
        fault = _fault_of(item)
        if fault:
            faults.append(f"choices[{number}]: {fault}")
            continue
        pin = Pin(item["key"], item["device"], item["kernel"], item["config"])
        if (pin.key, pin.device) in pins:
            faults.append(f"choices[{number}]: a second one for {pin.key!r}")
        pins[pin.key, pin.device] = pin
    if faults:
        raise _wrong(path, faults)
    return pins


def _fault_of(item: object) -> str:
    if not isinstance(item, dict) or set(item) != {"key", "device", "kernel", "config"}:
        return "other fields than key, device, kernel, config"
    if not all(isinstance(item[name], str) for name in ("key", "device", "kernel")):
        return "key, device and kernel are not all text"
    return "" if is_config(item["config"]) else f"the config is not whole numbers by name: {item['config']!r}"


def _wrong(path: Path, faults: list[str]) -> LockfileError:
    return LockfileError(
        "autotune: the lockfile cannot be read",
        given=f"{path}: {'; '.join(faults)}",
        expected=f"{FORMAT} version {VERSION}, at most {MAX_BYTES} bytes, as burn_kernels writes it",
        mend="take it away, and a run in mode 'append' writes a new one",
    )


def _write(path: Path, pins: Mapping[tuple[str, str], Pin]) -> None:
    lines = [
        json.dumps({"key": p.key, "device": p.device, "kernel": p.kernel, "config": dict(sorted(p.config.items()))})
        for _, p in sorted(pins.items())
    ]
    body = ",\n".join(f"  {line}" for line in lines)
    text = f'{{\n "format": "{FORMAT}",\n "version": {VERSION},\n "choices": [\n{body}\n ]\n}}\n'
    write_whole(path, text)


def write_whole(path: Path, text: str) -> None:
    """Writes a file under a temporary name in its own folder, flushed, and renames it: all of it or nothing."""
    if path.exists() and not path.is_file() and not path.is_dir():  # which root would replace
        raise OSError(errno.EINVAL, "a device, pipe or socket is there, no file", str(path))
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
