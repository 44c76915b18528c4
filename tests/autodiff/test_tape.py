"""The tape at the level of backends: what it records, keeps, frees and refuses."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import ops
from burn_torch.backend.autodiff.decorator import Autodiff
from burn_torch.backend.autodiff.tape import CONSUMED
from burn_torch.backend.libtorch.leaf import LibTorch
from burn_torch.backend.ndarray.leaf import NdArray
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import AutodiffError
from burn_torch.core.spec import TensorSpec
from burn_torch.ops import Value, op
from burn_torch.ops.rules import elementwise
from burn_torch.ops.signature import Number
from tests.autodiff.tape_harness import TAPE, TORCH, backward, constant, nodes, of, tracked


# -- recording -------------------------------------------------------------------------------------------
def test_nothing_tracked_makes_no_node() -> None:
    y = ops.exp(constant([1.0, 2.0]) * 3.0)
    assert isinstance(y.primitive, torch.Tensor)
    assert not TAPE.is_tracked(y.primitive)


def test_only_what_depends_on_a_leaf_is_recorded() -> None:
    x = tracked([1.0, 2.0])
    aside = ops.exp(constant([0.5, 0.25]))
    loss = x * aside
    assert [node.entry is None for node in sorted(nodes(loss), key=lambda node: node.id)] == [True, False]


def test_results_without_floats_are_not_recorded() -> None:
    x = tracked([1.5, 2.5])
    assert not TAPE.is_tracked(ops.greater(x, 2.0).primitive)
    assert not TAPE.is_tracked(ops.cast(x, dtype=DType.I64).primitive)


@pytest.mark.parametrize("row", [ops.round, ops.floor, ops.ceil, ops.trunc, ops.sign], ids=lambda row: str(row.name))
def test_steps_have_gradients_of_zeros(row: Any) -> None:
    x, z = tracked([1.25, -2.5]), tracked([[0.5, 0.1]])
    y = row(ops.exp(x) * z)
    assert y.primitive.node.saved == ()
    grads = backward(y, retain_graph=True)
    assert of(grads, x).tolist() == [0.0, 0.0]
    assert of(grads, z).tolist() == [[0.0, 0.0]]
    mixed = backward(y + ops.sin(x))  # what comes by another way is alone
    np.testing.assert_array_equal(of(mixed, x), np.cos([1.25, -2.5]))
    assert of(mixed, z).tolist() == [[0.0, 0.0]]


def test_zeros_of_a_step_are_not_carried_through_what_is_before_it() -> None:
    x = tracked(np.ones((2, 2)))
    hidden = ops.matmul(x, x)
    assert of(backward(ops.round(hidden)), x).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert hidden.primitive.node.saved is not CONSUMED  # it was not walked


def test_equal_stacks_are_one_object() -> None:
    assert Autodiff(LibTorch()) is TAPE
    assert Autodiff(Autodiff(LibTorch())) is Autodiff(TAPE)
    assert Autodiff(LibTorch(), "balanced") is Autodiff(LibTorch(), "balanced") is not TAPE
    assert Autodiff(NdArray()) is not TAPE


def test_unknown_checkpointing_is_named() -> None:
    with pytest.raises(AutodiffError, match=r"unknown checkpointing(.|\n)*'always'(.|\n)*balanced"):
        Autodiff(TORCH, "always")


def test_gradient_is_the_sum_over_all_uses() -> None:
    x = tracked([2.0, -1.0])
    loss = x * x + x * 3.0 + ops.exp(x)
    assert np.allclose(of(backward(loss), x), 2 * np.array([2.0, -1.0]) + 3 + np.exp([2.0, -1.0]), rtol=1e-15)


def test_backward_from_several_roots_adds_them() -> None:
    x = tracked([2.0, 5.0])
    first, second = x * 3.0, x * x
    ones = TORCH.from_data(TensorData.of(np.ones(2)), "cpu")
    slots = TAPE.backward([(first.primitive, ones), (second.primitive, ones)])
    assert of(slots, x).tolist() == [7.0, 13.0]


# -- consuming ---------------------------------------------------------------------------------------------
def test_a_root_that_is_a_leaf_keeps_what_other_roots_bring() -> None:
    x = tracked([2.0, 3.0])
    y = x * x
    one = TORCH.from_data(TensorData.of(np.ones(2)), "cpu")
    slots = TAPE.backward([(x.primitive, one), (y.primitive, one)])
    np.testing.assert_array_equal(of(slots, x), [1 + 4.0, 1 + 6.0])


def test_second_backward_says_that_the_tape_is_consumed() -> None:
    x = tracked([1.0, 2.0])
    loss = ops.exp(x)
    backward(loss)
    message = r"used up(.|\n)*given: .*exp(.|\n)*one backward for each forward(.|\n)*retain_graph=True"
    with pytest.raises(AutodiffError, match=message):
        backward(loss)


def test_backward_through_a_part_that_another_backward_consumed() -> None:
    x = tracked([1.0, 2.0])
    shared = ops.exp(x)
    first, second = shared * 2.0, shared * shared
    backward(first)
    with pytest.raises(AutodiffError, match="used up"):
        backward(second)


def test_retain_graph_gives_the_same_gradient_again() -> None:
    x = tracked([1.0, 2.0])
    loss = ops.exp(x) * x
    first = of(backward(loss, retain_graph=True), x)
    second = of(backward(loss, retain_graph=True), x)
    third = of(backward(loss), x)
    assert first.tobytes() == second.tobytes() == third.tobytes()
    with pytest.raises(AutodiffError, match="used up"):
        backward(loss)


# -- memory --------------------------------------------------------------------------------------------------
def test_dropping_the_loss_frees_the_tape_without_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        x = tracked(np.ones(3))
        y = ops.exp(x)
        saved = weakref.ref(y.primitive.primitive)
        loss = y * y
        del y
        assert saved() is not None, "the tape keeps what the backward reads"
        del loss
        assert saved() is None, "a cycle keeps the tape alive"
    finally:
        gc.enable()


def test_backward_frees_saved_values_while_the_loss_lives() -> None:
    x = tracked(np.ones(3))
    y = ops.exp(x)
    saved = weakref.ref(y.primitive.primitive)
    loss = y * y
    del y
    backward(loss)
    assert saved() is None
    assert [*nodes(loss)] == [loss.primitive.node], "its parents are let go"


def test_chain_of_100_000_nodes_does_not_recurse() -> None:
    x = tracked([1.0])
    y = x
    for _ in range(100_000):
        y = y + x
    assert of(backward(y), x).tolist() == [100_001.0]


def test_dropping_a_chain_of_100_000_nodes_does_not_recurse() -> None:
    x = tracked([1.0])
    y = x
    for _ in range(100_000):
        y = ops.sin(y)
    last = weakref.ref(y.primitive.primitive)
    del y
    assert last() is None


# -- several outputs -------------------------------------------------------------------------------------------
@op(
    namespace="tape_tests",
    torch=lambda x, eps: _centre(x, eps, torch.mean, torch.sqrt),
    numpy=lambda x, eps: _centre(x, eps, np.mean, np.sqrt),
)
def centred(x: TensorSpec, eps: Number) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """(x - mean) * rate, mean and rate = 1 / sqrt(mean of squares + eps), over everything."""
    return x, x.with_shape(()), x.with_shape(())


def _centre(x: Any, eps: float, mean: Any, sqrt: Any) -> Any:
    middle = mean(x)
    rate = 1 / sqrt(mean(x * x) + eps)
    return (x - middle) * rate, middle, rate


def _mean(x: Any) -> Any:
    count = x.spec.numel
    return ops.reshape(ops.sum(x, dims=tuple(range(x.ndim))), shape=()) / float(count)


@centred.gradient
def _(g: Any, y: Any, x: Any, eps: Any) -> Any:
    (gy, gm, gr), (_, middle, rate) = g, y
    count = float(x.spec.numel)
    dx, drate, dmiddle = None, gr, gm
    if gy is not None:
        dx = gy * rate
        through = _mean(gy * (x - middle)) * count
        drate = through if drate is None else drate + through
        lost = -(_mean(gy) * count * rate)
        dmiddle = lost if dmiddle is None else dmiddle + lost
    if drate is not None:
        part = drate * (rate * rate * rate) * x * (-1.0 / count)
        dx = part if dx is None else dx + part
    if dmiddle is not None:
        part = ops.expand(dmiddle / count, shape=x.shape)
        dx = part if dx is None else dx + part
    return dx, None


@pytest.mark.parametrize("leaf", [TORCH, NdArray()], ids=str)
@pytest.mark.parametrize("present", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)], ids=str)
def test_gradient_through_any_outputs_of_a_norm(leaf: Any, present: tuple[int, ...], seed: np.random.Generator) -> None:
    tape = Autodiff(leaf)
    data = seed.normal(size=(3, 4))
    x = tracked(data, tape)
    outputs = centred(x, 1e-5)
    seeds = [seed.normal(size=y.shape) for y in outputs]
    roots = [(outputs[i].primitive, tape.from_data(TensorData.of(np.asarray(seeds[i])), "cpu")) for i in present]
    grad = of(tape.backward(roots), x)

    theirs = torch.tensor(data, requires_grad=True)
    expected = _centre(theirs, 1e-5, torch.mean, torch.sqrt)
    torch.autograd.backward([expected[i] for i in present], [torch.tensor(seeds[i]) for i in present])
    assert theirs.grad is not None
    assert np.allclose(grad, theirs.grad.numpy(), rtol=1e-12, atol=1e-12)


@op(namespace="tape_tests", torch=lambda a, b: (a * 2, a * b), numpy=lambda a, b: (a * 2, a * b))
def second_alone(a: TensorSpec, b: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """2 a, and a b: only the second output depends on b."""
    both = elementwise(a, b)
    return a, both


@second_alone.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    da = None if g[0] is None else g[0] * 2.0
    if g[1] is None:
        return da, None
    return g[1] * b if da is None else da + g[1] * b, g[1] * a


def test_output_that_alone_depends_on_an_input_carries_its_gradient() -> None:
    a, b = tracked([3.0]), tracked([5.0])
    first, second = second_alone(a, b)
    grads = backward(first, retain_graph=True)
    assert of(grads, a).tolist() == [2.0]
    assert b.primitive.node.id not in grads
    grads = backward(second)
    assert (of(grads, a).tolist(), of(grads, b).tolist()) == ([5.0], [3.0])


def test_only_the_second_input_tracked() -> None:
    a, b = constant([3.0]), tracked([5.0])
    assert of(backward(second_alone(a, b)[1]), b).tolist() == [3.0]


@op(
    namespace="tape_tests",
    torch=lambda x: tuple(torch.max(x, dim=-1, keepdim=True)),
    numpy=lambda x: (np.max(x, -1, keepdims=True), np.argmax(x, -1, keepdims=True)),
)
def largest(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """The largest value of the last axis, and where it is."""
    shape = (*x.shape[:-1], 1)
    return x.with_shape(shape), x.with_shape(shape).with_dtype(DType.I64)


@largest.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    values, indices = g
    assert indices is None, "an index has no gradient"
    return ops.mask_where(ops.expand(values, shape=x.shape), ops.not_equal(x, y[0]), 0.0)


def test_integer_output_is_not_tracked() -> None:
    x = tracked([[1.0, 3.0, 2.0]])
    values, indices = largest(x)
    assert TAPE.is_tracked(values.primitive)
    assert isinstance(indices.primitive, torch.Tensor)
    assert of(backward(values, 2.0), x).tolist() == [[0.0, 2.0, 0.0]]


@op(namespace="tape_tests", torch=lambda x: (x * 1, x * 2, x * 3), numpy=lambda x: (x * 1, x * 2, x * 3))
def whimsical(x: TensorSpec) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """x, 2 x, 3 x; its rule reads the third output where the first two alone have gradients."""
    return x, x, x


@whimsical.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    parts = [part * (i + 1.0) for i, part in enumerate(g) if part is not None]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total + y[2] * 0.0 if g[2] is None and None not in g[:2] else total


def test_rule_that_reads_more_for_some_outputs_is_reported() -> None:
    x = tracked([3.0])
    first, second, third = whimsical(x)
    assert of(backward(first + second + third, retain_graph=True), x).tolist() == [6.0]
    message = (
        r"whimsical: its gradient rule reads(.|\n)*outputs \[0, 1\] together(.|\n)*one output alone(.|\n)*not None"
    )
    with pytest.raises(TypeError, match=message):
        backward(first + second)


# -- rules and decompositions -----------------------------------------------------------------------------------
@op(namespace="tape_tests", torch=lambda x, power: x**power, numpy=lambda x, power: x**power)
def raised(x: TensorSpec, power: Number) -> TensorSpec:
    """x to a power; its rule does only axes of size 1 and leaves the others to the decomposition."""
    return x


@raised.gradient
def _(g: Any, y: Any, x: Any, power: Any) -> Any:
    if x.shape != (1,):
        return NotImplemented
    return g * 1000.0, None


@raised.decomposes
def _(x: Any, power: Any) -> Any:
    return ops.exp(ops.log(x) * power)


def test_rule_that_is_not_implemented_falls_to_the_decomposition() -> None:
    small, large = tracked([2.0]), tracked([2.0, 3.0])
    assert of(backward(raised(small, 3.0)), small).tolist() == [1000.0]
    assert np.allclose(of(backward(raised(large, 3.0)), large), [12.0, 27.0], rtol=1e-14)


def test_row_with_neither_rule_nor_decomposition_says_so() -> None:
    @op(namespace="tape_tests", torch=lambda x: x + 1)
    def bare(x: TensorSpec) -> TensorSpec:
        return x

    complaint = (
        r"tape_tests::bare has neither a gradient nor a decomposition(?s:.)*given: *.*bare(?s:.)*nondifferentiable=True"
    )
    with pytest.raises(AutodiffError, match=complaint):
        bare(tracked([1.0]))


# -- orders -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("leaf", [TORCH, NdArray()], ids=str)
def test_third_derivative(leaf: Any) -> None:
    first = Autodiff(leaf)
    second = Autodiff(first)
    third = Autodiff(second)
    data = np.array([0.3, -1.1, 2.0])
    held = constant(data, leaf)
    lows = [first.track(held.primitive, held.spec)]
    lows.append(second.track(lows[0], held.spec))
    lows.append(third.track(lows[1], held.spec))
    x = Value(third, lows[2], held.spec)
    y = x * x * x * x + ops.exp(x)
    one = constant(np.ones(3), leaf).primitive
    slope = third.backward([(y.primitive, one)])[lows[2].node.id]
    bend = second.backward([(slope, one)])[lows[1].node.id]
    turn = first.backward([(bend, one)])[lows[0].node.id]
    assert np.allclose(leaf.into_data(turn).array, 24 * data + np.exp(data), rtol=1e-13)
    assert np.allclose(leaf.into_data(first.unwrapped(bend)).array, 12 * data**2 + np.exp(data), rtol=1e-13)


# -- checkpointing -------------------------------------------------------------------------------------------------
def test_balanced_saves_fewer_values() -> None:
    def kept(tape: Autodiff) -> set[int]:
        x = tracked(np.linspace(0.1, 0.9, 5), tape)
        loss = ops.exp(x) + ops.tanh(x) + ops.sqrt(x)
        leaf = x.primitive.primitive
        saved = [s for node in nodes(loss) if node.entry is not None for s in node.saved]
        return {s.data_ptr() for s in saved if isinstance(s, torch.Tensor) and s is not leaf}

    assert len(kept(TAPE)) == 3, "each of the three outputs"
    assert not kept(Autodiff(TORCH, "balanced")), "the leaf alone, which lives anyway"


# -- writes from outside -----------------------------------------------------------------------------------------------
def test_write_to_a_saved_value_is_refused() -> None:
    theirs = torch.tensor([1.0, 2.0], dtype=torch.float64)
    adopted = TORCH.adopt(theirs)
    spec = TORCH.spec(adopted)
    x = Value(TAPE, TAPE.track(adopted, spec), spec)
    loss = ops.square(x)
    theirs.add_(1.0)
    message = r"written to after it was used(.|\n)*square(.|\n)*clone"
    with pytest.raises(AutodiffError, match=message):
        backward(loss)


def test_write_to_a_value_that_no_gradient_reads_is_allowed() -> None:
    theirs = torch.tensor([1.0, 2.0], dtype=torch.float64)
    adopted = TORCH.adopt(theirs)
    spec = TORCH.spec(adopted)
    x = Value(TAPE, TAPE.track(adopted, spec), spec)
    loss = x + x
    theirs.add_(1.0)
    assert of(backward(loss), x).tolist() == [2.0, 2.0]


def test_write_before_use_is_seen_and_allowed() -> None:
    theirs = torch.tensor([1.0, 2.0], dtype=torch.float64)
    theirs.add_(1.0)
    adopted = TORCH.adopt(theirs)
    spec = TORCH.spec(adopted)
    x = Value(TAPE, TAPE.track(adopted, spec), spec)
    assert of(backward(ops.square(x)), x).tolist() == [4.0, 6.0]


# -- threads ------------------------------------------------------------------------------------------
def test_16_threads_with_shared_leaves_give_the_bits_of_the_serial_run(seed: np.random.Generator) -> None:
    # shapes that nothing else uses, so that Calls and rules are made by the threads at once
    weight = tracked(seed.normal(size=(7, 11)))
    bias = tracked(seed.normal(size=(11,)))
    inputs = [constant(seed.normal(size=(rows, 7))) for rows in (13, 17, 19, 23)]

    def rounds(start: int, out: list[tuple[bytes, bytes]]) -> None:
        for i in range(start, start + 300):
            x = inputs[i % len(inputs)]
            loss = ops.sum(ops.tanh(ops.linear(x, weight, bias)) * ops.sum(weight * weight, dims=(0,)), dims=(0, 1))
            grads = backward(loss)
            out.append((of(grads, weight).tobytes(), of(grads, bias).tobytes()))

    results: list[list[tuple[bytes, bytes]]] = [[] for _ in range(16)]
    threads = [threading.Thread(target=rounds, args=(i, results[i])) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    serial: list[tuple[bytes, bytes]] = []
    rounds(0, serial)
    for start, result in enumerate(results):
        assert len(result) == 300
        assert all(result[k] == serial[(start + k) % len(inputs)] for k in range(300))
