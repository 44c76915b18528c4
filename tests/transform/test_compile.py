"""compile: one trace a structure, the same bits."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

import burn_torch
from burn_torch import Device, Module, Param, StepScope, Tensor, compile
from burn_torch.backend import NdArray
from burn_torch.config import Config
from burn_torch.core.philox import fold
from burn_torch.module.scalar import Scalar
from burn_torch.module.tree import Tree
from burn_torch.nn import BatchNorm, BatchNormConfig
from burn_torch.optim import AdamWConfig, GradientsParams, SgdConfig
from burn_torch.transform import RetraceWarning
from tests.transform.small_net import CPU, TAPE, Net, batch, bits, equal, net, training_step, vector


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
        grad = x.grad((x * x).sum().backward())
        assert grad is not None
        return grad

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
    doubled = scaled(grads_of(model, x, y), 2.0)
    burn_torch.seed(1)
    wanted = GradientsParams.from_grads(((model.forward(x) - y) ** 2).mean().backward(), model)
    assert list(doubled) == list(wanted)
    assert all(equal(doubled.get(i), wanted.get(i) * 2.0) for i in wanted)  # type: ignore[arg-type, operator]


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
    outputs = function(Pair(x, 7), Batch(x, 3), [x, True], {"one": x, "two": 4})
    assert type(outputs["pair"]) is Pair
    assert outputs["pair"].a.tolist() == [2.0, 4.0]
    assert outputs["pair"].b == 7
    assert outputs["batch"].x.tolist() == [3.0, 6.0]
    assert (outputs["batch"].size, outputs["batch"].name) == (4, "batch")
    assert outputs["list"][1:] == [None, "word"]
    assert outputs["names"]["one"].tolist() == [3.0, 6.0]
    assert outputs["names"]["two"] == 12
    assert outputs["constant"] == 5


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
        outputs = [function(Tensor.ones((size,), CPU)).tolist() for size in sizes]
    assert outputs == [[2.0] * size for size in sizes]
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
    outputs = [*forward(model, x), *forward(model, x)]
    assert all(equal(a.detach(), b) for a, b in zip(wanted, outputs, strict=True))
    assert not equal(outputs[0], outputs[1])
    assert not equal(outputs[0], outputs[3])
    with StepScope(5, model):
        wanted = [*eager(model, x), *eager(model, x)]
    with StepScope(5, model):
        outputs = [*forward(model, x), *forward(model, x)]
    assert all(equal(a.detach(), b) for a, b in zip(wanted, outputs, strict=True))
    with StepScope(5, {"net": model}):
        wanted = list(eager(model, x))
    with StepScope(5, {"net": model}):
        outputs = list(forward(model, x))
    assert all(equal(a.detach(), b) for a, b in zip(wanted, outputs, strict=True))
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
        compiled, output = step(compiled, x)
        assert equal(wanted, output)
    assert equal(eager.norm.running_var.value(), compiled.norm.running_var.value())


def test_a_state_that_was_changed_outside_is_seen_by_the_next_step() -> None:
    x = batch()[0]
    step = compile(lambda model, x: (model, model.forward(x).detach()), donate="model")
    model, _ = step(Normed(BatchNormConfig(4).init(TAPE)), x)
    model.norm.running_mean.update(Tensor.full((4,), 50.0, CPU))
    model, _ = step(model, x)
    assert float(model.norm.running_mean.value().mean()) > 40


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
    tied, _ = compile(function)(model, SgdConfig().init())
    assert tied.one is tied.two
    assert equal(tied.one.val(), wanted.one.val())


def test_many_threads_call_one_function() -> None:
    function = compile(lambda x, n: (x * n).sum())
    errors: list[str] = []

    def work(number: int) -> None:
        x = Tensor.full((number % 4 + 1,), 2.0, CPU)
        for n in range(50):
            total = function(x, float(n)).into_scalar()
            if total != 2.0 * n * (number % 4 + 1):
                errors.append(f"{number} {n} {total}")

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
