"""Nothing that planning raises ends a user's step: the next plainer plan runs, `explain` says why, tests see it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Tensor, compile, explain, value_and_grad
from burn_torch.backend.lazy import FusionWarning
from burn_torch.backend.libtorch.generated import c_kernels
from burn_torch.core.errors import ShapeError
from burn_torch.fusion.body import needs
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.planning import pieces, planner, schedule
from burn_torch.fusion.planning.faults import note_fault, plan_or_plainer
from burn_torch.fusion.planning.groups import Grouping
from burn_torch.fusion.planning.planner import plan_of
from burn_torch.fusion.rows.row import body_of, kernel
from burn_torch.fusion.shapes import variants
from burn_torch.fusion.triton import lowering
from burn_torch.graph.interpreter import interpret
from burn_torch.tensor import activation
from burn_torch.transform import program
from tests.fusion.programs import row, tensor, traced

CPU = Device.cpu()


class Broken(RuntimeError):
    """A fault of ours, as a test plants it."""


def broken(*_: Any, **__: Any) -> Any:
    raise Broken("planted")


@contextmanager
def told() -> Iterator[list[str]]:
    """The warnings of a planner that fails."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield messages
    assert seen, "a fault of ours is warned of"
    assert all(issubclass(each.category, FusionWarning | c_kernels.CompilerWarning) for each in seen), seen
    messages += [str(each.message) for each in seen]


def layer(x: Tensor, w: Tensor) -> Tensor:
    y = (x.matmul(w) * 0.5).tanh() + x.exp() * 0.1
    return (y - y.mean_dim(1)) / ((y * y).mean_dim(1) + 1e-3).sqrt()


def arrays(seed: np.random.Generator, *shapes: tuple[int, ...]) -> list[Tensor]:
    return [Tensor.from_data(seed.standard_normal(shape).astype(np.float32), CPU) for shape in shapes]


PLACES: dict[str, tuple[Any, str]] = {
    "composites": (planner, "open_composites"),
    "joining": (Grouping, "run"),
    "side by side": (Grouping, "side_by_side"),
    "writing the plan": (schedule, "_write_graph"),
    "memory": (schedule, "peak_bytes"),
    "losses in chunks": (program, "chunk_losses"),
    "gradients of tables": (program, "add_rows"),
    "endings of products": (program, "with_endings"),
    "values made again": (program, "kept_less"),
    "patterns": (program, "replaced"),
    "the leaf's kernels": (c_kernels, "lowered_for_cpu"),
    "a kernel's launcher": (c_kernels, "_launcher"),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_compiled_step_outlives_a_fault_of_the_planner(
    place: str, seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BURN_TORCH_VERIFY", raising=False)
    x, w = arrays(seed, (7, 9), (9, 9))
    exact = layer(x, w).into_torch()
    c_kernels.c_function.cache_clear()
    monkeypatch.setattr(*PLACES[place], broken)
    f = compile(layer, fuse=True)
    with told() as words:
        output = f(x, w)
    torch.testing.assert_close(output.into_torch(), exact, rtol=1e-5, atol=1e-5)
    assert any("Broken: planted" in each and "the results are right" in each for each in words), words
    assert "Broken: planted" in str(explain(f, x, w)), "explain says what is plainer, and why"


@pytest.mark.parametrize("place", [place for place in PLACES if place != "a kernel's launcher"])
def test_a_fault_is_raised_where_someone_verifies(
    place: str, seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BURN_TORCH_VERIFY", "1")
    c_kernels.c_function.cache_clear()
    monkeypatch.setattr(*PLACES[place], broken)
    with pytest.raises(Broken, match="planted"):
        compile(layer, fuse=True)(*arrays(seed, (7, 9), (9, 9)))


def test_a_limit_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURN_TORCH_VERIFY", "1")
    assert note_fault("a step", Unfusible(Reason.LIMIT, "25 tensors")) == "a step: limit: 25 tensors"
    notes: list[str] = []

    def plan() -> int:
        raise Unfusible(Reason.LIMIT, "25 tensors")

    assert plan_or_plainer("a step", plan, lambda: 3, notes) == 3
    assert notes == ["a step: limit: 25 tensors"]


def test_a_users_error_reaches_the_user(seed: np.random.Generator) -> None:
    def wrong(x: Tensor, i: Tensor) -> Tensor:
        return (x * 2.0 + 1.0).exp().gather(1, i)

    x = arrays(seed, (3, 4))[0]
    with pytest.raises(Exception, match=r"(?i)index|out of"):
        compile(wrong, fuse=True)(x, Tensor.from_data(np.full((3, 1), 9), CPU)).into_data()


def around(x: Any, y: Any) -> Any:
    for _ in range(6):
        x = (row("tanh")(x) * 0.5 + y) * row("exp")(y * 0.1)
    return x, row("cos")(x) * y


def test_what_cannot_be_planned_is_planned_in_pieces(
    seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the stretch that raises is left to the leaf; the values are right, in whatever order outputs are."""
    monkeypatch.delenv("BURN_TORCH_VERIFY", raising=False)
    graph = traced(around, [tensor(5, 3), tensor(5, 3)])
    plan = planner._plan_whole

    def fails_on_cos(graph: Any, choices: Any, strict: bool) -> Any:
        if any(node.call.op.name == "cos" for node in graph.nodes):
            raise Broken("planted")
        return plan(graph, choices, strict)

    whole = plan_of(graph)
    monkeypatch.setattr(planner, "_plan_whole", fails_on_cos)
    with told() as words:
        in_pieces = plan_of(graph)
    assert len(words) == 1, "one fault is told of once"
    assert in_pieces.notes == (f"planned in pieces: {len(graph.nodes)} operations: Broken: planted",)
    assert in_pieces.groups
    assert in_pieces.kernels > whole.kernels
    assert any("planned apart" in boundary.detail for boundary in in_pieces.boundaries)
    inputs = [torch.from_numpy(seed.standard_normal((5, 3)).astype(np.float32)) for _ in range(2)]
    leaf = CPU.backend
    for y, z in zip(interpret(in_pieces.graph, leaf, inputs), interpret(graph, leaf, inputs), strict=True):
        torch.testing.assert_close(y, z)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 100])
def test_pieces_of_any_length_compute_the_same(length: int, seed: np.random.Generator) -> None:
    graph = traced(around, [tensor(4, 6), tensor(4, 6)])
    plan = pieces.plan_in_pieces(graph, length, plan_of)
    inputs = [torch.from_numpy(seed.standard_normal((4, 6)).astype(np.float32)) for _ in range(2)]
    leaf = CPU.backend
    for y, z in zip(interpret(plan.graph, leaf, inputs), interpret(graph, leaf, inputs), strict=True):
        torch.testing.assert_close(y, z, rtol=1e-5, atol=1e-6)


# -- groups that read more, or write more, than they were joined for -----------------------------------------
def test_a_group_that_must_write_more_than_it_was_joined_for_stays_a_kernel(
    seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that does again what another one makes reads what that one read: its maker has more results then."""
    monkeypatch.setattr(needs, "MOST_TENSORS", 7)

    def loss(w: Tensor, x: Tensor) -> Tensor:
        """An LSTM of three steps."""
        hidden, cell, total = x[0] * 0.0, x[0] * 0.0, x[0] * 0.0
        for t in range(3):
            joint = Tensor.cat([x[t], hidden], 1).matmul(w)
            entered, kept, shown, candidate = joint.chunk(4, 1)
            cell = activation.sigmoid(kept) * cell + activation.sigmoid(entered) * candidate.tanh()
            hidden = activation.sigmoid(shown) * cell.tanh()
            total = total + hidden.square()
        return total.mean()

    w, *x = arrays(seed, (8, 16), *[(2, 4)] * 3)
    f = compile(value_and_grad(loss), fuse=True)
    kernels = [node.call.attrs for node in f.opened(w, x).graph.nodes if node.call.op is kernel]
    assert len(kernels) > 4
    for attrs in kernels:
        lowering.lower(body_of(attrs["body"]), strict=attrs["strict"])
    for y, z in zip(f(w, x), value_and_grad(loss)(w, x), strict=True):
        torch.testing.assert_close(y.into_torch(), z.into_torch(), rtol=1e-5, atol=1e-6)


# -- symbolic plans ------------------------------------------------------------------------------------------
SYMBOLIC: dict[str, str] = {"symbols": "symbolised", "the plan": "SymbolicPlan"}


@pytest.mark.parametrize("place", SYMBOLIC)
def test_a_fault_with_symbols_means_the_exact_plan(
    place: str, seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BURN_TORCH_VERIFY", raising=False)
    w = arrays(seed, (9, 9))[0]
    f = compile(layer, fuse=True)
    f(*arrays(seed, (4, 9)), w)
    monkeypatch.setattr(variants, SYMBOLIC[place], broken)
    x = arrays(seed, (6, 9))[0]
    with told() as words:
        output = f(x, w)
    torch.testing.assert_close(output.into_torch(), layer(x, w).into_torch(), rtol=1e-5, atol=1e-5)
    assert any("planned at these sizes alone: Broken: planted" in each for each in words)
    assert "planned at these sizes alone: Broken: planted" in str(explain(f, x, w))


@pytest.mark.parametrize("kind", [TypeError, ValueError, ZeroDivisionError, AssertionError, ShapeError])
def test_a_bug_in_planning_with_symbols_is_reported_whatever_it_raises(
    kind: type[Exception], seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of these is a limit that planning names, so none is taken for one."""
    monkeypatch.delenv("BURN_TORCH_VERIFY", raising=False)
    w = arrays(seed, (9, 9))[0]
    f = compile(layer, fuse=True)
    f(*arrays(seed, (4, 9)), w)

    def raises(*_: Any, **__: Any) -> Any:
        raise kind("planted")

    monkeypatch.setattr(variants, "SymbolicPlan", raises)
    with told() as words:
        f(arrays(seed, (6, 9))[0], w)
    assert any(f"{kind.__name__}: planted" in each for each in words)
    monkeypatch.setenv("BURN_TORCH_VERIFY", "1")
    with pytest.raises(kind, match="planted"):
        f(arrays(seed, (8, 9))[0], w)


def test_a_plan_that_cannot_be_had_at_a_shape_is_made_for_it(
    seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BURN_TORCH_VERIFY", raising=False)
    w = arrays(seed, (9, 9))[0]
    f = compile(layer, fuse=True)
    for rows in (4, 6):
        f(*arrays(seed, (rows, 9)), w)
    monkeypatch.setattr(variants.SymbolicPlan, "graph", broken)
    x = arrays(seed, (11, 9))[0]
    with told():
        output = f(x, w)
    torch.testing.assert_close(output.into_torch(), layer(x, w).into_torch(), rtol=1e-5, atol=1e-5)


def test_an_update_of_what_was_sliced_has_symbols(seed: np.random.Generator) -> None:
    """The gradient of `pos[:, :n]` is padded to n + (512 - n), which is 512: the update of `pos` asks whether it is."""

    def step(pos: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        def loss(pos: Tensor) -> Tensor:
            return (x + pos.slice_dim(0, slice(0, x.shape[1]))).tanh().square().mean()

        value, gradient = value_and_grad(loss)(pos)
        return pos - gradient * 0.1, value

    f = compile(step, fuse=True)
    pos = arrays(seed, (64, 5))[0]
    for length in (10, 17, 23, 31):
        x = arrays(seed, (2, length, 5))[0]
        for y, z in zip(f(pos, x), step(pos, x), strict=True):
            torch.testing.assert_close(y.into_torch(), z.into_torch(), rtol=1e-5, atol=1e-6)
    said = str(explain(f, pos, x))
    assert "plainer" not in said, said
    assert "s0, " in said
