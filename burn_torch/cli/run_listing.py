"""Defines what the directory of a run and its checkpoints say of themselves, for `inspect`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from burn_torch.core.errors import ArtifactError, BurnTorchError
from burn_torch.core.reading import read_bounded
from burn_torch.core.wording import counted
from burn_torch.record.listing import Listing, listing_of

__all__ = ["checkpoint_words", "listing_of_run"]

MAX_TEXT_BYTES: Final = 16 << 20


def checkpoint_words(listing: Listing) -> dict[str, str] | None:
    """Position, learning rate, optimizer and versions of a checkpoint; None for another record."""
    text = listing.metadata.get("checkpoint")
    if text is None:
        return None
    try:
        about: Any = json.loads(text)
        position, optim = about["position"], about["optim"]
        words = {
            "position": f"epoch {position['epoch']}, "
            + ("complete" if position["complete"] else f"{counted(position['batch'], 'batch')}")
            + f", {counted(position['iteration'], 'step')}",
            "learning rate": str(float.fromhex(about["lr"])),
            "optimizer": f"{optim['kind']} with states of {counted(len(optim['states']), 'parameter')}",
            "layout": f"{about['version']}",
        }
        return words | {f"version.{name}": str(version) for name, version in about["versions"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # of another program: its text is shown as it is


def listing_of_run(folder: Path, check: bool | None) -> Listing:
    """Settings, result, checkpoints and the model of a run.  Raises: ArtifactError for a directory without one."""
    model = folder / "model.safetensors"
    checkpoints = sorted(folder.glob("checkpoint/*.safetensors"), key=lambda path: (len(path.name), path.name))
    settings, result = _json(folder / "config.json"), _json(folder / "result.json")
    if not (checkpoints or model.is_file() or settings or result):
        raise ArtifactError(
            "this directory holds no run",
            given=str(folder),
            expected="config.json, checkpoint/, model.safetensors, or one of them",
            mend="give the directory that `burn-torch train` named, or a file of tensors",
        )
    words = {f"config.{name}": _text(value) for name, value in settings.items()}
    words |= {f"result.{name}": _text(value) for name, value in result.items()}
    notes = []
    for path in checkpoints:
        try:
            facts = checkpoint_words(listing_of(path, check=check))
            words[f"checkpoint.{path.stem}"] = (
                "a record of another program" if facts is None else f"{facts['position']}, lr {facts['learning rate']}"
            )
        except BurnTorchError as err:
            notes.append(f"{path.name}: {_fault(err)}")
    listing = Listing("", "", "", sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()), ())
    if model.is_file():
        try:
            own = listing_of(model, check=check)
            listing = replace(listing, tensors=own.tensors, checksum=own.checksum)
        except BurnTorchError as err:
            notes.append(f"{model.name}: {_fault(err)}")
    version = f"{len(checkpoints)} checkpoint{'s' * (len(checkpoints) != 1)}"
    return replace(
        listing, path=str(folder), format="directory of a run", version=version, metadata=words, notes=tuple(notes)
    )


def _json(path: Path) -> Mapping[str, object]:
    """An object of a file of the run; nothing where there is none or it is damaged, since what is there is shown."""
    try:
        content = json.loads(read_bounded(path, MAX_TEXT_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _fault(err: BurnTorchError) -> str:
    lines = [line.strip().removeprefix("given:").strip() for line in str(err).splitlines()]
    return next((line for line in lines[1:2] if line), lines[0])
