"""compile and what surrounds a function: names that it reads, objects that it changes, what cannot be compiled."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import burn_torch
from burn_torch import Device, Module, Param, Tensor, compile
from burn_torch.core.errors import ArgumentError, AutodiffError, DTypeError, ShapeError, TraceError
from burn_torch.module import ModuleMapper
from burn_torch.nn import Linear, LinearConfig
from burn_torch.transform import RetraceWarning

CPU = Device.cpu()
TAPE = CPU.autodiff()
SCALE = 2.0


class Doubled(ModuleMapper):
    def map_float(self, param: Param) -> Param:
        return param.with_value(param.val() * 2.0)


def vector(*values: float, device: Device = CPU) -> Tensor:
    return Tensor.from_data(list(values), device)


# -- numbers ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "read",
    [
        lambda x, n: x * 2 if n == 3 else x,
        lambda x, n: x * 2 if n != 3 else x,
        lambda x, n: x * 2 if any(3 == k for k in (n,)) else x,  # noqa: SIM300
        lambda x, n: x * 2 if n in (3, 4) else x,
        lambda x, n: {3: x * 2}.get(n, x),
        lambda x, n: x * (n // 2),
        lambda x, n: x * (7 // n),
        lambda x, n: x * divmod(n, 2)[0],
        lambda x, n: x * round(n),
        lambda x, n: x * (n << 1),
        lambda x, n: x * (n & 1),
        lambda x, n: x * min(n, 2),
        lambda x, n: x * math.sin(n),
        lambda x, n: (x, f"step {n}"),
        lambda x, n: x[n],
        lambda x, n: x[:n],
        lambda x, n: [x, x, x][n],
        lambda x, n: [x for _ in range(n)],
        lambda x, n: x.reshape((n, -1)),
        lambda x, n: Tensor.zeros((n, 2), x.device),
        lambda x, n: x if not n else x * 2,
    ],
)  # fmt: skip
def test_a_number_that_decides_or_shapes_is_refused_with_the_line(read: Callable[..., Any]) -> None:
    with pytest.raises(
        TraceError,
        match=r"(?s)a traced value was read as .*given: .*test_compile_outside\.py:\d+ in .*"
        r"expected: .*mend: .*static=\('n',\)",
    ):
        compile(read)(vector(1.0, 2.0, 3.0, 4.0), 2)
    compile(read, static="n")(vector(1.0, 2.0, 3.0, 4.0), 2)


@pytest.mark.parametrize(("n", "m"), [(7, 2), (-7, 3), (2**70, 3), (2, -1), (5.5, -2.0), (0.0, 3), (-0.0, 1.0)])
def test_arithmetic_of_numbers_is_that_of_python(n: float, m: float) -> None:
    def function(n: Any, m: Any) -> tuple[Any, ...]:
        return n + m, n - m, n * m, n / m, n % m, n**2, -n, +n, abs(n), 3 - n, True + n

    actual, wanted = compile(function)(n, m), function(n, m)
    assert repr(actual) == repr(wanted)


def test_a_number_keeps_its_kind() -> None:
    function = compile(lambda n: n)
    assert [repr(function(n)) for n in (3, 3.0, True, -0.0, 2**70)] == ["3", "3.0", "True", "-0.0", str(2**70)]
    assert function.traces == 3
    assert math.isnan(function(math.nan))
    assert function.traces == 3


def test_a_number_of_more_than_64_bits_beside_a_tensor_is_the_error_of_eager() -> None:
    for n, x in ((2**70, vector(1.0)), (2**63, Tensor.from_data([1], CPU))):
        with pytest.raises(ArgumentError, match="a number does not fit the element type") as eager:
            _ = x * n
        with pytest.raises(ArgumentError, match="a number does not fit the element type") as compiled:
            compile(lambda x, n: x * n)(x, n)
        assert str(compiled.value) == str(eager.value)
        assert not any("burn_torch program" in note or "/programs/" in note for note in compiled.value.__notes__)


def test_traced_numbers_can_be_printed() -> None:
    assert compile(lambda n: (n + 1, repr(n))[1])(3) == "Value(int number, Trace)"


# -- names outside -------------------------------------------------------------------------------------------
def test_a_closed_over_number_that_changes_is_traced_again() -> None:
    rate, name = 2.0, "sum"
    function = compile(lambda x: getattr(x * rate, name)())
    assert function(vector(1.0, 2.0)).tolist() == [6.0]
    rate = 3.0
    assert function(vector(1.0, 2.0)).tolist() == [9.0]
    name = "mean"
    assert function(vector(1.0, 2.0)).tolist() == [4.5]
    rate, name = 2.0, "sum"
    assert function(vector(1.0, 2.0)).tolist() == [6.0]
    assert function.traces == 3
    assert "rate: the constant 3.0, was the constant 2.0" in str(function.explain(vector(1.0, 2.0)))


def test_a_global_that_changes_is_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    function = compile(lambda x: (lambda: x * SCALE)())  # read by a function inside
    assert function(vector(1.0)).tolist() == [2.0]
    monkeypatch.setitem(globals(), "SCALE", -0.0)
    assert math.copysign(1.0, function(vector(1.0)).tolist()[0]) == -1.0
    monkeypatch.setitem(globals(), "SCALE", 0.0)
    assert math.copysign(1.0, function(vector(1.0)).tolist()[0]) == 1.0


class Factor(NamedTuple):
    by: float


@dataclass(frozen=True)
class Settings:
    factor: Factor


def test_a_list_inside_a_tuple_that_changes_is_traced_again() -> None:
    listed = ([2.0],)
    function = compile(lambda x: x * listed[0][0])
    assert function(vector(1.0)).tolist() == [2.0]
    listed[0][0] = 5.0
    assert function(vector(1.0)).tolist() == [5.0]


def test_named_tuples_and_frozen_dataclasses_that_are_bound_anew_are_traced_again() -> None:
    factor, held = Factor(2.0), Settings(Factor(3.0))
    function = compile(lambda x: x * factor.by + held.factor.by)
    assert [function(vector(1.0)).tolist(), function(vector(1.0)).tolist(), function.traces] == [[5.0], [5.0], 1]
    factor = Factor(4.0)
    assert function(vector(1.0)).tolist() == [7.0]
    held = Settings(Factor(1.0))
    assert function(vector(1.0)).tolist() == [5.0]


@pytest.mark.parametrize("make", [Factor, lambda by: Settings(Factor(by)), lambda by: (by,)])
def test_static_constants_that_are_equal_and_not_the_same_are_distinguished(make: Callable[[float], Any]) -> None:
    def number(value: Any) -> float:
        value = getattr(value, "factor", value)
        return float(value[0] if isinstance(value, tuple) else value)

    function = compile(lambda x, by: x * number(by), static="by")
    signed = [function(vector(1.0), make(by)).item() for by in (0.0, -0.0, 0.0)]
    assert [math.copysign(1.0, value) for value in signed] == [1.0, -1.0, 1.0]
    assert function.traces == 2


def test_names_of_a_dict_that_are_equal_and_not_the_same_are_distinguished() -> None:
    function = compile(lambda named: [x * by for by, x in named.items()])
    signed = [function({by: vector(1.0)})[0].item() for by in (0.0, -0.0, 0.0)]
    assert [math.copysign(1.0, value) for value in signed] == [1.0, -1.0, 1.0]
    kinds = compile(lambda named: next(iter(named)))
    assert [repr(kinds({name: vector(1.0)})) for name in (1, True, 1.0)] == ["1", "True", "1.0"]


def test_a_global_that_shares_the_name_of_an_attribute_retraces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    function = compile(lambda x: x.sum())
    for i in range(4):
        monkeypatch.setitem(globals(), "sum", i)
        function(vector(1.0, 2.0))
    assert function.traces == 1


def test_a_helper_that_is_defined_again_is_traced_again() -> None:
    helper: Callable[[Any], Any] = abs
    function = compile(lambda x: helper(x))
    assert function(vector(-1.0)).tolist() == [1.0]

    def another(x: Tensor) -> Tensor:
        return x * 3

    helper = another  # as a notebook's cell does when it runs again
    assert function(vector(-1.0)).tolist() == [-3.0]


def test_attributes_that_a_method_reads_are_a_part_of_the_key() -> None:
    class Scaler:
        factor = 3.0
        calls = 0

        @compile
        def scale(self, x: Tensor) -> Tensor:
            return x * self.factor

    scaler = Scaler()
    assert scaler.scale(vector(1.0)).tolist() == [3.0]
    scaler.factor = 5.0
    for _ in range(3):
        scaler.calls += 1  # which the method does not read
        assert scaler.scale(vector(1.0)).tolist() == [5.0]
    assert Scaler.scale.traces == 2
    bound = compile(Scaler.__dict__["scale"].function.__get__(scaler))
    assert bound(vector(1.0)).tolist() == [5.0]
    scaler.factor = 7.0
    assert bound(vector(1.0)).tolist() == [7.0]


def test_attributes_of_a_callable_object_and_short_containers_are_a_part_of_the_key() -> None:
    class Scale:
        factor = 2.0

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.factor

    scale = Scale()
    function = compile(scale)
    assert function(vector(1.0)).tolist() == [2.0]
    scale.factor = 3.0
    assert function(vector(1.0)).tolist() == [3.0]

    settings, weights = {"scale": [2.0]}, [1.0, 2.0]
    reads = compile(lambda x: x * settings["scale"][0] + Tensor.from_data(weights, x.device))
    for _ in range(2):
        assert reads(vector(1.0, 1.0)).tolist() == [3.0, 4.0]
    settings["scale"][0] = -1.0
    assert reads(vector(1.0, 1.0)).tolist() == [0.0, 1.0]
    weights[0] = 5.0
    assert reads(vector(1.0, 1.0)).tolist() == [4.0, 1.0]
    assert reads.traces == 3


def test_a_captured_tensor_is_the_one_that_its_name_stands_for() -> None:
    mask = vector(2.0)
    function = compile(lambda x: x * mask, captures=[mask])
    assert function(vector(3.0)).tolist() == [6.0]
    declared, mask = mask, vector(4.0)
    with pytest.raises(TraceError, match=r"given:    mask \(1,\) f32 cpu"):
        function(vector(3.0))
    mask = declared
    assert function(vector(3.0)).tolist() == [6.0]


def test_a_model_that_a_compiled_step_returned_can_be_captured() -> None:
    step = compile(lambda model: model.map(Doubled()), donate="model")
    start = LinearConfig(2, 1, bias=False).init(CPU)
    expected = start.forward(vector(1.0, 2.0)) * 2.0
    model = step(start)
    function = compile(lambda x: model.forward(x), captures=[model])
    assert function(vector(1.0, 2.0)).tolist() == expected.tolist()
    step(model)  # takes the model over: what was captured keeps its value
    assert function(vector(1.0, 2.0)).tolist() == expected.tolist()


def test_what_captures_alone_make_is_refused() -> None:
    mask = vector(2.0, 3.0)
    with pytest.raises(
        TraceError, match=r"(?s)given:    a tensor \(2, 1\).*mend:     pass what it is computed from as arg"
    ):
        compile(lambda x: x * mask.reshape((2, 1)), captures=[mask])(vector(1.0))


def test_a_name_that_is_bound_anew_inside_is_an_error() -> None:
    count = 0

    def step(x: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return x * count

    with pytest.raises(TraceError, match=r"given:    count, an int, changed while step was traced"):
        compile(step)(vector(1.0))

    class Counter:
        steps = 0

        def step(self, x: Tensor) -> Tensor:
            self.steps += 1
            return x * self.steps

    with pytest.raises(TraceError, match=r"given:    Counter\.steps, an int, changed while step was traced"):
        compile(Counter().step)(vector(1.0))


def test_a_list_or_dataclass_whose_item_is_replaced_is_an_error() -> None:
    @dataclass
    class Batch:
        x: Tensor
        size: int

    def in_list(xs: list[Tensor]) -> Tensor:
        xs[0] = xs[0] * 2  # of the same shape and type: the structure is the same
        return xs[0]

    def in_batch(batch: Batch) -> Tensor:
        batch.size = 5
        return batch.x * batch.size

    with pytest.raises(TraceError, match=r"given:    xs, a list, changed while in_list was traced"):
        compile(in_list)([vector(1.0)])
    with pytest.raises(TraceError, match=r"given:    batch, a Batch, changed while in_batch was traced"):
        compile(in_batch)(Batch(vector(1.0), 2))


def test_defaults_partials_and_callable_objects() -> None:
    class Twice:
        def __call__(self, x: Tensor) -> Tensor:
            return x * 2

    def function(x: Tensor, k: float = 2.0, *, m: float = 3.0) -> Tensor:
        return x * k + m

    compiled = compile(function)
    x = vector(1.0)
    assert compiled(x).tolist() == [5.0]
    assert compiled(x, 5.0).tolist() == [8.0]
    assert compiled(x, m=1.0).tolist() == [3.0]
    part = compile(functools.partial(function, m=10.0))
    assert part.name == "function"
    assert part(x, 4.0).tolist() == [14.0]
    assert compile(Twice())(x).tolist() == [2.0]
    assert compile(abs)(vector(-1.0)).tolist() == [1.0]
    total: Any = compile(sum)
    assert total([x, x]).tolist() == [2.0]


def test_a_tensor_as_a_default_is_closed_over() -> None:
    one = vector(1.0)

    def shifted(x: Tensor, k: Tensor = one) -> Tensor:
        return x + k

    with pytest.raises(TraceError, match=r"given:    k \(1,\) f32 cpu, at .*in shifted"):
        compile(shifted)(vector(2.0))
    assert compile(shifted)(vector(2.0), vector(3.0)).tolist() == [5.0]


# -- what comes out ------------------------------------------------------------------------------------------
def test_results_without_tensors() -> None:
    def nothing(x: Tensor) -> None:
        _ = x + 1

    assert compile(nothing)(vector(1.0)) is None
    outputs: Any = compile(lambda x: (1, 2.5, True, "a", None, -0.0, 2**70, (), [], {}))(vector(1.0))
    assert repr(outputs) == repr((1, 2.5, True, "a", None, -0.0, 2**70, (), [], {}))
    assert compile(lambda: Tensor.ones((2,), CPU))().tolist() == [1.0, 1.0]
    assert compile(lambda n: n * 2 + 1)(3) == 7


def test_one_tensor_given_out_twice_is_two() -> None:
    one, two = compile(lambda x: (lambda y: (y, y))(x * 2))(vector(1.0, 2.0))
    one.into_torch().zero_()
    assert two.tolist() == [2.0, 4.0]


def test_zero_sizes_and_no_axes() -> None:
    assert compile(lambda x: (x * 2).sum())(Tensor.zeros((0, 3), CPU)).tolist() == [0.0]
    assert compile(lambda x: x * 2)(Tensor.zeros((0, 3), CPU)).shape == (0, 3)
    assert compile(lambda x: x * 2)(Tensor.from_data(3.0, CPU)).tolist() == 6.0


def test_a_leaf_stays_one() -> None:
    assert compile(lambda x: x)(vector(2.0, device=TAPE).require_grad()).is_require_grad()


class _Holder:
    x: Tensor


def _make_holder(x: Tensor) -> _Holder:
    holder = _Holder()
    holder.x = x * 2
    return holder


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: (x * x).sum().backward(), r"the result: Gradients(?s:.*)GradientsParams\.from_grads"),
        (lambda x: {"g": [(x * x).sum().backward()]}, r"the result\['g'\]\[0\]: Gradients"),
        (lambda x: (x * i for i in range(3)), r"the result: a generator, which is used up(?s:.*)a list or a tuple"),
        (lambda x: iter([x]), r"the result: a list_iterator"),
        (_make_holder, r"the result: a _Holder with a value of the traced function in \.x(?s:.*)register_container"),
    ],
)
def test_what_cannot_leave_a_program_is_named(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(TraceError, match=r"this cannot enter or leave a compiled function\n  given:    " + words):
        compile(function)(vector(1.0, device=TAPE).require_grad())


def test_what_cannot_enter_a_program_is_named() -> None:
    with pytest.raises(TraceError, match=r"given:    xs: a generator, which is used up"):
        compile(lambda xs: sum(xs))(x for x in [vector(1.0)])
    with pytest.raises(TraceError, match=r"given:    n: a numpy bool(?s:.*)value\.item\(\)"):
        compile(lambda x, n: x * n)(vector(1.0), np.bool_(True))


# -- what cannot be compiled ---------------------------------------------------------------------------------
def test_only_functions_that_return_are_compiled() -> None:
    def generates(x: Tensor) -> Any:
        yield x

    async def awaits(x: Tensor) -> Tensor:
        return x

    for function in (generates, awaits, functools.partial(generates)):
        with pytest.raises(
            ArgumentError, match=r"(?s)given: .*, which yields or awaits\n.*mend:     compile what it do"
        ):
            compile(function)
    things: Any = (3, max, "step")
    for thing in things:
        with pytest.raises(ArgumentError, match=r"(?s)returns its results\n  given: .*write a function of your own"):
            compile(thing)
    with pytest.raises(TypeError, match=r"^compile: it takes no dontate[\s\S]*mend: .*donate='x'"):
        compile(lambda x: x, dontate="x")  # type: ignore[call-overload]


def test_donate_and_static_name_single_arguments() -> None:
    def function(x: Tensor, *more: Tensor, **named: Tensor) -> Tensor:
        return x

    options: Any = ("donate", "static")
    for option in options:
        for wrong in ("more", "named", -1):
            with pytest.raises(ArgumentError, match=rf"compile: {option} names arguments that function has not\n"
                               rf"  given:    {wrong!r}\n  expected: names of single arguments"):  # fmt: skip
                compile(function, **{option: wrong})
        compile(function, **{option: (2, "anything")})


def test_reading_torch_or_numpy_inside_names_the_line() -> None:
    for read in (lambda x: x.into_torch(), lambda x: np.asarray(x), lambda x: f"{x}", lambda x: x.item()):
        with pytest.raises(TraceError, match=r"(?s)read.*test_compile_outside\.py:\d+ in <lambda>.*mend: "):
            compile(read)(vector(1.0))


def test_a_parameter_made_inside_is_an_error() -> None:
    with pytest.raises(TraceError, match=r"a parameter was made while a function was traced\n"
                       r"  given:    a parameter \(2,( 2)?\), at .*test_compile_outside\.py(?s:.*)"
                       r"mend:     make the module outside"):  # fmt: skip
        compile(lambda x: LinearConfig(2, 2).init(TAPE).forward(x))(Tensor.zeros((1, 2), TAPE))
    with pytest.raises(TraceError, match="a parameter was made while"):
        compile(lambda x: LinearConfig(2, 2).init(TAPE))(vector(1.0))


def test_errors_of_users_look_as_in_eager() -> None:
    def wrong_shape(a: Tensor) -> Tensor:
        return a.matmul(a)

    def wrong_type(a: Tensor) -> Tensor:
        return a.cast(burn_torch.DType.I64) * 0.5

    def own(a: Tensor) -> Tensor:
        raise StopIteration("mine")

    x = Tensor.zeros((2, 3), CPU)
    for function, kind in ((wrong_shape, ShapeError), (wrong_type, DTypeError), (own, StopIteration)):
        with pytest.raises(kind, match=r"\w") as eager:
            function(x)
        with pytest.raises(kind, match=r"\w") as compiled:
            compile(function)(x)
        assert str(compiled.value) == str(eager.value)
        assert getattr(compiled.value, "__notes__", []) == getattr(eager.value, "__notes__", [])


def test_many_programs_warn_at_the_line_of_the_call() -> None:
    function = compile(lambda x: x + 1)
    for n in range(1, 8):
        function(Tensor.zeros((n,), CPU))
    with pytest.warns(RetraceWarning, match="<lambda> was traced for 8 structures") as caught:
        function(Tensor.zeros((8,), CPU))
    assert caught[0].filename == __file__


# -- within each other ----------------------------------------------------------------------------------------
def test_threads_inside_and_around() -> None:
    function = compile(lambda x: (x * 2).sum())

    def outer(x: Tensor) -> tuple[Tensor, float]:
        with ThreadPoolExecutor(1) as pool:
            return x * 3, pool.submit(lambda: function(vector(1.0, 2.0)).item()).result()

    x, inside = compile(outer)(vector(1.0))
    assert (x.tolist(), inside) == ([3.0], 6.0)  # another thread computes while this one traces


def test_nested_functions_options_and_explanations() -> None:
    class Net(Module):
        layer: Linear

    inner = compile(lambda net, x: net.layer.forward(x).detach(), donate="net")
    outer = compile(lambda net, x: inner(net, x) + inner(net, x))  # a part of it: nothing is donated
    net = Net(LinearConfig(2, 2).init(TAPE))
    x = Tensor.ones((1, 2), TAPE)
    wanted = net.layer.forward(x).detach() * 2.0
    for _ in range(2):
        assert outer(net, x).tolist() == wanted.tolist()
    assert (inner.traces, outer.traces) == (0, 1)
    assert outer.explain(net, x).operations < 4  # the two calls are one


def test_second_order_and_kept_tapes_inside() -> None:
    twice = TAPE.autodiff()
    x = Tensor.from_data([2.0, -3.0], twice).require_grad()

    def second(x: Tensor) -> Tensor:
        slope = x.grad((x**3).sum().backward())
        assert slope is not None
        return slope

    assert compile(second)(x).tolist() == second(x).tolist() == [12.0, 27.0]

    def kept(x: Tensor) -> list[Any]:
        y = (x.exp() * x).sum()
        return [x.grad(y.backward(retain_graph=True)), x.grad(y.backward())]

    z = vector(0.5, 2.0, device=TAPE).require_grad()
    assert [g.tolist() for g in compile(kept)(z)] == [g.tolist() for g in kept(z)]
    with pytest.raises(AutodiffError, match="an earlier backward has used up"):
        compile(lambda x: (lambda y: (y.backward(), y.backward()))((x * x).sum()))(z)


def test_balanced_checkpoints_give_the_same_gradients() -> None:
    device = CPU.autodiff(checkpoint="balanced")
    x = vector(0.5, 2.0, device=device).require_grad()

    def gradient(x: Tensor) -> Any:
        return x.grad((x.exp().tanh() * x).sum().backward())

    assert compile(gradient)(x).tolist() == gradient(x).tolist()
