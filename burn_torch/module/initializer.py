"""Initializer: what a parameter holds before training."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.config._schema import name_variants
from burn_torch.core import ambient
from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ConfigError
from burn_torch.core.spec import Shape
from burn_torch.module.budget import count_elements
from burn_torch.module.param import Param, ParamId
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.device import no_device

__all__ = ["Initializer"]

Fan: TypeAlias = int | None
Draw: TypeAlias = tuple[object, tuple[float, ...]]
"""A row that makes elements, and its parameters."""


class Initializer(Config, enum=True):
    """How the elements of a new parameter are chosen.

        Initializer.KaimingUniform(gain=1 / math.sqrt(3), fan_out_only=False)
        Initializer.Zeros

    `fan_in` and `fan_out` are how many inputs an output is made of, and how many outputs an input goes to; layers hand
    them in.  A parameter is made when it is first read, but its random numbers are settled by `init`: the order in
    which parameters are read changes nothing, and LibTorch on the host and NdArray make the same bits.
    PyTorch: torch.nn.init.
    """

    Constant: ClassVar[type[Constant]]
    Ones: ClassVar[Initializer]
    Zeros: ClassVar[Initializer]
    Uniform: ClassVar[type[Uniform]]
    Normal: ClassVar[type[Normal]]
    KaimingUniform: ClassVar[type[KaimingUniform]]
    KaimingNormal: ClassVar[type[KaimingNormal]]
    XavierUniform: ClassVar[type[XavierUniform]]
    XavierNormal: ClassVar[type[XavierNormal]]
    Orthogonal: ClassVar[type[Orthogonal]]

    @checked(but=("device",))
    def init(self, shape: Sequence[int], device: Device) -> Param:
        """A parameter of this shape, f32, for initializers that ask for no fans.

        Raises: ConfigError for one that does; see `init_with`.
        """
        return self.init_with(shape, None, None, device)

    @checked(but=("device",))
    def init_with(self, shape: Sequence[int], fan_in: int | None, fan_out: int | None, device: Device) -> Param:
        """A parameter of this shape, f32 or of the floats that the device is configured for.

        Raises: ConfigError where a fan is missing, or Orthogonal meets fewer than two axes.
        """
        sizes = tuple(shape)
        count_elements(sizes)
        row, numbers = self._row_and_numbers(sizes, fan_in, fan_out)
        if not isinstance(device, Device):
            raise no_device(device)
        dtype = device.defaults.of(DType.F32)
        if row is not ops.full:
            numbers = (*numbers, *ambient.next_key())

        def make(device: Device, require_grad: bool) -> Tensor:
            return self._make(row, numbers, sizes, (device, dtype))

        return Param.uninitialized(ParamId.new(), make, device, True, sizes, dtype)

    @abstractmethod
    def _row_and_numbers(self, shape: Shape, fan_in: Fan, fan_out: Fan) -> Draw:
        """The row that makes the elements, and its parameters."""

    def _make(self, row: object, numbers: tuple[object, ...], shape: Shape, options: tuple[Device, DType]) -> Tensor:
        return _run(row, numbers, shape, options)

    def _fan(self, name: str, fan: int | None) -> int:
        if fan is None:
            raise ConfigError(
                f"{self!r} needs {name}",
                given="init(shape, device), which knows no fans",
                expected=f"{name}, a whole number",
                mend=f"call init_with(shape, fan_in, fan_out, device) with {name}",
            )
        return max(fan, 1)  # a layer without inputs has no elements to draw


def _run(row: Any, numbers: tuple[object, ...], shape: Shape, options: tuple[Device, DType]) -> Tensor:
    device, dtype = options
    tensor: Tensor = row.run(device.backend, Tensor, numbers, {"shape": shape, "dtype": dtype, "place": device.place})
    return tensor


class Constant(Initializer):
    """Every element is `value`."""

    value: float

    def _row_and_numbers(self, shape: Shape, fan_in: Fan, fan_out: Fan) -> Draw:
        return ops.full, (self.value,)


class Ones(Initializer):
    """Every element is 1."""

    def _row_and_numbers(self, shape: Shape, fan_in: Fan, fan_out: Fan) -> Draw:
        return ops.full, (1.0,)


class Zeros(Initializer):
    """Every element is 0."""

    def _row_and_numbers(self, shape: Shape, fan_in: Fan, fan_out: Fan) -> Draw:
        return ops.full, (0.0,)


class Uniform(Initializer):
    """Evenly from [min, max)."""

    min: float
    max: float

    def __post_init__(self) -> None:
        if not self.min < self.max:
            raise ConfigError(
                "Initializer.Uniform: the range is empty",
                given=f"min {self.min}, max {self.max}",
                expected="min < max",
                mend="name the lower end first, or take Initializer.Constant(value)",
            )

    def _row_and_numbers(self, shape: Shape, fan_in: Fan, fan_out: Fan) -> Draw:
        return ops.uniform, (self.min, self.max)


class Normal(Initializer):
    """Normal with this mean and standard deviation."""

    mean: float
    std: float

    def __post_init__(self) -> None:
        if self.std < 0:
            raise ConfigError(
                "Initializer.Normal: the standard deviation is negative",
                given=f"std {self.std}",
                expected="std of 0 or more",
                mend="take its absolute value",
            )

    def _row_and_numbers(self, shape: Shape, fan_in: Fan, fan_out: Fan) -> Draw:
        return ops.normal, (self.mean, self.std)


def _evenly(bound: float) -> Draw:
    return (ops.uniform, (-bound, bound)) if bound else (ops.full, (0.0,))


class KaimingUniform(Initializer):
    """Evenly from [-b, b) with b = gain * sqrt(3 / fan); the fan is fan_in unless `fan_out_only`.

    gain 1 / sqrt(3) gives b = 1 / sqrt(fan_in), which is what PyTorch's layers start with.
    Source: He et al. 2015, section 2.2, https://arxiv.org/abs/1502.01852.
    """

    gain: float
    fan_out_only: bool

    def _row_and_numbers(self, shape: Shape, fan_in: Fan, fan_out: Fan) -> Draw:
        fan = self._fan("fan_out", fan_out) if self.fan_out_only else self._fan("fan_in", fan_in)
        return _evenly(abs(self.gain) * math.sqrt(3.0 / fan))


class KaimingNormal(Initializer):
    """Normal with standard deviation gain / sqrt(fan); the fan is fan_in unless `fan_out_only`.

    Source: He et al. 2015, section 2.2, https://arxiv.org/abs/1502.01852.
    """

    gain: float
    fan_out_only: bool

    def _row_and_numbers(self, shape: Shape, fan_in: Fan, fan_out: Fan) -> Draw:
        fan = self._fan("fan_out", fan_out) if self.fan_out_only else self._fan("fan_in", fan_in)
        return ops.normal, (0.0, abs(self.gain) / math.sqrt(fan))


class XavierUniform(Initializer):
    """Evenly from [-b, b) with b = gain * sqrt(6 / (fan_in + fan_out)).

    Source: Glorot, Bengio 2010, equation 16, https://proceedings.mlr.press/v9/glorot10a.html.
    """

    gain: float

    def _row_and_numbers(self, shape: Shape, fan_in: Fan, fan_out: Fan) -> Draw:
        fans = self._fan("fan_in", fan_in) + self._fan("fan_out", fan_out)
        return _evenly(abs(self.gain) * math.sqrt(6.0 / fans))


class XavierNormal(Initializer):
    """Normal with standard deviation gain * sqrt(2 / (fan_in + fan_out)).

    Source: Glorot, Bengio 2010, equation 12, https://proceedings.mlr.press/v9/glorot10a.html.
    """

    gain: float

    def _row_and_numbers(self, shape: Shape, fan_in: Fan, fan_out: Fan) -> Draw:
        fans = self._fan("fan_in", fan_in) + self._fan("fan_out", fan_out)
        return ops.normal, (0.0, abs(self.gain) * math.sqrt(2.0 / fans))


class Orthogonal(Initializer):
    """gain times a random matrix with orthonormal rows or columns, whichever are fewer.

    The matrix has one row for each element of the first axis; all other axes are its columns.  It is the Q of the QR
    decomposition of normal numbers in float64 on the host, with the signs of R's diagonal, so that every orthogonal
    matrix is equally likely.
    Source: Saxe et al. 2013, section 3, https://arxiv.org/abs/1312.6120; signs: Mezzadri 2007, section 5.
    """

    gain: float

    def _row_and_numbers(self, shape: Shape, fan_in: Fan, fan_out: Fan) -> Draw:
        if len(shape) < 2:
            raise ConfigError(
                f"{self!r} needs a matrix",
                given=f"shape {shape}",
                expected="two axes or more",
                mend="take another initializer; a layer with a bias draws it too: bias=False leaves it out",
            )
        return ops.normal, (0.0, 1.0)

    def _make(self, row: object, numbers: tuple[object, ...], shape: Shape, options: tuple[Device, DType]) -> Tensor:
        rows, cols = shape[0], math.prod(shape[1:])
        tall = (max(rows, cols), min(rows, cols))
        drawn = np.asarray(_run(row, numbers, tall, (Device.ndarray(), DType.F64)).into_data())
        q, r = np.linalg.qr(drawn)
        q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
        matrix = (q if rows >= cols else q.T) * self.gain
        return Tensor.from_data(np.ascontiguousarray(matrix.reshape(shape), dtype=np.float32), options)


name_variants(Initializer)
