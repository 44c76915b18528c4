"""CTC beside torch's loss, the transducer loss beside a dynamic program over its lattice, in float64 on both leaves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from burn_torch import nn, ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import BoundsError, ConfigError, DTypeError, ShapeError
from burn_torch.graph import interpret
from burn_torch.graph.decomposition import decomposed
from burn_torch.nn.loss import Reduction
from burn_torch.tensor import Device, Tensor, functional
from burn_torch.tensor.activation import log_softmax
from burn_torch.transform import compile
from tests.nn.loss_checks import Rng
from tests.nn.twins import array, close, tensor

LEAVES = [Device.cpu(), Device.ndarray()]


@pytest.fixture(params=LEAVES, ids=str)
def device(request: pytest.FixtureRequest) -> Device:
    return request.param  # type: ignore[no-any-return]


def alignable(rng: Rng, batch: int, labels: int, classes: int, blank: int) -> tuple[np.ndarray, np.ndarray]:
    """Targets without the blank, some lengths of 0, and nonsense behind the lengths."""
    lengths = rng.integers(0, labels + 1, batch)
    targets = rng.integers(0, classes - 1, (batch, labels))
    targets += targets >= blank
    return np.where(np.arange(labels) < lengths[:, None], targets, rng.choice([-100, blank, classes])), lengths


def on(device: Device, *values: Any) -> list[Tensor]:
    return [Tensor.from_data(np.asarray(x), device) for x in values]


def assert_like(ours: Tensor | None, theirs: torch.Tensor) -> None:
    """Equal in float64 but for the order of sums; infinities are where they are."""
    assert ours is not None
    np.testing.assert_allclose(array(ours), theirs.detach().numpy(), rtol=1e-10, atol=1e-11)


# -- connectionist temporal classification --------------------------------------------------------------------
@pytest.mark.parametrize("trial", range(12))
def test_ctc_is_torch_in_value_and_gradient(trial: int, device: Device) -> None:
    seed = np.random.default_rng(trial)
    steps, batch, classes, labels = (int(seed.integers(low, high)) for low, high in ((1, 12), (1, 5), (2, 6), (0, 6)))
    blank = int(seed.integers(classes))
    targets, target_lengths = alignable(seed, batch, labels, classes, blank)
    lengths = seed.integers(0 if trial % 3 else 1, steps + 1, batch)
    scores = torch.tensor(seed.normal(size=(batch, classes, steps))).permute(2, 0, 1).log_softmax(2).requires_grad_()
    whole = [torch.tensor(x) for x in (targets, lengths, target_lengths)]
    expected = F.ctc_loss(scores, *whole, blank, "none")
    upstream = seed.normal(size=batch)
    finite = F.ctc_loss(scores, *whole, blank, "none", zero_infinity=True)
    (slopes,) = torch.autograd.grad((finite * torch.tensor(upstream)).sum(), scores)

    x, *others = on(device.autodiff(), scores.detach().numpy(), targets, lengths, target_lengths)
    x = x.require_grad()
    losses = functional.ctc_loss(x, *others, blank)
    assert_like(losses, expected)
    grads = (losses * on(device.autodiff(), upstream)[0]).sum().backward()
    assert_like(x.grad(grads), slopes)
    cut = nn.CTCLossConfig(blank=blank, zero_infinity=True).init()
    assert_like(cut.forward(x, *others), finite)
    mean = F.ctc_loss(scores, *whole, blank, "mean", zero_infinity=True)
    close(cut.forward_with_reduction(x, *others), mean.reshape(1))
    close(cut.forward_with_reduction(x, *others, Reduction.Sum), finite.sum().reshape(1))


def test_ctc_without_steps_reads_only_nothing(device: Device) -> None:
    inputs = on(device, np.zeros((0, 2, 3)), [[1], [1]], [0, 0], [0, 1])
    assert array(functional.ctc_loss(*inputs)).tolist() == [0.0, math.inf]
    assert functional.ctc_loss(
        *on(device, np.zeros((4, 0, 3)), np.zeros((0, 2), int), *[np.zeros(0, int)] * 2)
    ).shape == (0,)


def test_ctc_of_impossible_classes_has_no_nan(device: Device) -> None:
    half, impossible = math.log(0.5), -math.inf
    scores = np.array([[[half, half, impossible]], [[impossible, 0.0, impossible]]])
    x = Tensor.from_data(scores, device.autodiff()).require_grad()
    for label, expected in ((1, 0.0), (2, math.inf)):
        losses = functional.ctc_loss(x, *on(device.autodiff(), [[label]], [2], [1]))
        assert array(losses).tolist() == [expected]
        grad = x.grad(losses.sum().backward())
        assert grad is not None
        assert np.isfinite(array(grad)).all()


def test_second_gradient_of_ctc_through_log_softmax(seed: Rng) -> None:
    logits, way, up = (seed.normal(size=(5, 2, 3)) for _ in range(3))
    others = ([[1, 1], [2, 0]], [5, 4], [2, 1])

    def slopes(leaf: Tensor) -> Tensor:
        x = Tensor.from_inner(leaf).require_grad()
        losses = functional.ctc_loss(log_softmax(x, 2), *(Tensor.from_inner(tensor(y)) for y in others))
        grad = x.grad(losses.sum().backward())
        assert grad is not None
        return grad

    leaf = tensor(logits).require_grad()
    second = leaf.grad((slopes(leaf) * tensor(up)).sum().backward())
    assert second is not None
    ahead, behind = (array(slopes(tensor(logits + step * way))) for step in (1e-6, -1e-6))
    assert abs(float((array(second) * way).sum()) - float(((ahead - behind) / 2e-6 * up).sum())) < 1e-7


WRONG: list[tuple[Any, Any, Any, str]] = [
    ([[1, 2]], [6], [2], r"an input length lies outside .*\n  given: +lengths \[6\]\n  expected: +0 to 5"),
    ([[1, 2]], [-1], [2], r"an input length lies outside"),
    ([[1, 2]], [5], [3], r"a target length lies outside .*\n  given: +lengths \[3\]\n  expected: +0 to 2"),
    ([[1, 3]], [5], [2], r"a target is no class\n  given: +targets\[0, 1\] = 3, blank 0\n  expected: .*0 to 2"),
    ([[-1, 1]], [5], [1], r"a target is no class"),
    ([[1, 0]], [5], [2], r"a target is the blank\n  given: +targets\[0, 1\] = 0, blank 0\n  .*\n  mend: +number"),
]


@pytest.mark.parametrize(("targets", "lengths", "target_lengths", "words"), WRONG)
def test_what_cannot_be_aligned_is_refused(
    targets: Any, lengths: Any, target_lengths: Any, words: str, device: Device
) -> None:
    others = on(device, targets, lengths, target_lengths)
    with pytest.raises(BoundsError, match="ctc_loss: " + words):
        functional.ctc_loss(*on(device, np.zeros((5, 1, 3))), *others)
    with pytest.raises(BoundsError, match="RNNTLoss: " + words.replace("0 to 5", "1 to 5")):
        nn.RNNTLossConfig().init().forward(*on(device, np.zeros((1, 5, 3, 3))), *others)


@pytest.mark.parametrize(("targets", "lengths", "target_lengths", "words"), WRONG)
def test_what_cannot_be_looked_at_is_nan(targets: Any, lengths: Any, target_lengths: Any, words: str) -> None:
    scores, *others = on(Device.cpu(), np.zeros((1, 5, 3)), targets, lengths, target_lengths)
    call = ops.ctc_loss.bind([x.spec for x in (scores, *others)], {"blank": 0, "live": (True, True)})
    values = interpret(decomposed(call), scores.backend, [x.primitive for x in (scores, *others)])
    assert all(np.isnan(np.asarray(value)).all() for value in values)


def test_shapes_and_types_are_refused(device: Device) -> None:
    scores, targets, lengths = on(device, np.zeros((5, 2, 3)), [[1], [1]], [5, 5])
    with pytest.raises(ShapeError, match=r"log_probs has no axes of steps, batch and classes\n  given: .*\(5, 2\)"):
        functional.ctc_loss(scores.narrow(2, 0, 1).squeeze_dim(2), targets, lengths, lengths)
    with pytest.raises(ShapeError, match="scores, targets and lengths do not fit together"):
        functional.ctc_loss(scores, targets.reshape(2), lengths, lengths)
    with pytest.raises(ShapeError, match=r"blank 3 is no class\n.*\n  expected: 0 to 2"):
        functional.ctc_loss(scores, targets, lengths, lengths, 3)
    with pytest.raises(DTypeError, match="targets has an element type"):
        functional.ctc_loss(scores, targets.cast(DType.F64), lengths, lengths)
    joint = scores.unsqueeze_dim(2).expand(5, 2, 2, 3).narrow(0, 0, 2)
    for wrong in (joint.squeeze_dims([]).narrow(2, 0, 1), joint.int(), joint.narrow(1, 0, 0)):
        with pytest.raises(ShapeError, match="RNNTLoss: scores, targets and lengths do not fit together"):
            nn.RNNTLossConfig().init().forward(wrong, targets, lengths, lengths)
    with pytest.raises(ConfigError, match=r"too small\n  given: +blank = -1"):
        nn.CTCLossConfig(blank=-1)


# -- transducers ----------------------------------------------------------------------------------------------
def transducer(scores: torch.Tensor, targets: list[int], steps: int, blank: int) -> torch.Tensor:
    """The loss of one sample, cell by cell, as in Graves 2012."""
    alpha: dict[tuple[int, int], torch.Tensor] = {(0, 0): torch.zeros((), dtype=torch.float64)}
    for t in range(steps):
        for u in range(len(targets) + 1):
            ways = [alpha[t - 1, u] + scores[t - 1, u, blank]] if t else []
            ways += [alpha[t, u - 1] + scores[t, u - 1, targets[u - 1]]] if u else []
            if ways:
                alpha[t, u] = torch.logsumexp(torch.stack(ways), 0)
    return -(alpha[steps - 1, len(targets)] + scores[steps - 1, len(targets), blank])


@pytest.mark.parametrize("is_logits", [True, False])
@pytest.mark.parametrize("trial", range(5))
def test_transducer_is_the_dynamic_program(trial: int, is_logits: bool, device: Device) -> None:
    seed = np.random.default_rng(trial)
    steps, batch, classes, labels = (int(seed.integers(low, high)) for low, high in ((1, 6), (1, 4), (2, 5), (0, 5)))
    blank = int(seed.integers(classes))
    targets, target_lengths = alignable(seed, batch, labels, classes, blank)
    lengths = seed.integers(1, steps + 1, batch)
    values = seed.normal(size=(batch, steps, labels + 1, classes))
    leaf = torch.tensor(values).requires_grad_()
    scores = leaf.log_softmax(3) if is_logits else leaf
    read = [targets[n, : target_lengths[n]].tolist() for n in range(batch)]
    expected = torch.stack([transducer(scores[n], read[n], int(lengths[n]), blank) for n in range(batch)])
    upstream = seed.normal(size=batch)
    (slopes,) = torch.autograd.grad((expected * torch.tensor(upstream)).sum(), leaf)

    x, *others = on(device.autodiff(), values, targets, lengths, target_lengths)
    x = x.require_grad()
    loss = nn.RNNTLossConfig(blank=blank, logits=is_logits).init()
    losses = loss.forward(x, *others)
    assert_like(losses, expected)
    assert_like(x.grad((losses * on(device.autodiff(), upstream)[0]).sum().backward()), slopes)
    close(loss.forward_with_reduction(x, *others), expected.mean().reshape(1))
    close(loss.forward_with_reduction(x, *others, Reduction.Sum), expected.sum().reshape(1))


def test_an_impossible_transduction_costs_infinity_without_a_gradient() -> None:
    scores = np.zeros((1, 2, 2, 2))
    scores[..., 1] = -math.inf
    x = tensor(scores).require_grad()
    losses = nn.RNNTLossConfig(logits=False).init().forward(x, *map(tensor, ([[1]], [2], [1])))
    assert array(losses).tolist() == [math.inf]
    grad = x.grad(losses.sum().backward())
    assert grad is None or not array(grad).any()


# -- types, programs ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16])
def test_half_types_are_rounded_once(dtype: DType, seed: Rng) -> None:
    scores = Tensor.from_data(seed.normal(size=(2, 5, 3, 4)) - 2.0, Device.cpu()).cast(dtype)
    others = on(Device.cpu(), [[1, 3], [2, 2]], [5, 4], [2, 1])
    transduce = nn.RNNTLossConfig().init().forward
    for loss in (
        transduce,
        lambda x, *rest: functional.ctc_loss(x.narrow(2, 0, 1).squeeze_dim(2).swap_dims(0, 1), *rest),
    ):
        losses, wide = loss(scores, *others), loss(scores.cast(DType.F64), *others)
        assert losses.dtype is dtype
        np.testing.assert_allclose(
            array(losses.cast(DType.F64)), array(wide), rtol={DType.BF16: 2**-8, DType.F16: 2**-11}.get(dtype, 2e-6)
        )


@pytest.mark.parametrize("name", ["ctc", "transducer"])
def test_compiled_losses_and_gradients_are_the_same(name: str, seed: Rng) -> None:
    values = seed.normal(size=(2, 4, 3, 4))
    others = on(Device.cpu().autodiff(), [[1, 3], [2, 2]], [4, 3], [2, 1])

    def slopes(x: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor | None]:
        x = x.require_grad()
        if name == "ctc":
            losses = functional.ctc_loss(x.narrow(2, 0, 1).squeeze_dim(2).swap_dims(0, 1), *rest)
        else:
            losses = nn.RNNTLossConfig().init().forward(x, *rest)
        return losses.no_grad(), x.grad(losses.sum().backward())

    x = tensor(values)
    for ours, plain in zip(compile(slopes)(x, *others), slopes(x, *others), strict=True):
        assert ours is not None
        assert plain is not None
        close(ours, array(plain), 1e-12)
