"""SyncBatchNorm: batch normalisation with the statistics of all processes' batches."""

from __future__ import annotations

import math
from typing import TypeVar

from burn_torch import distributed
from burn_torch.config import Config
from burn_torch.core.errors import ShapeError
from burn_torch.module import Module, tree
from burn_torch.nn._layer import Rules
from burn_torch.nn.norm import BatchNorm, BatchNormConfig
from burn_torch.tensor import Device, Tensor, functional
from burn_torch.tensor.apply import widen

__all__ = ["SyncBatchNorm", "SyncBatchNormConfig"]

M = TypeVar("M", bound=Module)


class SyncBatchNormConfig(Config):
    """Batch normalisation of `num_features` channels over all processes.  Defaults as in BatchNormConfig."""

    num_features: int
    epsilon: float = 1e-5
    momentum: float = 0.1

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "num_features").positive("epsilon").fraction("momentum").stop()

    def init(self, device: Device) -> SyncBatchNorm:
        """The layer with gamma 1, beta 0, running mean 0 and running variance 1."""
        local = BatchNormConfig(self.num_features, epsilon=self.epsilon, momentum=self.momentum)
        return _share(local.init(device))


class SyncBatchNorm(BatchNorm):
    """A BatchNorm that trains with mean and variance of the batches of all processes; alone it is a BatchNorm.

    The processes exchange the mean, the sum of squared deviations and the count of each channel, once forwards and once
    backwards; their batches may have different sizes.  All of them run the layer in the same order.  The gradients of
    inputs are those of the sum of all processes' losses; those of gamma and beta are this process's part, which a
    strategy such as Ddp joins with the others' as it does for every parameter.

    Shapes: x (batch, num_features, *s) -> the same; gamma, beta, running_mean, running_var (num_features,).
    Dtypes: any float; statistics of half types are float32.
    Source: Chan, Golub, LeVeque 1979 (joining variances), http://i.stanford.edu/TR/CS-TR-79-773.html.
    PyTorch: torch.nn.SyncBatchNorm, for GPUs only; Burn has none.
    """

    @staticmethod
    def convert(module: M) -> M:
        """The module with a SyncBatchNorm in place of each BatchNorm; parameters and running states are the same."""

        leaves = (*tree.LEAVES, BatchNorm)
        return tree.rebuild(module, lambda leaf: _share(leaf) if type(leaf) is BatchNorm else leaf, leaves=leaves)

    def _train(self, x: Tensor) -> Tensor:
        if distributed.world_size() == 1:
            return super()._train(x)
        channels = self.num_features()
        if x.ndim < 2 or x.shape[1] != channels:  # before the others are made to wait
            raise ShapeError(
                "SyncBatchNorm: the input does not fit the layer",
                given=f"x {x.spec}",
                expected=f"(batch, {channels}, *s)",
                mend=f"make the layer for the channels of the input, not for {channels}",
            )
        mean, var, total = _join_statistics(widen(x), channels)
        y = functional.batch_norm(x, self.gamma.val(), self.beta.val(), mean, var, self.epsilon)
        unbiased = var * (total / (total - 1.0).clamp_min(1.0))
        some = total.clamp_max(1.0)  # 0 where all batches are empty, which say nothing
        for state, statistic in ((self.running_mean, mean), (self.running_var, unbiased)):
            before = state.value()
            self._move(state, statistic * some + before.cast(statistic.dtype) * (1.0 - some), 1.0)
        return y


def _share(norm: BatchNorm) -> SyncBatchNorm:
    """The layer that exchanges statistics, with what a BatchNorm holds."""
    return SyncBatchNorm(norm.gamma, norm.beta, norm.running_mean, norm.running_var, norm.momentum, norm.epsilon)


def _join_statistics(x: Tensor, channels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and biased variance of each channel over all processes, and the number of elements, (1,)."""
    axes = (0, *range(2, x.ndim))
    count = math.prod(x.shape) // channels
    mean = x.sum_dims(axes) / max(count, 1)
    squares = (x - mean).square().sum_dims(axes)
    own = [mean.reshape((1, channels)), squares.reshape((1, channels)), x.detach().new_full((1, 1), float(count))]
    every = distributed.all_gather(Tensor.cat(own, 1), 0)  # (processes, 2 channels + 1)
    means, parts, counts = (
        every.narrow(1, 0, channels),
        every.narrow(1, channels, channels),
        every.narrow(1, 2 * channels, 1),
    )
    total = counts.sum_dim(0)
    divisor = total.clamp_min(1.0)
    joint = (means * counts).sum_dim(0) / divisor
    deviations = parts + (means - joint).square() * counts
    return joint.reshape((channels,)), (deviations.sum_dim(0) / divisor).reshape((channels,)), total.reshape((1,))
