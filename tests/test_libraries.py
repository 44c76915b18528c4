"""Reasons against libraries that could replace our own code: docs/decisions/0025-what-a-library-does.md.

A test here fails on the day a library does what is asked; then ours goes.
"""

from __future__ import annotations

import importlib
import io
import json
import math
import os
import pickle
import random
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch.core.errors import RecordError
from burn_torch.core.strict_json import parse
from burn_torch.data.source import image_file
from burn_torch.monitor.dashboard.chart import Line, chart
from burn_torch.record import cbor, messagepack
from burn_torch.record.faults import Unsound
from burn_torch.record.layout import MAX_CONTAINERS, MAX_HEADER_BYTES
from burn_torch.record.stores import PytorchStore
from burn_torch.train.metric.edits import common_subsequence, edit_distance

BOUND = 512 << 20
"""The memory that a reader may take beyond the size of the file: docs/building-blocks/errors.md."""


def library(name: str) -> Any:
    return pytest.importorskip(name, reason=f"compares with {name}: pip install 'burn-torch[dev]'")


def peak_of(work: Callable[[], Any]) -> int:
    """The bytes that Python's allocators had given out at most while it ran."""
    work()  # imports and caches
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# -- CBOR, MessagePack, JSON ---------------------------------------------------------------------------------
CBOR_OBJECTS = {
    "a regular expression": b"\xd8\x23\x65(a+)+",
    "a number of two thousand million digits": b"\xc4\x82\x1a\x7f\xff\xff\xff\x01",
    "a list that holds itself": b"\xd8\x1c\x81\xd8\x1d\x00",
    "bytes behind the value": b"\x01\x02",
    "one name twice": b"\xa2\x61a\x01\x61a\x02",
}


@pytest.mark.parametrize("what", CBOR_OBJECTS)
def test_cbor2_takes_what_no_record_holds(what: str) -> None:
    library("cbor2").loads(CBOR_OBJECTS[what])
    with pytest.raises(Unsound, match=r"its metadata|value of a record"):
        cbor.decode(CBOR_OBJECTS[what])


@pytest.mark.parametrize(("name", "head", "item"), [("cbor2", b"\x9a", b"\x80"), ("msgpack", b"\xdd", b"\x90")])
def test_a_header_of_empty_lists_would_fill_the_memory_of_a_library(name: str, head: bytes, item: bytes) -> None:
    module = library(name)
    loads, count = getattr(module, "loads", None) or module.unpackb, 50_000
    data = head + struct.pack(">I", count) + item * count
    each = peak_of(lambda: loads(data)) / len(data)
    assert each * MAX_HEADER_BYTES > 8 * BOUND
    assert each * MAX_CONTAINERS < BOUND / 4  # so ours counts containers and stops there: test_hostile_files.py


def test_msgpack_copies_the_values_and_merges_equal_names() -> None:
    msgpack = library("msgpack")
    data = memoryview(b"\xc6" + struct.pack(">I", 8 << 20) + bytes(8 << 20))
    assert peak_of(lambda: msgpack.unpackb(data)) >= 8 << 20
    assert peak_of(lambda: messagepack.decode(data)) < 1 << 16
    twice = memoryview(b"\x82\xa1a\x01\xa1a\x02")
    assert msgpack.unpackb(twice) == {"a": 2}
    with pytest.raises(Unsound, match="a map in it"):
        messagepack.decode(twice)


def test_libraries_read_what_ours_write() -> None:
    rnd = random.Random(3)
    value = {
        "numbers": [rnd.randrange(2**bits) for bits in range(1, 64)],
        "text": ["", "x" * 31, "y" * 300, "損失" * 20_000],
        "flags": [None, True, False],
        "names": {str(i): [i] * i for i in range(20)},
    }
    assert library("msgpack").unpackb(messagepack.encode(value)) == value
    assert library("cbor2").loads(cbor.encode({**value, "less": [-1, -(2**40)], "real": [0.1, math.inf]})) == {
        **value,
        "less": [-1, -(2**40)],
        "real": [0.1, math.inf],
    }


def test_orjson_merges_equal_names_and_rounds_long_numbers() -> None:
    orjson = library("orjson")
    assert orjson.loads('{"a": 1, "a": 2}') == {"a": 2}
    assert parse('{"a": 1, "a": 2}').duplicates == ("a",)
    long = 123456789012345678901234567890
    assert orjson.loads(str(long)) != long
    assert parse(str(long)) == long
    with pytest.raises(orjson.JSONDecodeError, match="unexpected character"):
        orjson.loads('{"lr": NaN}')
    assert math.isnan(parse('{"lr": NaN}')["lr"])  # for the field to refuse by its name


def test_safetensors_takes_a_header_that_two_readers_read_in_two_ways() -> None:
    safetensors = library("safetensors")
    one, other = (json.dumps({"dtype": dtype, "shape": [1], "data_offsets": [0, 1]}) for dtype in ("U8", "I8"))
    header = f'{{"a": {one}, "a": {other}}}'.encode()
    data = struct.pack("<Q", len(header)) + header + b"\1"
    assert [key for key, _ in safetensors.deserialize(data)] == ["a"]
    from burn_torch.module import ModuleRecord

    with pytest.raises(RecordError, match="cannot be loaded"):
        ModuleRecord.from_bytes(data, ".safetensors")


# -- pickles ----------------------------------------------------------------------------------------------------
class _Large:
    def __reduce__(self) -> Any:
        return bytearray, (32 << 20,)


def test_torch_makes_what_a_pickle_of_no_size_asks_for(tmp_path: Path) -> None:
    sound, small = io.BytesIO(), tmp_path / "small.pt"
    torch.save({"a": torch.zeros(1)}, sound)
    with zipfile.ZipFile(sound) as source, zipfile.ZipFile(small, "w") as target:
        for name in source.namelist():
            body = pickle.dumps({"a": _Large()}, protocol=2) if name.endswith("data.pkl") else source.read(name)
            target.writestr(name, body)
    assert small.stat().st_size < 2000
    assert peak_of(lambda: torch.load(small, weights_only=True)) >= 32 << 20

    def refused() -> None:
        with pytest.raises(RecordError, match=r"bytearray that makes more bytes than the file has"):
            PytorchStore.from_file(small).read()

    assert peak_of(refused) < 1 << 20


# -- pictures, charts, text ---------------------------------------------------------------------------------------
def test_pillow_rounds_the_greys_of_a_pgm_and_leaves_out_what_is_too_much() -> None:
    image = library("PIL.Image")

    def pillow(data: bytes) -> Any:
        with image.open(io.BytesIO(data), formats=("PPM",)) as picture:
            return np.asarray(picture) / 255

    greys = b"P5 10 10 100 " + bytes(range(100))
    pixels, white = image_file._pgm(greys)
    np.testing.assert_array_equal(pixels.ravel() / white, np.arange(100) / 100)
    assert np.abs(pillow(greys).ravel() - np.arange(100) / 100).max() > 1e-3
    longer = b"P2 2 2 255 1 2 3 4 5"
    assert pillow(longer).size == 4
    with pytest.raises(ValueError, match="5 pixels, the header says 2 x 2"):
        image_file._pgm(longer)


CURVES = {
    "infinite": ([0.0, 1.0, 2.0], [1.0, math.inf, 2.0], False),
    "of the largest numbers": ([0.0, 1.0], [-1.7e308, 1.7e308], False),
    "with a zero on a logarithmic axis": ([0.0, 1.0], [0.0, 1.0], True),
}


@pytest.mark.parametrize("what", CURVES)
def test_plotext_draws_no_curve(what: str) -> None:
    library("plotext")
    xs, ys, log = CURVES[what]
    figure = importlib.import_module("plotext._figure")._figure_class()
    figure.plot_size(60, 12)
    figure.plot(xs, ys, marker="braille")
    if log:
        figure.yscale("log")
    with pytest.raises((ValueError, IndexError), match=r"NaN to integer|out of range|domain error"):
        figure.build()
    rows = chart([Line("Loss", "train", list(zip(xs, ys, strict=True)))], 60, 12, log=log, empty="no values yet")
    assert [sum(len(text) for text, _ in row) for row in rows] == [60] * 12


def test_distances_are_those_of_rapidfuzz() -> None:
    distance, rnd = library("rapidfuzz.distance"), random.Random(5)
    for _ in range(200):
        x, y = ([rnd.randrange(5) for _ in range(rnd.randrange(70))] for _ in range(2))
        assert edit_distance(x, y) == distance.Levenshtein.distance(x, y)
        assert common_subsequence(x, y) == distance.LCSseq.similarity(x, y)


# -- nothing else needed --------------------------------------------------------------------------------------------
WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"no {{name}} here", name=name)

sys.meta_path.insert(0, Absent())
import json, pathlib
import numpy as np
from burn_torch import Device, Tensor
from burn_torch.cli.tokens import Tokenizer, learn_merges
from burn_torch.data.source.image_file import read_grey_image, resized
from burn_torch.module import ModuleRecord
from burn_torch.monitor import Notice, RunView, decode, encode
from burn_torch.monitor.dashboard.chart import Line, chart
from burn_torch.monitor.html import html_report
from burn_torch.monitor.machine import cpu_memory
from burn_torch.nn import LinearConfig
from burn_torch.train.metric import BleuScore, RougeLScore, WordErrorRate
from burn_torch.train.metric.base import MetricMetadata
from burn_torch.train.output import CerInput

record = LinearConfig(3, 2).init(Device.cpu()).into_record()
for ending in (".bpk", ".mpk", ".mpk.gz", ".json", ".json.gz", ".bin", ".bin.gz", ".safetensors"):
    assert list(ModuleRecord.load(record.save("m" + ending)).entries) == list(record.entries)
merges = learn_merges(b"low lower lowest " * 9, 8)
assert Tokenizer(merges).decode(Tokenizer(merges).encode("lower")) == "lower"
tokens = Tensor.from_data(np.array([[1, 2, 3, 4], [1, 2, 2, 4]]), Device.cpu())
for metric in (BleuScore(2), RougeLScore(), WordErrorRate()):
    assert metric.summarise({{"outputs": np.array([[1, 2, 3]]), "targets": np.array([[1, 2, 4]])}})
assert decode(encode(Notice("x"), 0, 1.0)).event == Notice("x")
pathlib.Path("p.pgm").write_bytes(b"P5 2 2 255 abcd")
assert resized(read_grey_image(pathlib.Path("p.pgm")), 3, 3).shape == (3, 3)
assert chart([Line("Loss", "train", [(0.0, 1.0), (1.0, 0.5)])], 40, 9)
assert "<h1>run</h1>" in html_report(RunView(), "run")
assert sys.platform != "linux" or cpu_memory() is not None
print("done")
"""
ABSENT = (
    "PIL", "argcomplete", "cbor2", "click", "filelock", "humanize", "jiwer", "msgpack", "msgspec", "onnx", "orjson",
    "pandas", "platformdirs", "plotext", "psutil", "pydantic", "rapidfuzz", "regex", "requests", "rich", "sacrebleu",
    "safetensors", "scipy", "shtab", "skimage", "sklearn", "tabulate", "tensorboard", "textual", "tiktoken",
    "tokenizers", "tomli_w", "tqdm", "typer", "yaml",
)  # fmt: skip


def test_records_tokens_metrics_events_pictures_and_charts_need_no_further_package(tmp_path: Path) -> None:
    paths = os.pathsep.join(path for path in sys.path if path)
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(absent=set(ABSENT))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
