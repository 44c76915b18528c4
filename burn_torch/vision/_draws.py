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
    return _draw(ops.uniform, images, (low, high, *key), _float_of(images))


def _float_of(images: Tensor) -> DType:
    return DType.F64 if images.dtype is DType.F64 else DType.F32


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
            options = (self._images.device.no_grad(), _float_of(self._images))
            return Tensor.full((self._images.shape[0], 1, 1, 1), low, options)
        return uniform(self._images, low, high, self._next(name))

    def integers(self, name: str, count: int) -> Tensor:
        """A whole number from 0 to count - 1 for each image: (batch, 1, 1, 1) of i64."""
        return _draw(ops.randint, self._images, (0, count, *self._next(name)), DType.I64)

    def sign(self, name: str) -> Tensor:
        """1 or -1 for each image, evenly: (batch, 1, 1, 1) of f32, or of f64 beside images of f64."""
        return 1.0 - self.happens(name, 0.5).cast(_float_of(self._images)) * 2.0

    def happens(self, name: str, prob: float) -> Tensor:
        """True with a probability for each image: (batch, 1, 1, 1) of bool."""
        return _draw(ops.bernoulli, self._images, (prob, *self._next(name)), DType.BOOL)

    def beta(self, name: str, alpha: float) -> Tensor:
        """From the beta distribution of two equal parameters, by a table of its quantiles: (batch, 1, 1, 1)."""
        place = self.uniform(name, 0.0, 1.0)
        if alpha == 1.0:
            return place
        table = Tensor.from_data(_beta_table(alpha), self._images.device.no_grad()).cast(place.dtype)
        steps = place.min_pair(1.0 - place) * (2.0 * _QUANTILES)
        below = steps.floor().clamp_max(_QUANTILES - 1)
        at = below.cast(DType.I64).reshape((place.shape[0],))
        low, high = (table.select(0, index).reshape(place.shape) for index in (at, at + 1))
        share = (low + (high - low) * (steps - below)).powf(1.0 / alpha) * 0.5
        return share.mask_where(place.greater(0.5), 1.0 - share)

    def _next(self, name: str) -> tuple[int, int]:
        return next_key() if self._key is None else (self._key, stream_of(f"vision.{self._function}.{name}"))


@lru_cache(maxsize=32)
def _beta_table(alpha: float) -> NDArray[np.float64]:
    """(2 q)^alpha of the quantiles q from 0 to the median of the beta distribution with both parameters `alpha`.

    So the table is nearly straight where quantiles have a pole or a root.  The density is summed over the lower half
    of x = v^power / 2, with the power at which it has no pole either.
    """
    x = 0.5 * np.linspace(0.0, 1.0, 65_537) ** max(1.0, 1.0 / alpha)
    with np.errstate(divide="ignore"):
        logs = (alpha - 1.0) * np.log((1.0 - x) * (x if alpha > 1.0 else 1.0))
    density = np.exp(logs - logs.max())
    mass = np.concatenate(([0.0], np.cumsum(density[1:] + density[:-1])))
    return np.interp(np.linspace(0.0, mass[-1], _QUANTILES + 1), mass, (2.0 * x) ** alpha)
