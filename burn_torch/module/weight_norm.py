"""Weight norm and spectral norm as reparameterizations.

model = model.apply_reparameterization(WeightNormMapper(dim=1))        of linear layers: a length for each output
model = model.apply_reparameterization(SpectralNormMapper().set_param_group(ParamGroup.from_path("critic")))
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self, final

import numpy as np

from burn_torch import ops
from burn_torch.core.checking import checked
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.module.initializer import Initializer
from burn_torch.module.param import Param
from burn_torch.module.param_group import ParamGroup
from burn_torch.module.reparameterization import Reparameterization
from burn_torch.module.running_state import RunningState
from burn_torch.tensor import Tensor
from burn_torch.tensor.apply import widen

__all__ = ["SpectralNorm", "SpectralNormMapper", "WeightNorm", "WeightNormMapper"]


class WeightNorm(Reparameterization):
    """A weight as lengths times directions.

        value = g * base / |base|        (the norm is over all axes but `dim`)

    Shapes: base with two axes or more, g (base.shape[dim],).
    Dtypes: any float, the same for both; half types are computed in float32 and rounded once.
    Source: Salimans, Kingma 2016, https://arxiv.org/abs/1602.07868, equation 2.
    PyTorch: torch.nn.utils.parametrizations.weight_norm; original0 is g, original1 the base.
    """

    NAME: ClassVar[str] = "weight_norm"

    g: Param
    dim: int

    def materialize(self, base: Tensor) -> Tensor:
        """The lengths times the directions.  NaN where a direction is all zeros, which has none."""
        wide = widen(base)
        value = wide / _norm(wide, self.dim) * widen(self.g.val()).reshape(_beside(base, self.dim))
        return value.cast(base.dtype)


class SpectralNorm(Reparameterization):
    """A weight divided by its largest singular value, as a matrix of `dim` by all other axes.

        value = base / (u @ base @ v)

    Each reading on a device with gradients moves u and v `n_power_iterations` steps nearer to the singular vectors;
    in a StepScope they leave it as other running states do.  The derivative takes u and v as constants.

    Shapes: base with two axes or more, u (base.shape[dim],), v (the other elements,).
    Dtypes: any float; half types are computed in float32, which u and v have then, and rounded once.
    Source: Miyato et al. 2018, https://arxiv.org/abs/1802.05957, algorithm 1.
    PyTorch: torch.nn.utils.parametrizations.spectral_norm.
    """

    NAME: ClassVar[str] = "spectral_norm"

    u: RunningState
    v: RunningState
    dim: int
    n_power_iterations: int
    epsilon: float

    def materialize(self, base: Tensor) -> Tensor:
        """The base over its largest singular value, as u and v know it."""
        matrix = _as_matrix(widen(base), self.dim)
        u, v = self.u.value(), self.v.value()
        if base.backend.trains:
            u, v = _iterate(_beneath(matrix, u), u, v, self.n_power_iterations, self.epsilon)
            self.u.update(u)
            self.v.update(v)
        largest = (matrix.matmul(v.cast(matrix.dtype).unsqueeze_dim(1)).squeeze_dim(1) * u.cast(matrix.dtype)).sum()
        return (widen(base) / largest.reshape((1,) * base.ndim)).cast(base.dtype)


@dataclass(frozen=True)
class _NormMapper:
    """Holds what both reparameterizers have: an axis, and the parameters that they are for."""

    dim: int = 0
    param_group: ParamGroup = field(default_factory=ParamGroup.all)

    def set_param_group(self, group: ParamGroup) -> Self:
        """The same settings for the parameters of a group."""
        return replace(self, param_group=group)

    def reparameterize(self, path: str, param: Param) -> tuple[Param, Reparameterization | None]:
        """The parameter, and its norm if it is of the group and has two axes or more.  Raises: ShapeError."""
        if len(param.shape) < 2 or not self.param_group.matches(param.id, path):
            return param, None
        if not -len(param.shape) <= self.dim < len(param.shape):
            raise ShapeError(
                f"{type(self).__name__}: the parameter has no axis {self.dim}",
                given=f"{path} {param.shape}",
                expected=f"dim from {-len(param.shape)} to {len(param.shape) - 1}",
                mend="give another dim, or leave the parameter out of the group",
            )
        return param, self._norm_of(param, self.dim % len(param.shape))

    @abstractmethod
    def _norm_of(self, param: Param, dim: int) -> Reparameterization:
        """The reparameterization that leaves the value of a parameter as it is, or divides it for the first time."""


@checked(but=("reparameterize",))
@final
@dataclass(frozen=True)
class WeightNormMapper(_NormMapper):
    """Gives parameters of two axes or more a WeightNorm, whose lengths begin as those of the weight.

    dim           the axis of which each index has a length, by default 0 as in Burn: the channels out of a convolution;
                  a linear layer's weight is (d_input, d_output), so its outputs are dim 1
    param_group   which parameters, by default all

    >>> from burn_torch import Device, nn
    >>> linear = nn.LinearConfig(3, 4).init(Device.cpu()).apply_reparameterization(WeightNormMapper(dim=1))
    >>> [path for path, _ in linear.named_params()]
    ['weight', 'weight.weight_norm.g', 'bias']
    """

    def _norm_of(self, param: Param, dim: int) -> WeightNorm:
        lengths = _norm(widen(param.val().detach()), dim).cast(param.spec().dtype)
        return WeightNorm(Param.from_tensor(lengths.reshape((param.shape[dim],))), dim)


@checked(but=("reparameterize",))
@final
@dataclass(frozen=True)
class SpectralNormMapper(_NormMapper):
    """Gives parameters of two axes or more a SpectralNorm, whose vectors begin with 15 power iterations.

    dim                  the axis of the rows, by default 0
    param_group          which parameters, by default all
    n_power_iterations   steps of each reading on a device with gradients; PyTorch's default
    epsilon              what a norm is at least, so that a weight of zeros divides nothing by 0 in the iterations
    """

    n_power_iterations: int = 1
    epsilon: float = 1e-12

    def __post_init__(self) -> None:
        if self.n_power_iterations < 1 or not 0 < self.epsilon < 1:
            raise ArgumentError(
                "SpectralNormMapper: these settings compute nothing",
                given=f"n_power_iterations {self.n_power_iterations}, epsilon {self.epsilon}",
                expected="an iteration or more, epsilon between 0 and 1",
                mend="SpectralNormMapper() has PyTorch's: 1 and 1e-12",
            )

    def _norm_of(self, param: Param, dim: int) -> SpectralNorm:
        host = param.device.no_grad()
        matrix = _as_matrix(widen(param.fork(host).val()), dim)
        drawn = Initializer.Normal(mean=0.0, std=1.0)
        u, v = (drawn.init((size,), host).val().cast(matrix.dtype) for size in matrix.shape)
        u, v = _iterate(matrix, u, v, 15, self.epsilon)
        return SpectralNorm(RunningState(u), RunningState(v), dim, self.n_power_iterations, self.epsilon)


def _beside(base: Tensor, dim: int) -> tuple[int, ...]:
    """The shape of one number for each index of an axis, which meets the base by broadcasting."""
    return tuple(size if axis == dim else 1 for axis, size in enumerate(base.shape))


def _norm(base: Tensor, dim: int) -> Tensor:
    others = tuple(axis for axis in range(base.ndim) if axis != dim)
    return base.square().sum_dims(others).sqrt()


def _as_matrix(base: Tensor, dim: int) -> Tensor:
    rows = base.shape[dim]
    axes = (dim, *(axis for axis in range(base.ndim) if axis != dim))
    return base.permute(axes).reshape((rows, int(np.prod(base.shape)) // max(rows, 1)))


def _iterate(matrix: Tensor, u: Tensor, v: Tensor, count: int, epsilon: float) -> tuple[Tensor, Tensor]:
    """The vectors after some power iterations, each of u first, as PyTorch's."""
    for _ in range(count):
        u = _unit(matrix.matmul(v.unsqueeze_dim(1)).squeeze_dim(1), epsilon)
        v = _unit(matrix.swap_dims(0, 1).matmul(u.unsqueeze_dim(1)).squeeze_dim(1), epsilon)
    return u, v


def _unit(vector: Tensor, epsilon: float) -> Tensor:
    return vector / vector.square().sum().sqrt().clamp_min(epsilon)


def _beneath(x: Tensor, state: Tensor) -> Tensor:
    """The tensor off every tape, in the element type of a running state."""
    x = x.inner()
    while x.backend.is_autodiff and x.backend is not state.backend:  # a tape over a tape
        x = x.inner()
    x = x.detach()
    return x if x.dtype is state.dtype else ops.cast(x, dtype=state.dtype)
