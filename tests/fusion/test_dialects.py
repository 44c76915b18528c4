"""One body, several dialects: what a body needs is decided without text, and a language is a small table."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch.core.dtype import DType
from burn_torch.core.spec import INT_NUMBER
from burn_torch.fusion.body.dialect import Dialect
from burn_torch.fusion.body.loops import Text
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.body.tiles import decide_tiles
from burn_torch.fusion.c.dialect import C
from burn_torch.fusion.c.lowering import lower_to_c
from burn_torch.fusion.planning.composites import open_composites
from burn_torch.fusion.planning.legality import Legality
from burn_torch.fusion.triton.dialect import Triton
from burn_torch.fusion.triton.lowering import lower
from burn_torch.graph.ir import Graph
from tests.fusion import plain_python
from tests.fusion.checking import in_float64, made
from tests.fusion.plain_python import Plain, lower_plainly, run
from tests.fusion.programs import PROGRAMS, gelu, row, softmax, tensor, traced
from tests.fusion.replay import DOORS
from tests.fusion.replay_corpus import of_programs, of_recipes


# -- a third dialect ---------------------------------------------------------------------------------------
def deviation(x: Any, y: Any) -> Any:
    """Three passes over a row, a view that turns, and a comparison."""
    turned = row("permute")(y, axes=(1, 0))
    z = row("maximum")(x, turned) + row("sign")(turned)
    return row("sqrt")(row("mean")((z - row("mean")(z, dims=(1,))) * z, dims=(1,)) + 3.0), row("any")(
        z > 1.0, dims=(1,)
    )


def drawn(x: Any, key: Any, stream: Any) -> Any:
    return row("dropout")(x, 0.25, key, stream) + 1.0


def opened(function: Any, specs: Any) -> Graph:
    """The graph of a function, with its composite operations opened."""
    return open_composites(traced(function, specs))[0].dense()


BODIES: dict[str, Graph] = {
    "deviation": opened(deviation, [tensor(5, 6), tensor(6, 5)]),
    "drawn": opened(drawn, [tensor(3, 5), INT_NUMBER, INT_NUMBER]),
    "erfinv": opened(lambda x: row("erfinv")(row("tanh")(x)) * 0.5, [tensor(7)]),
    "integers": opened(lambda x: row("abs")(x) * 3 - x, [tensor(9, dtype=DType.I32)]),
    **{
        name: opened(PROGRAMS[name][0], PROGRAMS[name][1])
        for name in ("gelu", "chain12", "softmax", "rotary", "joined", "surrounded", "assigned")
    },
}


@pytest.mark.parametrize("name", BODIES)
def test_a_third_dialect_computes_what_the_rows_do(name: str, seed: np.random.Generator) -> None:
    """Its values are those of the operations one by one, in double precision."""
    body = BODIES[name]
    inputs = made([spec for _, spec in body.inputs], seed)
    outputs = run(lower_plainly(body), inputs)
    exact = in_float64(body, inputs)
    assert len(outputs) == len(exact)
    for values, expected in zip(outputs, exact, strict=True):
        flat = torch.as_tensor([float(value) for value in values], dtype=torch.float64)
        torch.testing.assert_close(flat, expected.double().flatten(), rtol=1e-5, atol=1e-6)


def test_a_dialect_is_a_small_table() -> None:
    assert len(inspect.getsource(plain_python).splitlines()) <= 190
    assert len(inspect.getsource(Plain).splitlines()) <= 150


def test_steps_are_those_of_the_body_in_every_language() -> None:
    """A language that knows all functions decides as Triton does, and its text is no part of that."""
    body = opened(softmax, [tensor(4, 6)])
    kinds = [[type(step).__name__ for step in decide_tiles(body, dialect).steps] for dialect in (Triton, Plain)]
    assert kinds[0] == kinds[1]


# -- planning writes nothing -------------------------------------------------------------------------------
def forbid_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a text was asked for")

    monkeypatch.setattr(Text, "written", property(refuse))
    monkeypatch.setattr(Dialect, "__init__", refuse)


def cases() -> Iterable[Any]:
    yield from of_programs(quick=False)
    recipes = list(of_recipes(quick=False))
    yield from recipes[:4]


@pytest.mark.parametrize("door", ["outside", "anchors", "stream", "compile"])
def test_planning_writes_no_source(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither Triton nor C: what a body needs says whether it is a kernel, and what it may write over what."""
    chosen = [case for case in cases() if door in case.doors]
    forbid_text(monkeypatch)
    planned = [plan for case in chosen for plan, _ in DOORS[door](case.graphs, case.options)]
    assert sum(plan.kernels for plan in planned) > len(chosen) // 2 > 2


def test_a_kernel_is_written_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    body = traced(gelu, [tensor(6, 10)])
    with monkeypatch.context() as patch:
        forbid_text(patch)
        kernel, in_c = lower(body), lower_to_c(body)
        assert kernel.over == in_c.over == ((0, 0),)
        with pytest.raises(AssertionError, match="a text was asked for"):
            kernel.source  # noqa: B018  # asking is the point
    assert "tl.store(q0" in kernel.source
    assert f"void {in_c.name}(" in in_c.source
    assert lower(body).name == kernel.name


# -- what a language cannot say ----------------------------------------------------------------------------
@pytest.mark.parametrize("write", [lower, lower_to_c])
def test_what_no_language_writes_is_refused_before_any_text(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_text(monkeypatch)
    body = traced(lambda x: row("erf")(x) + 1.0, [tensor(8, dtype=DType.F32)])
    write(body)
    without = classmethod(lambda cls, function: function.numpy and type(function.c)())
    monkeypatch.setattr(Triton, "forms", without)
    monkeypatch.setattr(C, "forms", without)
    with pytest.raises(Unfusible, match="kernels have no erf of f32") as fault:
        write(body)
    assert fault.value.reason is Reason.UNSUPPORTED
    assert str(Legality(100.0).fault(traced(lambda x: row("erf")(x), [tensor(5)]))).endswith("no erf of f32")


@pytest.mark.parametrize(("lower_body", "terms"), [(lower, {"strikt": True}), (lower_to_c, {"over": True})])
def test_terms_that_a_language_does_not_know_are_refused(lower_body: Any, terms: dict[str, bool]) -> None:
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{next(iter(terms))}'"):
        lower_body(BODIES["gelu"], **terms)
