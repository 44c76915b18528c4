"""Tests what compiled functions refuse, in the user's words and with the user's line."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from burn_torch import Device, Tensor, compile
from burn_torch.core.errors import ArgumentError, TraceError
from burn_torch.nn import LinearConfig
from burn_torch.optim import AdamWConfig, CosineAnnealingLrSchedulerConfig
from tests.transform.small_net import CPU, TAPE, batch, net, training_step, vector


# -- errors --------------------------------------------------------------------------------------------------------
def test_reading_a_value_names_the_line() -> None:
    for read in (
        lambda x, n: float(x.sum()),
        lambda x, n: x if x.sum() > 0 else -x,
        lambda x, n: x.tolist(),
        lambda x, n: x * int(n),
        lambda x, n: x if n > 1 else -x,
        lambda x, n: x.into_data(),
    ):
        with pytest.raises(TraceError, match=r"(?s)read.*test_compile_errors\.py:\d+ in <lambda>.*mend: "):
            compile(read)(vector(1.0, 2.0), 2.0)


def test_a_closed_over_tensor_is_named() -> None:
    mask = vector(1.0, 0.0)
    with pytest.raises(
        TraceError, match=r"(?s)a tensor that is not among its arguments\n  given:    mask \(2,\) f32 cpu.*captures="
    ):
        compile(lambda x: x * mask)(vector(1.0, 2.0))
    model = net()
    with pytest.raises(TraceError, match=r"given:    model\.first\.weight \(4, 8\) f32 cpu"):
        compile(lambda x: model.forward(x))(batch()[0])
    with pytest.raises(TraceError, match=r"given:    mask "):
        compile(lambda x: (x, mask))(vector(1.0, 2.0))
    compiled = compile(lambda x: x * mask, captures=[mask])
    assert compiled(vector(3.0, 4.0)).tolist() == [3.0, 0.0]
    assert compile(lambda x: model.forward(x), captures=[model])(batch()[0]).shape == (6, 2)


def test_a_list_that_grows_outside_is_an_error() -> None:
    losses: list[Tensor] = []

    def step(x: Tensor) -> Tensor:
        losses.append(x.sum())
        return x * 2

    with pytest.raises(TraceError, match=r"given:    losses, a list, changed while step was traced"):
        compile(step)(vector(1.0))
    with pytest.raises(TraceError, match="a value of a traced function was used after the tracing had ended"):
        _ = losses[0] + 1
    with pytest.raises(TraceError, match="after the tracing had ended"):
        float(losses[0])


class Counter:
    """Counts, as schedules do."""

    def __init__(self) -> None:
        self.taken = 0
        self.total: Any = 0.0
        self.cached: Tensor | None = None

    def next(self) -> int:
        self.taken += 1
        return self.taken

    def add(self, x: Tensor) -> Tensor:
        self.total = self.total + x
        return x

    def twice(self, x: Tensor) -> Tensor:
        if self.cached is None:
            self.cached = x
        self.total = float("0")  # another object, the same number
        return x * 2


def test_a_number_of_an_object_that_is_counted_on_is_an_error() -> None:
    counter, schedule = Counter(), CosineAnnealingLrSchedulerConfig(0.1, num_iters=10).init()
    x = vector(1.0)
    with pytest.raises(TraceError, match=r"given:    schedule.taken, an int, changed(?s:.*)schedule\.step\(\)\)"):
        compile(lambda x: x * schedule.step())(x)
    with pytest.raises(TraceError, match=r"given:    rate.taken, an int, changed"):
        compile(lambda x, rate: x * rate.step())(x, schedule)
    with pytest.raises(TraceError, match=r"given:    counter.taken, an int, changed"):
        compile(lambda x: x * counter.next())(x)
    with pytest.raises(TraceError, match=r"given:    counter.total, a float, changed"):
        compile(lambda x: counter.add(x))(x)


def test_an_object_may_be_read_and_fill_a_cache() -> None:
    counter, schedule = Counter(), CosineAnnealingLrSchedulerConfig(0.1, num_iters=10).init()
    assert compile(lambda x: counter.twice(x))(vector(1.0)).tolist() == [2.0]
    assert compile(lambda x: x * schedule.lr_at(0))(vector(10.0)).tolist() == [1.0]


def test_a_model_made_anew_is_another_trace_reported_in_one_line() -> None:
    step = compile(training_step)
    for model in (net(), net()):
        step(model, AdamWConfig().init(), *batch(), 1e-3)
    retrace = step.explain(net(), AdamWConfig().init(), *batch(), 1e-3).retraces[1]
    assert str(retrace).startswith("trace 2: model.")
    assert str(retrace).endswith("; and more")
    assert str(retrace).count(", was ") == 3 < len(retrace.differences)


def test_a_module_is_not_a_function_to_compile() -> None:
    with pytest.raises(ArgumentError, match=r"given:    a module, Linear\n(?s:.*)lambda model, x: model.forward\(x\)"):
        compile(LinearConfig(2, 2).init(CPU))


def test_a_list_among_the_arguments_that_is_changed_is_an_error() -> None:
    def step(x: Tensor, seen: list[Any]) -> Tensor:
        seen.append(x)
        return x

    with pytest.raises(TraceError, match=r"given:    seen, a list, changed while step was traced"):
        compile(step)(vector(1.0), [1])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.ones(2), r"x: a torch.Tensor \(2,\)(?s:.*)Tensor.from_torch"),
        (torch.ones(2).numpy(), r"x: a numpy array \(2,\)(?s:.*)Tensor.from_data"),
        ([torch.ones(2).numpy().sum()], r"x\[0\]: a numpy float32(?s:.*)value.item\(\)"),
        ({"a": [bytearray(b"1")]}, r"x\['a'\]\[0\]: a builtins.bytearray"),
    ],
)
def test_what_cannot_be_an_argument_is_named_with_its_path(value: Any, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        compile(lambda x: x)(value)


def test_a_tensor_that_hangs_on_a_tape_is_refused() -> None:
    x = vector(1.0, device=TAPE).require_grad() * 2
    with pytest.raises(TraceError, match=r"x: a tensor that hangs on a tape\n(?s:.*)x.detach\(\)"):
        compile(lambda x: x)(x)


def test_one_trained_parameter_under_two_arguments_is_refused() -> None:
    model = LinearConfig(2, 2).init(TAPE)
    function = compile(lambda a, b: a.weight.val() + b.weight.val())
    assert function(model, model.no_grad()).shape == (2, 2)
    with pytest.raises(TraceError, match="one tensor that asks for gradients is an argument twice"):
        function(model, model)


def test_tensors_of_two_backends_are_refused() -> None:
    with pytest.raises(TraceError, match=r"a on LibTorch, b on NdArray"):
        compile(lambda a, b: a)(vector(1.0), vector(1.0, device=Device.ndarray()))


def test_shapes_that_depend_on_data_are_refused() -> None:
    with pytest.raises(TraceError, match="whose shape depends on data was traced"):
        compile(lambda x: x.nonzero())(vector(1.0, 0.0))


def test_an_error_of_the_function_leaves_nothing_behind() -> None:
    def bad(x: Tensor) -> Tensor:
        raise KeyError("mine")

    step = compile(bad, donate="x")
    x = vector(1.0)
    with pytest.raises(KeyError, match="mine"):
        step(x)
    assert x.tolist() == [1.0]
    assert (vector(1.0) + 1).tolist() == [2.0]  # devices compute again
