"""MixtureOfExperts: feed-forward networks of which each token goes through a few."""

from __future__ import annotations

import math
from typing import NamedTuple

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ShapeError
from burn_torch.core.frames import told
from burn_torch.module import Content, Module, Param
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import KAIMING, Rules, noting_layer
from burn_torch.nn.activation import SwiGlu, SwiGluConfig
from burn_torch.nn.linear import Linear, LinearConfig
from burn_torch.tensor import Device, Tensor, activation, segments
from burn_torch.tensor.apply import apply_one, widen

__all__ = ["MixtureOfExperts", "MixtureOfExpertsConfig", "MixtureOfExpertsOutput"]


class MixtureOfExpertsConfig(Config):
    """Experts, gated feed-forward networks d_model to d_ff and back, and a router that chooses top_k of them.

    top_k 2: as in Mixtral.  capacity_factor None: every token is computed; a number bounds the tokens of an expert by
    capacity_factor * tokens * top_k / n_experts, and those behind it, in the order of the batch, skip the expert.
    normalize_weights true: the weights of the chosen experts sum to 1.  n_shared 0: so many times d_ff make one network
    that every token goes through.  initializer: even in +-1 / sqrt(d_input).
    """

    d_model: int
    d_ff: int
    n_experts: int
    top_k: int = 2
    capacity_factor: float | None = None
    normalize_weights: bool = True
    n_shared: int = 0
    initializer: Initializer = KAIMING

    def __post_init__(self) -> None:
        rules = Rules(self).at_least(1, "d_model", "d_ff", "n_experts", "top_k").at_least(0, "n_shared")
        rules.within(1, max(self.n_experts, 1), "top_k")
        if self.capacity_factor is not None:
            rules.positive("capacity_factor")
        rules.stop()

    def init(self, device: Device) -> MixtureOfExperts:
        """The layer with fresh parameters."""
        init, d_model, d_ff = self.initializer.init_with, self.d_model, self.d_ff
        inner, outer = (self.n_experts, d_model, d_ff), (self.n_experts, d_ff, d_model)
        shared_inner = shared_outer = None
        if self.n_shared:
            width = self.n_shared * d_ff
            shared_inner = SwiGluConfig(d_model, width, initializer=self.initializer).init(device)
            shared_outer = LinearConfig(width, d_model, bias=False, initializer=self.initializer).init(device)
        return MixtureOfExperts(
            init((d_model, self.n_experts), d_model, self.n_experts, device),
            init(inner, d_model, d_ff, device),
            init(inner, d_model, d_ff, device),
            init(outer, d_ff, d_model, device),
            shared_inner,
            shared_outer,
            self.top_k,
            self.capacity_factor,
            self.normalize_weights,
        )


class MixtureOfExpertsOutput(NamedTuple):
    """The results of a mixture: what goes on, and what a loss adds to keep its router in order.

    output                (*batch, d_model)
    load_balancing_loss   n_experts * sum over experts of (part of the choices) * (mean probability); 1 where all are
                          chosen alike, n_experts where one always is.  Fedus et al. 2021, equation 4
    router_z_loss         the mean square of logsumexp(logits), which keeps them small.  Zoph et al. 2022, equation 5
    tokens_per_expert     (n_experts,) i64: how many chose it, those beyond its capacity too
    """

    output: Tensor
    load_balancing_loss: Tensor
    router_z_loss: Tensor
    tokens_per_expert: Tensor


class MixtureOfExperts(Module):
    """Each token goes through the top_k experts that its router finds most probable.

        p = softmax(x @ router)        y = sum over chosen e of w_e * (silu(x @ gate_e) * (x @ up_e)) @ down_e

    where w are the probabilities of the chosen ones, normalised unless told otherwise.  Tokens are sorted by expert and
    multiplied in groups (`segments.matmul`); with a capacity as a batch of as many tokens an expert.  The router
    computes in float32.  Nothing waits for the device.

    Shapes: x (*batch, d_model), router (d_model, n_experts), gate, up (n_experts, d_model, d_ff), down
    (n_experts, d_ff, d_model) -> see `MixtureOfExpertsOutput`.
    Dtypes: any float, the same for x and parameters; losses in float32 of half types.
    Source: Shazeer et al. 2017, https://arxiv.org/abs/1701.06538; Fedus et al. 2021, https://arxiv.org/abs/2101.03961.
    """

    router: Param
    gate: Param
    up: Param
    down: Param
    shared_inner: SwiGlu | None
    shared_outer: Linear | None
    top_k: int
    capacity_factor: float | None
    normalize_weights: bool

    @noting_layer
    def forward(self, x: Tensor) -> MixtureOfExpertsOutput:
        """The mixture of each token, and the losses of the router."""
        d_model, n_experts = self.router.shape
        if not x.ndim or x.shape[-1] != d_model:
            raise told(
                ShapeError,
                "MixtureOfExperts: the input does not fit the experts",
                given=f"x {x.spec}",
                expected=f"x (*batch, {d_model})",
                mend="make the layer for the width of the input",
            )
        tokens = x.reshape((math.prod(x.shape[:-1]), d_model))
        logits = widen(tokens) @ widen(self.router.val())
        probabilities = activation.softmax(logits, 1)
        weights, experts = probabilities.topk_with_indices(self.top_k, 1)
        if self.normalize_weights:
            weights = weights / weights.sum_dim(1)
        choices = experts.flatten()
        counts = segments.sum(choices.ones_like(), ids=choices, count=n_experts)
        y = self._mix(tokens, weights.cast(x.dtype), choices, segments.offsets(counts))
        if self.shared_inner is not None and self.shared_outer is not None:
            y = y + self.shared_outer.forward(self.shared_inner.forward(tokens))
        if not tokens.shape[0]:
            nothing = logits.sum()
            return MixtureOfExpertsOutput(y.reshape(x.shape), nothing, nothing, counts)
        part = counts.cast(logits.dtype) / counts.sum().cast(logits.dtype)
        balance = (probabilities.mean_dim(0).squeeze_dim(0) * part).sum() * float(n_experts)
        spread = logits.logsumexp_dim(1).square().mean()
        return MixtureOfExpertsOutput(y.reshape(x.shape), balance, spread, counts)

    def _mix(self, tokens: Tensor, weights: Tensor, choices: Tensor, offsets: Tensor) -> Tensor:
        """The weighted sum of the outputs of the experts that each token has chosen."""
        (count, d_model), top_k = tokens.shape, self.top_k
        total = count * top_k
        # one token after the other within an expert, also where sorting is not stable
        order = (choices.cast(DType.I64) * total + Tensor.arange(total, tokens.device)).argsort(0)
        places = order.zeros_like().select_assign(0, order, Tensor.arange(total, tokens.device), "assign")
        copies = tokens.unsqueeze_dim(1).expand((count, top_k, d_model)).reshape((total, d_model))
        rows = _reorder(copies, places)
        gate, up, down = self.gate.val(), self.up.val(), self.down.val()
        if self.capacity_factor is None:
            inner = activation.silu(segments.matmul(rows, gate, offsets)) * segments.matmul(rows, up, offsets)
            y = segments.matmul(inner, down, offsets)
        else:
            capacity = min(count, math.ceil(self.capacity_factor * total / gate.shape[0]))
            slots = apply_one(ops.segment_pad, (rows, offsets), capacity)
            y = (activation.silu(slots @ gate) * (slots @ up)) @ down
            y = apply_one(ops.segment_unpad, (y, offsets), total)
        chosen = _reorder(y, order).reshape((count, top_k, d_model))
        return (chosen * weights.unsqueeze_dim(2)).sum_dim(1).squeeze_dim(1)

    def custom_content(self, content: Content) -> Content:
        """Sizes and settings."""
        n_experts, d_model, d_ff = self.gate.shape
        content.add("d_model", d_model).add("d_ff", d_ff).add("n_experts", n_experts).add("top_k", self.top_k)
        return content.add("capacity_factor", self.capacity_factor).add("normalize_weights", self.normalize_weights)


def _reorder(x: Tensor, places: Tensor) -> Tensor:
    """Row i of x at row places[i]: a permutation, so neither it nor its gradient adds anything up."""
    at = places.unsqueeze_dim(1).expand(x.shape)
    return apply_one(ops.scatter_distinct, (at, x), 0, x.shape[0])
