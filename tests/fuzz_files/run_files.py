"""Defines what lies in the directory of a run, and what its views print."""

from __future__ import annotations

import contextlib
import json
import random
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from tests.fuzz_files.config_files import config_seeds
from tests.fuzz_files.mutations import json_changed, lines_changed, words_changed
from tests.fuzz_files.reader import Change, Reader, either, errors_of_ours, read_all
from tests.fuzz_files.record_files import foreign_safetensors, header_changed, net

__all__ = ["READERS"]


@cache
def event_logs() -> tuple[bytes, ...]:
    from burn_torch.monitor import Split, StepDone, encode
    from tests.monitor.test_codec import EVENTS, VALUES

    steps = [StepDone(Split.TRAIN, 1, i, i, 8 * i, VALUES[:1]) for i in range(1, 4)]
    everything = b"".join(encode(event, n, 1764000000.0 + n) for n, event in enumerate([*EVENTS, *steps]))
    return (
        everything,
        b"".join(encode(event, n, 1764000000.0 + n) for n, event in enumerate([EVENTS[0], *steps, EVENTS[-1]])),
    )


def _beside_events() -> dict[str, bytes]:
    return {"config.json": config_seeds(False)[0], "result.json": b'{"accuracy": 0.5}'}


@cache
def _command(*words: str) -> Callable[[Path], object]:
    """A command as `burn-torch` runs it on a path, without its last net; the words name any path."""
    from burn_torch.cli import main, registry

    args = main._parse([*words])
    names = [name for name in ("directories", "directory", "file") if hasattr(args, name)]

    def run(path: Path) -> object:
        setattr(args, names[0], [path, path] if names[0] == "directories" else path)
        if hasattr(args, "csv"):
            args.csv = str(path / "out.csv")
        with main._plain_output(args.command):
            return registry.commands()[args.command].run(args)

    return run


@cache
def _views() -> tuple[Callable[[Path], object], ...]:
    from burn_torch.monitor.html import html_report
    from burn_torch.monitor.view import RunView

    return (
        _command("runs", "list", "x"),
        _command("runs", "list", "x", "--json"),
        _command("runs", "compare", "x", "x"),
        _command("runs", "plot", "x", "--width", "60"),
        _command("runs", "plot", "x", "--epochs", "--log", "--width", "60"),
        _command("attach", "x", "--once"),
        _command("report", "x", "--csv", "x"),
        lambda folder: html_report(RunView.of(folder), "x"),
    )


def show_runs(path: Path) -> None:
    """Two of the views of a run in plain text."""
    views = _views()
    which = zlib.crc32(path.read_bytes()) % len(views)
    read_all(lambda: views[which](path.parent), lambda: views[which - 1](path.parent))


def inspect_run(path: Path) -> None:
    """Runs `inspect` and `evaluate` on the directory of a run."""
    from burn_torch.cli.artifacts import saved_run

    with contextlib.suppress(errors_of_ours()):
        _command("inspect", "x")(path.parent)
    saved_run(path.parent)


@cache
def _small_run() -> tuple[bytes, bytes]:
    """Settings and model of a small run."""
    import tempfile

    from burn_torch import Device
    from burn_torch.cli import registry

    recipe = registry.recipe("digits")
    config = recipe.config(channels=2, hidden=4)
    with tempfile.TemporaryDirectory() as folder:
        model = recipe.model(config, Device.cpu()).save_file(Path(folder) / "model")
        return config.to_json().encode(), model.read_bytes()


def build_model(path: Path) -> None:
    """The model of a run, built from its settings and loaded, as `predict` and `evaluate` do."""
    from argparse import Namespace

    from burn_torch import Device
    from burn_torch.cli.artifacts import saved_run, trained_model

    recipe, config = saved_run(path.parent)
    trained_model(recipe, config, Device.cpu(), Namespace(checkpoint=None, recipe=None), path.parent)


def inspect_file(path: Path) -> None:
    """Runs `inspect` on a file."""
    _command("inspect", "x")(path)


@cache
def _checkpoint() -> bytes:
    from burn_torch.module import ModuleRecord
    from burn_torch.optim import OptimizerRecord
    from burn_torch.train.checkpoint.content import Checkpoint, Position
    from burn_torch.train.history import History

    model = net()
    whole = Checkpoint(
        position=Position(1, 0, True, 3),
        run_key=7,
        model=model.into_record(),
        optim=OptimizerRecord("Adam", {}),
        scheduler={"step": 3},
        lr=0.1,
        history=History(),
        metrics={"Loss": {"sum": 1.5, "values": np.arange(3.0)}},
        loader={"seed": 1},
        config="{}",
        versions={"torch": "2"},
        notes=("note",),
        events=(3, 1),
    )
    return bytes(ModuleRecord(**vars(whole.to_record(model))).into_bytes(".safetensors"))


def metadata_changed(key: str) -> Change:
    """The JSON under a key of the metadata changed as a document, else the header."""

    def change(data: bytes, rnd: random.Random, others: Sequence[bytes]) -> bytes:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        if rnd.random() < 0.3:
            return header_changed(data, rnd, others)
        about = json_changed(header["__metadata__"][key].encode(), rnd, others)
        header["__metadata__"][key] = about.decode("utf-8", "replace")
        text = json.dumps(header, separators=(",", ":")).encode()
        return struct.pack("<Q", len(text)) + text + data[8 + size :]

    return change


def read_checkpoint(path: Path) -> None:
    """As a resume reads it."""
    from burn_torch.train import FileCheckpointer

    there = FileCheckpointer(path.parent)
    there.newest(lambda text: None)
    _, checkpoint = there.restore(1)
    net().load_record(checkpoint.model)


@cache
def _replay() -> bytes:
    import tempfile

    from burn_torch import ops
    from burn_torch.backend import LibTorch
    from burn_torch.core.data import TensorData
    from burn_torch.core.dtype import DType
    from burn_torch.core.spec import TensorSpec
    from burn_torch.graph.trace import Trace
    from burn_torch.train.anomaly.replay_file import save
    from burn_torch.train.anomaly.search import find

    trace = Trace()
    x = trace.input(TensorSpec.of((2, 3), DType.F32, "cpu"))
    graph = trace.graph([ops.log(x * 2.0 - 3.0)])
    inputs = [LibTorch().from_data(TensorData(np.ones((2, 3), np.float32), DType.F32), "cpu")]
    fault = find(graph, LibTorch(), inputs, ["x"])
    assert fault is not None
    with tempfile.TemporaryDirectory() as folder:
        path = save(
            Path(folder) / "m.safetensors", fault, LibTorch(), inputs, ["x"], {"epoch": 1, "batch": 2, "step": 3}
        )
        return path.read_bytes()


def run_replay(path: Path) -> None:
    """Runs a replay."""
    from burn_torch.train.anomaly import replay

    str(replay(path))


@cache
def _graphs() -> tuple[bytes, ...]:
    from burn_torch import ops
    from burn_torch.core.dtype import DType
    from burn_torch.core.spec import TensorSpec
    from burn_torch.graph.trace import Trace

    trace = Trace()
    x = trace.input(TensorSpec.of((3, 4), DType.F32, "cpu"))
    largest, where = ops.max_with_indices(x * 2.0 + 0.5, dim=1)
    graph = trace.graph([ops.rms_norm(x, None, 1e-5)[0], largest, None, where, ops.reshape(x, shape=(2, 6))])
    return (graph.to_json().encode(), graph.to_json(origins=True).encode())


def read_graph(path: Path) -> None:
    """A graph, and what it looks like."""
    from burn_torch.graph import Graph

    str(Graph.load(path))


READERS: Final[dict[str, Reader]] = {
    "events": Reader("events.jsonl", event_logs, show_runs, lines_changed, beside=_beside_events, shown=True),
    "config of a run": Reader(
        "config.json",
        lambda: [config_seeds(False)[0]],
        inspect_run,
        either(words_changed, json_changed),
        beside=lambda: {"events.jsonl": event_logs()[0]},
        shown=True,
    ),
    "inspected": Reader("m.safetensors", foreign_safetensors, inspect_file, header_changed, shown=True),
    "checkpoint": Reader(
        "epoch-1.safetensors", lambda: [_checkpoint()], read_checkpoint, metadata_changed("checkpoint"), sealed=True
    ),
    "replay": Reader("m.safetensors", lambda: [_replay()], run_replay, metadata_changed("anomaly"), sealed=True),
    "graph": Reader("m.json", _graphs, read_graph, either(words_changed, json_changed, json_changed)),
    "settings of a model": Reader(
        "config.json",
        lambda: [_small_run()[0]],
        build_model,
        either(words_changed, json_changed, json_changed),
        beside=lambda: {"model.safetensors": _small_run()[1]},
    ),
}
