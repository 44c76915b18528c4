"""Lstm, Gru, Rnn and their bidirectional forms against torch in float64, and their options against plain loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from burn_torch import Device, Tensor
from burn_torch.core.errors import ArgumentError, ConfigError, ShapeError
from burn_torch.module import Module
from burn_torch.module.initializer import Initializer
from burn_torch.nn.activation import ActivationConfig
from burn_torch.nn.gate_controller import GateController
from burn_torch.nn.gru import BiGruConfig, GruConfig
from burn_torch.nn.linear import LinearConfig
from burn_torch.nn.lstm import BiLstmConfig, LstmConfig
from burn_torch.nn.lstm_state import LstmState
from burn_torch.nn.rnn import BiRnnConfig, RnnConfig, RnnState
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

BATCH, SEQ, D_INPUT, D_HIDDEN = 3, 7, 4, 5

GATES = {
    "lstm": ["input_gate", "forget_gate", "cell_gate", "output_gate"],
    "gru": ["reset_gate", "update_gate", "new_gate"],
    "rnn": ["gate"],
}
TORCH = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}
CONFIGS: dict[str, tuple[Any, Any]] = {
    "lstm": (LstmConfig, BiLstmConfig),
    "gru": (GruConfig, BiGruConfig),
    "rnn": (RnnConfig, BiRnnConfig),
}


def torch_layout(kind: str, values: dict[str, Array], *, both: bool) -> dict[str, Array]:
    """Parameters, or gradients, of our layer as torch names and packs them."""
    packed = {}
    for prefix, suffix in (("forward_layer.", ""), ("reverse_layer.", "_reverse")) if both else (("", ""),):
        for part, name in (("input_transform", "ih"), ("hidden_transform", "hh")):
            paths = [f"{prefix}{gate}.{part}" for gate in GATES[kind]]
            packed[f"weight_{name}_l0{suffix}"] = np.concatenate([values[f"{path}.weight"].T for path in paths])
            if f"{paths[0]}.bias" in values:
                packed[f"bias_{name}_l0{suffix}"] = np.concatenate([values[f"{path}.bias"] for path in paths])
    return packed


def call(kind: str, layer: Any, x: Tensor, states: list[Tensor] | None) -> list[Tensor]:
    """Output and states as a list: hidden, and the cell of an LSTM."""
    if kind == "lstm":
        output, state = layer.forward(x, None if states is None else LstmState(cell=states[1], hidden=states[0]))
        return [output, state.hidden, state.cell]
    if kind == "rnn":
        output, state = layer.forward(x, None if states is None else RnnState(states[0]))
        return [output, state.hidden]
    return list(layer.forward(x, None if states is None else states[0]))


def torch_call(kind: str, twin: Any, x: torch.Tensor, states: list[torch.Tensor] | None) -> list[torch.Tensor]:
    if kind == "lstm":
        output, (hidden, cell) = twin(x, None if states is None else tuple(states))
        return [output, hidden, cell]
    return list(twin(x, None if states is None else states[0]))


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize(
    ("both", "bias", "given"), [(False, True, True), (False, False, False), (True, True, True), (True, False, False)]
)
def test_outputs_states_and_all_gradients_equal_torch(
    kind: str, both: bool, bias: bool, given: bool, seed: np.random.Generator
) -> None:
    layer = drawn(CONFIGS[kind][both](D_INPUT, D_HIDDEN, bias).init(TRAINING), seed)
    twin = TORCH[kind](D_INPUT, D_HIDDEN, bias=bias, batch_first=True, bidirectional=both, dtype=torch.float64)
    load_torch(twin, torch_layout(kind, values_of(layer), both=both))
    x = seed.standard_normal((BATCH, SEQ, D_INPUT))
    ways = 2 if both else 1
    states = [seed.standard_normal((ways, BATCH, D_HIDDEN)) for _ in range(2 if kind == "lstm" else 1)]

    ours_in = {"x": tensor(x)} | ({f"s{i}": tensor(s if both else s[0]) for i, s in enumerate(states)} if given else {})
    outputs = call(kind, layer, ours_in["x"], [v for k, v in ours_in.items() if k != "x"] if given else None)
    leaves = {"x": torch.from_numpy(x).requires_grad_()}
    leaves |= {f"s{i}": torch.from_numpy(s).requires_grad_() for i, s in enumerate(states)} if given else {}
    expected = torch_call(kind, twin, leaves["x"], [v for k, v in leaves.items() if k != "x"] if given else None)

    upstream = [seed.standard_normal(tuple(y.shape)) for y in expected]
    own_upstream = [upstream[0], *(u if both else u[0] for u in upstream[1:])]
    for output, wanted in zip(outputs, expected, strict=True):
        value = wanted.detach().numpy()
        np.testing.assert_allclose(array(output), value.reshape(output.shape), rtol=1e-12, atol=1e-13)
    ours = gradients(layer, outputs, own_upstream, ours_in)
    inputs = {name: ours.pop(name) for name in ours_in}
    packed = torch_layout(kind, ours, both=both) | {n: g if both or n == "x" else g[None] for n, g in inputs.items()}
    assert_equal(packed, torch_gradients(expected, upstream, dict(twin.named_parameters()) | leaves))


@pytest.mark.parametrize("kind", ["lstm", "rnn"])
def test_reverse_runs_from_the_last_step_to_the_first(kind: str, seed: np.random.Generator) -> None:
    config = CONFIGS[kind][0](D_INPUT, D_HIDDEN, True)
    ahead = drawn(config.init(CPU), seed)
    back = _with_fields(ahead, reverse=True)
    x = seed.standard_normal((BATCH, SEQ, D_INPUT))
    outputs = call(kind, back, tensor(x, device=CPU), None)
    turned = call(kind, ahead, tensor(x[:, ::-1].copy(), device=CPU), None)
    np.testing.assert_allclose(array(outputs[0]), array(turned[0])[:, ::-1], rtol=1e-12)
    for output, wanted in zip(outputs[1:], turned[1:], strict=True):
        np.testing.assert_allclose(array(output), array(wanted), rtol=1e-12)


@pytest.mark.parametrize(
    ("kind", "both"), [("lstm", False), ("lstm", True), ("gru", True), ("rnn", False), ("rnn", True)]
)
def test_batch_first_false_swaps_the_first_two_axes(kind: str, both: bool, seed: np.random.Generator) -> None:
    config = CONFIGS[kind][both](D_INPUT, D_HIDDEN, True)
    layer = drawn(config.init(CPU), seed)
    other = filled(config.with_batch_first(False).init(CPU), values_of(layer))
    x = seed.standard_normal((BATCH, SEQ, D_INPUT)).astype(np.float64)
    wanted = call(kind, layer, tensor(x, device=CPU), None)
    swapped = call(kind, other, tensor(x.swapaxes(0, 1).copy(), device=CPU), None)
    np.testing.assert_allclose(array(swapped[0]), array(wanted[0]).swapaxes(0, 1), rtol=1e-12)
    for a, b in zip(swapped[1:], wanted[1:], strict=True):
        np.testing.assert_allclose(array(a), array(b), rtol=1e-12)


def test_lstm_options_equal_a_plain_loop(seed: np.random.Generator) -> None:
    config = LstmConfig(
        D_INPUT,
        D_HIDDEN,
        True,
        clip=0.3,
        input_forget=True,
        gate_activation=ActivationConfig.HardSwish,
        cell_activation=ActivationConfig.Softsign,
        hidden_activation=ActivationConfig.Relu,
    )
    layer = drawn(config.init(CPU), seed)
    w = values_of(layer)
    assert not any(path.startswith("forget_gate") for path in w)
    x = seed.standard_normal((BATCH, SEQ, D_INPUT))
    h = c = np.zeros((BATCH, D_HIDDEN))
    outputs, clipped = [], False

    def gate(name: str, x_t: Array, h: Array) -> Any:
        i, o = f"{name}.input_transform", f"{name}.hidden_transform"
        return x_t @ w[f"{i}.weight"] + w[f"{i}.bias"] + h @ w[f"{o}.weight"] + w[f"{o}.bias"]

    def hard_swish(v: Array) -> Any:
        return v * np.clip(v + 3, 0, 6) / 6

    for t in range(SEQ):
        i = hard_swish(gate("input_gate", x[:, t], h))
        o = hard_swish(gate("output_gate", x[:, t], h))
        g = gate("cell_gate", x[:, t], h)
        c = (1 - i) * c + i * g / (1 + abs(g))
        clipped = clipped or bool((abs(c) > 0.3).any())
        c = np.clip(c, -0.3, 0.3)
        h = o * np.maximum(c, 0)
        outputs.append(h)
    output, state = layer.forward(tensor(x, device=CPU))
    assert clipped
    np.testing.assert_allclose(array(output), np.stack(outputs, 1), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(array(state.cell), c, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("reset_after", [True, False])
def test_gru_options_equal_a_plain_loop(reset_after: bool, seed: np.random.Generator) -> None:
    config = GruConfig(
        D_INPUT,
        D_HIDDEN,
        True,
        reset_after=reset_after,
        clip=0.4,
        gate_activation=ActivationConfig.Tanh,
        hidden_activation=ActivationConfig.Relu,
    )
    layer = drawn(config.init(CPU), seed)
    w = values_of(layer)
    x = seed.standard_normal((BATCH, SEQ, D_INPUT))
    h = np.zeros((BATCH, D_HIDDEN))
    outputs = []

    def transform(name: str, part: str, v: Array) -> Array:
        path = f"{name}.{part}_transform"
        return v @ w[f"{path}.weight"] + w[f"{path}.bias"]

    for t in range(SEQ):
        z = np.tanh(transform("update_gate", "input", x[:, t]) + transform("update_gate", "hidden", h))
        r = np.tanh(transform("reset_gate", "input", x[:, t]) + transform("reset_gate", "hidden", h))
        hidden = r * transform("new_gate", "hidden", h) if reset_after else transform("new_gate", "hidden", r * h)
        n = np.maximum(transform("new_gate", "input", x[:, t]) + hidden, 0)
        h = np.clip((1 - z) * n + z * h, -0.4, 0.4)
        outputs.append(h)
    assert (abs(np.stack(outputs)) == 0.4).any()
    output, state = layer.forward(tensor(x, device=CPU))
    np.testing.assert_allclose(array(output), np.stack(outputs, 1), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(array(state), h, rtol=1e-12, atol=1e-14)


def test_rnn_clip_and_activation_equal_a_plain_loop(seed: np.random.Generator) -> None:
    config = RnnConfig(D_INPUT, D_HIDDEN, False, clip=0.5, hidden_activation=ActivationConfig.Relu)
    layer = drawn(config.init(CPU), seed)
    w = values_of(layer)
    x = seed.standard_normal((BATCH, SEQ, D_INPUT))
    h = np.zeros((BATCH, D_HIDDEN))
    outputs = []
    for t in range(SEQ):
        product = x[:, t] @ w["gate.input_transform.weight"] + h @ w["gate.hidden_transform.weight"]
        h = np.clip(np.maximum(product, 0), -0.5, 0.5)
        outputs.append(h)
    output, state = layer.forward(tensor(x, device=CPU))
    np.testing.assert_allclose(array(output), np.stack(outputs, 1), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(array(state.hidden), h, rtol=1e-12, atol=1e-14)


def test_lstm_forward_iter_takes_the_steps_in_any_order(seed: np.random.Generator) -> None:
    layer = drawn(LstmConfig(D_INPUT, D_HIDDEN, True).init(CPU), seed)
    x = tensor(seed.standard_normal((BATCH, SEQ, D_INPUT)), device=CPU)
    start = LstmState(*(tensor(seed.standard_normal((BATCH, D_HIDDEN)), device=CPU) for _ in range(2)))
    steps = list(enumerate(x.iter_dim(1)))
    output, state = layer.forward_iter(iter(steps), start, BATCH, SEQ, CPU)
    wanted, last = layer.forward(x, start)
    np.testing.assert_allclose(array(output), array(wanted), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(array(state.cell), array(last.cell), rtol=1e-13, atol=1e-15)
    turned, _ = layer.forward_iter(steps[::-1], start, BATCH, SEQ, CPU)
    back, _ = _with_fields(layer, reverse=True).forward(x, start)
    np.testing.assert_allclose(array(turned), array(back), rtol=1e-13, atol=1e-15)
    with pytest.raises(
        ArgumentError,
        match=r"steps do not make up the sequence\n  given:    indices \[0, 1\]\n  expected: each of 0 to 6",
    ):
        layer.forward_iter(steps[:2], None, BATCH, SEQ, CPU)


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(("batch", "seq"), [(0, 4), (2, 0), (1, 1)])
def test_empty_sequences_and_batches(kind: str, both: bool, batch: int, seq: int) -> None:
    layer = CONFIGS[kind][both](D_INPUT, D_HIDDEN, True).init(CPU)
    outputs = call(kind, layer, Tensor.ones((batch, seq, D_INPUT), CPU), None)
    assert outputs[0].shape == (batch, seq, D_HIDDEN * (1 + both))
    assert all(state.shape == ((2,) if both else ()) + (batch, D_HIDDEN) for state in outputs[1:])
    if kind == "lstm" and not both:
        state = LstmState.initial((batch, D_HIDDEN), CPU)
        steps = enumerate(Tensor.ones((batch, seq, D_INPUT), CPU).iter_dim(1))
        output, last = layer.forward_iter(steps, state, batch, seq, CPU)
        assert output.shape == (batch, seq, D_HIDDEN)
        assert last.shape == (batch, D_HIDDEN)


def test_layers_of_the_host_and_numpy_agree(seed: np.random.Generator) -> None:
    layer = drawn(LstmConfig(D_INPUT, D_HIDDEN, True).init(CPU), seed)
    x = tensor(seed.standard_normal((BATCH, SEQ, D_INPUT)), device=CPU)
    moved = layer.to_device(Device.ndarray()).forward(x.to_device(Device.ndarray()))[0]
    np.testing.assert_allclose(array(moved), array(layer.forward(x)[0]), rtol=1e-12, atol=1e-14)


class _Written(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class is not annotated
    """Counts the elements that torch computes; views write none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and not func.is_view:
            self.elements += out.numel()
        return out


def test_gradient_work_grows_with_the_length_not_with_its_square() -> None:
    """A slice for each step would cost a padded gradient of the whole sequence each."""
    layer = LstmConfig(8, 8, True).init(TRAINING)

    def written(length: int) -> int:
        loss = layer.forward(Tensor.ones((2, length, 8), TRAINING))[0].sum()
        with _Written() as count:
            loss.backward()
        return int(count.elements)

    short, long = written(32), written(256)
    assert short > 32 * 2 * 8 * 4
    assert long < 8.1 * short


# -- GateController, LstmState ------------------------------------------------------------------------------
def test_gate_product_is_the_sum_of_both_transforms(seed: np.random.Generator) -> None:
    one = drawn(LinearConfig(2, 3).init(CPU), seed)
    other = drawn(LinearConfig(3, 3, bias=False).init(CPU), seed)
    gate = GateController.create_with_weights(one, other)
    x, h = seed.standard_normal((4, 2)), seed.standard_normal((4, 3))
    w = values_of(gate)
    wanted = x @ w["input_transform.weight"] + w["input_transform.bias"] + h @ w["hidden_transform.weight"]
    product = gate.gate_product(tensor(x, device=CPU), tensor(h, device=CPU))
    np.testing.assert_allclose(array(product), wanted, rtol=1e-13, atol=1e-14)


def test_lstm_state_maps_slices_stacks_and_chunks(seed: np.random.Generator) -> None:
    cells, hiddens = list(seed.standard_normal((2, 4, 3))), list(seed.standard_normal((2, 4, 3)))
    a, b = (LstmState.new(tensor(c, device=CPU), tensor(h, device=CPU)) for c, h in zip(cells, hiddens, strict=True))
    assert a.shape == (4, 3)
    assert a.device is CPU
    stacked = LstmState.stack([a, b], -2)
    np.testing.assert_array_equal(array(stacked.cell), np.stack(cells, -2))
    np.testing.assert_array_equal(array(stacked.hidden), np.stack(hiddens, -2))
    one, two = stacked.chunk(2, 1)
    np.testing.assert_array_equal(array(one.squeeze_dim(1).hidden), hiddens[0])
    np.testing.assert_array_equal(array(two.squeeze_dim(1).cell), cells[1])
    np.testing.assert_array_equal(array(a.slice([slice(1, 3)]).cell), cells[0][1:3])
    assert a.unsqueeze_dim(-1).shape == (4, 3, 1)
    cell, hidden = a.map_state(lambda x: x.neg()).unpack()
    np.testing.assert_array_equal(array(cell), -cells[0])
    np.testing.assert_array_equal(array(hidden), -hiddens[0])
    assert not array(LstmState.initial([2, 3], CPU).hidden).any()


# -- configurations, records, display, errors ---------------------------------------------------------------
@pytest.mark.parametrize("config", list(itertools.chain.from_iterable(CONFIGS.values())))
def test_config_goes_through_json(config: Any) -> None:
    settings = config(2, 3, False, clip=1.5, initializer=Initializer.Uniform(-0.5, 0.5))
    settings = settings.with_hidden_activation(ActivationConfig.Relu)
    assert config.from_json(settings.to_json()) == settings
    assert config.from_json('{"d_input": 2, "d_hidden": 3, "bias": true}') == config(2, 3, True)


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        (LstmConfig(2, 3, True), "Lstm {d_input: 2, d_hidden: 3, bias: true, params: 84}"),
        (LstmConfig(2, 3, True, input_forget=True), "Lstm {d_input: 2, d_hidden: 3, bias: true, params: 63}"),
        (BiLstmConfig(2, 3, True), "BiLstm {d_input: 2, d_hidden: 3, bias: true, params: 168}"),
        (BiLstmConfig(2, 3, False), "BiLstm {d_input: 2, d_hidden: 3, bias: false, params: 120}"),
        (GruConfig(2, 8, True), "Gru {d_input: 2, d_hidden: 8, bias: true, reset_after: true, params: 288}"),
        (BiGruConfig(2, 3, True), "BiGru {d_input: 2, d_hidden: 3, bias: true, params: 126}"),
        (RnnConfig(2, 3, True), "Rnn {d_input: 2, d_hidden: 3, bias: true, params: 21}"),
        (BiRnnConfig(2, 3, True), "BiRnn {d_input: 2, d_hidden: 3, bias: true, params: 42}"),
    ],
)
def test_display(config: Any, shown: str) -> None:
    assert str(config.init(CPU)) == shown


@pytest.mark.parametrize("config", [LstmConfig, BiLstmConfig, GruConfig, BiGruConfig, RnnConfig, BiRnnConfig])
def test_config_names_all_its_faults(config: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        config(0, 3, True, clip=-1.0)
    assert "d_input" in str(caught.value)
    assert "clip" in str(caught.value)


def test_record_restores_the_same_layer() -> None:
    config = BiLstmConfig(2, 3, True)
    layer, x = config.init(CPU), Tensor.ones((1, 4, 2), CPU)
    again = config.init(CPU).load_record(layer.into_record())
    np.testing.assert_array_equal(array(again.forward(x)[0]), array(layer.forward(x)[0]))


def test_input_of_another_width_is_named_with_the_layer() -> None:
    layer = LstmConfig(2, 3, True).init(CPU)
    with pytest.raises(ShapeError, match=r"linear: the input does not fit the weight") as caught:
        layer.forward(Tensor.ones((1, 4, 5), CPU))
    assert "in Lstm(d_input=2, d_hidden=3, bias=True)" in caught.value.__notes__[-1]


@pytest.mark.parametrize("config", [c for pair in CONFIGS.values() for c in pair])
@pytest.mark.parametrize("shape", [(2,), (4, 2)])
def test_input_of_other_axes_is_refused_with_a_state_too(config: Any, shape: tuple[int, ...]) -> None:
    layer, zeros = config(2, 3, True).init(CPU), Tensor.zeros((2, 3), CPU)
    state = (
        LstmState(zeros, zeros) if "Lstm" in config.__name__ else RnnState(zeros) if "Rnn" in config.__name__ else zeros
    )
    for initial in (None, state):
        with pytest.raises(
            ShapeError, match=r": the input has . axes\n  given:.*\n  expected: \(batch, seq, d_input\)"
        ):
            layer.forward(Tensor.ones(shape, CPU), initial)


@pytest.mark.parametrize(("kind", "both"), list(itertools.product(["lstm", "gru", "rnn"], [False, True])))
def test_state_of_another_batch_is_refused(kind: str, both: bool) -> None:
    layer = CONFIGS[kind][both](2, 3, True).init(CPU)
    shape = (2, 5, 3) if both else (5, 3)
    with pytest.raises(
        ShapeError, match=r"state does not fit the input\n  given: .*5, 3.*\n  expected: .*4, 3\)\n  mend: "
    ):
        call(kind, layer, Tensor.ones((4, 6, 2), CPU), [Tensor.ones(shape, CPU)] * 2)


def test_lstm_state_of_two_shapes_is_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"LstmState: the two states have different shapes\n  given: .*\n  expected: cell"
    ):
        LstmState(Tensor.ones((2, 3), CPU), Tensor.ones((2, 4), CPU))


def _with_fields(module: Module, **fields: Any) -> Any:
    return module._with_fields(fields)
