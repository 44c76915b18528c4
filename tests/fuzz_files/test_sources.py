"""The list of sources in docs/building-blocks/errors.md, the readers of the fuzzer, and the modules that open files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.fuzz_files.readers import READERS

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = (ROOT / "burn_torch", ROOT / "kernels" / "burn_kernels")

OWN: Final = "of the package, of this process, or of the system"
WRITES: Final = "is opened to be written"
MODULES: Final = {
    "burn_kernels/autotune/bundle.py": "timings",
    "burn_kernels/autotune/command.py": "a tool for developers: `ship`",
    "burn_kernels/autotune/compile_worker.py": OWN,
    "burn_kernels/autotune/lockfile.py": "lockfile",
    "burn_kernels/autotune/settings.py": "settings of selection",
    "burn_kernels/autotune/shipped.py": OWN,
    "burn_kernels/autotune/store.py": "autotune store",
    "burn_torch/backend/libtorch/generated/c_libraries.py": "cached library",
    "burn_torch/backend/libtorch/generated/compile_worker.py": "cached source",
    "burn_torch/backend/libtorch/generated/kernel_files.py": "cached source",
    "burn_torch/backend/libtorch/source_file.py": "cached source",
    "burn_torch/backend/libtorch/tuning.py": "lockfile",
    "burn_torch/cli/artifacts.py": "config of a run",
    "burn_torch/cli/commands/explain.py": "cached source",
    "burn_torch/cli/commands/train.py": "origins",
    "burn_torch/cli/csv_rows.py": "csv.gz",
    "burn_torch/cli/handover.py": OWN,
    "burn_torch/cli/main.py": WRITES,
    "burn_torch/cli/run_listing.py": "result",
    "burn_torch/cli/script.py": "script",
    "burn_torch/cli/recipes/text_classification.py": "classes",
    "burn_torch/cli/recipes/text_generation.py": "corpus",
    "burn_torch/config/base.py": "config json",
    "burn_torch/config/sources.py": "config toml",
    "burn_torch/core/annotations.py": OWN,
    "burn_torch/core/files.py": WRITES,
    "burn_torch/core/reading.py": "config json",
    "burn_torch/core/spellings/__init__.py": OWN,
    "burn_torch/data/_rows.py": "csv",
    "burn_torch/data/source/digits.py": OWN,
    "burn_torch/data/source/download.py": "download",
    "burn_torch/data/source/idx.py": "idx",
    "burn_torch/data/source/image_file.py": "png",
    "burn_torch/graph/serialisation.py": "graph",
    "burn_torch/monitor/control.py": "control place",
    "burn_torch/monitor/dashboard/source.py": "events, live",
    "burn_torch/monitor/dashboard/terminal.py": OWN,
    "burn_torch/monitor/html.py": OWN,
    "burn_torch/monitor/log.py": "events",
    "burn_torch/monitor/machine.py": OWN,
    "burn_torch/monitor/resources.py": OWN,
    "burn_torch/monitor/result.py": "result",
    "burn_torch/onnx/imported.py": "onnx",
    "burn_torch/onnx/reader.py": "onnx",
    "burn_torch/onnx/tensors.py": "onnx, external",
    "burn_torch/ops/registry.py": OWN,
    "burn_torch/record/file_format.py": "safetensors",
    "burn_torch/record/gzip_file.py": "mpk.gz",
    "burn_torch/record/source.py": "safetensors",
    "burn_torch/record/stores/peft.py": "peft",
    "burn_torch/record/stores/pytorch.py": "pt",
    "burn_torch/train/artifact.py": WRITES,
    "burn_torch/train/logger/metric.py": "metric log",
    "burn_torch/train/publisher.py": "events, resumed",
}
"""Every module that opens a file: the reader that changes such files, or the reason why there is none."""
READING: Final = frozenset(
    ["open", "fdopen", "read_text", "read_bytes", "open_regular", "read_bounded", "mmap", "GzipFile",
     "fromfile", "memmap", "loadtxt", "genfromtxt", "ZipFile", "TarFile", "PyTorchFileReader"]
)  # fmt: skip
MODULES_OF_LOADERS: Final = frozenset(["np", "numpy", "torch", "pickle", "tomllib"])


def reading_modules() -> Iterator[str]:
    """Modules with a call that opens a file."""
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            tree = ast.parse(path.read_bytes())
            if any(isinstance(node, ast.Call) and opens(node.func) for node in ast.walk(tree)):
                yield path.relative_to(package.parent).as_posix()


def opens(function: ast.expr) -> bool:
    """Returns whether a function that is called opens files."""
    if isinstance(function, ast.Name):
        return function.id in READING
    if not isinstance(function, ast.Attribute):
        return False
    of = function.value.id if isinstance(function.value, ast.Name) else ""
    return (
        function.attr in READING - {"connect"}
        or (of in MODULES_OF_LOADERS and function.attr == "load")
        or of == "sqlite3"
    )


def listed_readers() -> list[str]:
    """The last column of the table in the page."""
    text = (ROOT / "docs" / "building-blocks" / "errors.md").read_text(encoding="utf-8")
    rows = text.partition("| source | read by ")[2].partition("\n\n")[0].splitlines()[2:]
    return [name.strip() for row in rows for name in row.strip(" |").split("|")[-1].split(";")]


def test_the_page_and_the_fuzzer_have_the_same_sources() -> None:
    assert sorted(listed_readers()) == sorted(READERS)


def test_every_module_that_opens_files_has_a_reader_or_a_reason() -> None:
    assert sorted(set(reading_modules())) == sorted(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_the_reader_of_a_module_is_there(module: str) -> None:
    what = MODULES[module]
    assert what in READERS or " " in what
