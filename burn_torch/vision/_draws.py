"""Numbers that are drawn for each image of a batch, on its device, from (key, stream)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from burn_torch import ops
from burn_torch.core.ambient import first_element, next_key
from burn_torch.core.dtype import DType
from burn_torch.core.philox import stream_of
from burn_torch.ops.op import Op
from burn_torch.tensor import Tensor

__all__ = ["Draws", "uniform"]

_QUANTILES: Final = 2048


def uniform(images: Tensor, low: float, high: float, key: tuple[int, int]) -> Tensor:
    """A number for each image, evenly from [low, high): (batch, 1, 1, 1) of f32, or of f64 beside images of f64."""
    return _draw(ops.uniform, images, (low, high, *key), DType.F64 if images.dtype is DType.F64 else DType.F32)


def _draw(row: Op, images: Tensor, numbers: tuple[float, ...], dtype: DType) -> Tensor:
    shape = (images.shape[0], 1, 1, 1)
    attrs = {"shape": shape, "dtype": dtype, "place": images.spec.place, "start": first_element(shape)}
    drawn: Tensor = row.run(images.backend, Tensor, numbers, attrs)
    return drawn


class Draws:
    """The draws of one call of a function: each has a stream of its own, named for what it stands for.

    key     the key of the call, a whole number, also one that a compiled program is given when it runs; None takes a
            key and a stream of the step scope, or of `burn_torch.seed`, for each draw
    """

    def __init__(self, images: Tensor, function: str, key: int | None) -> None:
        self._images, self._function, self._key = images, function, key

    def uniform(self, name: str, low: float, high: float) -> Tensor:
        """Evenly from [low, high): (batch, 1, 1, 1); `low` everywhere where both are equal."""
        if low == high:
            return Tensor.full((self._images.shape[0], 1, 1, 1), low, (self._images.device.no_grad(), DType.F32))
        return uniform(self._images, low, high, self._next(name))

    def integers(self, name: str, count: int) -> Tensor:
        """A whole number from 0 to count - 1 for each image: (batch, 1, 1, 1) of i64."""
        return _draw(ops.randint, self._images, (0, count, *self._next(name)), DType.I64)

    def happens(self, name: str, prob: float) -> Tensor:
        """True with a probability for each image: (batch, 1, 1, 1) of bool."""
        return _draw(ops.bernoulli, self._images, (prob, *self._next(name)), DType.BOOL)

    def beta(self, name: str, alpha: float) -> Tensor:
        """From the beta distribution of two equal parameters, by its quantiles at 2048 steps: (batch, 1, 1, 1)."""
        place = self.uniform(name, 0.0, 1.0)
        if alpha == 1.0:
            return place
        table = Tensor.from_data(_beta_quantiles(alpha), self._images.device.no_grad()).cast(place.dtype)
        steps = place * float(_QUANTILES)
        below = steps.floor().clamp_max(_QUANTILES - 1)
        at = below.cast(DType.I64).reshape((place.shape[0],))
        low, high = (table.select(0, index).reshape(place.shape) for index in (at, at + 1))
        return low + (high - low) * (steps - below)

    def _next(self, name: str) -> tuple[int, int]:
        return next_key() if self._key is None else (self._key, stream_of(f"vision.{self._function}.{name}"))


@lru_cache(maxsize=32)
def _beta_quantiles(alpha: float) -> NDArray[np.float64]:
    """The quantiles 0, 1 / 2048, ..., 1 of the beta distribution with both parameters `alpha`.

    The density is summed over the lower half of x = v^power / 2, with the power at which it has no pole at 0.
    """
    power = max(1.0, 1.0 / alpha)
    v = np.linspace(0.0, 1.0, 65_537)
    x = 0.5 * v**power
    with np.errstate(divide="ignore"):
        logs = (alpha - 1.0) * np.log((1.0 - x) * (x if alpha > 1.0 else 1.0))
    density = np.exp(logs - logs.max())
    mass = np.concatenate(([0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))))
    lower = np.interp(np.linspace(0.0, 0.5, _QUANTILES // 2 + 1), 0.5 * mass / mass[-1], x)
    return np.concatenate((lower, 1.0 - lower[-2::-1]))
