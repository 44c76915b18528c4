"""Recurrent layers on top of each other, padded sequences and cells against torch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from burn_torch import Device, Tensor, compile, nn
from burn_torch.core.errors import ArgumentError, ConfigError, DTypeError, ShapeError
from burn_torch.module import StepScope
from tests.nn.test_recurrent import call, torch_layout
from tests.nn.twin_modules import (
    CPU,
    TRAINING,
    Array,
    array,
    assert_equal,
    drawn,
    filled,
    gradients,
    load_torch,
    tensor,
    torch_gradients,
    values_of,
)

KINDS = ("Lstm", "Gru", "Rnn")
BATCH, D_INPUT, D_HIDDEN = 4, 3, 5


def stack_layout(kind: str, values: dict[str, Array], layers: int, *, both: bool) -> dict[str, Array]:
    """Parameters, or gradients, of our stack as torch names and packs them."""
    packed = {}
    for i in range(layers):
        prefix = f"layers.{i}."
        own = {path.removeprefix(prefix): value for path, value in values.items() if path.startswith(prefix)}
        named = torch_layout(kind.lower(), own, both=both)
        packed |= {name.replace("_l0", f"_l{i}"): value for name, value in named.items()}
    return packed


def twin_of(kind: str, layers: int, **settings: Any) -> Any:
    return getattr(torch.nn, kind.upper())(D_INPUT, D_HIDDEN, layers, dtype=torch.float64, **settings)


def torch_outputs(
    kind: str, twin: Any, x: torch.Tensor, states: list[torch.Tensor] | None, lengths: Array | None, batch_first: bool
) -> list[torch.Tensor]:
    states_or_none: Any = None if states is None else tuple(states) if kind == "Lstm" else states[0]
    inputs: Any = x
    if lengths is not None:
        inputs = pack_padded_sequence(x, torch.from_numpy(lengths), batch_first, enforce_sorted=False)
    output, after = twin(inputs, states_or_none)
    if lengths is not None:
        output = pad_packed_sequence(output, batch_first, total_length=x.shape[1 if batch_first else 0])[0]
    return [output, *(after if kind == "Lstm" else [after])]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_outputs_states_and_all_gradients_equal_torch(
    kind: str, both: bool, padded: bool, seed: np.random.Generator
) -> None:
    layers, seq = int(seed.integers(1, 4)), int(seed.integers(3, 7))
    batch_first, with_state, bias = (bool(seed.integers(2)) for _ in range(3))
    config = getattr(nn, f"Stacked{kind}Config")
    ours = config(D_INPUT, D_HIDDEN, layers, bias, bidirectional=both, batch_first=batch_first).init(TRAINING)
    ours = drawn(ours, seed)
    twin = twin_of(kind, layers, bias=bias, bidirectional=both, batch_first=batch_first)
    load_torch(twin, stack_layout(kind, values_of(ours), layers, both=both))

    x = seed.standard_normal((BATCH, seq, D_INPUT) if batch_first else (seq, BATCH, D_INPUT))
    lengths = seed.integers(1, seq + 1, BATCH) if padded else None
    states = [seed.standard_normal((layers * (1 + both), BATCH, D_HIDDEN)) for _ in range(1 + (kind == "Lstm"))]
    named = {"x": x} | ({f"s{i}": s for i, s in enumerate(states)} if with_state else {})
    own = {name: tensor(value) for name, value in named.items()}
    leaves = {name: torch.from_numpy(value).requires_grad_() for name, value in named.items()}

    outputs = outputs_of(kind, ours, own, lengths)
    theirs = [leaf for name, leaf in leaves.items() if name != "x"] if with_state else None
    expected = torch_outputs(kind, twin, leaves["x"], theirs, lengths, batch_first)
    for output, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(array(output), wanted.detach().numpy(), rtol=1e-12, atol=1e-13)
    upstream = [seed.standard_normal(tuple(y.shape)) for y in expected]
    grads = gradients(ours, outputs, upstream, own)
    packed = stack_layout(kind, grads, layers, both=both) | {name: grads[name] for name in named}
    assert_equal(packed, torch_gradients(expected, upstream, dict(twin.named_parameters()) | leaves))

    compiled = compile(lambda model, inputs, lengths: outputs_of(kind, model, inputs, lengths))
    host = Device.ndarray()
    again = config(D_INPUT, D_HIDDEN, layers, bias, bidirectional=both, batch_first=batch_first).init(host)
    for device, model, run in ((CPU, ours.valid(), compiled), (host, filled(again, values_of(ours)), None)):
        inputs = {name: tensor(value, device=device) for name, value in named.items()}
        counts = None if lengths is None else Tensor.from_data(lengths, device)
        outputs = (run or (lambda *args: outputs_of(kind, *args)))(model, inputs, counts)
        for output, wanted in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(array(output), wanted.detach().numpy(), rtol=1e-12, atol=1e-13)


def outputs_of(kind: str, layer: Any, inputs: dict[str, Tensor], lengths: Any) -> list[Tensor]:
    """Output and states as torch orders them."""
    states = [value for name, value in inputs.items() if name != "x"] or None
    counts = Tensor.from_data(lengths, CPU) if isinstance(lengths, np.ndarray) else lengths
    return call(kind.lower(), _WithLengths(layer, counts), inputs["x"], states)


class _WithLengths:
    """A layer whose forward knows its lengths."""

    def __init__(self, layer: Any, lengths: Tensor | None) -> None:
        self.layer, self.lengths = layer, lengths

    def forward(self, x: Tensor, state: Any) -> Any:
        return self.layer.forward(x, state, self.lengths)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_of_no_steps_gives_zeros_and_its_own_state(kind: str, seed: np.random.Generator) -> None:
    layer = getattr(nn, f"{kind}Config")(D_INPUT, D_HIDDEN, True).init(CPU)
    hidden = tensor(seed.standard_normal((2, D_HIDDEN)).astype("f4"), device=CPU)
    state: Any = {"Lstm": nn.LstmState(hidden, hidden), "Gru": hidden, "Rnn": nn.RnnState(hidden)}[kind]
    x = tensor(seed.standard_normal((2, 4, D_INPUT)).astype("f4"), device=CPU)
    output, after = layer.forward(x, state, Tensor.from_data([0, 4], CPU))
    assert not array(output)[0].any()
    np.testing.assert_array_equal(array(getattr(after, "hidden", after))[0], array(hidden)[0])
    whole, _ = layer.forward(x, state)
    np.testing.assert_array_equal(array(output)[1], array(whole)[1])


def test_what_is_padded_has_no_gradient(seed: np.random.Generator) -> None:
    layer = nn.StackedLstmConfig(D_INPUT, D_HIDDEN, 2, True, bidirectional=True).init(TRAINING)
    data = seed.standard_normal((2, 4, D_INPUT)).astype("f4")
    data[0, 2:] = 100.0
    x = tensor(data)
    output, state = layer.forward(x, None, Tensor.from_data([2, 4], CPU))
    gradient = x.grad((output.sum() + state.hidden.sum()).backward())
    assert gradient is not None
    assert not array(gradient)[0, 2:].any()
    assert array(gradient)[0, :2].all()


def test_dropout_lies_between_layers_and_only_there(seed: np.random.Generator) -> None:
    x = tensor(seed.standard_normal((3, 4, D_INPUT)).astype("f4"))
    one = nn.StackedGruConfig(D_INPUT, D_HIDDEN, 1, True, dropout=0.9).init(TRAINING)
    with StepScope(0, one):
        np.testing.assert_array_equal(array(one.forward(x)[0]), array(one.layers[0].forward(x)[0]))
    two = nn.StackedGruConfig(D_INPUT, D_HIDDEN, 2, True, dropout=1.0).init(TRAINING)
    with StepScope(0, two):
        nothing = Tensor.zeros((3, 4, D_HIDDEN), TRAINING)
        np.testing.assert_array_equal(array(two.forward(x)[0]), array(two.layers[1].forward(nothing)[0]))
    inner = two.valid()
    expected = inner.layers[1].forward(inner.layers[0].forward(x.inner())[0])[0]
    np.testing.assert_array_equal(array(inner.forward(x.inner())[0]), array(expected))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("with_state", [False, True])
def test_cells_equal_torch(kind: str, bias: bool, with_state: bool, seed: np.random.Generator) -> None:
    cell = drawn(getattr(nn, f"{kind}CellConfig")(D_INPUT, D_HIDDEN, bias).init(TRAINING), seed)
    twin = getattr(torch.nn, f"{kind.upper()}Cell")(D_INPUT, D_HIDDEN, bias=bias, dtype=torch.float64)
    layout = {n.removesuffix("_l0"): v for n, v in torch_layout(kind.lower(), values_of(cell), both=False).items()}
    load_torch(twin, layout)
    named = {"x": seed.standard_normal((BATCH, D_INPUT))}
    if with_state:
        named |= {f"s{i}": seed.standard_normal((BATCH, D_HIDDEN)) for i in range(1 + (kind == "Lstm"))}
    own = {name: tensor(value) for name, value in named.items()}
    leaves = {name: torch.from_numpy(value).requires_grad_() for name, value in named.items()}
    ours, theirs = (list(values.values())[1:] for values in (own, leaves))
    if kind == "Lstm":
        after = cell.forward(own["x"], nn.LstmState(ours[1], ours[0]) if with_state else None)
        outputs, expected = [after.hidden, after.cell], list(twin(leaves["x"], tuple(theirs) if with_state else None))
    else:
        state = (nn.RnnState(ours[0]) if kind == "Rnn" else ours[0]) if with_state else None
        after = cell.forward(own["x"], state)
        outputs, expected = [after.hidden if kind == "Rnn" else after], [twin(leaves["x"], *theirs)]
    for output, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(array(output), wanted.detach().numpy(), rtol=1e-12, atol=1e-13)
    upstream = [seed.standard_normal(tuple(y.shape)) for y in expected]
    grads = gradients(cell, outputs, upstream, own)
    packed = {n.removesuffix("_l0"): v for n, v in torch_layout(kind.lower(), grads, both=False).items()}
    packed |= {name: grads[name] for name in named}
    assert_equal(packed, torch_gradients(expected, upstream, dict(twin.named_parameters()) | leaves))


@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_over_steps_is_the_layer(kind: str, seed: np.random.Generator) -> None:
    """With every option that both have."""
    options: dict[str, Any] = {"clip": 0.4, "hidden_activation": nn.ActivationConfig.Relu}
    options |= {"input_forget": True} if kind == "Lstm" else {"reset_after": False} if kind == "Gru" else {}
    layer = getattr(nn, f"{kind}Config")(D_INPUT, D_HIDDEN, True, **options).init(CPU)
    cell = filled(getattr(nn, f"{kind}CellConfig")(D_INPUT, D_HIDDEN, True, **options).init(CPU), values_of(layer))
    x = tensor(seed.standard_normal((2, 3, D_INPUT)).astype("f4"), device=CPU)
    state: Any = None
    for t in range(3):
        state = cell.forward(x.select_dim(1, t), state)
    hidden = state if kind == "Gru" else state.hidden
    np.testing.assert_allclose(array(hidden), array(layer.forward(x)[0])[:, -1], rtol=1e-6, atol=1e-7)


def test_mistakes_are_told() -> None:
    stack = nn.StackedLstmConfig(D_INPUT, D_HIDDEN, 2, True).init(CPU)
    x = Tensor.zeros((2, 4, D_INPUT), CPU)
    with pytest.raises(ArgumentError, match=r"Lstm: a length is no number of steps\n  given: .* 1 to 5, 4 steps"):
        stack.forward(x, None, Tensor.from_data([1, 5], CPU))
    with pytest.raises(DTypeError, match=r"Lstm: the lengths are no whole numbers\n  given: .*f32"):
        stack.forward(x, None, Tensor.ones((2,), CPU))
    with pytest.raises(ShapeError, match=r"Lstm: the lengths do not fit the batch\n  given: .*\n  expected: \(2,\)"):
        stack.forward(x, None, Tensor.from_data([1], CPU))
    with pytest.raises(ShapeError, match=r"StackedLstm: the cell state does not fit(.|\n)*expected: cell \(2, 2, 5\)"):
        stack.forward(x, nn.LstmState.initial((1, 2, D_HIDDEN), CPU))
    with pytest.raises(ShapeError, match=r"GruCell: the input has 3 axes\n(.|\n)*\(batch, d_input\)"):
        nn.GruCellConfig(D_INPUT, D_HIDDEN, True).init(CPU).forward(x)
    cell = nn.RnnCellConfig(D_INPUT, D_HIDDEN, True).init(CPU)
    with pytest.raises(ShapeError, match=r"RnnCell: the hidden state does not fit the input"):
        cell.forward(Tensor.zeros((2, D_INPUT), CPU), nn.RnnState(Tensor.zeros((3, D_HIDDEN), CPU)))
    with pytest.raises(ConfigError, match=r"(?s)n_layers.*dropout|dropout.*n_layers"):
        nn.StackedRnnConfig(D_INPUT, D_HIDDEN, 0, True, dropout=1.5)
    shown = (
        "StackedLstm {d_input: 3, d_hidden: 5, bias: true, n_layers: 2, dropout: 0.0, bidirectional: false, params: "
    )
    assert str(stack).startswith(shown)
    assert str(cell).startswith("RnnCell {d_input: 3, d_hidden: 5, bias: true, params: ")
