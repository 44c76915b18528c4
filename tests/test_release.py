"""`.ci/release.py`: what it refuses, what it writes, and, slowly, a whole dry run."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = ("-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false")


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("burn_torch_release", ROOT / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def git(folder: Path, *words: str) -> str:
    command = ["git", *SETTINGS, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with what a release reads first, committed."""
    if shutil.which("git") is None:
        pytest.skip("a release is made from a commit, which needs git")
    for name in ("docs/generate", "changelog.d"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "burn_torch").mkdir()
    for name in ("CHANGELOG.md", "pyproject.toml", "burn_torch/version.py", ".gitignore"):
        shutil.copy(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "all")
    return tmp_path


def test_a_clean_tree_and_a_new_version_are_taken(release: ModuleType, checkout: Path) -> None:
    git(checkout, "tag", "v0.1.0")
    assert release.check_tree(checkout, "0.2.0") == git(checkout, "rev-parse", "HEAD").strip()


@pytest.mark.parametrize(
    ("version", "complaint"),
    [
        ("0.2", "'0.2' is no version: write 1.2.3"),
        ("0.1.1", "there is a tag v0.1.1 already"),
        ("0.1.0", "0.1.0 is older than 0.1.1, which has a tag"),
        ("0.1.1rc2", "0.1.1rc2 is older than 0.1.1"),
    ],
)
def test_another_version_is_refused(version: str, complaint: str, release: ModuleType, checkout: Path) -> None:
    git(checkout, "tag", "v0.1.1")
    with pytest.raises(release.ReleaseError, match=complaint):
        release.check_tree(checkout, version)


def test_changes_without_a_commit_are_refused(release: ModuleType, checkout: Path) -> None:
    (checkout / "burn_torch" / "new.py").write_text("", encoding="utf-8")
    with pytest.raises(release.ReleaseError, match=r"commit or remove them first:\n\?\? burn_torch/new\.py"):
        release.check_tree(checkout, "0.2.0")


def test_a_malformed_fragment_ends_a_release(release: ModuleType, checkout: Path) -> None:
    (checkout / "changelog.d" / "a.added.md").write_text("no full stop\n", encoding="utf-8")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "a fragment")
    with pytest.raises(release.ReleaseError, match=r"a\.added\.md: its last sentence has no full stop"):
        release.check_tree(checkout, "0.2.0")


def test_the_version_is_written_where_the_package_reads_it(release: ModuleType, checkout: Path) -> None:
    release.set_version(checkout, "0.7.0rc1")
    scope: dict[str, str] = {}
    exec((checkout / "burn_torch" / "version.py").read_text(encoding="utf-8"), scope)
    assert scope["__version__"] == "0.7.0rc1"


def test_a_release_without_news_is_refused(release: ModuleType, checkout: Path) -> None:
    for path in (checkout / "changelog.d").glob("*.*.md"):
        path.unlink()
    with pytest.raises(release.ReleaseError, match=r"changelog\.d has no fragments"):
        release.write_changelog(checkout, "0.2.0", "2026-01-02")


def left_behind() -> list[str]:
    """Lists files that git does not hold, and the tags; not caches, since other tests write those meanwhile."""
    status = git(ROOT, "status", "--porcelain", "--ignored").splitlines()
    kept = [line for line in status if "cache" not in line and ".hypothesis" not in line]
    return [*kept, *git(ROOT, "tag").split()]


@pytest.mark.slow
def test_a_dry_run_builds_checks_and_installs(tmp_path: Path) -> None:
    for name in ("build", "towncrier", "twine"):
        pytest.importorskip(name, reason=f"a release needs {name}: pip install 'burn-torch[release]'")
    if shutil.which("git") is None or not (ROOT / ".git").exists() or git(ROOT, "status", "--porcelain"):
        pytest.skip("a release is made from a clean checkout")
    before = left_behind()
    command = [sys.executable, ".ci/release.py", "99.0.0", "--dry-run", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "## [99.0.0] - " in done.stdout
    assert "smoke test: imports, version and a gradient are right" in done.stdout
    assert "git tag --sign v99.0.0" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "burn_torch-99.0.0-py3-none-any.whl", "burn_torch-99.0.0.tar.gz"
    ]  # fmt: skip
    assert left_behind() == before
