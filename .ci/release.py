"""Prepares a release, up to the tag and the upload, which it shows and leaves to a person.

    make release VERSION=0.1.0 ARGS=--dry-run      changes nothing here
    make release VERSION=0.1.0                     writes the version and the changelog of the checkout too

A copy of the committed tree is made; there the version is set, towncrier joins the fragments of changelog.d, `build`
makes the source archive and from it the wheel, twine checks both, a fresh environment installs the wheel, and a smoke
test runs in it.  The archives are left in dist/.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION_FILE = "burn_torch/version.py"
NUMBER = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:(a|b|rc)(\d+))?")
SMOKE = """
import burn_kernels, burn_torch, pathlib, sys
from burn_torch import Device, Tensor
home = pathlib.Path(sys.prefix).resolve()
for package in (burn_torch, burn_kernels):
    assert home in pathlib.Path(package.__file__).resolve().parents, package.__file__
assert burn_torch.__version__ == sys.argv[1], burn_torch.__version__
x = Tensor.from_data([1.0, 2.0, 3.0], Device.cpu().autodiff()).require_grad()
assert x.grad((x * x).sum().backward()).into_data().values.tolist() == [2.0, 4.0, 6.0]
print("smoke test: imports, version and a gradient are right")
"""


class ReleaseError(Exception):
    """Raised when something stands in the way of a release; the message says how to mend it."""


def main(words: list[str] | None = None) -> int:
    """Reads the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__.splitlines()[0])
    parser.add_argument("version", help="such as 0.1.0 or 0.2.0rc1")
    parser.add_argument("--dry-run", action="store_true", help="change nothing in the checkout")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="of the release (today)")
    parser.add_argument("--with-dependencies", action="store_true", help="install torch and the others from the index")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the archives go (dist)")
    arguments = parser.parse_args(words)
    try:
        prepare_release(arguments)
    except ReleaseError as err:
        print(f"release: {err}", file=sys.stderr)
        return 1
    return 0


def prepare_release(arguments: argparse.Namespace) -> None:
    """Does each step and says so; raises ReleaseError at the first that fails."""
    version: str = arguments.version
    print("1. the tree")
    commit = check_tree(ROOT, version)
    with tempfile.TemporaryDirectory(prefix="burn-torch-release-") as folder:
        copy = export_commit(ROOT, commit, Path(folder) / "source")
        print("2. the version and the changelog")
        set_version(copy, version)
        section = write_changelog(copy, version, arguments.date)
        print(section)
        print("3. the source archive and the wheel")
        archives = build_archives(copy, Path(folder) / "dist")
        print("4. checks of both")
        check_archives(archives, version)
        print("5. a fresh environment")
        try_wheel(archives[1], version, Path(folder), arguments.with_dependencies)
        arguments.out.mkdir(parents=True, exist_ok=True)
        for archive in archives:
            shutil.copy(archive, arguments.out)
            print(f"   {arguments.out / archive.name}")
        if not arguments.dry_run:
            take_over(copy, ROOT)
    print("6. what is left to a person")
    names = " ".join(str(arguments.out / archive.name) for archive in archives)
    commit_it = f"git commit --all --message 'Release {version}'"
    first = [f"make release VERSION={version}"] if arguments.dry_run else []
    tag_it = f"git tag --sign v{version} --message 'burn_torch {version}'"
    for command in (*first, commit_it, tag_it, "git push --follow-tags"):
        print(f"   {command}")
    print(f"   {Path(sys.executable).parent / 'twine'} upload {names}")
    status = "dry run: nothing was changed but dist/" if arguments.dry_run else "the checkout was changed"
    print(f"{status}; nothing was sent")


def check_tree(root: Path, version: str) -> str:
    """Returns the commit that is released."""
    parsed = NUMBER.fullmatch(version)
    if parsed is None:
        raise ReleaseError(f"{version!r} is no version: write 1.2.3, or 1.2.3rc1 for a candidate")
    changed = run(["git", "status", "--porcelain"], root)
    if changed:
        raise ReleaseError(f"the tree has changes that no commit holds; commit or remove them first:\n{changed}")
    tags = run(["git", "tag", "--list", "v*"], root).split()
    if f"v{version}" in tags:
        raise ReleaseError(f"there is a tag v{version} already: choose a higher version")
    released = [match for tag in tags if (match := NUMBER.fullmatch(tag[1:]))]
    newest = max(released, key=order_of, default=None)
    if newest is not None and order_of(parsed) < order_of(newest):
        raise ReleaseError(f"{version} is older than {newest[0]}, which has a tag: choose a higher version")
    run([sys.executable, "docs/generate", "changelog", "--check"], root)
    commit = run(["git", "rev-parse", "HEAD"], root)
    print(f"   {commit[:12]} is clean, and {version} is new")
    return commit


def order_of(version: re.Match[str]) -> tuple[int, int, int, str, int]:
    """Sorts candidates before their release."""
    return (int(version[1]), int(version[2]), int(version[3]), version[4] or "release", int(version[5] or 0))


def export_commit(root: Path, commit: str, target: Path) -> Path:
    """Copies the committed files, nothing else."""
    archive = target.with_suffix(".tar")
    run(["git", "archive", "--output", str(archive), commit], root)
    shutil.unpack_archive(archive, target, filter="data")
    return target


def set_version(root: Path, version: str) -> None:
    """Writes the one line that setup.py and the package read."""
    path = root / VERSION_FILE
    before = path.read_text(encoding="utf-8")
    after = re.sub(r'^__version__ = ".*"$', f'__version__ = "{version}"', before, count=1, flags=re.MULTILINE)
    if f'__version__ = "{version}"' not in after:
        raise ReleaseError(f'{VERSION_FILE} has no line of the form __version__ = "1.2.3"')
    path.write_text(after, encoding="utf-8")


def write_changelog(root: Path, version: str, date: str) -> str:
    """Joins the fragments into CHANGELOG.md, removes them, and returns the new section."""
    before = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    fragments = [path for path in (root / "changelog.d").glob("*.md") if path.name != "README.md"]
    if not fragments:
        raise ReleaseError("changelog.d has no fragments: a release says what it brings")
    # towncrier removes fragments by git, where there is one
    run([sys.executable, "-m", "towncrier", "build", "--version", version, "--date", date, "--keep"], root)
    for fragment in fragments:
        fragment.unlink()
    after = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    after = re.sub(r"\n{3,}", "\n\n", after)
    (root / "CHANGELOG.md").write_text(after, encoding="utf-8")
    header = before.split("<!-- releases")[0]
    return after.removeprefix(header).partition("-->\n")[2].strip()


def build_archives(source: Path, out: Path) -> tuple[Path, Path]:
    """Returns the source archive and the wheel that was made from it."""
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)], source)
    (archive,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return archive, wheel


def check_archives(archives: tuple[Path, Path], version: str) -> None:
    """Checks metadata and long description, and that the wheel holds both packages and no test."""
    run([sys.executable, "-m", "twine", "check", "--strict", *map(str, archives)], ROOT)
    print("   twine finds no fault in their metadata")
    for archive in archives:
        if f"-{version}" not in archive.name:
            raise ReleaseError(f"{archive.name} has another version than {version}")
    with zipfile.ZipFile(archives[1]) as wheel:
        folders = {name.partition("/")[0] for name in wheel.namelist()}
    expected = {"burn_torch", "burn_kernels", f"burn_torch-{version}.dist-info"}
    if folders != expected:
        raise ReleaseError(f"the wheel holds {sorted(folders)}, expected {sorted(expected)}")


def try_wheel(wheel: Path, version: str, folder: Path, with_dependencies: bool) -> None:
    """Installs the wheel into a fresh environment, imports it there, and trains for an epoch."""
    place = folder / "environment"
    run([sys.executable, "-m", "venv", str(place)], folder)
    python = place / "bin" / "python"
    words = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    if not with_dependencies:  # those of this environment: torch alone is gigabytes
        (site,) = place.glob("lib/python*/site-packages")
        others = [folder for folder in sys.path if Path(folder).name in ("site-packages", "dist-packages")]
        (site / "others.pth").write_text("\n".join(others) + "\n", encoding="utf-8")
        words.insert(-1, "--no-deps")
        words.insert(-1, "--force-reinstall")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BURN_"))}
    run(words, folder, kept)
    print("   " + run([str(python), "-c", SMOKE, version], folder, kept))
    trained = run([str(place / "bin" / "burn-torch"), "train", "digits", "--epochs", "1"], folder, kept)
    print("   " + trained.splitlines()[-1].strip())


def take_over(copy: Path, root: Path) -> None:
    """Brings the version, the changelog and the removal of fragments into the checkout."""
    for name in (VERSION_FILE, "CHANGELOG.md"):
        shutil.copy(copy / name, root / name)
    for path in (root / "changelog.d").glob("*.md"):
        if not (copy / "changelog.d" / path.name).exists():
            path.unlink()


def run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    """Runs a command and returns what it printed; raises ReleaseError with its output where it fails."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
