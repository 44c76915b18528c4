"""Every reader of files: sound files to begin with, how they are changed, and what reads them.

A reader here is one row: `seeds` makes sound files, `change` one file of a seed, `read` reads it as users do and raises
one of the library's errors or returns.  `beside` are the files that lie in the same folder and stay sound.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.fuzz_files.mutations import bytes_changed, json_changed, protobuf_changed, words_changed

__all__ = ["READERS", "Reader"]

Change = Callable[[bytes, random.Random, Sequence[bytes]], bytes]


@dataclass(frozen=True)
class Reader:
    """One kind of file, and what reads it."""

    file: str
    """Its name; the ending matters to most."""
    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[Path], object]
    change: Change = bytes_changed
    beside: Callable[[], Mapping[str, bytes]] = field(default=dict)
    sealed: bool = False
    """Whether it has a checksum of ours: half of the files are read as if it fitted, which who forges one can have."""
    shown: bool = False
    """Whether what `read` prints goes to a terminal."""


def either(*changes: Change) -> Change:
    """One of several ways, each time another."""
    return lambda data, rnd, others: rnd.choice(changes)(data, rnd, others)


# -- records --------------------------------------------------------------------------------------------------
def _record(ending: str) -> bytes:
    from tests.record.hostile.corpus import ours

    return ours(ending)


@cache
def _net() -> Any:
    from burn_torch import Device, Module
    from burn_torch.nn import Linear, LinearConfig

    class Net(Module):
        a: Linear

    return Net(LinearConfig(3, 4).init(Device.cpu()))


def read_record(path: Path) -> None:
    """Loads, lists, applies, reads all values, and writes what was read again."""
    from burn_torch.module import ModuleRecord
    from burn_torch.record.listing import listing_of

    for use in (_values, lambda: listing_of(path), lambda: _net().load_file(path)):
        with contextlib.suppress(_ours()):
            use(ModuleRecord.load(path)) if use is _values else use()


def _values(record: Any) -> None:
    for entry in record.entries.values():
        entry.read()
    record.into_bytes(".safetensors")


@cache
def _ours() -> tuple[type[BaseException], ...]:
    from burn_kernels.errors import KernelError
    from burn_torch.core.errors import BurnTorchError

    return BurnTorchError, KernelError


def header_changed(data: bytes, rnd: random.Random, others: Sequence[bytes]) -> bytes:
    """The JSON of a safetensors file changed, and its length made to fit again."""
    size = int.from_bytes(data[:8], "little")
    header = json_changed(data[8 : 8 + size], rnd, others)
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


@cache
def _foreign_safetensors() -> tuple[bytes, ...]:
    from safetensors.numpy import save

    rng = np.random.default_rng(1)
    return (
        save({"a.weight": rng.random((3, 4), np.float32), "a.bias": np.zeros(4, np.float16)}, {"format": "pt"}),
        save({"x": np.arange(5), "y": np.zeros((0, 3)), "z": np.array(True)}),
    )


def packed_again(inner: Change) -> Change:
    """What a gzipped file holds changed, and packed again; sometimes the packed bytes themselves."""

    def change(data: bytes, rnd: random.Random, others: Sequence[bytes]) -> bytes:
        if rnd.random() < 0.3:
            return bytes_changed(data, rnd, others)
        plain = inner(gzip.decompress(data), rnd, [gzip.decompress(other) for other in others[:1]])
        return gzip.compress(plain * rnd.choice((1,) * 40 + (300,)), 1, mtime=0)

    return change


def _shards() -> tuple[bytes, dict[str, bytes]]:
    import tempfile

    from burn_torch.record import ShardedSafetensorsFormat

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors.index.json"
        ShardedSafetensorsFormat(max_shard_bytes=60).save(_net().into_record(), path)
        files = {inner.name: inner.read_bytes() for inner in Path(folder).iterdir() if inner != path}
        return path.read_bytes(), files


_shards_once = cache(_shards)


# -- files of torch.save --------------------------------------------------------------------------------------
@cache
def _pytorch(zipped: bool) -> tuple[bytes, ...]:
    import torch

    from tests.record.hostile.pytorch_corpus import LEGACY, saved

    layer = torch.nn.Linear(3, 4)
    options = {} if zipped else LEGACY
    shared = torch.arange(6.0)
    return (
        saved({"a.weight": layer.weight.detach(), "a.bias": layer.bias.detach()}, **options),
        saved({"a": [shared, shared[2:4], {"b": torch.ones(2, dtype=torch.bfloat16)}], "n": 3, "t": "x"}, **options),
    )


def pickle_changed(data: bytes, rnd: random.Random, others: Sequence[bytes]) -> bytes:
    """The pickle within a zip file changed, or the bytes of a member, or those of the archive."""
    chance = rnd.random()
    if chance < 0.4 or not data.startswith(b"PK"):
        return bytes_changed(data, rnd, others)
    if chance < 0.6:  # where the directory and the end records are
        at = data.index(b"PK\x01\x02")
        return data[:at] + bytes_changed(data[at:], rnd)
    members = {
        info.filename: archive.read(info)
        for archive in [zipfile.ZipFile(io.BytesIO(data))]
        for info in archive.infolist()
    }
    name = rnd.choice([name for name in members if name.endswith("data.pkl")] * 4 + list(members))
    members[name] = drawn_pickle(rnd) if rnd.random() < 0.1 else opcodes_changed(members[name], rnd)
    file = io.BytesIO()
    with contextlib.suppress(UserWarning), zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


_OPCODES: Final = (
    b"()]}.0123NIJKMLFGXUVSTCBhjqrpgbecaioRtlduQP\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x90\x91\x92\x93\x94\x95"
)


def opcodes_changed(data: bytes, rnd: random.Random) -> bytes:
    """Bytes of a pickle, most often for other words."""
    found = bytearray(bytes_changed(data, rnd))
    for _ in range(rnd.choice((0, 1, 1, 3))):
        if found:
            found[rnd.randrange(len(found))] = rnd.choice(_OPCODES)
    return bytes(found)


def drawn_pickle(rnd: random.Random) -> bytes:
    """Words drawn at random, with lists that stand in themselves and in each other."""
    words = [b"\x80" + bytes([rnd.choice((2, 2, 4, 5, 6, 127))])]
    drawn = (
        b"]",
        b"}",
        b")",
        b"(",
        b"e",
        b"u",
        b"s",
        b"a",
        b"t",
        b"l",
        b"d",
        b"0",
        b"2",
        b"1",
        b"N",
        b"K\x05",
        b"R",
        b"Q",
        b"b",
        b"q" + bytes([rnd.randrange(8)]),
        b"h" + bytes([rnd.randrange(8)]),
        b"h\x00" * 8,
        b"X\x01\x00\x00\x00a",
        b"ctorch\nFloatStorage\n",
        b"ctorch._utils\n_rebuild_tensor_v2\n",
        b"ccollections\nOrderedDict\n",
        b"\x85",
        b"\x86",
        b"cos\nsystem\n",
        b"\x8a\x09" + rnd.randbytes(9),
        b"J\xff\xff\xff\x7f",
        b"X\x07\x00\x00\x00storage",
        b"\x94",
        b"\x93",
    )
    words += rnd.choices(drawn, k=rnd.choice((3, 10, 60, 400)))
    return b"".join(words) + b"."


def read_pytorch(path: Path) -> None:
    """Reads all tensors, lists them, and loads them into a module."""
    from burn_torch.record.listing import listing_of
    from burn_torch.record.stores import PytorchStore

    with contextlib.suppress(_ours()):
        listing_of(path)
    store = PytorchStore.from_file(path)
    for entry in store.get_all_snapshots().values():
        entry.read()
    _net().load_from(store.allow_partial(True))


# -- ONNX -----------------------------------------------------------------------------------------------------
@cache
def _onnx() -> tuple[bytes, ...]:
    from tests.onnx import small_models

    built = (
        getattr(small_models, name)()[0] for name in ("mlp", "cnn", "lstm", "branches", "loop", "scan", "function")
    )
    return tuple(model.SerializeToString() for model in built)


@cache
def _external_onnx() -> tuple[bytes, ...]:
    from tests.record.hostile.onnx_corpus import external

    return (external("w.data"), external("w.data", offset="16", length="16"))


def read_onnx(path: Path) -> None:
    """Loads a model."""
    from burn_torch import onnx

    onnx.load(path, memory_limit_bytes=64 << 20)


# -- images ---------------------------------------------------------------------------------------------------
@cache
def _pictures(kind: str) -> tuple[bytes, ...]:
    from PIL import Image

    found = []
    for mode, values in (
        ("L", (7, 5)),
        ("RGB", (6, 4)),
        ("P", (5, 5)),
        ("RGBA", (4, 4)),
        ("1", (9, 3)),
        ("I;16", (4, 3)),
    ):
        if kind == "JPEG" and mode not in ("L", "RGB"):
            continue
        file = io.BytesIO()
        Image.new(mode, values, 1).save(file, kind)
        found.append(file.getvalue())
    return tuple(found)


def png_changed(data: bytes, rnd: random.Random, others: Sequence[bytes]) -> bytes:
    """A chunk changed, doubled or left out, its sum made to fit; or bytes."""
    if rnd.random() < 0.3:
        return bytes_changed(data, rnd, others)
    chunks, at = [], 8
    while at + 12 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    i = rnd.randrange(len(chunks))
    name, content = chunks[i]
    if name == b"IDAT" and rnd.random() < 0.5:
        content = zlib.compress(bytes_changed(zlib.decompress(content), rnd) * rnd.choice((1, 1, 1, 5000)))
    else:
        content = bytes_changed(content, rnd)
    chunks[i] = (
        rnd.choice((name,) * 9 + (b"zTXt", b"iTXt", b"iCCP", b"PLTE", b"tRNS", b"acTL", b"fdAT", b"eXIf")),
        content,
    )
    chunks[i:i] = [chunks[i]] * rnd.choice((0, 0, 0, 1, 20))
    return data[:8] + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


_POSTSCRIPT: Final = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"


def with_other_kinds(change: Change) -> Change:
    """Now and then a file of another kind under this name."""
    return lambda data, rnd, others: (
        words_changed(_POSTSCRIPT, rnd) if rnd.random() < 0.02 else change(data, rnd, others)
    )


def _npy(*arrays: Any) -> list[bytes]:
    found = []
    for array in arrays:
        file = io.BytesIO()
        np.save(file, array)
        found.append(file.getvalue())
    return found


def read_image(path: Path) -> None:
    """As image folders read pictures, and as predictions read data."""
    from burn_torch.data.source.image_file import read_grey_image, read_grey_images, resized

    with contextlib.suppress(_ours()):
        read_grey_images([path], (5, 7), 255.0)
    resized(read_grey_image(path), 16, 16)


def _idx() -> list[bytes]:
    import tempfile

    from burn_torch.data.source.idx import write_idx

    found = []
    with tempfile.TemporaryDirectory() as folder:
        for array in (np.zeros((2, 5, 7), np.uint8), np.arange(4, dtype=np.int32), np.ones((2, 2), np.float64)):
            write_idx(Path(folder) / "x", array)
            found.append((Path(folder) / "x").read_bytes())
    return found


def read_idx_file(path: Path) -> None:
    """The array of an IDX file."""
    from burn_torch.data.source.idx import read_idx

    read_idx(path)


# -- tables ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Item:
    """A row with a field of each kind."""

    name: str
    count: int
    price: float
    sold: bool = False
    note: str | None = None


_CSV: Final = b'name,count,price,sold,note\ntea,3,1.5,true,\n"a, b",4,2e3,false,"x\ny"\ncup,-1,0,true,z\n'
_ROWS: Final = (
    b'{"name": "tea", "count": 3, "price": 1.5}\n{"name": "b", "count": 4, "price": 2, "sold": true, "note": "x"}\n'
)


def read_csv(path: Path) -> None:
    """Rows as items and as dicts."""
    from burn_torch.data import InMemDataset

    with contextlib.suppress(_ours()):
        InMemDataset.from_csv(path)
    with contextlib.suppress(_ours()):
        InMemDataset.from_csv(path, Item, header=False)
    InMemDataset.from_csv(path, Item)


def read_rows(path: Path) -> None:
    """Rows of JSON as items and as dicts."""
    from burn_torch.data import InMemDataset

    with contextlib.suppress(_ours()):
        InMemDataset.from_json_rows(path)
    InMemDataset.from_json_rows(path, Item)


def read_table(path: Path) -> None:
    """A table of the recipes, and all that is made of its columns."""
    from burn_torch.cli.tabular import Table

    table = Table.read(path)
    rows = np.arange(len(table.lines))
    columns = []
    for name in table.cells:
        with contextlib.suppress(_ours()):
            columns.append(table.column(name, rows))
    table.inputs(columns)


def read_texts(path: Path) -> None:
    """Rows of a label and a text."""
    from burn_torch.cli.recipes.text_classification import TextClassificationConfig, TextDataset

    TextDataset(path, TextClassificationConfig(classes=("a", "b"), max_words=8))


# -- configurations -------------------------------------------------------------------------------------------
@cache
def _config() -> Any:
    from burn_torch.cli import registry

    return registry.recipe("digits").config


@cache
def _config_seeds(toml: bool) -> tuple[bytes, ...]:
    from burn_torch.config.sources import to_toml
    from burn_torch.nn import TransformerEncoderConfig

    config = _config()()
    other = TransformerEncoderConfig(8, 16, 2, 1)
    if toml:
        return (to_toml(config, {}).encode(), b'[optimizer]\nlr = 0.1\n[[a]]\nb = {c = 1, "d.e" = [1, 2.5, "x"]}\n')
    return (config.to_json().encode(), other.to_json().encode())


def read_config(path: Path) -> None:
    """As a configuration, and as changes of one."""
    from burn_torch.config.sources import file_edits, from_sources
    from burn_torch.nn import TransformerEncoderConfig

    for use in (_config().load, TransformerEncoderConfig.load):
        with contextlib.suppress(_ours()):
            if path.suffix == ".json":
                use(path)
    from_sources(_config()(), file_edits(path, _config()))


# -- runs -----------------------------------------------------------------------------------------------------
@cache
def _events() -> tuple[bytes, ...]:
    from burn_torch.monitor import Split, StepDone, encode
    from tests.monitor.test_codec import EVENTS, VALUES

    steps = [StepDone(Split.TRAIN, 1, i, i, 8 * i, VALUES[:1]) for i in range(1, 4)]
    everything = b"".join(encode(event, n, 1764000000.0 + n) for n, event in enumerate([*EVENTS, *steps]))
    return (
        everything,
        b"".join(encode(event, n, 1764000000.0 + n) for n, event in enumerate([EVENTS[0], *steps, EVENTS[-1]])),
    )


def lines_changed(data: bytes, rnd: random.Random, others: Sequence[bytes]) -> bytes:
    """One line of JSON changed as a document, doubled or left out."""
    lines = data.splitlines(keepends=True)
    if not lines or rnd.random() < 0.2:
        return words_changed(data, rnd, others)
    at = rnd.randrange(len(lines))
    lines[at : at + 1] = [json_changed(lines[at], rnd, others) + b"\n"] * rnd.choice((1, 1, 1, 0, 2))
    return b"".join(lines)


def _beside_events() -> dict[str, bytes]:
    return {"config.json": _config_seeds(False)[0], "result.json": b'{"accuracy": 0.5}'}


def _command(*words: str) -> None:
    """A command as `burn-torch` runs it, without its last net."""
    from burn_torch.cli import main, registry

    args = main._parse(list(words))
    registry.commands()[args.command].run(args)


@cache
def _views() -> tuple[Callable[[str], object], ...]:
    from burn_torch.cli import main, registry
    from burn_torch.monitor.html import html_report
    from burn_torch.monitor.view import RunView

    def view(*words: str) -> Callable[[str], object]:
        args = main._parse([*words])
        field = "directories" if hasattr(args, "directories") else "directory"

        def show(folder: str) -> object:
            place = Path(folder)
            setattr(args, field, [place, place] if field == "directories" else place)
            if hasattr(args, "csv"):
                args.csv = str(place / "out.csv")
            return registry.commands()[args.command].run(args)

        return show

    return (
        view("runs", "list", "x"),
        view("runs", "list", "x", "--json"),
        view("runs", "compare", "x", "x"),
        view("runs", "plot", "x", "--width", "60"),
        view("runs", "plot", "x", "--epochs", "--log", "--width", "60"),
        view("attach", "x", "--once"),
        view("report", "x", "--csv", "x"),
        lambda folder: html_report(RunView.of(folder), "x"),
    )


def show_runs(path: Path) -> None:
    """Two of the views of a run in plain text."""
    views = _views()
    which = zlib.crc32(path.read_bytes()) % len(views)
    for view in (views[which], views[which - 1]):
        with contextlib.suppress(_ours()):
            view(str(path.parent))


def inspect_run(path: Path) -> None:
    """What `inspect` and `evaluate` say of the directory of a run."""
    from burn_torch.cli.artifacts import saved_run

    with contextlib.suppress(_ours()):
        _command("inspect", str(path.parent))
    saved_run(path.parent)


def inspect_file(path: Path) -> None:
    """What `inspect` says of a file."""
    _command("inspect", str(path))


@cache
def _checkpoint() -> bytes:
    from burn_torch.module import ModuleRecord
    from burn_torch.optim import OptimizerRecord
    from burn_torch.train.checkpoint.content import Checkpoint, Position
    from burn_torch.train.history import History

    net = _net()
    whole = Checkpoint(
        position=Position(1, 0, True, 3),
        run_key=7,
        model=net.into_record(),
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
    return bytes(ModuleRecord(**vars(whole.to_record(net))).into_bytes(".safetensors"))


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
    _net().load_record(checkpoint.model)


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


# -- kernels' own files ---------------------------------------------------------------------------------------
_LOCK: Final = json.dumps(
    {
        "format": "burn_kernels.lock",
        "version": 1,
        "choices": [{"key": "softmax rows=4", "device": "H200", "kernel": "abc", "config": {"block": 128, "warps": 4}}],
    }
).encode()


def read_lock(path: Path) -> None:
    """The lockfile of choices."""
    from burn_kernels.autotune import lockfile

    lockfile._read(path)


def read_bundle(path: Path) -> None:
    """A file of timings, into a store in memory."""
    from burn_kernels.autotune.bundle import import_bundle

    class Kept:
        def add(self, timings: Any, faults: Any) -> int:
            return len(timings)

    import_bundle(Kept(), path)  # type: ignore[arg-type]


_BUNDLE: Final = json.dumps(
    {
        "format": "burn_kernels.timings",
        "version": 1,
        "faults": [],
        "timings": [
            {
                "kernel": "softmax",
                "key": "k",
                "device": "H200",
                "software": "s",
                "candidate": "c",
                "config": {"block": 128},
                "samples_ms": [0.1, 0.2],
                "median_ms": 0.15,
                "eliminated": False,
                "measured_at": 1.7e9,
            }
        ],
    }
).encode()


def read_reply(path: Path) -> None:
    """What a run says of where it takes commands, and its reply."""
    from burn_torch.monitor.control import ControlClient

    ControlClient(path.parent)


READERS: Final[dict[str, Reader]] = {
    "safetensors": Reader("m.safetensors", _foreign_safetensors, read_record, either(bytes_changed, header_changed)),
    "safetensors, ours": Reader(
        "m.safetensors",
        lambda: [_record(".safetensors")],
        read_record,
        either(bytes_changed, header_changed),
        sealed=True,
    ),
    "shards": Reader(
        "m.safetensors.index.json",
        lambda: [_shards_once()[0]],
        read_record,
        either(words_changed, json_changed),
        beside=lambda: _shards_once()[1],
        sealed=True,
    ),
    "burnpack": Reader("m.bpk", lambda: [_record(".bpk")], read_record, sealed=True),
    "mpk": Reader("m.mpk", lambda: [_record(".mpk")], read_record, sealed=True),
    "json": Reader("m.json", lambda: [_record(".json")], read_record, either(words_changed, json_changed), sealed=True),
    "bin": Reader("m.bin", lambda: [_record(".bin")], read_record, sealed=True),
    "mpk.gz": Reader("m.mpk.gz", lambda: [_record(".mpk.gz")], read_record, packed_again(bytes_changed), sealed=True),
    "json.gz": Reader(
        "m.json.gz", lambda: [_record(".json.gz")], read_record, packed_again(words_changed), sealed=True
    ),
    "pt": Reader("m.pt", lambda: _pytorch(True), read_pytorch, pickle_changed),
    "pth, legacy": Reader(
        "m.pth", lambda: _pytorch(False), read_pytorch, either(bytes_changed, lambda d, r, o: opcodes_changed(d, r))
    ),
    "onnx": Reader("m.onnx", _onnx, read_onnx, either(protobuf_changed, protobuf_changed, bytes_changed)),
    "onnx, external": Reader(
        "m.onnx",
        _external_onnx,
        read_onnx,
        either(protobuf_changed, bytes_changed),
        beside=lambda: {"w.data": bytes(64)},
    ),
    "npy": Reader(
        "m.npy",
        lambda: _npy(np.zeros((5, 7)), np.zeros((5, 7), np.uint8), np.ones((2, 35), ">i2", order="F")),
        read_image,
        words_changed,
    ),
    "png": Reader("m.png", lambda: _pictures("PNG"), read_image, with_other_kinds(png_changed)),
    "jpeg": Reader("m.jpg", lambda: _pictures("JPEG"), read_image, with_other_kinds(bytes_changed)),
    "pgm": Reader(
        "m.pgm",
        lambda: [b"P2\n# made\n7 5\n9\n" + b"1 " * 35, b"P5 7 5 255\n" + bytes(35), b"P5 7 5 999\n" + bytes(70)],
        read_image,
        words_changed,
    ),
    "image csv": Reader("m.csv", lambda: [b"1,2.5,3\n4,5,6\n", b"0," * 34 + b"0\n"], read_image, words_changed),
    "idx": Reader("m-ubyte", _idx, read_idx_file),
    "idx.gz": Reader(
        "m.gz", lambda: [gzip.compress(data) for data in _idx()], read_idx_file, packed_again(bytes_changed)
    ),
    "csv": Reader("m.csv", lambda: [_CSV], read_csv, words_changed),
    "json rows": Reader("m.jsonl", lambda: [_ROWS], read_rows, either(words_changed, lines_changed)),
    "table": Reader("m.csv", lambda: [_CSV], read_table, words_changed),
    "csv.gz": Reader("m.csv.gz", lambda: [gzip.compress(_CSV)], read_table, packed_again(words_changed)),
    "texts": Reader(
        "m.csv", lambda: [b'"1","some words","more"\n"2","other ""words""",""\n'], read_texts, words_changed
    ),
    "config json": Reader("m.json", lambda: _config_seeds(False), read_config, either(words_changed, json_changed)),
    "config toml": Reader("m.toml", lambda: _config_seeds(True), read_config, words_changed),
    "events": Reader("events.jsonl", _events, show_runs, lines_changed, beside=_beside_events, shown=True),
    "config of a run": Reader(
        "config.json",
        lambda: [_config_seeds(False)[0].replace(b"{", b'{"recipe": "digits", ', 1)],
        inspect_run,
        either(words_changed, json_changed),
        beside=lambda: {"events.jsonl": _events()[0]},
        shown=True,
    ),
    "inspected": Reader("m.safetensors", _foreign_safetensors, inspect_file, header_changed, shown=True),
    "checkpoint": Reader(
        "epoch-1.safetensors", lambda: [_checkpoint()], read_checkpoint, metadata_changed("checkpoint"), sealed=True
    ),
    "replay": Reader("m.safetensors", lambda: [_replay()], run_replay, metadata_changed("anomaly"), sealed=True),
    "graph": Reader("m.json", _graphs, read_graph, either(words_changed, json_changed, json_changed)),
    "lockfile": Reader("m.json", lambda: [_LOCK], read_lock, either(words_changed, json_changed)),
    "timings": Reader("m.json", lambda: [_BUNDLE], read_bundle, either(words_changed, json_changed)),
}
