"""Published weights from files that the user has.  Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from burn_torch.core.errors import RecordError
from burn_torch.core.frames import told
from burn_torch.module import Module
from burn_torch.record.stores import PytorchStore, PyTorchToBurnAdapter, SafetensorsStore

__all__ = ["Weights", "load_weights"]

M = TypeVar("M", bound=Module)

Weights = str | Path | Sequence[str | Path]
"""One file of tensors, or several that have all of them together: .pt and .pth of PyTorch, or .safetensors."""


def load_weights(network: M, weights: Weights | None, names: Mapping[str, str], published: str) -> M:
    """The network with the values of files; `names` maps patterns of their names to those of the network.

    Raises: RecordError where no file is named, or the files lack a value of the network; it lists them.
    """
    files = [weights] if isinstance(weights, str | Path) else list(weights or ())
    if not files:
        raise told(
            RecordError,
            "there are no weights without a file, and nothing is downloaded",
            given=f"weights {weights!r}",
            expected=published,
            mend="init_pretrained(device, weights=[...]) with paths of your files; init(device) makes fresh ones",
        )
    missing: set[str] | None = None
    for file in files:
        safe = str(file).endswith(".safetensors")
        store = (
            SafetensorsStore.from_file(file).with_from_adapter(PyTorchToBurnAdapter())
            if safe
            else PytorchStore.from_file(file).map_indices_contiguous(False)
        )
        for pattern, name in names.items():
            store = store.with_key_remapping(pattern, name)
        network, result = network.load_from(store.allow_partial(True))
        absent = {key for key, *_ in result.missing}
        missing = absent if missing is None else missing & absent
    if missing:
        raise told(
            RecordError,
            "the files do not have all weights",
            given=", ".join(map(str, files)),
            expected=f"{published}; missing are {', '.join(sorted(missing)[:5])} and {max(len(missing) - 5, 0)} more",
            mend="name all files: weights=[...]",
        )
    return network
