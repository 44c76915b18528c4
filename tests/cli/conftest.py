"""Commands as processes, a trained run, and files that are right or wrong."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burn_torch.data.source.idx import write_idx

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SMALL = ["--set", "channels=4", "--set", "hidden=16", "--seed", "3"]
"""A digits network that trains an epoch in a blink."""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


def clean_environment(**changes: str) -> dict[str, str]:
    """This checkout, one thread, no GPU, nothing of the caller's own settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BURN_TORCH", "PYTHON"))}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    ours = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "80"}
    return kept | ours | changes


@pytest.fixture(scope="session")
def environment() -> Callable[..., dict[str, str]]:
    """The environment that the tests start processes in."""
    return clean_environment


@pytest.fixture(scope="session")
def burn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a command in a process that was forked with torch imported already."""
    folder = tmp_path_factory.mktemp("output")
    server = subprocess.Popen(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", str(HERE / "fork_server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=clean_environment(BURN_TORCH_CACHE=str(folder / "cache")),
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    requests, answers = server.stdin, server.stdout

    def run(*argv: object, cwd: Path, absent: Sequence[str] = (), **changes: str) -> Done:
        request = {
            "argv": [str(word) for word in argv],
            "cwd": str(cwd),
            "environment": changes,
            "absent": list(absent),
            "stdout": str(folder / "stdout"),
            "stderr": str(folder / "stderr"),
        }
        requests.write(json.dumps(request) + "\n")
        requests.flush()
        code = int(answers.readline())
        return Done(code, *((folder / name).read_text() for name in ("stdout", "stderr")))

    yield run
    requests.close()
    server.wait(timeout=30)
    answers.close()


@pytest.fixture(scope="session")
def fresh() -> Run:
    """Runs a command in a fresh interpreter; `before` is code that runs there first."""

    def run(*argv: object, cwd: Path, before: str = "", **changes: str) -> Done:
        code = f"import sys\n{before}\nfrom burn_torch.cli.main import main\nsys.exit(main())"
        command = [sys.executable, "-W", "error", "-c", code, *map(str, argv)]
        ran = subprocess.run(
            command, cwd=cwd, env=clean_environment(**changes), capture_output=True, text=True, check=False
        )
        return Done(ran.returncode, ran.stdout, ran.stderr)

    return run


@pytest.fixture(scope="session")
def trained(burn: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact directory of a small digits run of two epochs; to be read, not written."""
    folder = tmp_path_factory.mktemp("trained")
    done = burn("train", "digits", "--epochs", 2, *SMALL, "--artifact-dir", "run", cwd=folder)
    assert done.code == 0, done.err
    return folder / "run"


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of inputs: images for predict, and data directories for mnist."""
    folder = tmp_path_factory.mktemp("files")
    _write_images(folder)
    _write_data(folder)
    return folder


def _write_images(folder: Path) -> None:
    from burn_torch.data import DigitsDataset

    images = DigitsDataset.test().images[:3]
    np.save(folder / "one.npy", images[0])
    np.save(folder / "three.npy", images)
    np.save(folder / "large.npy", np.zeros((9, 9), np.uint8))
    np.save(folder / "none.npy", images[:0])
    np.save(folder / "nan.npy", np.full((8, 8), np.nan))
    np.save(folder / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(folder / "text.npy", np.full((8, 8), "a"))
    (folder / "cut.npy").write_bytes((folder / "three.npy").read_bytes()[:-30])
    (folder / "notes.npy").write_text("no array")
    header = b"P5\n# a digit\n8 8\n16\n"
    (folder / "one.pgm").write_bytes(header + images[0].tobytes())
    plain = "P2\n8 8\n16\n" + "\n".join(" ".join(map(str, row)) for row in images[0])
    (folder / "plain.pgm").write_text(plain)
    (folder / "cut.pgm").write_bytes(header + images[0].tobytes()[:-3])
    (folder / "header.pgm").write_bytes(b"P5\n# and then nothing")
    (folder / "bitmap.pgm").write_bytes(b"P4\n8 8\n16\n" + images[0].tobytes())
    np.savetxt(folder / "two.csv", images[:2].reshape(2, -1), delimiter=",", fmt="%d")
    (folder / "words.csv").write_text("1,2,three\n")
    (folder / "empty.csv").write_text("\n")
    (folder / "one.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "one.txt").write_text("1")
    write_idx(folder / "three-ubyte", images)
    (folder / "cut-ubyte").write_bytes((folder / "three-ubyte").read_bytes()[:-1])


def _write_data(folder: Path) -> None:
    rng = np.random.default_rng(8)
    images = rng.integers(0, 256, (48, 28, 28), dtype=np.uint8)
    labels = np.arange(48, dtype=np.uint8) % 10

    def data(name: str, train: tuple[Any, Any] = (images, labels)) -> Path:
        directory = folder / name
        directory.mkdir()
        for split, (x, y) in (("train", train), ("t10k", (images[:16], labels[:16]))):
            write_idx(directory / f"{split}-images-idx3-ubyte", x)
            write_idx(directory / f"{split}-labels-idx1-ubyte", y)
        return directory

    data("mnist")
    data("no-images", (images[:0], labels[:0]))
    data("fewer-labels", (images, labels[:-1]))
    data("swapped", (labels, images))
    data("eleven-classes", (images, labels + 1))
    name = "train-images-idx3-ubyte"
    for variant, change in (
        ("cut", lambda b: b[:-1]),
        ("web-page", lambda b: b"<html>"),
        ("longer", lambda b: b + b"0"),
    ):
        path = data(variant) / name
        path.write_bytes(change(path.read_bytes()))
    path = data("cut-gzip") / name
    path.with_name(f"{name}.gz").write_bytes(gzip.compress(path.read_bytes())[:-20])
    path.unlink()
    (data("three-files") / "t10k-labels-idx1-ubyte").unlink()
    (folder / "empty").mkdir()


@pytest.fixture(scope="session")
def recipe() -> Path:
    """The file of a recipe as a user would write it; `--set fault=...` breaks its 30th step."""
    return HERE / "own_recipe.py"


@pytest.fixture(scope="session")
def tree() -> Callable[[Path], dict[str, str]]:
    """Returns what lies in a folder: a hash of each file, by its path; empty folders too."""

    def listed(folder: Path) -> dict[str, str]:
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file() or not any(path.iterdir())]
        return {
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
            for path in paths
        }

    return listed


@pytest.fixture(scope="session")
def bits() -> Callable[[Path], str]:
    """A hash of all tensors of a model's file; not of what lies beside them."""

    def hashed(path: Path) -> str:
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        header.pop("__metadata__")
        checksum = hashlib.sha256()
        for name, tensor in sorted(header.items()):
            start, end = tensor["data_offsets"]
            checksum.update(f"{name} {tensor['dtype']} {tensor['shape']}".encode())
            checksum.update(content[8 + size + start : 8 + size + end])
        return checksum.hexdigest()

    return hashed
