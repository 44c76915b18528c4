"""compile: one trace a structure, the same bits, errors in the user's words."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

import burn_torch
from burn_torch import Device, Module, Param, StepScope, Tensor, compile
from burn_torch.backend import NdArray
from burn_torch.config import Config
from burn_torch.core.errors import ArgumentError, MovedError, TraceError
from burn_torch.core.number import Scalar
from burn_torch.core.philox import fold
from burn_torch.module.tree import Tree
from burn_torch.nn import BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig
from burn_torch.optim import AdamWConfig, CosineAnnealingLrSchedulerConfig, GradientsParams, SgdConfig
from burn_torch.transform import RetraceWarning
from burn_torch.transform.program import Program

CPU = Device.cpu()
TAPE = CPU.autodiff()


def bits(x: Tensor) -> torch.Tensor:
    return (x.no_grad() if x.device.is_autodiff() else x).into_torch()


def equal(x: Tensor, y: Tensor) -> bool:
    return torch.equal(bits(x), bits(y))


def vector(*values: float, device: Device = CPU) -> Tensor:
    return Tensor.from_data(list(values), device)


class Net(Module):
    first: Linear
    drop: Dropout
    second: Linear

    def forward(self, x: Tensor) -> Tensor:
        return self.second.forward(self.drop.forward(self.first.forward(x).relu()))


def net() -> Net:
    burn_torch.seed(3)
    return Net(LinearConfig(4, 8).init(TAPE), DropoutConfig(0.5).init(), LinearConfig(8, 2).init(TAPE))


def training_step(model: Net, optim: Any, x: Tensor, y: Tensor, lr: float) -> tuple[Net, Any, Tensor]:
    loss = ((model.forward(x) - y) ** 2).mean()
    grads = GradientsParams.from_grads(loss.backward(), model)
    model, optim = optim.step(lr, model, grads)
    return model, optim, loss.detach()


def batch() -> tuple[Tensor, Tensor]:
    burn_torch.seed(4)
    return (
        Tensor.random((6, 4), burn_torch.Distribution.Default, TAPE),
        Tensor.random((6, 2), burn_torch.Distribution.Default, TAPE),
    )


# -- the same values ------------------------------------------------------------------------------------
def test_a_training_step_is_traced_once_and_equals_the_eager_one_bit_for_bit() -> None:
    step = compile(training_step, donate=("model", "optim"))
    x, y = batch()
    eager, optim = net(), AdamWConfig().init()
    compiled, state = eager.fork(TAPE), AdamWConfig().init()
    burn_torch.seed(7)
    for i in range(12):
        eager, optim, loss = training_step(eager, optim, x, y, 1e-3 * (i + 1))
    burn_torch.seed(7)
    for i in range(12):
        compiled, state, same = step(compiled, state, x, y, 1e-3 * (i + 1))
    assert step.traces == 1
    assert equal(loss, same)
    assert [path for path, _ in eager.named_params()] == [path for path, _ in compiled.named_params()]
    assert all(
        equal(a.val(), b.val()) for (_, a), (_, b) in zip(eager.named_params(), compiled.named_params(), strict=True)
    )
    assert state.to_record().states.keys() == optim.to_record().states.keys()
    assert {time for time, _ in state.to_record().states.values()} == {12}


def test_on_ndarray_too() -> None:
    device = Device.ndarray().autodiff()
    function = compile(lambda x, n: ((x * n).exp().sum().backward(), x.sum() * n)[1])
    x = Tensor.from_data([1.0, 2.0], device).require_grad()
    assert function(x, 3.0).into_scalar() == 9.0
    assert isinstance(function(x, 2.0).backend.leaf(), NdArray)


def test_gradients_can_be_results() -> None:
    @compile
    def gradient(x: Tensor) -> Tensor:
        found = x.grad((x * x).sum().backward())
        assert found is not None
        return found

    assert gradient(vector(1.0, -3.0, device=TAPE).require_grad()).tolist() == [2.0, -6.0]


def test_gradients_params_go_in_and_out() -> None:
    model = net()
    x, y = batch()

    @compile
    def grads_of(model: Net, x: Tensor, y: Tensor) -> GradientsParams:
        return GradientsParams.from_grads(((model.forward(x) - y) ** 2).mean().backward(), model)

    @compile
    def scaled(grads: GradientsParams, factor: float) -> GradientsParams:
        return GradientsParams({ident: g * factor for ident, g in grads.items()})

    burn_torch.seed(1)
    found = scaled(grads_of(model, x, y), 2.0)
    burn_torch.seed(1)
    wanted = GradientsParams.from_grads(((model.forward(x) - y) ** 2).mean().backward(), model)
    assert list(found) == list(wanted)
    assert all(equal(found.get(i), wanted.get(i) * 2.0) for i in wanted)  # type: ignore[arg-type, operator]


@pytest.mark.parametrize("value", [-0.0, float("inf"), float("nan"), 1e-45])
def test_special_floats_pass_as_numbers(value: float) -> None:
    function = compile(lambda x, n: x * n)
    x = vector(1.0, -1.0, 0.0)
    assert torch.equal(bits(function(x, value)).view(torch.int32), bits(x * value).view(torch.int32))


# -- what is traced again -------------------------------------------------------------------------------------
def test_numbers_are_inputs_and_everything_else_is_in_the_key() -> None:
    function = compile(lambda x, n, flag, word: x * n if flag else x + n)
    x = vector(1.0, 2.0)
    for n in (1.0, 2.0, -0.5):
        assert function(x, n, True, "a").tolist() == [n, 2 * n]
    assert function.traces == 1
    assert function(x, 3, True, "a").tolist() == [3.0, 6.0]  # an int is another kind of number
    assert function(x, 3.0, False, "a").tolist() == [4.0, 5.0]
    assert function(x, 3.0, True, "b").tolist() == [3.0, 6.0]
    assert function(vector(1.0), 3.0, True, "a").tolist() == [3.0]
    assert function(x.cast(burn_torch.DType.F64), 3.0, True, "a").dtype is burn_torch.DType.F64
    assert function(x.to_device(TAPE), 3.0, True, "a").device is TAPE
    assert function.traces == 7


def test_static_arguments_may_be_shapes() -> None:
    function = compile(lambda x, rows: x.reshape((rows, -1)), static="rows")
    assert function(vector(1.0, 2.0, 3.0, 4.0), 2).shape == (2, 2)
    assert function(vector(1.0, 2.0, 3.0, 4.0), 4).shape == (4, 1)
    assert function.traces == 2


def test_constants_differ_by_bits() -> None:
    function = compile(lambda x, c: x * c, static="c")
    x = vector(1.0)
    for c in (0.0, -0.0, 1, 1.0):
        assert torch.equal(bits(function(x, c)).view(torch.int32), bits(x * c).view(torch.int32))
    assert function.traces == 4


def test_scalar_fields_are_inputs_and_plain_fields_are_constants() -> None:
    class Counter(Tree):
        count: Scalar
        step: int

        def next(self) -> Counter:
            return Counter(self.count + self.step, self.step)

    function = compile(lambda counter: counter.next())
    counter = Counter(0, 2)
    for expected in (2, 4, 6):
        counter = function(counter)
        assert counter.count == expected
    assert function.traces == 1
    assert function(Counter(1, 3)).count == 4
    assert function.traces == 2


def test_configs_enums_and_dtypes_are_constants() -> None:
    class Scale(Config):
        by: float = 2.0

    function = compile(lambda x, config, dtype: (x * config.by).cast(dtype))
    assert function(vector(1.5), Scale(), burn_torch.DType.I64).tolist() == [3]
    assert function(vector(1.5), Scale(), burn_torch.DType.I64).tolist() == [3]
    assert function.traces == 1


def test_containers_of_all_kinds() -> None:
    class Pair(NamedTuple):
        a: Tensor
        b: Any

    @dataclass(frozen=True)
    class Batch:
        x: Tensor
        size: int
        name: str = "batch"

    @compile
    def function(pair: Pair, batch: Batch, items: list[Any], names: dict[str, Any]) -> dict[str, Any]:
        return {
            "pair": Pair(pair.a + batch.x, pair.b),
            "batch": Batch(batch.x * batch.size, batch.size + 1),
            "list": [items[0] * 2, None, "word"],
            "names": {name: value * 3 for name, value in names.items()},
            "constant": 5,
        }

    x = vector(1.0, 2.0)
    found = function(Pair(x, 7), Batch(x, 3), [x, True], {"one": x, "two": 4})
    assert type(found["pair"]) is Pair
    assert found["pair"].a.tolist() == [2.0, 4.0]
    assert found["pair"].b == 7
    assert found["batch"].x.tolist() == [3.0, 6.0]
    assert (found["batch"].size, found["batch"].name) == (4, "batch")
    assert found["list"][1:] == [None, "word"]
    assert found["names"]["one"].tolist() == [3.0, 6.0]
    assert found["names"]["two"] == 12
    assert found["constant"] == 5


def test_keyword_and_positional_arguments() -> None:
    function = compile(lambda x, *more, scale=1.0, **named: x * scale + more[0] + named["bias"])
    x = vector(1.0)
    assert function(x, vector(2.0), bias=vector(3.0), scale=4.0).tolist() == [9.0]
    assert function(x, vector(2.0), scale=5.0, bias=vector(3.0)).tolist() == [10.0]


def test_methods_can_be_compiled() -> None:
    class Scaler:
        factor = 3.0

        @compile
        def scale(self, x: Tensor) -> Tensor:
            return x * self.factor

    assert Scaler().scale(vector(1.0, 2.0)).tolist() == [3.0, 6.0]


def test_many_structures_are_bounded_and_said_aloud() -> None:
    function = compile(lambda x: x + 1, max_programs=4)
    sizes = range(1, 31)
    with pytest.warns(
        RetraceWarning, match=r"was traced for 8 structures of arguments: pad batches to one size.*explain"
    ):
        found = [function(Tensor.ones((size,), CPU)).tolist() for size in sizes]
    assert found == [[2.0] * size for size in sizes]
    assert len(function._programs) == 4
    assert function(Tensor.ones((30,), CPU)).tolist() == [2.0] * 30
    assert function.traces == 30


# -- randomness and states ----------------------------------------------------------------------------------------
def test_draws_are_those_of_the_eager_function_outside_and_inside_a_scope() -> None:
    model = net()
    forward = compile(
        lambda model, x: (
            model.forward(x),
            model.forward(x),
            Tensor.random((3,), burn_torch.Distribution.Default, x.device),
        )
    )
    eager = forward.function
    x = batch()[0]
    burn_torch.seed(11)
    wanted = [*eager(model, x), *eager(model, x)]
    burn_torch.seed(11)
    found = [*forward(model, x), *forward(model, x)]
    assert all(equal(a.detach(), b) for a, b in zip(wanted, found, strict=True))
    assert not equal(found[0], found[1])
    assert not equal(found[0], found[3])
    with StepScope(5, model):
        wanted = [*eager(model, x), *eager(model, x)]
    with StepScope(5, model):
        found = [*forward(model, x), *forward(model, x)]
    assert all(equal(a.detach(), b) for a, b in zip(wanted, found, strict=True))
    with StepScope(5, {"net": model}):
        wanted = list(eager(model, x))
    with StepScope(5, {"net": model}):
        found = list(forward(model, x))
    assert all(equal(a.detach(), b) for a, b in zip(wanted, found, strict=True))
    assert forward.traces == 1


def test_a_key_can_be_an_argument() -> None:
    model = net()

    def function(model: Net, x: Tensor, key: int) -> Tensor:
        with StepScope(fold(key, 2), model):
            return model.forward(x).detach()

    forward = compile(function)
    x = batch()[0]
    for key in (1, 2, 2**62):
        assert equal(forward(model, x, key), function(model, x, key))
    assert not equal(forward(model, x, 1), forward(model, x, 2))
    assert forward.traces == 1


class Normed(Module):
    norm: BatchNorm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm.forward(x)


def test_running_states_are_handed_in_to_the_cell_or_to_the_scope() -> None:
    x = batch()[0]
    eager, compiled = Normed(BatchNormConfig(4).init(TAPE)), Normed(BatchNormConfig(4).init(TAPE))
    forward = compile(lambda model, x: model.forward(x))
    for _ in range(3):
        assert equal(eager.forward(x), forward(compiled, x))
    assert equal(eager.norm.running_mean.value(), compiled.norm.running_mean.value())
    before = compiled.norm.running_mean.value()
    with StepScope(0, compiled) as scope:
        forward(compiled, x)
        forward(compiled, x)
    assert compiled.norm.running_mean.value() is before
    with StepScope(0, eager) as wanted:
        eager.forward(x)
        eager.forward(x)
    assert equal(scope.states[compiled.norm.running_mean.id], wanted.states[eager.norm.running_mean.id])
    assert forward.traces == 1


def test_running_states_leave_with_the_model_that_is_returned() -> None:
    x = batch()[0]

    def function(model: Normed, x: Tensor) -> tuple[Normed, Tensor]:
        return model, model.forward(x).detach()

    step = compile(function, donate="model")
    eager, compiled = Normed(BatchNormConfig(4).init(TAPE)), Normed(BatchNormConfig(4).init(TAPE))
    for _ in range(3):
        eager, wanted = function(eager, x)
        compiled, found = step(compiled, x)
        assert equal(wanted, found)
    assert equal(eager.norm.running_var.value(), compiled.norm.running_var.value())


def test_a_state_that_was_changed_outside_is_seen_by_the_next_step() -> None:
    x = batch()[0]
    step = compile(lambda model, x: (model, model.forward(x).detach()), donate="model")
    model, _ = step(Normed(BatchNormConfig(4).init(TAPE)), x)
    model.norm.running_mean.update(Tensor.full((4,), 50.0, CPU))
    model, _ = step(model, x)
    assert float(model.norm.running_mean.value().mean()) > 40


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
    found = step(zeros, zeros)
    assert [t.tolist() for t in found] == [t.tolist() for t in function(vector(1.0, 2.0), vector(1.0, 2.0))]


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
        with pytest.raises(TraceError, match=r"(?s)read.*test_compile\.py:\d+ in <lambda>.*mend: "):
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
    found = compile(lambda x: x * mask, captures=[mask])
    assert found(vector(3.0, 4.0)).tolist() == [3.0, 0.0]
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


def test_a_model_made_anew_is_another_trace_told_in_one_line() -> None:
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


# -- inside and beside -----------------------------------------------------------------------------------------------
def test_a_compiled_function_inside_another_is_a_part_of_it() -> None:
    inner = compile(lambda x: x * 2)
    outer = compile(lambda x: inner(x) + 1)
    assert outer(vector(1.0)).tolist() == [3.0]
    assert (inner.traces, outer.traces) == (0, 1)


def test_constants_made_inside_are_kept() -> None:
    function = compile(lambda x: x + Tensor.from_data([1.0, 2.0], x.device) + Tensor.ones((2,), CPU))
    for _ in range(2):
        assert function(vector(1.0, 1.0)).tolist() == [3.0, 4.0]


def test_shared_parameters_stay_shared() -> None:
    class Tied(Module):
        one: Param
        two: Param

    shared = Param(vector(1.0, 2.0, device=TAPE))
    model = Tied(shared, shared)

    def function(model: Tied, optim: Any) -> tuple[Tied, Any]:
        loss = (model.one.val() * model.two.val()).sum()
        return optim.step(0.1, model, GradientsParams.from_grads(loss.backward(), model))  # type: ignore[no-any-return]

    wanted, _ = function(model, SgdConfig().init())
    found, _ = compile(function)(model, SgdConfig().init())
    assert found.one is found.two
    assert equal(found.one.val(), wanted.one.val())


def test_many_threads_call_one_function() -> None:
    function = compile(lambda x, n: (x * n).sum())
    errors: list[str] = []

    def work(number: int) -> None:
        x = Tensor.full((number % 4 + 1,), 2.0, CPU)
        for n in range(50):
            found = function(x, float(n)).into_scalar()
            if found != 2.0 * n * (number % 4 + 1):
                errors.append(f"{number} {n} {found}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert function.traces == 4


def test_2000_steps_of_a_schedule_are_one_trace() -> None:
    import math

    step = compile(training_step, donate=("model", "optim"))
    model, optim = net(), SgdConfig().init()
    x, y = batch()
    for i in range(2000):
        model, optim, _ = step(model, optim, x, y, 0.05 * (1 + math.cos(math.pi * i / 2000)))
    assert step.traces == 1


def test_all_of_a_float_tensor_is_a_call_of_torch_and_no_placeholder() -> None:
    holds = compile(lambda x, y: x.lower(y).all_dim(1))
    x = Tensor.from_data([[1.0, 2.0], [3.0, 4.0]], CPU)
    assert bits(holds(x, x + 1.0)).tolist() == [[True], [True]]
    assert bits(holds(x, Tensor.from_data([[2.0, 2.0], [9.0, 9.0]], CPU))).tolist() == [[False], [True]]
    both = compile(lambda x, y: x.lower(y).all())
    assert bits(both(x, x + 1.0)).tolist() == [True]
