"""Graphs as pictures: SVG without scripts, alone or in a page of HTML.

Layers by longest path (an input stands right above its first reader), ordered by the barycentre of neighbours, then
placed near them without overlap.  Edges that span layers are curves, not chains of invisible nodes: that is less tidy
and stays linear in the size of the graph (1,000 nodes in a tenth of a second).
"""

from __future__ import annotations

import colorsys
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from operator import attrgetter
from pathlib import Path
from typing import Final

from burn_torch.core.files import write_atomic
from burn_torch.graph.ir import Graph
from burn_torch.graph.origin import Origin
from burn_torch.graph.printer import group_name, node_text, spec_text

__all__ = ["draw", "show"]

_HEIGHT: Final = 40
_ROW: Final = 84  # from one layer to the next
_GAP: Final = 16
_LETTER: Final = 6.8  # width of a letter at 11 px monospace
_LONGEST: Final = 34  # letters in a box; the tooltip has all
_SWEEPS: Final = 6
_LEGEND: Final = 24  # groups that the legend names
_PLAIN: Final = "#f4f4f4"


@dataclass
class _Box:
    """A node, input or output in the picture."""

    title: str
    label: str
    tooltip: str
    origin: Origin | None
    kind: str
    reads: list[_Box] = field(default_factory=list)
    readers: list[_Box] = field(default_factory=list)
    layer: int = 0
    order: float = 0.0
    left: float = 0.0

    @property
    def group(self) -> str:
        return group_name(self.origin)

    @property
    def width(self) -> float:
        return max(len(self.title), len(self.label), 5) * _LETTER + 14

    @property
    def middle(self) -> float:
        return self.left + self.width / 2


def show(graph: Graph, path: str | os.PathLike[str] | None) -> Path:
    """Writes the picture: SVG where the name ends in .svg, else a page of HTML; a new temporary file without a name."""
    if path is None:
        handle, name = tempfile.mkstemp(prefix="burn-torch-graph-", suffix=".html")
        os.close(handle)
        target = Path(name)
    else:
        target = Path(path)
    picture = draw(graph)
    write_atomic(target, (picture if target.suffix.lower() == ".svg" else _page(picture)).encode())
    return target


def draw(graph: Graph) -> str:
    """The graph as SVG text."""
    boxes = _boxes(graph)
    layers = _layers(boxes)
    _order(layers)
    _place(layers)
    return _svg(boxes, len(layers))


# -- what is drawn ---------------------------------------------------------------------------------------------
def _boxes(graph: Graph) -> list[_Box]:
    specs = graph.specs()
    maker: dict[int, _Box] = {}
    boxes: list[_Box] = []
    for i, spec in graph.inputs:
        maker[i] = _Box(f"%{i}", spec_text(spec, "cpu"), f"input %{i}: {spec_text(spec)}", None, "input")
        boxes.append(maker[i])
    for node in graph.nodes:
        outputs = ", ".join("_" if i is None else spec_text(specs.get(i), "cpu") for i in node.outputs)
        tooltip = f"{node_text(node)}\n{outputs}" + (f"\n{node.origin}" if node.origin is not None else "")
        box = _Box(_cut(node.call.op.name), _cut(outputs), tooltip, node.origin, "node")
        for i in dict.fromkeys(i for i in node.inputs if isinstance(i, int)):
            _join(maker[i], box)
        maker.update({i: box for i in node.outputs if i is not None})
        boxes.append(box)
    for position, output in enumerate(graph.outputs):
        if output is not None:
            label = spec_text(specs.get(output), "cpu")
            box = _Box(f"output {position}", label, f"output {position}: %{output}, {label}", None, "output")
            _join(maker[output], box)
            boxes.append(box)
    return boxes


def _join(source: _Box, reader: _Box) -> None:
    reader.reads.append(source)
    source.readers.append(reader)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


# -- layout ----------------------------------------------------------------------------------------------------
def _layers(boxes: Sequence[_Box]) -> list[list[_Box]]:
    for box in boxes:  # readers come after what they read
        box.layer = 1 + max((source.layer for source in box.reads), default=-1)
    for box in boxes:
        if box.kind == "input" and box.readers:
            box.layer = min(reader.layer for reader in box.readers) - 1
    layers: list[list[_Box]] = [[] for _ in range(1 + max((box.layer for box in boxes), default=-1))]
    for box in boxes:
        layers[box.layer].append(box)
    for layer in layers:
        _number(layer)
    return layers


def _order(layers: Sequence[list[_Box]]) -> None:
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            centres = {id(box): _mean(box.reads if down else box.readers, "order", box.order) for box in layer}
            layer.sort(key=lambda box: centres[id(box)])
            _number(layer)


def _number(layer: Sequence[_Box]) -> None:
    for position, box in enumerate(layer):
        box.order = (position + 0.5) / len(layer)  # as a part of the layer, so that layers of any size compare


def _place(layers: Sequence[list[_Box]]) -> None:
    for layer in layers:
        _spread(layer, [0.0] * len(layer))
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            _spread(layer, [_mean(box.reads if down else box.readers, "middle", box.middle) for box in layer])
    leftmost = min((box.left for layer in layers for box in layer), default=0.0)
    for layer in layers:
        for box in layer:
            box.left += _GAP - leftmost


def _spread(layer: Sequence[_Box], middles: Sequence[float]) -> None:
    """Puts boxes in their order as near to `middles` as fits, from the left, then shifts the layer to its mean."""
    free = -float("inf")
    for box, middle in zip(layer, middles, strict=True):
        box.left = max(middle - box.width / 2, free)
        free = box.left + box.width + _GAP
    if layer:
        shift = sum(middle - box.middle for box, middle in zip(layer, middles, strict=True)) / len(layer)
        for box in layer:
            box.left += shift


def _mean(boxes: Sequence[_Box], name: str, otherwise: float) -> float:
    """The mean of one attribute of boxes."""
    return sum(map(attrgetter(name), boxes)) / len(boxes) if boxes else otherwise


# -- writing ---------------------------------------------------------------------------------------------------
def _svg(boxes: Sequence[_Box], layers: int) -> str:
    known = {box.group: box.origin for box in boxes if box.origin is not None and box.group}
    groups, paths = list(known), list(dict.fromkeys(origin.path for origin in known.values()))
    colours = {
        group: _colour(paths.index(origin.path) / len(paths), 0.74 if origin.backward else 0.87)
        for group, origin in known.items()
    }
    named = groups[:_LEGEND]
    top = _GAP + 18 * (len(named) + (len(groups) > len(named)))
    width = max((box.left + box.width for box in boxes), default=0.0) + _GAP
    width = max(width, 2 * _GAP + 20 + max((len(group) for group in named), default=10) * _LETTER)
    height = top + layers * _ROW + _GAP
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for position, group in enumerate(named):
        y = _GAP + 18 * position
        lines.append(f'<rect x="{_GAP}" y="{y}" width="12" height="12" fill="{colours[group]}" stroke="#888"/>')
        lines.append(f'<text x="{_GAP + 18}" y="{y + 10}">{_escape(group)}</text>')
    if len(groups) > len(named):
        y = _GAP + 18 * len(named)
        lines.append(f'<text x="{_GAP + 18}" y="{y + 10}">and {len(groups) - len(named)} more</text>')
    lines.append('<g fill="none" stroke="#999">')
    for box in boxes:
        for source in box.reads:
            x1, y1, x2, y2 = source.middle, top + source.layer * _ROW + _HEIGHT, box.middle, top + box.layer * _ROW
            bend = (y2 - y1) / 2
            lines.append(f'<path d="M{x1:.1f} {y1}C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2}"/>')
    lines.append("</g>")
    for box in boxes:
        fill = colours.get(box.group, _PLAIN if box.kind == "node" else "white")
        round = _HEIGHT / 2 if box.kind != "node" else 4
        y, middle = top + box.layer * _ROW, f"{box.middle:.1f}"
        lines.append(
            f'<g><title>{_escape(box.tooltip)}</title><rect x="{box.left:.1f}" y="{y}" width="{box.width:.1f}" '
            f'height="{_HEIGHT}" rx="{round}" fill="{fill}" stroke="#666"/>'
            f'<text x="{middle}" y="{y + 17}" text-anchor="middle" font-weight="bold">{_escape(box.title)}</text>'
            f'<text x="{middle}" y="{y + 31}" text-anchor="middle">{_escape(box.label)}</text></g>'
        )
    return "\n".join([*lines, "</svg>", ""])


def _colour(hue: float, lightness: float) -> str:
    """One hue a module, and darker for its gradient."""
    red, green, blue = colorsys.hls_to_rgb(hue, lightness, 0.65)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def _escape(text: str) -> str:
    # XML has no way to write control characters, or halves of surrogate pairs, as file names may have them
    visible = "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
    return escape(visible)


def _page(picture: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>burn_torch graph</title>\n'
        "<style>body{margin:0;overflow:auto}</style></head><body>\n"
        f"{picture}</body></html>\n"
    )
