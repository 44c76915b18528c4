"""Masks of attention: true where a position is hidden."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from burn_torch.config import Config
from burn_torch.core.checking import checked
from burn_torch.nn._layer import Rules
from burn_torch.tensor import Device, Tensor

__all__ = ["GeneratePaddingMask", "SeqLengthOption", "generate_autoregressive_mask", "generate_padding_mask"]


@checked
def generate_autoregressive_mask(batch_size: int, seq_length: int, device: Device) -> Tensor:
    """Hides from each position those after it: true above the diagonal.

    Shapes: -> (batch_size, seq_length, seq_length), bool, for `mask_attn`.
    PyTorch: torch.nn.Transformer.generate_square_subsequent_mask, which is -inf there.
    """
    return Tensor.tril_mask((batch_size, seq_length, seq_length), 0, device)


class SeqLengthOption(Config, enum=True):
    """How long the sequences of a padded batch become: `NoMax`, `Max(128)`, `Fixed(128)`."""

    NoMax: ClassVar[SeqLengthOption]
    Max: ClassVar[type[Max]]
    Fixed: ClassVar[type[Fixed]]

    @abstractmethod
    def length(self, longest: int) -> int:
        """The length, where the longest sequence has `longest` tokens."""


class NoMax(SeqLengthOption):
    """As long as the longest sequence."""

    def length(self, longest: int) -> int:
        """The longest."""
        return longest


class Max(SeqLengthOption, form="tuple"):
    """As long as the longest sequence, at most `max`; what is longer is cut."""

    max: int

    def __post_init__(self) -> None:
        Rules(self).at_least(0, "max").stop()

    def length(self, longest: int) -> int:
        """The longest, or the maximum."""
        return min(longest, self.max)


class Fixed(SeqLengthOption, form="tuple"):
    """Exactly `limit` long: what is shorter is padded, what is longer is cut."""

    limit: int

    def __post_init__(self) -> None:
        Rules(self).at_least(0, "limit").stop()

    def length(self, longest: int) -> int:
        """The limit."""
        return self.limit


SeqLengthOption.NoMax = NoMax()
SeqLengthOption.Max = Max
SeqLengthOption.Fixed = Fixed


@final
@dataclass(frozen=True, eq=False)
class GeneratePaddingMask:
    """A padded batch and what of it is padding, both (batch, seq)."""

    tensor: Tensor
    mask: Tensor


@checked
def generate_padding_mask(
    pad_token: int, tokens_list: Sequence[Sequence[int]], seq_length: SeqLengthOption | int | None, device: Device
) -> GeneratePaddingMask:
    """Sequences of tokens as one batch, filled up with `pad_token`, and the mask for `mask_pad`.

    seq_length: an option; a number means `Max`, None means `NoMax`.
    A token of a sequence that equals `pad_token` is masked too.
    """
    option = SeqLengthOption.NoMax if seq_length is None else seq_length
    if not isinstance(option, SeqLengthOption):
        option = SeqLengthOption.Max(option)
    size = option.length(max(map(len, tokens_list), default=1))
    padded = np.full((len(tokens_list), size), pad_token, np.int64)
    for row, tokens in zip(padded, tokens_list, strict=True):
        kept = tokens[:size]
        row[: len(kept)] = kept
    tensor = Tensor.from_data(padded, device)
    return GeneratePaddingMask(tensor, tensor.equal(pad_token))
