"""Recipes: what the tape keeps is not written where a few cheap operations make it again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from burn_torch import Device, Tensor
from burn_torch.backend.lazy import fusion_of
from burn_torch.backend.lazy.stream import Computed, Recipe, Stream
from burn_torch.backend.libtorch.capabilities import TorchCapabilities
from burn_torch.core.errors import AutodiffError
from burn_torch.tensor import activation

FUSED = Device.cpu().fused().autodiff()


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    """This thread's stream, as where kernels are generated; here their bodies run operation by operation."""
    fusion = fusion_of(FUSED.backend)
    assert fusion is not None
    opened = fusion.stream("cpu")
    opened.flush()
    monkeypatch.setattr(TorchCapabilities, "generates", lambda self, place: True)
    fusion.replan()
    opened.segment = type(opened.segment)(opened, fusion.root)
    opened.history.clear()
    fusion.planner._recent.clear()
    yield opened
    opened.flush()
    monkeypatch.undo()
    fusion.replan()
    opened.segment = type(opened.segment)(opened, fusion.root)


def leaf(seed: np.random.Generator, *shape: int) -> Tensor:
    return Tensor.from_data(seed.standard_normal(shape), FUSED).require_grad()


def chain(x: Tensor) -> Tensor:
    y = (x * x + 0.5).tanh() - activation.sigmoid(x)
    return (y.abs().neg().exp() * x + y.relu()).square()


def written(stream: Stream) -> int:
    return sum(len(ready.gives) for ready in stream.history)


def gradient(function: Callable[[Tensor], Tensor], x: Tensor, cut: bool) -> torch.Tensor:
    y = function(x)
    if cut:
        FUSED.flush()
    grad = x.grad(y.sum().backward())
    assert grad is not None
    return grad.into_torch()


def eager(function: Callable[[Tensor], Tensor], x: Tensor) -> torch.Tensor:
    return gradient(function, Tensor.from_torch(x.inner().into_torch(), Device.cpu().autodiff()).require_grad(), False)


@pytest.mark.parametrize("checkpoint", ["none", "balanced"])
def test_a_cut_between_forward_and_backward_writes_two_values(
    checkpoint: str, stream: Stream, seed: np.random.Generator
) -> None:
    """The gradient, and one in the middle: more than eight operations would be computed again without it."""
    device = Device.cpu().fused().autodiff(checkpoint)
    x = Tensor.from_data(seed.standard_normal((4, 6)), device).require_grad()
    grad = gradient(chain, x, cut=True)
    assert written(stream) == 2
    torch.testing.assert_close(grad, eager(chain, x), rtol=1e-14, atol=1e-14)


def test_a_value_that_is_read_is_written(stream: Stream, seed: np.random.Generator) -> None:
    x = leaf(seed, 3)
    y = x.exp()
    z = y * 2.0
    z.inner().into_torch()
    assert z.inner().primitive.__class__ is Computed
    assert y.inner().primitive.__class__ is Recipe
    assert written(stream) == 1
    torch.testing.assert_close(y.inner().into_torch(), x.inner().into_torch().exp())
    assert y.inner().primitive.__class__ is Computed
    assert y.inner().primitive.recipe is None


def test_no_more_than_eight_operations_are_done_again(stream: Stream, seed: np.random.Generator) -> None:
    x = leaf(seed, 3)
    kept = [x]
    for _ in range(20):
        kept.append(kept[-1] + 1.0)
    stream.flush()
    kinds = [y.inner().primitive.__class__ for y in kept[1:]]
    assert [n for n, kind in enumerate(kinds) if kind is Computed] == [8, 17]
    for n, y in enumerate(kept):
        torch.testing.assert_close(y.inner().into_torch(), x.inner().into_torch() + n)


def test_what_several_operations_read_counts_once(stream: Stream, seed: np.random.Generator) -> None:
    """Eight operations make what is clamped; each way from there to x counted by itself, they would be 16."""
    x, bias, scale, residual = leaf(seed, 4, 6), leaf(seed, 1, 6).inner(), leaf(seed, 1, 6).inner(), leaf(seed, 4, 6)
    bias, scale = (Tensor.from_inner(t) for t in (bias, scale))

    def chain_of_12(x: Tensor) -> Tensor:
        y = (activation.sigmoid(x + bias) * scale).tanh() + residual
        return (y * y - y * 0.5).clamp(-2.0, 2.0) + y.abs().neg().exp()

    kept = chain_of_12(x)
    stream.flush()
    assert written(stream) == 1
    grad = x.grad(kept.sum().backward())
    assert grad is not None
    plain = Device.cpu().autodiff()
    bias, scale, residual = (Tensor.from_torch(t.inner().into_torch(), plain) for t in (bias, scale, residual))
    torch.testing.assert_close(grad.into_torch(), eager(chain_of_12, x), rtol=1e-12, atol=1e-12)


def test_what_a_library_or_a_reduction_makes_is_written(stream: Stream, seed: np.random.Generator) -> None:
    x = leaf(seed, 3, 3)
    product, total, twice = x @ x, x.sum_dim(1), x @ x.transpose()
    after = product.relu()
    stream.flush()
    assert [y.inner().primitive.__class__ for y in (product, total, twice, after)] == [Computed] * 3 + [Recipe]


def test_without_a_tape_everything_held_is_written(stream: Stream, seed: np.random.Generator) -> None:
    y = leaf(seed, 3).inner().exp()
    stream.flush()
    assert y.primitive.__class__ is Computed


def test_a_library_result_that_nobody_keeps_is_not_kept_for_a_recipe(stream: Stream, seed: np.random.Generator) -> None:
    x = leaf(seed, 3, 3)
    y = (x @ x).relu()
    stream.flush()
    assert y.inner().primitive.__class__ is Computed


def test_a_recipe_is_used_by_many_and_recorded_once_a_segment(stream: Stream, seed: np.random.Generator) -> None:
    x = leaf(seed, 3)
    y = x.exp()
    stream.flush()
    a, b = y.inner() + 1.0, y.inner() * 3.0
    assert stream.pending == 3
    stream.flush()
    assert y.inner().primitive.__class__ is Recipe
    exact = x.inner().into_torch().exp()
    torch.testing.assert_close(a.into_torch(), exact + 1)
    torch.testing.assert_close(b.into_torch(), exact * 3)


def test_a_recipe_on_another_thread(stream: Stream, seed: np.random.Generator) -> None:
    x = leaf(seed, 3)
    y = x.exp()
    stream.flush()
    outputs: list[torch.Tensor] = []
    other = threading.Thread(target=lambda: outputs.append((y.inner() + 1.0).into_torch()))
    other.start()
    other.join()
    torch.testing.assert_close(outputs[0], x.inner().into_torch().exp() + 1)


def test_a_write_to_what_a_recipe_reads_is_an_error(stream: Stream) -> None:
    shared = torch.ones(3)
    x = Tensor.from_torch(shared, FUSED).require_grad()
    y = x.exp()
    stream.flush()
    shared.add_(1)
    with pytest.raises(AutodiffError, match=r"written to after an operation(?s:.)*given: *\(3,\) f32(?s:.)*flush\(\)"):
        y.inner().into_data()


def test_recipes_have_the_same_keys_every_time(stream: Stream, seed: np.random.Generator) -> None:
    x = leaf(seed, 4, 6)
    keys_of_runs = []
    for _ in range(5):
        stream.history.clear()
        gradient(chain, x, cut=True)
        keys_of_runs.append([ready.key for ready in stream.history])
    assert all(other == keys_of_runs[0] for other in keys_of_runs)


def test_nothing_is_left_to_recipes_where_no_kernel_is_generated(seed: np.random.Generator) -> None:
    x = leaf(seed, 3)
    y = x.exp()
    FUSED.flush()
    assert y.inner().primitive.__class__ is Computed
