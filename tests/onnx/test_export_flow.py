"""Loops stay loops in a file: recurrent layers over any length, cond, while_loop and scan, and what was imported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx

from burn_torch import (
    ArgumentError,
    Device,
    Distribution,
    Module,
    OnnxError,
    ShapeError,
    Tensor,
    TraceError,
    cond,
    nn,
    scan,
    seed,
    while_loop,
)
from burn_torch.onnx import export, load
from tests.onnx.control_graphs import ControlModel
from tests.onnx.random_models import SEED, references, session_of
from tests.onnx.small_models import MODELS

CPU = Device.cpu()
A = nn.ActivationConfig


def floats(rng, *shape):
    return Tensor.from_data(rng.standard_normal(shape).astype(np.float32), CPU)


def values(result):
    parts = result if isinstance(result, tuple) else (result,)
    return [part.into_data().values for part in parts]


def same(got, want):
    for one, other in zip(got, want, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5 * max(1.0, np.abs(other).max(initial=0.0)))


def operators(path):
    return [node.op_type for node in onnx.load(path).graph.node]


def agree(path, function, cases):
    """The file in onnxruntime, and loaded again, gives what the function does."""
    model, session = load(path), session_of(Path(path).read_bytes())
    names = [info.name for info in session.get_inputs()]
    for inputs in cases:
        want = values(function(*inputs))
        feeds = {name: x.into_data().values for name, x in zip(names, inputs, strict=True)}
        same(session.run(None, feeds), want)
        same(values(model.forward(*inputs)), want)


def assert_close(report):
    """onnxruntime ran it, and differs by rounding."""
    assert report.comparisons, report.runtime
    assert max(each.error / max(1.0, each.largest) for each in report.comparisons) < 1e-5


# -- recurrent layers ---------------------------------------------------------------------------------------------
def draw_layer(rng):
    """A recurrent layer, the operator that it becomes, and how many states it has."""
    kind = ("Lstm", "Gru", "Rnn")[rng.integers(3)]
    both = bool(rng.integers(2))
    more = {"batch_first": bool(rng.integers(2))} if kind != "Gru" or both else {}
    own = True
    if kind == "Lstm":
        more["input_forget"] = bool(rng.random() < 0.3)
    if kind == "Gru":
        more["reset_after"] = bool(rng.integers(2))
    if kind != "Gru" and not both:
        more["reverse"] = bool(rng.integers(2))
    if rng.random() < 0.3:
        more["hidden_activation"] = A.Relu if rng.integers(2) else A.Softsign
    if rng.random() < 0.3:
        more["clip"], own = 0.2, False
    elif rng.random() < 0.2:
        more["hidden_activation"], own = A.Gelu, False
    config = getattr(nn, f"{'Bi' if both else ''}{kind}Config")
    layer = config(int(rng.integers(1, 4)), int(rng.integers(1, 5)), bool(rng.integers(2)), **more).init(CPU)
    return layer, kind.upper() if own else "Scan", both


@pytest.mark.parametrize("number", range(8))
def test_a_recurrent_layer_is_one_operator_over_any_length(number, tmp_path):
    rng = np.random.default_rng(SEED + number)
    seed(SEED + number)
    layer, operator, both = draw_layer(rng)
    first = layer.batch_first
    d_input = next(p for path, p in layer.named_params() if path.endswith("input_transform.weight")).shape[0]
    lead = (2,) if both else ()
    with_state, padded = bool(rng.integers(2)), bool(rng.random() < 0.4)

    def run(layer, x, *more):
        lengths, states = (more[-1], more[:-1]) if padded else (None, more)
        if isinstance(layer, nn.Lstm | nn.BiLstm):
            output, last = layer.forward(x, nn.LstmState(*states) if states else None, lengths)
            return output, last.cell, last.hidden
        if isinstance(layer, nn.Rnn | nn.BiRnn):
            output, last = layer.forward(x, nn.RnnState(*states) if states else None, lengths)
            return output, last.hidden
        return layer.forward(x, *(states or [None]), lengths)

    def inputs(batch, seq):
        x = floats(rng, *((batch, seq) if first else (seq, batch)), d_input)
        count = (2 if "Lstm" in type(layer).__name__ else 1) if with_state else 0
        lengths = [Tensor.from_data(rng.integers(0, min(seq, 3) + 1, batch), CPU)] if padded else []
        return (x, *(floats(rng, *lead, batch, layer.d_hidden) for _ in range(count)), *lengths)

    example = inputs(2, 3)
    names = ["x", *[f"state_{i}" for i in range(len(example) - 1 - padded)], *["lengths"] * padded]
    axes = {"x": {0: "batch", 1: "seq"} if first else {0: "seq", 1: "batch"}}
    axes |= {name: {0 if name == "lengths" else len(lead): "batch"} for name in names[1:]}
    path = tmp_path / "layer.onnx"
    report = export(run, (layer, *example), path, input_names=names, dynamic_dims=axes)
    assert_close(report)
    assert operators(path).count(operator) == (2 if both and operator == "Scan" else 1), f"SEED={SEED + number}"
    agree(path, lambda *xs: run(layer, *xs), [inputs(batch, seq) for batch, seq in ((1, 1), (3, 7), (2, 20))])


def test_the_weights_of_an_lstm_lie_in_the_order_of_the_operator(tmp_path):
    rng = np.random.default_rng(0)
    layer = nn.LstmConfig(3, 2, True).init(CPU)
    export(layer, floats(rng, 2, 4, 3), tmp_path / "lstm.onnx")
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "lstm.onnx").graph.initializer}
    gates = [layer.input_gate, layer.output_gate, layer.forget_gate, layer.cell_gate]
    for i, gate in enumerate(gates):
        rows = slice(2 * i, 2 * i + 2)
        np.testing.assert_array_equal(stored["W"][0, rows], gate.input_transform.weight.val().into_data().values.T)
        np.testing.assert_array_equal(stored["R"][0, rows], gate.hidden_transform.weight.val().into_data().values.T)
        np.testing.assert_array_equal(stored["B"][0, rows], gate.input_transform.bias.val().into_data().values)


def test_a_state_of_another_shape_is_refused_as_without_an_export(tmp_path):
    rng = np.random.default_rng(0)
    layer = nn.GruConfig(3, 2, True).init(CPU)
    with pytest.raises(ShapeError, match="the hidden state does not fit"):
        export(lambda m, x, h: m.forward(x, h), (layer, floats(rng, 2, 4, 3), floats(rng, 3, 2)), tmp_path / "gru.onnx")


# -- programs -------------------------------------------------------------------------------------------------------
class Programs:
    """Draws functions of (x, w) with x (n, d): branches and loops in one another, around plain steps."""

    def __init__(self, seed, d=3):
        self.rng, self.d = np.random.default_rng(seed), d

    def draw(self, depth=0):
        """A function (x, w) -> x of the same shape."""
        kind = self.rng.integers(0, 8 if depth < 2 else 4)
        a = float(self.rng.integers(1, 5)) / 4
        if kind == 0:
            return lambda x, w: (x.matmul(w) * a).tanh()
        if kind == 1:
            return lambda x, w: x * a - w.sum() * 0.1
        if kind == 2:
            return lambda x, w: x - x.mean_dim(0) * a
        if kind == 3:
            return lambda x, w: (x * x + a).sqrt()
        inner, other = self.draw(depth + 1), self.draw(depth + 1)
        if kind == 4:
            return lambda x, w: other(inner(x, w), w)
        if kind == 5:  # the branches read w and x from outside
            return lambda x, w: cond((x * a + 0.3).sum() > 0.0, lambda y: inner(y, w) + x, lambda y: other(y, w) * a, x)
        if kind == 6:
            most = None if self.rng.integers(2) else int(self.rng.integers(1, 5))
            half = float(self.rng.integers(1, 4)) * 2.0

            def grow(state, w):
                y, count = state
                return (inner(y, w) + y).tanh(), count + 1.0

            return lambda x, w: while_loop(
                lambda s: (s[1] * a).sum() < half,
                lambda s: grow(s, w),
                (x, (x * 0.0).sum()),
                *([] if most is None else [most]),
            )[0]
        reverse, dim = bool(self.rng.integers(2)), int(self.rng.integers(0, 2))

        def along(x, w):
            steps = x if dim == 0 else x.transpose()
            carry, ys = scan(lambda c, row: (c * a + row, inner((c + row).unsqueeze_dim(0), w).squeeze_dim(0)),
                             w.mean_dim(0).squeeze_dim(0), steps, dim=dim, reverse=reverse)  # fmt: skip
            return (ys if dim == 0 else ys.transpose()) + carry

        return along


@pytest.mark.parametrize("number", range(10))
def test_programs_with_branches_and_loops(number, tmp_path):
    rng, drawn = np.random.default_rng(SEED + number), Programs(SEED + number)
    parts = [drawn.draw() for _ in range(2)]
    parts.append(drawn.draw(depth=0))

    def program(x, w):
        for part in parts:
            x = part(x, w)
        return x

    path = tmp_path / "program.onnx"
    report = export(program, (floats(rng, 4, 3), floats(rng, 3, 3)), path, dynamic_dims={"x": {0: "n"}})
    assert "onnxruntime" in report.runtime, f"SEED={SEED + number}"
    cases = [(floats(rng, n, 3) * sign, floats(rng, 3, 3)) for n in (2, 5) for sign in (1.0, -1.0)]
    try:
        agree(path, program, cases)
    except AssertionError as error:
        raise AssertionError(f"SEED={SEED + number}") from error


def test_each_form_becomes_its_operator(tmp_path):
    rng = np.random.default_rng(0)
    x = floats(rng, 4, 3)
    forms = {
        "If": lambda x: cond(x.sum() > 0.0, lambda y: y.exp(), lambda y: y - 1.0, x),
        "Loop": lambda x: while_loop(lambda s: s.sum() < 9.0, lambda s: s * s + 1.0, x),
        "Scan": lambda x: scan(lambda c, row: (c + row, c), x.narrow(0, 0, 1).squeeze_dim(0), x)[1],
    }
    for name, function in forms.items():
        export(function, x, tmp_path / f"{name}.onnx", dynamic_batch=True)
        assert operators(tmp_path / f"{name}.onnx").count(name) == 1
        agree(tmp_path / f"{name}.onnx", function, [(x,), (-x,), (floats(rng, 1, 3),)])


def test_branches_of_other_shapes_are_refused(tmp_path):
    x = floats(np.random.default_rng(0), 4, 3)
    with pytest.raises(ShapeError, match="the results of the branches do not keep shapes"):
        export(lambda x: cond(x.sum() > 0.0, lambda y: y, lambda y: y.sum(), x), x, tmp_path / "m.onnx")


def test_all_that_cannot_be_written_inside_bodies_is_named(tmp_path):
    x = floats(np.random.default_rng(0), 4, 3)

    def outside(y):
        return y + y.random_like(Distribution.Default)

    def program(x):
        y = scan(lambda c, row: (c, outside(row)), x.sum(), x)[1]
        return outside(y)

    with pytest.raises(OnnxError, match="2 operations cannot be written") as caught:
        export(program, x, tmp_path / "m.onnx")
    assert str(caught.value).count("draws random numbers") == 2


def test_a_branch_that_draws_is_refused(tmp_path):
    x = floats(np.random.default_rng(0), 4, 3)
    drop = nn.DropoutConfig(0.5).init()
    with pytest.raises(TraceError, match="draws random numbers"):
        export(
            lambda x: cond(
                x.sum() > 0.0, lambda y: drop.forward(y) + y.random_like(Distribution.Default), lambda y: y, x
            ),
            x,
            tmp_path / "m.onnx",
        )


# -- out again --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "operator"), [("branches", "If"), ("loop", "Scan"), ("scan", "Scan"), ("gru", "GRU"), ("lstm", None)]
)
def test_imported_control_flow_goes_out_again(name, operator, tmp_path):
    proto, inputs = MODELS[name]()
    path = tmp_path / "again.onnx"
    export(load(proto.SerializeToString()), tuple(Tensor.from_data(x, CPU) for x in inputs), path)
    if operator is not None:
        assert operators(path).count(operator) == 1
    first, again = session_of(proto.SerializeToString()), session_of(path.read_bytes())
    for sign in (1, -1):
        feeds = [x * sign if x.dtype == np.float32 else x for x in inputs]
        wants = first.run(None, {i.name: x for i, x in zip(first.get_inputs(), feeds, strict=True)})
        same(again.run(None, {i.name: x for i, x in zip(again.get_inputs(), feeds, strict=True)}), wants)


# -- multiples --------------------------------------------------------------------------------------------------------
class Halves(Module):
    """Strides of 2 down and up again, with what was there before beside it; the batch in groups."""

    down: list[nn.Conv2d]
    up: list[nn.ConvTranspose2d]
    group: int

    def forward(self, x):
        levels = [x]
        for layer in self.down:
            levels.append(layer.forward(levels[-1]))
        y = levels.pop()
        for layer in self.up:
            y = layer.forward(y) + levels.pop()
        return y.reshape((y.shape[0] // self.group, self.group, -1)).mean_dim(1)


@pytest.mark.parametrize("number", range(4))
def test_axes_that_are_multiples(number, tmp_path):
    rng = np.random.default_rng(SEED + number)
    levels, group, c = int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
    padding = nn.PaddingConfig2d.Explicit(1, 1, 1, 1)
    down = [nn.Conv2dConfig([c, c], [3, 3], stride=[2, 2], padding=padding).init(CPU) for _ in range(levels)]
    up = [nn.ConvTranspose2dConfig([c, c], [2, 2], stride=[2, 2]).init(CPU) for _ in range(levels)]
    model, unit, path = Halves(down, up, group), 2**levels, tmp_path / "halves.onnx"
    axes = {0: f"{group} * batch" if group > 1 else "batch", 2: f"{unit} * h", 3: f"{unit}*w"}

    def image(n, h, w):
        return floats(rng, group * n, c, unit * h, unit * w)

    report = export(model, image(1, 2, 1), path, dynamic_dims={"x": axes})
    assert_close(report)
    agree(path, model.forward, [(image(*sizes),) for sizes in ((1, 1, 1), (3, 2, 5))])
    with pytest.raises(OnnxError, match=rf"(?s)expected: x .*{unit} \* h.*mend: .*multiple of"):
        load(path).forward(floats(rng, group, c, unit + 1, unit))
    with pytest.raises(ArgumentError, match=f"h: axis 2 of x is {unit + 1}, no multiple of {unit}"):
        export(model, floats(rng, group, c, unit + 1, unit), path, dynamic_dims={"x": axes})


def test_an_axis_that_must_be_a_multiple_says_how_to_state_it(tmp_path):
    layers = ([nn.Conv2dConfig([1, 1], [2, 2], stride=[2, 2]).init(CPU)],
              [nn.ConvTranspose2dConfig([1, 1], [2, 2], stride=[2, 2]).init(CPU)])  # fmt: skip
    x = floats(np.random.default_rng(0), 1, 1, 4, 4)
    with pytest.raises(ShapeError) as caught:
        export(Halves(*layers, 1), x, tmp_path / "m.onnx", dynamic_dims={"x": {2: "h"}})
    assert any('"16 * height"' in note for note in caught.value.__notes__)
    with pytest.raises(ArgumentError, match="h: a multiple of 2 and of 4"):
        export(Halves(*layers, 1), x, tmp_path / "m.onnx", dynamic_dims={"x": {2: "2 * h", 3: "4 * h"}})


@pytest.mark.parametrize("number", range(6))
def test_random_control_flow_goes_out_again(number, tmp_path):
    drawn = ControlModel(SEED + number)
    wanted = references(drawn)
    if wanted is None:
        pytest.skip("onnxruntime does not run it")
    data, path = drawn.proto.SerializeToString(), tmp_path / "again.onnx"
    feeds = wanted[0][1]
    tensors = tuple(Tensor.from_data(x, CPU) for x in feeds.values())
    try:
        export(load(data), tensors, path, input_names=list(feeds), compare=False)
    except TraceError:
        pytest.skip("a shape, or how often a loop that stacks runs, depends on data")
    again, first = session_of(path.read_bytes()), session_of(data)
    for sign in (1, -1):
        fed = {name: np.asarray(x * sign) if x.dtype == np.float32 else x for name, x in feeds.items()}
        read = {info.name for info in again.get_inputs()}
        got, want = again.run(None, {name: x for name, x in fed.items() if name in read}), first.run(None, fed)
        for one, other in zip(got, want, strict=True):
            assert np.shape(one) == np.shape(other), f"SEED={SEED + number}"
            assert np.allclose(one, other, rtol=1e-4, atol=1e-4, equal_nan=True), f"SEED={SEED + number}"
