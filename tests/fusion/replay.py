"""Records plans and kernel sources of a corpus of graphs, and says which of them a change of the planner changed.

    python -m tests.fusion.replay record DIR [--quick]      at the commit before
    python -m tests.fusion.replay compare DIR [--against OTHER]   after: plans the recorded graphs again

Recorded are the graphs themselves, so `compare` plans what was recorded, whatever the corpus is by then.  A case that
differs is listed with its number of kernels, the bytes that they move and the planned peak, before and after, and with
the lines that differ.  No GPU is needed: kernels are written and not compiled.  The doors are

    passes   the passes that `compile` runs without fusion, with eager and with fast numerics
    outside  `plan_of`, as benchmarks and tests call it;  strict: rounding after each operation
    anchors  `plan_of`, where every product and every convolution is chosen to be generated
    stream   a lazy stream's program; graphs of several sizes share a plan of symbolic sizes
    compile  a compiled function's, likewise
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import itertools
import json
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from burn_torch import fusion
from burn_torch.backend import LibTorch
from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph
from burn_torch.graph.passes import Numerics, peak_bytes, pipeline
from burn_torch.transform.program import Program, Traced
from burn_torch.transform.structure import Container

__all__ = ["compare", "plan_case", "record", "recorded", "stream_programs"]


# -- what differs between versions of the library ----------------------------------------------------------
def _module(*names: str) -> Any:
    """The first of these modules that there is: rooms were given to them on 2026-11-23."""
    for name in names:
        try:
            return importlib.import_module(f"burn_torch.{name}")
        except ModuleNotFoundError as fault:
            missing = fault
    raise missing


def stream_programs() -> Any:
    """The module of `Ready`."""
    return _module("backend.lazy.plans", "backend.fusion.plans")


def _lower_to_c() -> Callable[..., Any]:
    lowering: Any = _module("fusion.c.lowering", "fusion.c_lowering")
    found: Callable[..., Any] = lowering.lower_to_c
    return found


def _variants() -> Any:
    return _module("fusion.shapes.variants", "fusion.variants")


def _sizes_of(graph: Graph) -> tuple[int, ...]:
    symbolic: Any = _module("fusion.rows.symbolic", "fusion.symbolic")
    found: tuple[int, ...] = symbolic.sizes_of(graph)
    return found


def _answers(generates: bool) -> dict[str, Any]:
    """The answers about all products and convolutions: that kernels are generated for them, or none; no timing here."""
    if not generates:
        return {"product": None, "convolution": None, "ending": None}
    products: Any = _module("fusion.triton.products", "fusion.products")
    convolutions: Any = _module("fusion.triton.convolutions", "fusion.convolutions")
    tiles = products.ProductTiles(64, 64, 32, 8, 4, 3)
    direct = convolutions.ConvolutionTiles(16, 64, 4)
    return {
        "product": lambda size, around: tiles,
        "convolution": lambda size, around: direct,
        "ending": lambda asked: 1 if asked.ending.startswith("gelu") else None,
    }


def _choices(generates: bool) -> tuple[Any, ...]:
    """The choices that planning is handed; before 2026-11-23 modules held them, see `_choosing`."""
    return (fusion.Choices(**_answers(generates)),) if hasattr(fusion, "Choices") else ()


@contextmanager
def _choosing(generates: bool) -> Iterator[None]:
    """A block in which modules hold the answers, in versions where they did."""
    anchors: Any = _module("fusion.planning.anchors", "fusion.anchors")
    endings: Any = _module("fusion.rewrites.endings", "fusion.endings")
    answers = _answers(generates)
    setters = [
        (getattr(anchors, "set_chooser", None), answers["product"]),
        (getattr(anchors, "set_convolution_chooser", None), answers["convolution"]),
        (getattr(endings, "set_ending_chooser", None), answers["ending"]),
    ]
    before = [(setter, setter(chooser)) for setter, chooser in setters if setter is not None]
    try:
        yield
    finally:
        for setter, chooser in before:
            setter(chooser)


# -- doors -----------------------------------------------------------------------------------------------------
def _passes(graphs: Sequence[Graph], options: dict[str, Any]) -> list[str]:
    texts = []
    numbers: tuple[Numerics, ...] = ("eager", "fast")
    for numerics in numbers:
        after, _ = pipeline(graphs[0], numerics=numerics)
        texts += [numerics, after.dense().text(), f"peak {peak_bytes(after)}"]
    return texts


def _outside(strict: bool = False, generates: bool = False) -> Callable[..., Any]:
    def planned(graphs: Sequence[Graph], options: dict[str, Any]) -> Iterable[Any]:
        with _choosing(generates):
            for graph in graphs:
                plan = fusion.plan_of(graph, *_choices(generates), strict=strict)
                yield plan, plan.graph

    return planned


def _stream(graphs: Sequence[Graph], options: dict[str, Any]) -> Iterable[Any]:
    plans = stream_programs()
    variants = _variants().Variants()
    scheduled = partial(plans._scheduled, **dict(zip(("choices",), _choices(False), strict=False)))
    with _choosing(False):
        for graph in graphs:
            sizes = _sizes_of(graph)
            found = variants.found(sizes)
            if found is None and len(graphs) > 1 and variants.made(graph, sizes, scheduled) is not None:
                found = variants.found(sizes)
            if found is not None:
                yield found[0].plan, found[1]
                continue
            ready = plans.Ready(LibTorch(), graph, range(len(graph.inputs)), [True] * len(graph.outputs))
            yield ready.plan, plans._tidied(ready.plan.graph)


def _compile(graphs: Sequence[Graph], options: dict[str, Any]) -> Iterable[Any]:
    leaf: Any = SimpleNamespace(
        choices=next(iter(_choices(False)), None),
        settings=lambda: None,
        program=lambda graph, donated, title: SimpleNamespace(run=None),
        recorded=lambda *_: None,
    )
    given = {"numerics": None, "precision": "float32", "memory_limit_bytes": None, "donated": (), **options}
    given["donated"] = frozenset(given["donated"])
    schedules = _variants().Schedules()
    nothing = Container(tuple, (), ())
    with _choosing(False):
        for graph in graphs:
            traced = Traced(leaf, graph, (), nothing, (), (), None, None, None)
            program = Program(
                traced, "step", fuse=True, schedules=schedules, replay=False, held=frozenset(), arguments=(), **given
            )
            yield program.plan, program.graph


DOORS: dict[str, Callable[..., Iterable[Any]]] = {
    "outside": _outside(),
    "strict": _outside(strict=True),
    "anchors": _outside(generates=True),
    "stream": _stream,
    "compile": _compile,
}


# -- what is recorded -------------------------------------------------------------------------------------------
def plan_case(door: str, graphs: Sequence[Graph], options: dict[str, Any]) -> dict[str, Any]:
    """What a door makes of graphs: text, kernels, bytes and peak of the last, and all sources."""
    sources: dict[str, str] = {}
    if door == "passes":
        lines, counts = _passes(graphs, options), (0, 0, 0)
    else:
        lines, counts = [], (0, 0, 0)
        for plan, graph in DOORS[door](graphs, options):
            more, counts = _told(plan, graph, sources)
            lines += more
    numbers = itertools.count()
    names: dict[str, str] = {}

    def renumbered(text: str) -> str:
        return re.sub(r"symbolic \d+", lambda found: names.setdefault(found[0], f"symbolic #{next(numbers)}"), text)

    return {
        "kernels": counts[0],
        "bytes": counts[1],
        "peak": counts[2],
        "text": renumbered("\n".join(lines)),
        "sources": sources,
    }


def _told(plan: Any, graph: Graph, sources: dict[str, str]) -> tuple[list[str], tuple[int, int, int]]:
    explained = fusion.explain(plan)
    lines = [graph.dense().text()]
    moved = 0
    for kernel in explained.kernels:
        moved += kernel.bytes_read + kernel.bytes_written
        lines.append(
            f"{kernel.name}: {', '.join(kernel.rows)}; {kernel.bytes_read} {kernel.bytes_written} {kernel.bytes_saved}"
            f" {kernel.tiles} {kernel.failure}"
        )
        if kernel.source is not None:
            sources[f"{kernel.name} in Triton"] = kernel.source
        if kernel.c_source is not None:
            sources[f"{kernel.name} in C"] = kernel.c_source
    for group in plan.groups:
        lines += [f"body {', '.join(group.rows)}", group.body.dense().text()]
        text = _in_c(group.body)
        sources[f"{blake2b(text.encode(), digest_size=8).hexdigest()}, a body in C"] = text
    lines += [f"{b.producer} -> {b.consumer}, {b.bytes}: {b.reason}: {b.detail}" for b in plan.boundaries]
    lines += [*map(str, explained.symbols), *explained.guards, *explained.notes]
    peak = peak_bytes(graph)
    return [*lines, f"peak {peak}", ""], (len(explained.kernels), moved, peak)


def _in_c(body: Graph) -> str:
    if any(
        not isinstance(size, int)
        for spec in body.specs().values()
        if isinstance(spec, TensorSpec)
        for size in spec.shape
    ):
        return ""  # of symbolic sizes: what runs is written at its sizes
    try:
        return str(_lower_to_c()(body).source)
    except Exception as fault:  # products, convolutions and what C cannot do: the reason is recorded
        return f"{type(fault).__name__}: {fault}"


def record(directory: Path, quick: bool = False) -> dict[str, dict[str, Any]]:
    """Records the corpus; returns it by name."""
    from tests.fusion.replay_corpus import corpus

    found: dict[str, dict[str, Any]] = {}
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "plans.jsonl").open("w") as file:
        for case in corpus(quick):
            texts = [graph.to_json() for graph in case.graphs]
            for door, on_gpu in itertools.product(case.doors, (False, True)):
                if on_gpu and door in ("strict", "passes"):
                    continue
                name = f"{case.name} | {door}{', on a GPU' if on_gpu else ''}"
                each = [text.replace('"cpu"', '"cuda:0"') for text in texts] if on_gpu else texts
                entry = {"name": name, "door": door, "options": case.options, "graphs": each}
                found[name] = entry | {"plan": _replanned(entry)}
                file.write(json.dumps(found[name]) + "\n")
    return found


def _replanned(entry: dict[str, Any]) -> dict[str, Any]:
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            graphs = [Graph.from_json(text) for text in entry["graphs"]]
            made = plan_case(entry["door"], graphs, entry["options"])
        except Exception as fault:  # what a door refuses, it must refuse again
            made = {"kernels": 0, "bytes": 0, "peak": 0, "text": f"{type(fault).__name__}: {fault}", "sources": {}}
    return made | {"seconds": round(time.process_time() - begun, 3)}


# -- comparing -----------------------------------------------------------------------------------------------
def compare(before: Iterable[dict[str, Any]], after: Callable[[dict[str, Any]], dict[str, Any]]) -> list[str]:
    """A paragraph for each recorded case whose plan or sources differ."""
    found = []
    for entry in before:
        one, other = entry["plan"], after(entry)
        if (one["text"], one["sources"]) != (other["text"], other["sources"]):
            counts = ", ".join(f"{key} {one[key]} -> {other[key]}" for key in ("kernels", "bytes", "peak"))
            found.append("\n".join([f"{entry['name']}: {counts}", *_lines(one, other)]))
    return found


def _lines(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    lines = list(difflib.unified_diff(one["text"].splitlines(), other["text"].splitlines(), "before", "after", n=1))
    for name in sorted({*one["sources"], *other["sources"]}):
        first, second = (each["sources"].get(name, "").splitlines() for each in (one, other))
        lines += difflib.unified_diff(first, second, f"{name}, before", f"{name}, after", n=1)
    return [f"    {line.rstrip()[:200]}" for line in lines[:60]]


def recorded(directory: Path) -> Iterator[dict[str, Any]]:
    """The entries of a record, one after the other."""
    with (directory / "plans.jsonl").open() as file:
        yield from map(json.loads, file)


def main() -> int:
    """What the command line asks for; 1 where plans differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--quick", action="store_true", help="record a few cases of each kind")
    parser.add_argument("--only", default="", help="compare the cases whose names have this in them")
    parser.add_argument("--against", type=Path, help="compare with another record, and plan nothing")
    given = parser.parse_args()
    if given.command == "record":
        made = record(given.directory, given.quick)
        graphs = {text for entry in made.values() for text in entry["graphs"]}
        print(f"{len(made)} plans of {len(graphs)} graphs are recorded in {given.directory / 'plans.jsonl'}")
        return 0
    others = {} if given.against is None else {e["name"]: e["plan"] for e in recorded(given.against)}
    seconds = [0.0, 0.0]

    def after(entry: dict[str, Any]) -> dict[str, Any]:
        plan = _replanned(entry) if given.against is None else others[entry["name"]]
        seconds[0] += entry["plan"]["seconds"]
        seconds[1] += plan["seconds"]
        return plan

    wanted = [entry for entry in recorded(given.directory) if given.only in entry["name"]]
    found = compare(wanted, after)
    print("\n".join(found))
    print(
        f"{len(found)} of {len(wanted)} plans differ; {seconds[0]:.1f} s of planning before, {seconds[1]:.1f} s after"
    )
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
