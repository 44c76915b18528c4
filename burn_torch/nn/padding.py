"""Padding of convolutions and pooling: none, what keeps the size, or so many elements on each side."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from burn_torch.config import Config
from burn_torch.nn._layer import Rules

__all__ = ["Padding", "PaddingConfig1d", "PaddingConfig2d", "PaddingConfig3d"]

Pairs = tuple[tuple[int, int], ...]


class Padding:
    """Holds what the padding of one, two and three axes has in common."""

    @abstractmethod
    def pairs(self, sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int]) -> Pairs:
        """(before, after) for each spatial axis; `kernel` is the extent of a window, gaps of a dilation included."""

    def is_asymmetric(self) -> bool:
        """Returns whether it names different amounts for the two sides of an axis; what `Same` does depends on the
        sizes.
        """
        return False


class _Same(Padding):
    def pairs(self, sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int]) -> Pairs:
        return tuple(_keeping(*axis) for axis in zip(sizes, kernel, stride, strict=True))

    def __str__(self) -> str:
        return "Same"


def _keeping(size: int, kernel: int, stride: int) -> tuple[int, int]:
    windows = -(-size // stride)
    total = max((windows - 1) * stride + kernel - size, 0) if windows else 0
    return total // 2, total - total // 2


class _Valid(Padding):
    def pairs(self, sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int]) -> Pairs:
        return ((0, 0),) * len(kernel)

    def __str__(self) -> str:
        return "Valid"


class _Explicit(Padding):
    __annotations__: dict[str, type[int]]

    def __post_init__(self) -> None:
        Rules(self).at_least(0, *self.__annotations__).stop()  # type: ignore[arg-type]  # its subclasses are Configs

    def as_tuple(self) -> tuple[int, ...]:
        """All amounts, first those before each axis, then those after it."""
        return tuple([getattr(self, name) for name in self.__annotations__])

    def pairs(self, sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int]) -> Pairs:
        amounts = self.as_tuple()
        axes = len(amounts) // 2
        return tuple(zip(amounts[:axes], amounts[axes:], strict=True))

    def is_asymmetric(self) -> bool:
        return any(before != after for before, after in self.pairs((), (), ()))

    def __str__(self) -> str:
        return f"Explicit{self.as_tuple()}"


class PaddingConfig1d(Padding, Config, enum=True):
    """`PaddingConfig1d.Same`, `.Valid` or `.Explicit(left, right)`.

    `Same` makes ceil(size / stride) windows, so it keeps the size at stride 1; an odd element goes to the end.
    """

    Same: ClassVar[PaddingConfig1d]
    Valid: ClassVar[PaddingConfig1d]
    Explicit: ClassVar[type[Explicit1d]]


class Same1d(_Same, PaddingConfig1d, tag="Same"):
    """See PaddingConfig1d."""


class Valid1d(_Valid, PaddingConfig1d, tag="Valid"):
    """No padding."""


class Explicit1d(_Explicit, PaddingConfig1d, tag="Explicit", form="tuple"):
    """The number of elements added on each side."""

    left: int
    right: int


PaddingConfig1d.Same, PaddingConfig1d.Valid, PaddingConfig1d.Explicit = Same1d(), Valid1d(), Explicit1d


class PaddingConfig2d(Padding, Config, enum=True):
    """`PaddingConfig2d.Same`, `.Valid` or `.Explicit(top, left, bottom, right)`; see PaddingConfig1d."""

    Same: ClassVar[PaddingConfig2d]
    Valid: ClassVar[PaddingConfig2d]
    Explicit: ClassVar[type[Explicit2d]]


class Same2d(_Same, PaddingConfig2d, tag="Same"):
    """See PaddingConfig1d."""


class Valid2d(_Valid, PaddingConfig2d, tag="Valid"):
    """No padding."""


class Explicit2d(_Explicit, PaddingConfig2d, tag="Explicit", form="tuple"):
    """The number of elements added on each side."""

    top: int
    left: int
    bottom: int
    right: int


PaddingConfig2d.Same, PaddingConfig2d.Valid, PaddingConfig2d.Explicit = Same2d(), Valid2d(), Explicit2d


class PaddingConfig3d(Padding, Config, enum=True):
    """`PaddingConfig3d.Same`, `.Valid` or `.Explicit(front, top, left, back, bottom, right)`; see PaddingConfig1d."""

    Same: ClassVar[PaddingConfig3d]
    Valid: ClassVar[PaddingConfig3d]
    Explicit: ClassVar[type[Explicit3d]]


class Same3d(_Same, PaddingConfig3d, tag="Same"):
    """See PaddingConfig1d."""


class Valid3d(_Valid, PaddingConfig3d, tag="Valid"):
    """No padding."""


class Explicit3d(_Explicit, PaddingConfig3d, tag="Explicit", form="tuple"):
    """The number of elements added on each side."""

    front: int
    top: int
    left: int
    back: int
    bottom: int
    right: int


PaddingConfig3d.Same, PaddingConfig3d.Valid, PaddingConfig3d.Explicit = Same3d(), Valid3d(), Explicit3d
