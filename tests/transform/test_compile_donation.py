"""Donated arguments of compiled functions: moved, written over, and what else holds their memory."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch

from burn_torch import Tensor, compile
from burn_torch.core.errors import ArgumentError, MovedError
from burn_torch.nn import LinearConfig
from burn_torch.optim import AdamWConfig
from burn_torch.transform.program import Program
from tests.transform.small_net import CPU, TAPE, batch, bits, equal, net, training_step, vector


# -- donation -----------------------------------------------------------------------------------------------------
def test_a_donated_argument_is_moved() -> None:
    step = compile(training_step, donate=("model", "optim"))
    x, y = batch()
    model, optim = net(), AdamWConfig().init()
    layer, weight = model.first, model.first.weight.val()
    before = bits(weight).clone()
    step(model, optim, x, y, 1e-3)
    for use in (lambda: model.first, lambda: model.forward(x), lambda: list(model.named_params()), lambda: optim.groups,
                lambda: step(model, optim, x, y, 1e-3)):  # fmt: skip
        with pytest.raises(MovedError, match=r"was used after a compiled function had taken it over\n"
                           r"  given:    a value that was donated to training_step\n"):  # fmt: skip
            use()
    assert torch.equal(bits(weight), before)  # what somebody else held keeps its value
    assert torch.equal(bits(layer.weight.val()), before)


def test_a_donated_tensor_is_moved_and_its_views_keep_their_values() -> None:
    step = compile(lambda x: x * 2, donate="x")
    x = vector(1.0, 2.0)
    view = x.reshape((2, 1))
    held = x.into_torch()
    assert step(x).tolist() == [2.0, 4.0]
    assert view.flatten(0, 1).tolist() == [1.0, 2.0]
    assert held.tolist() == [1.0, 2.0]
    for use in (lambda: x + 1, lambda: x.tolist(), lambda: step(x)):
        with pytest.raises(MovedError, match="a tensor was used after a compiled function had taken it over"):
            use()


def test_memory_that_torch_or_numpy_hold_is_not_written_to() -> None:
    step = compile(lambda x: x * 2, donate="x")
    theirs = torch.tensor([1.0, 2.0])
    assert step(Tensor.from_torch(theirs)).tolist() == [2.0, 4.0]
    assert theirs.tolist() == [1.0, 2.0]
    array = torch.tensor([1.0, 2.0]).numpy()
    assert step(Tensor.from_torch(torch.from_numpy(array))).tolist() == [2.0, 4.0]
    assert array.tolist() == [1.0, 2.0]


def test_what_was_donated_is_let_go_before_the_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call of a large model copied its state and kept the old one alive beside it until its end."""
    model = net()
    held = [weakref.ref(bits(param.val())) for _, param in model.named_params()]
    alive: list[int] = []
    run = Program.__call__

    def counted(self: Program, *args: Any, **options: Any) -> Any:
        alive.append(sum(ref() is not None for ref in held))
        return run(self, *args, **options)

    monkeypatch.setattr(Program, "__call__", counted)
    arguments = [model, AdamWConfig().init()]
    del model
    step = compile(training_step, donate=("model", "optim"))
    step(*arguments, Tensor.ones((3, 4), CPU), Tensor.ones((3, 2), CPU), 0.1)
    assert len(held) == 4
    assert alive == [0]


def test_one_tensor_donated_under_two_names_counts_twice() -> None:
    def function(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a * 0.9, b * 0.1 + 1

    step = compile(function, donate=("a", "b"))
    zeros = vector(1.0, 2.0)
    outputs = step(zeros, zeros)
    assert [t.tolist() for t in outputs] == [t.tolist() for t in function(vector(1.0, 2.0), vector(1.0, 2.0))]


def test_a_result_that_is_an_argument_shares_nothing_with_it() -> None:
    function = compile(lambda model, x: (model, model, x, x.reshape((2, 1))))
    model = LinearConfig(2, 2).init(TAPE)
    x = vector(1.0, 2.0)
    one, two, y, z = function(model, x)
    step = compile(lambda m: m.map_params(lambda p: p.map(lambda t: t * 0.0)), donate="m")
    step(one)
    assert equal(two.weight.val(), model.weight.val())
    bits(y).add_(1)
    assert x.tolist() == [1.0, 2.0]
    assert z.flatten(0, 1).tolist() == [1.0, 2.0]


def test_what_was_read_of_a_result_keeps_its_value_when_the_result_is_donated() -> None:
    step = compile(lambda m: m.map_params(lambda p: p.map(lambda t: t * 0.5)), donate="m")
    model = step(LinearConfig(2, 2).init(TAPE))
    weight = model.weight.val()
    before = bits(weight).clone()
    for _ in range(3):
        model = step(model)
    assert torch.equal(bits(weight), before)
    assert torch.equal(bits(model.weight.val()), before / 8)


def test_results_are_not_overwritten_by_later_calls() -> None:
    function = compile(lambda x, n: x * n)
    x = vector(1.0, 2.0)
    results = [function(x, float(n)) for n in range(5)]
    assert [r.tolist() for r in results] == [[n, 2.0 * n] for n in range(5)]


def test_donate_names_arguments_that_exist() -> None:
    with pytest.raises(ArgumentError, match=r"compile: donate names arguments that training_step has not\n"
                       r"  given:    'modle', 9\n  expected: names of single arguments of training_step"):  # fmt: skip
        compile(training_step, donate=("modle", 9))
    for option in ({"numerics": "fats"}, {"precision": "float16"}):
        with pytest.raises(ArgumentError, match="compile: unknown "):
            compile(training_step, **option)  # type: ignore[call-overload]
