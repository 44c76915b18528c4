"""The wheel: everything that users need, nothing else, and small."""

from __future__ import annotations

import email
import email.message
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAX_BYTES = 3 << 20  # and of what is no source, docs/decisions/0010-what-the-wheel-may-weigh.md
MAX_DATA_BYTES = 128 << 10
LEFT_BEHIND = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of this checkout: building in place would leave build/ behind."""
    pytest.importorskip("setuptools", minversion="77", reason="building the wheel needs setuptools 77")
    pytest.importorskip("pip", reason="building the wheel needs pip")
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("burn_torch", "kernels"):
        shutil.copytree(ROOT / name, source / name, ignore=LEFT_BEHIND)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    built = subprocess.run(
        [*command, "--wheel-dir", str(target), str(source)], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel_file,) = target.glob("*.whl")
    return wheel_file


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_is_pure_and_small(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    assert wheel.stat().st_size <= MAX_BYTES


def test_the_wheel_is_source_but_for_a_little_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        data = {
            file.filename: file.compress_size
            for file in archive.infolist()
            if ".dist-info/" not in file.filename and not file.filename.endswith((".py", ".pyi", "py.typed"))
        }
    assert sum(data.values()) <= MAX_DATA_BYTES, data


def test_the_wheel_holds_both_packages_whole(names: set[str]) -> None:
    expected = set()
    for base in (ROOT / "burn_torch", ROOT / "kernels" / "burn_kernels"):
        files = [path for path in base.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        expected |= {path.relative_to(base.parent).as_posix() for path in files}
    assert {"burn_torch/py.typed", "burn_kernels/py.typed", "burn_torch/version.py"} <= expected
    assert {name for name in names if ".dist-info/" not in name} == expected


def test_the_wheel_carries_licences_and_attribution(names: set[str], metadata: email.message.Message) -> None:
    licences = {name.rpartition("/")[2] for name in names if ".dist-info/licenses/" in name}
    assert licences == {"LICENSE-MIT", "LICENSE-APACHE", "NOTICE"}
    assert metadata["License-Expression"] == "MIT OR Apache-2.0"


def test_what_the_wheel_requires(metadata: email.message.Message) -> None:
    needed = {line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line}
    linux = 'triton>=3.6; platform_system == "Linux"'
    assert needed == {"torch>=2.11", linux, "numpy>=1.26", "safetensors>=0.5", "jinja2>=3.1"}


def test_no_extra_needs_torch(metadata: email.message.Message) -> None:
    from_torch = ("torch", "torchvision", "torchaudio", "onnxscript", "lightning")
    extras = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" in line]
    assert extras != []
    assert [line for line in extras if line.startswith(from_torch)] == []


def test_each_extra_that_a_message_or_page_names_is_there(metadata: email.message.Message) -> None:
    files = [*(ROOT / "burn_torch").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.py")]
    named: set[str] = set()
    for path in files:
        text = path.read_text(encoding="utf-8")
        named |= set(re.findall(r"burn-torch\[(\w+)\]", text))
        named |= set(re.findall(r"load_extra\(\s*\"[\w.]+\", \"(\w+)\"", text))
    assert {"completion", "images", "onnx", "tui"} <= named
    assert named - set(metadata.get_all("Provides-Extra", [])) == set()


def test_the_version_is_the_one_of_the_package(metadata: email.message.Message) -> None:
    from burn_torch.version import __version__

    assert metadata["Name"] == "burn-torch"
    assert metadata["Version"] == __version__


def test_the_command_is_declared(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
        assert archive.read(name).decode() == "[console_scripts]\nburn-torch = burn_torch.cli.main:main\n"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it; torch and the rest are those of this interpreter."""
    place = tmp_path_factory.mktemp("environment") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    python = place / "bin" / "python"
    (site,) = place.glob("lib/python*/site-packages")
    others = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (site / "others.pth").write_text("\n".join(sorted(others)) + "\n")
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "--quiet"]
    process = subprocess.run([*command, str(wheel)], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return place


@pytest.mark.slow
def test_the_installed_command_trains_and_predicts(installed: Path, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BURN_TORCH"))}

    def run(*words: str) -> str:
        command = [str(installed / "bin" / words[0]), *words[1:]]
        ran = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
        return ran.stdout

    where = run("python", "-c", "import burn_torch, burn_kernels; print(burn_torch.__file__, burn_kernels.__file__)")
    assert where.count(str(installed)) == 2  # not the checkout, wherever it is installed
    assert str(ROOT) not in where
    trained = run("burn-torch", "train", "digits", "--epochs", "1")
    assert "predict  burn-torch predict artifacts/digits IMAGE..." in trained
    rows = [[str(value) for value in range(64)], ["0"] * 64]
    (tmp_path / "images.csv").write_text("\n".join(",".join(row) for row in rows) + "\n")
    predicted = run("burn-torch", "predict", "artifacts/digits", "images.csv")
    assert re.fullmatch(r"(images\.csv\[\d\]: \d \([\d.]+%\)\n){2}", predicted)
    assert "in the package" in run("burn-torch", "info")
