"""Graphs as text.

graph on cpu
  %0: f32[3, 4]     input
  %1: float         input
  # encoder.linear
  %2: f32[3, 4]   = mul(%0, %1)
  %3, %4: f32[3, 1], i64[3, 1] = max_with_indices(%2, dim=1)
  return %3, None
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from burn_torch.core.spec import NumberSpec, Spec, TensorSpec

if TYPE_CHECKING:
    from burn_torch.graph.ir import Graph, Node
    from burn_torch.graph.origin import Origin

__all__ = ["graph_text", "group_name", "node_text", "spec_text"]

_WIDEST: Final = 44
"""Columns grow to this; what is longer stands out."""


def spec_text(spec: Spec | None, place: str | None = None) -> str:
    """`f32[64, 10]`, `float`, or `?` where the shape depends on data; with its place where that is not `place`."""
    if spec is None:
        return "?"
    if isinstance(spec, NumberSpec):
        return spec.kind
    text = f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"
    return text if spec.place == place else f"{text}@{spec.place}"


def node_text(node: Node) -> str:
    """`%2 = mul(%0, 0.5)`."""
    return f"{_outputs(node)} = {_right(node)}"


def group_name(origin: Origin | None) -> str:
    """The module that a node belongs to: "encoder.linear", "gradient of encoder.linear", "" for none."""
    if origin is None:
        return ""
    if origin.backward:
        return f"gradient of {origin.path}" if origin.path else "gradient"
    return origin.path


def graph_text(graph: Graph, *, origins: bool) -> str:
    """The whole graph, its columns aligned."""
    specs = graph.specs()
    places = {spec.place for spec in specs.values() if isinstance(spec, TensorSpec)}
    place = places.pop() if len(places) == 1 else None
    rows: list[tuple[str, str, str, Origin | None]] = [
        (f"%{i}: {spec_text(spec, place)}", "", "input", None) for i, spec in graph.inputs
    ]
    for node in graph.nodes:
        shown = [spec_text(specs.get(i), place) for i in node.outputs if i is not None]
        rows.append(
            (f"{_outputs(node)}: {', '.join(shown)}" if shown else _outputs(node), "=", _right(node), node.origin)
        )
    left = min(max((len(row[0]) for row in rows), default=0), _WIDEST)
    right = min(max((len(row[2]) for row in rows), default=0), 2 * _WIDEST)
    grouped = any(group_name(row[3]) for row in rows)
    lines = [f"graph on {place}" if place is not None else "graph"]
    group = ""
    for number, (made_text, sign, text, origin) in enumerate(rows):
        if grouped and number >= len(graph.inputs) and group_name(origin) != group:
            group = group_name(origin)
            lines.append(f"  # {group or 'no module'}")
        where = f"  # {origin.where}" if origins and origin is not None and origin.where else ""
        line = f"  {made_text:{left}} {sign:1} {text}"
        lines.append(f"{line:{left + right + 5}}{where}" if where else line)
    lines.append(f"  return {', '.join('None' if i is None else f'%{i}' for i in graph.outputs)}".rstrip())
    return "\n".join(lines)


def _outputs(node: Node) -> str:
    return ", ".join("_" if i is None else f"%{i}" for i in node.outputs)


def _right(node: Node) -> str:
    read = [f"%{i}" if isinstance(i, int) else repr(i) for i in node.inputs]
    attrs = [f"{name}={value}" for name, value in node.call.attrs.items()]
    return f"{node.call.op.name}({', '.join(read + attrs)})"
