"""Branches, loops and recurrent layers: If, Loop, Scan, and LSTM, GRU and RNN."""

from __future__ import annotations

from typing import Any

from burn_torch.core.dtype import DType
from burn_torch.onnx.exporting.unification import Part
from burn_torch.onnx.exporting.writer import Number, Wire, Writer
from burn_torch.onnx.rows.registry import row

__all__: list[str] = []

_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


def _write(w: Writer, op: str, *inputs: Wire | None, **attributes: object) -> tuple[Wire, ...]:
    """A node with as many outputs as the row has, of their kinds."""
    names: Wire | tuple[Wire, ...] = w.node(op, *inputs, outputs=len(w.results), **attributes)
    wires = (names,) if isinstance(names, Wire) else names
    return tuple(Wire(str(y), kind.dtype, kind.shape) for y, kind in zip(wires, w.results, strict=True))


@row("onnx::branch")
def _(w: Writer, pred: Wire, *captured: Wire | Number, chosen: Part, other: Part) -> tuple[Wire, ...]:
    bodies = {"then_branch": w.body(chosen, captured), "else_branch": w.body(other, captured)}
    return _write(w, "If", w.reshape(pred, ()), **bodies)


@row("onnx::loop")
def _(w: Writer, pred: Wire, *values: Any, body: Part, count: int, most: int | None) -> tuple[Wire, ...]:
    before = [Wire(w.unique("iteration"), DType.I64, ()), Wire(w.unique("going"), DType.BOOL, ())]
    outside = (*[None] * count, *values[count:])
    inner = w.body(body, outside, before, lambda outputs: [w.reshape(outputs[0], ()), *outputs[1:]])
    trips = None if most is None else w.number(most, DType.I64)
    return _write(w, "Loop", trips, w.reshape(pred, ()), *values[:count], body=inner)


@row("onnx::scanned")
def _(
    w: Writer,
    *values: Any,
    body: Part,
    count: int,
    axes: tuple[int, ...],
    places: tuple[int, ...],
    reverse: bool,
) -> tuple[Wire, ...]:
    slices = len(axes)
    own = count + slices
    inner = w.body(body, (*[None] * own, *values[own:]))
    return _write(
        w,
        "Scan",
        *values[:own],
        body=inner,
        num_scan_inputs=slices,
        scan_input_axes=list(axes),
        scan_input_directions=[int(reverse)] * slices,
        scan_output_axes=list(places) or None,
        scan_output_directions=[int(reverse)] * len(places) or None,
    )


@row("onnx::recurrence")
def _(
    w: Writer,
    x: Wire,
    weights: Wire,
    recurrent: Wire,
    b: Wire | None,
    lengths: Wire | None,
    h: Wire | None,
    c: Wire | None,
    *,
    kind: str,
    direction: str,
    activations: str,
    after: bool,
    coupled: bool,
) -> tuple[Wire, ...]:
    names = activations.split()
    plain = names == [*_DEFAULTS[kind]] * (2 if direction == "bidirectional" else 1)
    settings: dict[str, object] = {"hidden_size": w.fixed(recurrent.shape[-1], "d_hidden"), "direction": direction}
    settings["activations"] = None if plain else names
    states = [h, c] if kind == "LSTM" else [h]
    if after:
        settings["linear_before_reset"] = 1
    if coupled:
        settings["input_forget"] = 1
    lens = None if lengths is None else w.cast(lengths, DType.I32)
    return _write(w, kind, x, weights, recurrent, b, lens, *states, **settings)
