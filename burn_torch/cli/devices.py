"""The places of this machine: what `info` tells, and what `--devices` takes."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Final

from burn_torch.core.errors import DeviceError
from burn_torch.core.faults import nearest
from burn_torch.core.wording import counted

if TYPE_CHECKING:
    from burn_torch.tensor import Device

__all__ = ["add_option", "device", "places"]

_KINDS: Final = ("cpu", "cuda", "mps", "ndarray")
_OTHER_NAMES: Final = {"gpu": "cuda:0", "nvidia": "cuda:0", "metal": "mps", "numpy": "ndarray"}


def add_option(parser: argparse._ActionsContainer, *, several: bool = False) -> None:
    """Declares `--devices`; a command that can compute on several says so."""
    more = "; several train together: cuda:0,cuda:1" if several else ""
    parser.add_argument(
        "--devices",
        default="cpu",
        metavar="DEVICE",
        help="where to compute: cpu, cuda:0, mps or ndarray (default: cpu); `burn-torch info` lists what is here"
        + more,
    )


def places() -> dict[str, str]:
    """Each kind of place: what it is, or "no: " and why this machine has none."""
    import torch

    devices = {"cpu": f"torch, {counted(torch.get_num_threads(), 'thread')} of {counted(os.cpu_count() or 1, 'core')}"}
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(i)
            devices[f"cuda:{i}"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    elif torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        devices["cuda"] = "no: this torch is built without CUDA"
    else:
        devices["cuda"] = "no: torch finds no GPU, or no driver for it"
    if torch.backends.mps.is_available():
        devices["mps"] = "Apple GPU"
    else:
        devices["mps"] = "no: torch finds no Apple GPU"
    try:
        import numpy as np

        devices["ndarray"] = f"numpy {np.__version__} on the CPU: slow, and the second opinion"
    except ImportError as err:
        devices["ndarray"] = f"no: {err}"
    return devices


def device(text: str, *, fused: bool | None = None) -> Device:
    """The device that `--devices` names.  Raises: DeviceError.

    fused: False for one whose operations are not; else it is as devices of its kind are.  (`compile` fuses on any.)
    """
    from burn_torch.tensor import Device

    word = text.strip().lower()
    if "," in word:
        raise DeviceError(
            "this command runs on one device",
            given=f"--devices {text}",
            expected="one of them; several are for train and resume",
            mend=f"--devices {word.partition(',')[0]}",
        )
    try:
        return Device.parse(word, fused=False if fused is False else None)
    except DeviceError:
        known = places()
    kind, _, number = word.partition(":")
    here = [name for name, what in known.items() if not what.startswith("no: ")]
    why = known.get(kind, "").removeprefix("no: ")
    if kind not in _KINDS or (kind != "cuda" and kind != word):
        near = _OTHER_NAMES.get(word) or nearest(word, [*here, "cuda:0", "mps"])
        mend = "name one of those" if near is None else f"did you mean {near}?"
    elif kind == "cuda" and not number.isdigit() and (word != "cuda" or "cuda:0" in here):
        mend = "give the number of the GPU, for example cuda:0"
    else:
        mend = "leave --devices out to compute on the CPU; `burn-torch info` says what this machine has"
    raise DeviceError(
        f"there is no device {text!r} here",
        given=f"--devices {text}" + (f"; {why}" if kind in ("cuda", "mps") and why else ""),
        expected=f"one of {', '.join(here)}",
        mend=mend,
    ) from None
