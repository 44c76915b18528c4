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
from burn_torch.transform.program import Program, ProgramOptions
from burn_torch.transform.structure import Container
from burn_torch.transform.tracing import Traced

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
    lower_to_c: Callable[..., Any] = lowering.lower_to_c
    return lower_to_c


def _variants() -> Any:
    return _module("fusion.shapes.variants", "fusion.variants")


def _sizes_of(graph: Graph) -> tuple[int, ...]:
    symbolic: Any = _module("fusion.rows.symbolic", "fusion.symbolic")
    sizes: tuple[int, ...] = symbolic.sizes_of(graph)
    return sizes


def _stream_schedule(plans: Any) -> Callable[[Graph], Any]:
    """Returns the planner of a stream's graph of symbolic sizes."""
    choices = dict(zip(("choices",), _choices(False), strict=False))
    if hasattr(plans, "stream_plan"):
        return partial(plans.stream_plan, plainer=False, **choices)
    return partial(plans._scheduled, **choices)


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
    scheduled = _stream_schedule(plans)
    with _choosing(False):
        for graph in graphs:
            sizes = _sizes_of(graph)
            shared = variants.found(sizes)
            if shared is None and len(graphs) > 1 and variants.made(graph, sizes, scheduled) is not None:
                shared = variants.found(sizes)
            if shared is not None:
                yield shared[0].plan, shared[1]
                continue
            if hasattr(plans, "stream_plan"):
                plan = plans.stream_plan(graph, *_choices(False))
                yield plan, plan.graph
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
    leaf.capabilities, leaf.leaf = leaf, lambda: leaf  # it offers all of that itself, whoever is asked
    how = {"numerics": None, "precision": "float32", "memory_limit_bytes": None, "donated": (), **options}
    donated = frozenset(how.pop("donated"))
    schedules = _variants().Schedules()
    nothing = Container(tuple, (), ())
    with _choosing(False):
        for graph in graphs:
            traced = Traced(leaf, graph, (), nothing, (), (), None, None, None)
            settings = ProgramOptions(fuse=True, replay=False, **how)
            program = Program(traced, "step", (), settings, schedules, donated=donated, held=frozenset())
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
    """Plans graphs as a door does: text, kernels, bytes and peak of the last, and all sources."""
    sources: dict[str, str] = {}
    if door == "passes":
        lines, counts = _passes(graphs, options), (0, 0, 0)
    else:
        lines, counts = [], (0, 0, 0)
        for plan, graph in DOORS[door](graphs, options):
            more, counts = _describe(plan, graph, sources)
            lines += more
    numbers = itertools.count()
    names: dict[str, str] = {}

    def renumbered(text: str) -> str:
        return re.sub(r"symbolic \d+", lambda match: names.setdefault(match[0], f"symbolic #{next(numbers)}"), text)

    return {
        "kernels": counts[0],
        "bytes": counts[1],
        "peak": counts[2],
        "text": renumbered("\n".join(lines)),
        "sources": sources,
    }


def _describe(plan: Any, graph: Graph, sources: dict[str, str]) -> tuple[list[str], tuple[int, int, int]]:
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

    entries: dict[str, dict[str, Any]] = {}
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
                entries[name] = entry | {"plan": _plan_again(entry)}
                file.write(json.dumps(entries[name]) + "\n")
    return entries


def _plan_again(entry: dict[str, Any]) -> dict[str, Any]:
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            graphs = [Graph.from_json(text) for text in entry["graphs"]]
            plan = plan_case(entry["door"], graphs, entry["options"])
        except Exception as fault:  # what a door refuses, it must refuse again
            plan = {"kernels": 0, "bytes": 0, "peak": 0, "text": f"{type(fault).__name__}: {fault}", "sources": {}}
    return plan | {"seconds": round(time.process_time() - begun, 3)}


# -- comparing -----------------------------------------------------------------------------------------------
def compare(before: Iterable[dict[str, Any]], after: Callable[[dict[str, Any]], dict[str, Any]]) -> list[str]:
    """A paragraph for each recorded case whose plan or sources differ."""
    texts = []
    for entry in before:
        one, other = entry["plan"], after(entry)
        if (one["text"], one["sources"]) != (other["text"], other["sources"]):
            counts = ", ".join(f"{key} {one[key]} -> {other[key]}" for key in ("kernels", "bytes", "peak"))
            texts.append("\n".join([f"{entry['name']}: {counts}", *_lines(one, other)]))
    return texts


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
    """Does what the command line asks for; returns 1 where plans differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--quick", action="store_true", help="record a few cases of each kind")
    parser.add_argument("--only", default="", help="compare the cases whose names have this in them")
    parser.add_argument("--against", type=Path, help="compare with another record, and plan nothing")
    wishes = parser.parse_args()
    if wishes.command == "record":
        plans = record(wishes.directory, wishes.quick)
        graphs = {text for entry in plans.values() for text in entry["graphs"]}
        print(f"{len(plans)} plans of {len(graphs)} graphs are recorded in {wishes.directory / 'plans.jsonl'}")
        return 0
    others = {} if wishes.against is None else {e["name"]: e["plan"] for e in recorded(wishes.against)}
    seconds = [0.0, 0.0]

    def after(entry: dict[str, Any]) -> dict[str, Any]:
        plan = _plan_again(entry) if wishes.against is None else others[entry["name"]]
        seconds[0] += entry["plan"]["seconds"]
        seconds[1] += plan["seconds"]
        return plan

    wanted = [entry for entry in recorded(wishes.directory) if wishes.only in entry["name"]]
    differences = compare(wanted, after)
    print("\n".join(differences))
    took = f"{seconds[0]:.1f} s of planning before, {seconds[1]:.1f} s after"
    print(f"{len(differences)} of {len(wanted)} plans differ; {took}")
    return bool(differences)


if __name__ == "__main__":
    sys.exit(main())
