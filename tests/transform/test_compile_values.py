"""Tests what enters and leaves compiled steps: trees without fields yet, donation, scopes and states, memory."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import burn_torch
from burn_torch import Device, Distribution, Module, Param, StepScope, Tensor, compile
from burn_torch.core.errors import ArgumentError, MovedError, TraceError
from burn_torch.module import ModuleMapper, ModuleVisitor
from burn_torch.nn import BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig
from burn_torch.optim import AdamWConfig, GradientsAccumulator, GradientsParams, SgdConfig
from burn_torch.transform.structure import Structure

CPU = Device.cpu()
TAPE = CPU.autodiff()


class Net(Module):
    first: Linear
    second: Linear

    def forward(self, x: Tensor) -> Tensor:
        return self.second.forward(self.first.forward(x).relu())


class Noisy(Module):
    norm: BatchNorm
    drop: Dropout

    def forward(self, x: Tensor) -> Tensor:
        return self.drop.forward(self.norm.forward(x))


def net() -> Net:
    burn_torch.seed(3)
    return Net(LinearConfig(4, 8).init(TAPE), LinearConfig(8, 2).init(TAPE))


def noisy() -> Noisy:
    return Noisy(BatchNormConfig(4).init(TAPE), DropoutConfig(0.5).init())


def batch() -> tuple[Tensor, Tensor]:
    burn_torch.seed(4)
    return Tensor.random((6, 4), Distribution.Default, TAPE), Tensor.random((6, 2), Distribution.Default, TAPE)


def training_step(model: Any, optim: Any, x: Tensor, y: Tensor, lr: float) -> tuple[Any, Any, Tensor]:
    loss = ((model.forward(x) - y) ** 2).mean()
    model, optim = optim.step(lr, model, GradientsParams.from_grads(loss.backward(), model))
    return model, optim, loss.detach()


def stepped(step: Any, model: Any, optim: Any, times: int = 2) -> tuple[Any, Any]:
    x, y = batch()
    for _ in range(times):
        model, optim, _ = step(model, optim, x, y, 1e-2)
    return model, optim


def fresh() -> tuple[Net, Any]:
    """A model and an optimizer whose fields nobody has read."""
    model, optim = stepped(compile(training_step, donate=("model", "optim")), net(), AdamWConfig().init())
    assert "first" not in vars(model)
    return model, optim


def bits(x: Tensor) -> bytes:
    return (x.no_grad() if x.device.is_autodiff() else x).into_data().to_bytes()


def params(model: Module) -> list[bytes]:
    return [bits(param.val()) for _, param in model.named_params()]


@pytest.fixture(scope="module")
def wanted() -> list[bytes]:
    return params(stepped(training_step, net(), AdamWConfig().init())[0])


# -- trees that nobody has read yet --------------------------------------------------------------------------------
class _Doubles(ModuleMapper):
    def map_float(self, param: Param) -> Param:
        return param.map(lambda x: x * 2.0)


class _Halves(ModuleMapper):
    def map_float(self, param: Param) -> Param:
        return param.map(lambda x: x * 0.5)


class _Collects(ModuleVisitor):
    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def visit_float(self, param: Param) -> None:
        self.seen.append(bits(param.val()))


def _visit_params(model: Net) -> list[bytes]:
    collects = _Collects()
    model.visit(collects)
    return collects.seen


@pytest.mark.parametrize(
    "read",
    [
        lambda model: params(pickle.loads(pickle.dumps(model))),
        lambda model: params(copy.copy(model)),
        lambda model: params(copy.deepcopy(model)),
        lambda model: params(dataclasses.replace(model)),
        lambda model: params(Net(model.first, model.second)),
        lambda model: params(net().load_record(model.into_record())),
        lambda model: params(model.fork(TAPE)),
        lambda model: params(model.valid()),
        lambda model: params(model.map(_Doubles()).map(_Halves())),
        lambda model: params(compile(lambda m: m)(model)),
        _visit_params,
    ],
)
def test_a_tree_that_nobody_has_read_is_read_as_any_other(read: Callable[[Net], Any], wanted: list[bytes]) -> None:
    assert read(fresh()[0]) == wanted


def test_a_tree_that_nobody_has_read_is_the_same_object_as_ever(tmp_path: Path, wanted: list[bytes]) -> None:
    eager = stepped(training_step, net(), AdamWConfig().init())[0]
    assert isinstance(fresh()[0], Net)
    assert repr(fresh()[0]) == repr(eager)
    assert fresh()[0].num_params() == eager.num_params()
    assert fresh()[0].devices() == [TAPE]
    assert [path for path, _ in fresh()[0].named_params()] == [path for path, _ in eager.named_params()]
    model = fresh()[0]
    assert model == model  # identity, as of every module
    assert hash(model) == hash(model)
    assert len(fresh()[1].to_record()) == 4
    assert params(net().load_file(fresh()[0].save_file(tmp_path / "model"))) == wanted
    with pytest.raises(AttributeError, match="Net has no attribute third"):
        fresh()[0].third  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="a Net cannot be changed"):
        fresh()[0].first = eager.first  # type: ignore[misc]


def test_reading_between_steps_changes_nothing() -> None:
    step = compile(training_step, donate=("model", "optim"))
    x, y = batch()
    model, optim, eager, state = net(), AdamWConfig().init(), net(), AdamWConfig().init()
    kept: list[tuple[Tensor, Tensor, bytes]] = []
    for i in range(8):
        model, optim, _ = step(model, optim, x, y, 1e-2)
        eager, state, _ = training_step(eager, state, x, y, 1e-2)
        kept.append((model.first.weight.val(), eager.first.weight.val(), bits(eager.first.weight.val())))
        if i % 3 == 1:
            valid = model.valid()
            kept.append((valid.second.weight.val(), eager.second.weight.val(), bits(eager.second.weight.val())))
            optim = AdamWConfig().init().load_record(optim.to_record())
        if i % 3 == 2:
            model = net().load_record(model.into_record())  # a checkpoint, and on
    assert all(bits(a) == bits(b) == then for a, b, then in kept)
    assert params(model) == params(eager)


# -- donation --------------------------------------------------------------------------------------------------------
def _scale_params(model: Any, by: float) -> Any:
    return model.map_params(lambda param: param.map(lambda x: x * by))


def test_one_tree_in_two_donated_arguments_is_two() -> None:
    both = compile(lambda a, b: (_scale_params(a, 2.0), _scale_params(b, 3.0)), donate=("a", "b"))
    one = compile(lambda a, b: (_scale_params(a, 2.0), _scale_params(b, 3.0)), donate="a")
    packed = compile(lambda a, b: (_scale_params(a["it"], 2.0), _scale_params(b[0], 3.0)), donate=("a", "b"))
    frozen = compile(lambda model: model.no_grad())
    doubled, tripled = params(_scale_params(net().no_grad(), 2.0)), params(_scale_params(net().no_grad(), 3.0))
    for function, wrap in ((both, lambda m: (m, m)), (one, lambda m: (m, m)), (packed, lambda m: ({"it": m}, [m]))):
        model = frozen(net())  # private to the program: nothing is copied unless it must be
        a, b = function(*wrap(model))
        assert (params(a), params(b)) == (doubled, tripled)


def test_a_parameter_that_is_donated_alone_is_moved_and_its_memory_is_left_to_others() -> None:
    double = compile(lambda param: param.map(lambda x: x * 2.0), donate="param")
    for device in (CPU, TAPE):
        param = Param(Tensor.from_data([1.0, 2.0], device))
        theirs = param.val().into_torch()
        assert double(param).val().tolist() == [2.0, 4.0]
        assert theirs.tolist() == [1.0, 2.0]
        with pytest.raises(MovedError, match="a tensor was used after"):
            param.val().tolist()


def test_a_model_goes_through_two_functions_in_turn() -> None:
    steps = [compile(training_step, donate=("model", "optim")) for _ in range(2)]
    x, y = batch()
    model, optim = net(), AdamWConfig().init()
    for i in range(6):
        model, optim, _ = steps[i % 2](model, optim, x, y, 1e-2)
    assert params(model) == params(stepped(training_step, net(), AdamWConfig().init(), 6)[0])


def test_a_result_is_used_twice_if_it_is_not_donated() -> None:
    keeps, takes = compile(training_step), compile(training_step, donate=("model", "optim"))
    x, y = batch()
    model, optim = fresh()
    models = [keeps(model, optim, x, y, 1e-2)[0] for _ in range(2)]
    models.append(takes(model, optim, x, y, 1e-2)[0])
    assert params(models[0]) == params(models[1]) == params(models[2])


def test_a_failed_trace_takes_nothing_away(wanted: list[bytes]) -> None:
    def fails(model: Any, optim: Any, again: Any) -> Any:
        _scale_params(model, 2.0)
        raise KeyError("mine")

    model, optim = fresh()
    with pytest.raises(KeyError, match="mine"):
        compile(fails, donate=("model", "optim"))(model, optim, 1)
    assert params(model) == wanted
    assert len(optim.to_record()) == 4
    fresh_optim, own = AdamWConfig().init(), net()
    with pytest.raises(TraceError, match="one tensor that asks for gradients is an argument twice"):
        compile(lambda model, optim, again: model, donate=("model", "optim"))(own, fresh_optim, [own.first.weight])
    assert not fresh_optim.is_settled()  # it is there still
    assert own.first is not None


def test_a_failed_run_says_that_what_was_donated_is_gone() -> None:
    function = compile(lambda x, n: (x * 2.0, x * n), donate="x")
    x = Tensor.from_data([1.0, 2.0], CPU)
    with pytest.raises(ArgumentError, match="a number does not fit the element type"):
        function(x, 2**70)
    with pytest.raises(MovedError, match="a tensor was used after a compiled function had taken it over"):
        x.tolist()


def test_state_in_a_dataclass_and_containers_of_models() -> None:
    @dataclass(frozen=True)
    class State:
        model: Any
        optim: Any
        steps: int

    def function(state: State, others: list[dict[str, Any]], x: Tensor, y: Tensor) -> tuple[State, list[Any]]:
        model, optim, _ = training_step(state.model, state.optim, x, y, 1e-2)
        return State(model, optim, state.steps + 1), [{"it": _scale_params(others[0]["it"], 0.5)}]

    step = compile(function, donate=("state", "others"))
    x, y = batch()
    state, others = State(net(), AdamWConfig().init(), 0), [{"it": net()}]
    first = state.model
    for _ in range(4):
        state, others = step(state, others, x, y)
    assert state.steps == 4
    assert params(state.model) == params(stepped(training_step, net(), AdamWConfig().init(), 4)[0])
    assert params(others[0]["it"]) == params(_scale_params(net(), 0.5**4))
    with pytest.raises(MovedError, match="this Net was used after"):
        _ = first.first


def test_frozen_and_tied_parameters_and_an_average_of_the_model() -> None:
    class Tied(Module):
        frozen: Linear
        one: Linear
        two: Linear

        def forward(self, x: Tensor) -> Tensor:
            return self.two.forward(self.one.forward(self.frozen.forward(x)).relu())

    def tied() -> Tied:
        burn_torch.seed(6)
        shared = LinearConfig(4, 4).init(TAPE)
        return Tied(LinearConfig(4, 4).init(TAPE).no_grad(), shared, shared)

    def function(model: Any, average: Any, optim: Any, x: Tensor) -> tuple[Any, Any, Any]:
        model, optim, _ = training_step(model, optim, x, x, 1e-2)
        now = {param.id: param.val().detach() for _, param in model.named_params()}
        return model, average.map_params(lambda p: p.map(lambda a: a * 0.9 + now[p.id] * 0.1)), optim

    def run(step: Any) -> tuple[Any, Any, Any]:
        model = tied()
        state = (model, model.no_grad().fork(TAPE), AdamWConfig(weight_decay=0.1).init())
        for _ in range(5):
            state = step(*state, batch()[0])
        return state

    actual, wanted = run(compile(function, donate=("model", "average", "optim"))), run(function)
    assert params(actual[0]) == params(wanted[0])
    assert params(actual[1]) == params(wanted[1])
    assert actual[0].one.weight is actual[0].two.weight
    assert params(actual[0])[:2] == params(tied())[:2]
    assert len(actual[2].to_record()) == len(wanted[2].to_record()) == 2


def test_a_parameter_that_no_gradient_reaches_is_in_no_record() -> None:
    class Unused(Module):
        used: Linear
        unused: Linear

        def forward(self, x: Tensor) -> Tensor:
            return self.used.forward(x)

    def run(step: Any, times: int) -> list[tuple[int, list[str]]]:
        burn_torch.seed(8)
        model = Unused(LinearConfig(4, 2).init(TAPE), LinearConfig(2, 2).init(TAPE))
        _, optim = stepped(step, model, AdamWConfig().init(), times)
        return [(time, list(slots)) for time, slots in optim.to_record().states.values()]

    step = compile(training_step, donate=("model", "optim"))
    for times in (1, 3):
        assert run(step, times) == run(training_step, times) == [(times, ["mean", "square"])] * 2


def test_gradients_are_accumulated_inside() -> None:
    def function(model: Any, optim: Any, xs: list[Tensor], y: Tensor) -> tuple[Any, Any]:
        accumulator: Any = GradientsAccumulator()
        for x in xs:
            loss = ((model.forward(x) - y) ** 2).mean() / float(len(xs))
            accumulator.accumulate(model, GradientsParams.from_grads(loss.backward(), model))
        return optim.step(0.1, model, accumulator.grads())  # type: ignore[no-any-return]

    x, y = batch()
    xs = [x, x * 0.5, x * -2.0]
    trained, _ = compile(function, donate=("model", "optim"))(net(), SgdConfig().init(), xs, y)
    assert params(trained) == params(function(net(), SgdConfig().init(), xs, y)[0])


# -- scopes, random numbers, running states ------------------------------------------------------------------------
def test_random_numbers_leave_the_stream_where_eager_leaves_it() -> None:
    def function(x: Tensor) -> Tensor:
        return x + Tensor.random((4,), Distribution.Default, CPU) * Tensor.random((4,), Distribution.Normal(0, 1), CPU)

    def numbers(function: Any) -> list[bytes]:
        burn_torch.seed(1)
        draws = [bits(function(Tensor.zeros((4,), CPU))) for _ in range(3)]
        return [*draws, bits(Tensor.random((4,), Distribution.Default, CPU))]

    assert numbers(compile(function)) == numbers(function)


@pytest.mark.parametrize("key", [0, 5, -1, 2**63 + 3, 2**64 - 1])
def test_a_scope_inside_whose_key_is_an_argument(key: int) -> None:
    def function(model: Any, x: Tensor, key: int) -> tuple[Any, Tensor, Tensor]:
        with StepScope(key, model) as scope:
            y, z = model.forward(x).detach(), model.forward(x).detach()
        return model.with_states(scope.states), y, z

    step = compile(function, donate="model")
    x = batch()[0]
    actual, wanted = noisy(), noisy()
    for i in range(3):
        actual, *ours = step(actual, x, key + i)
        wanted, *theirs = function(wanted, x, key + i)
        assert list(map(bits, ours)) == list(map(bits, theirs))
    assert step.traces == 1
    assert bits(actual.norm.running_var.value()) == bits(wanted.norm.running_var.value())


def test_a_scope_around_names_layers_as_in_eager() -> None:
    model, x = noisy(), batch()[0]
    roots: list[Any] = [None, model, model.drop, {"a": model}, {"a": net(), "b": model.drop}]

    def function(model: Noisy, x: Tensor) -> Tensor:
        return model.drop.forward(x).detach()

    compiled = compile(function)
    for root in roots:
        with StepScope(5, root):
            wanted = [bits(function(model, x)) for _ in range(4)]
        with StepScope(5, root):
            mixed = [bits((function if i % 2 else compiled)(model, x)) for i in range(4)]
        assert mixed == wanted
        assert len(set(wanted)) == 4


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize("donated", [False, True])
@pytest.mark.parametrize("around", [False, True])
def test_running_states_in_all_combinations(returned: bool, donated: bool, around: bool) -> None:
    if donated and not returned:
        return  # the model is gone, and its states with it

    def function(model: Any, x: Tensor) -> Any:
        y = model.norm.forward(x).detach()
        return (model, y) if returned else y

    def run(step: Any) -> list[bytes]:
        model, outputs = noisy(), []
        for i in range(4):
            x = batch()[0] * float(i + 1)
            with _scope(StepScope(i, model) if around else None) as scope:
                result = step(model, x)
                model, y = result if returned else (model, result)
            if scope is not None:
                model = model.with_states(scope.states)
            if i == 1:  # changed by hand between the steps
                model.norm.running_mean.update(model.norm.running_mean.value() + 1.0)
            outputs += [bits(y), bits(model.norm.running_mean.value()), bits(model.valid().norm.forward(x.inner()))]
        return outputs

    assert run(compile(function, donate="model" if donated else ())) == run(function)


def test_captured_states_are_read_in_each_call() -> None:
    model = BatchNormConfig(4).init(TAPE).valid()
    x = batch()[0].inner()
    function = compile(lambda x: model.forward(x), captures=[model])
    for i in range(3):
        assert bits(function(x)) == bits(model.forward(x))
        model.running_mean.update(model.running_mean.value() + float(i + 1))
    assert function.traces == 1


def test_a_layer_that_stands_in_two_places_is_one() -> None:
    class Twice(Module):
        one: Dropout
        two: Dropout
        inner: tuple[Noisy, Noisy]

        def forward(self, x: Tensor) -> Tensor:
            return self.one.forward(x) + self.two.forward(x) * 10.0 + self.inner[1].drop.forward(x) * 100.0

    drop, within = DropoutConfig(0.5).init(), noisy()
    model, x = Twice(drop, drop, (within, within)), Tensor.ones((8,), TAPE)

    def function(model: Twice, x: Tensor) -> tuple[Twice, Tensor]:
        return model, model.forward(x).detach()

    compiled = compile(function)
    with StepScope(3, model):
        wanted = bits(function(model, x)[1])
    with StepScope(3, model):
        same, output = compiled(model, x)
    assert bits(output) == wanted
    assert same.one is same.two
    assert same.inner[0] is same.inner[1]
    with StepScope(3, same):
        assert bits(compiled(same, x)[1]) == wanted
    assert compiled.traces == 1


@contextmanager
def _scope(scope: StepScope | None) -> Iterator[StepScope | None]:
    if scope is None:
        yield None
        return
    with scope:
        yield scope


def test_a_scope_within_a_scope() -> None:
    def function(model: Any, x: Tensor) -> tuple[Tensor, ...]:
        first = model.forward(x).detach()
        with StepScope(3, model):
            second = model.forward(x).detach()
        return first, second, model.forward(x).detach()

    def run(step: Any) -> tuple[list[bytes], list[bytes]]:
        burn_torch.seed(4)
        model, x = noisy(), batch()[0]
        with StepScope(9, model) as scope:
            outputs = [bits(y) for _ in range(2) for y in step(model, x)]
        return outputs, [bits(value) for value in scope.states.values()]

    assert run(compile(function)) == run(function)


# -- memory ------------------------------------------------------------------------------------------------------------
@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_what_a_step_returns_is_freed_by_its_last_reference() -> None:
    step = compile(training_step)
    for read in (False, True):
        model, optim = stepped(step, net(), AdamWConfig().init())
        if read:
            model.first.weight.val()
            optim.to_record()
        with no_collector():
            watched = [
                weakref.ref(leaf) for leaf in (*model._flat.leaves, *optim._flat.leaves) if type(leaf) is not int
            ]
            watched += [weakref.ref(model), weakref.ref(optim)]
            assert all(reference() is not None for reference in watched)
            del model, optim
            assert all(reference() is None for reference in watched)


def test_two_hundred_steps_leave_no_object_and_no_cycle() -> None:
    step = compile(training_step, donate=("model", "optim"))
    model, optim = stepped(step, net(), AdamWConfig().init(), 5)
    x, y = batch()

    def read(number: int) -> None:
        nonlocal model, optim
        model, optim, loss = step(model, optim, x, y, 1e-3)
        if number % 10 == 0:
            model.valid().forward(x.inner()).into_data()
            float(loss)

    for number in (0, 10):  # what is planned and cached once
        read(number)
    with no_collector():
        before = len(gc.get_objects())
        for number in range(200):
            read(number)
        assert len(gc.get_objects()) - before < 100
        assert gc.collect() == 0


def test_dropped_programs_are_freed() -> None:
    function = compile(lambda x: (x * 2).sum(), max_programs=2)
    programs: list[weakref.ref[Any]] = []
    with no_collector():
        for n in range(1, 7):
            function(Tensor.zeros((n,), CPU))
            programs.append(weakref.ref(next(reversed(function._programs.values()))))
        assert [reference() is None for reference in programs] == [True] * 4 + [False] * 2
    assert function(Tensor.ones((1,), CPU)).tolist() == [2.0]  # traced again
    assert function.traces == 7


def test_a_compiled_function_takes_its_structures_with_it() -> None:
    gc.collect()
    before = len(Structure._interned)
    function = compile(training_step, donate=("model", "optim"))
    state = stepped(function, net(), AdamWConfig().init())
    assert len(Structure._interned) > before
    watched = weakref.ref(function)
    del function, state
    gc.collect()
    assert watched() is None
    assert len(Structure._interned) <= before


class Row(Module):
    weight: Param


def test_a_state_of_which_elements_lie_in_one_place_can_be_written_over() -> None:
    def with_value(row: Row, value: Tensor) -> Row:
        return Row(Param(value, row.weight.id))

    spread = compile(lambda row: with_value(row, (row.weight.val() * 1.5).sum().expand([4])), donate="row")
    step = compile(lambda row: with_value(row, row.weight.val() * 2.0 + 1.0), donate="row")
    row = step(spread(Row(Param(Tensor.full((4,), 1.0, Device.cpu())))))
    assert row.weight.val().tolist() == [13.0] * 4
