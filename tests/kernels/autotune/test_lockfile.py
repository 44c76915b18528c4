"""The lockfile: the same choice always, a strict form, missing keys by rule."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from burn_kernels import KernelArgumentError
from burn_kernels.autotune import AutotuneWarning, LockfileError, lock, unlock
from burn_kernels.autotune import lockfile as lockfiles
from burn_kernels.autotune.lockfile import Lockfile, Pin
from burn_kernels.autotune.selection import current, selecting

PIN = Pin("op rows<=8", "Fake 1", "k1", {"block": 64, "warps": 4})
KERNELS = Path(lockfiles.__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "autotune.lock"


def test_a_choice_comes_back_from_the_file(path: Path) -> None:
    Lockfile(path).append(PIN)
    assert Lockfile(path).find(PIN.key, PIN.device, PIN.kernel) == PIN
    assert Lockfile(path, "frozen").find(PIN.key, PIN.device, PIN.kernel) == PIN
    assert Lockfile(path).find(PIN.key, "Fake 2", PIN.kernel) is None


def test_the_file_is_json_for_people_one_choice_a_line_in_order(path: Path) -> None:
    held = Lockfile(path)
    held.append(Pin("b", "d", "k", {"warps": 1, "block": 2}))
    held.append(Pin("a", "d", "k", {"block": 3}))
    assert path.read_text(encoding="utf-8") == (
        '{\n "format": "burn_kernels.lock",\n "version": 1,\n "choices": [\n'
        '  {"key": "a", "device": "d", "kernel": "k", "config": {"block": 3}},\n'
        '  {"key": "b", "device": "d", "kernel": "k", "config": {"block": 2, "warps": 1}}\n'
        " ]\n}\n"
    )
    assert json.loads(path.read_text(encoding="utf-8"))["version"] == 1
    assert sorted(p.name for p in path.parent.iterdir()) == ["autotune.lock", "autotune.lock.guard"]


def test_the_first_choice_wins_when_two_processes_append(path: Path) -> None:
    one, other = Lockfile(path), Lockfile(path)
    one.append(PIN)
    other.append(Pin(PIN.key, PIN.device, PIN.kernel, {"block": 999}))
    other.append(Pin("another", "Fake 1", "k1", {"block": 1}))
    assert other.find(PIN.key, PIN.device, PIN.kernel) == PIN
    assert len(Lockfile(path).pins) == 2


APPENDER = """
import sys, types
for name in ("burn_kernels", "burn_kernels.autotune"):  # without the package's own import of torch, which takes seconds
    sys.modules[name] = module = types.ModuleType(name)
    module.__path__ = [sys.argv[1] + "/" + name.replace(".", "/")]
from pathlib import Path
from burn_kernels.autotune.lockfile import Lockfile, Pin
for n in range(20):
    Lockfile(Path(sys.argv[2])).append(Pin(f"{sys.argv[3]} {n}", "d", "k", {"n": n}))
"""


def test_processes_that_append_at_once_lose_nothing(path: Path) -> None:
    command = [sys.executable, "-c", APPENDER, str(KERNELS), str(path)]
    running = [subprocess.Popen([*command, str(me)]) for me in range(4)]
    assert [process.wait(300) for process in running] == [0] * 4
    assert len(Lockfile(path).pins) == 80


def test_a_frozen_file_must_be_there(path: Path) -> None:
    with pytest.raises(LockfileError, match=r"no lockfile to hold to\n  given: .*frozen.*\n  expected: .*\n  mend: "):
        Lockfile(path, "frozen")


def test_a_mode_that_is_not_there(path: Path) -> None:
    with pytest.raises(KernelArgumentError, match=r"given:    'strict'\n  expected: one of append, frozen\n  mend: "):
        Lockfile(path, "strict")


def test_a_key_that_a_frozen_file_lacks_is_an_error(path: Path) -> None:
    Lockfile(path).append(PIN)
    with pytest.raises(
        LockfileError, match=r"no choice for this key\n  given:    other on Fake 1.*\n  exp.*\n  mend: "
    ):
        Lockfile(path, "frozen").find("other", "Fake 1", "k1")


def test_a_kernel_that_changed_is_an_error_in_a_frozen_file_and_a_warning_in_another(path: Path) -> None:
    Lockfile(path).append(PIN)
    with pytest.raises(
        LockfileError, match=r"changed since.*\n  given: .*source k2.*\n  expected: source k1\n  mend: "
    ):
        Lockfile(path, "frozen").find(PIN.key, PIN.device, "k2")
    held = Lockfile(path)
    with pytest.warns(AutotuneWarning, match="source is k2, pinned was k1; the pinned config holds"):
        assert held.find(PIN.key, PIN.device, "k2") == PIN
    assert held.find(PIN.key, PIN.device, "k2") == PIN  # and no second warning, which would be an error here


GOOD = {"key": "a", "device": "d", "kernel": "k", "config": {"block": 3}}
HEAD = {"format": "burn_kernels.lock", "version": 1}


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ([], "other fields than format, version, choices"),
        (HEAD, "other fields than format, version, choices"),
        (HEAD | {"choices": [], "more": 1}, "other fields than format, version, choices"),
        (HEAD | {"version": 2, "choices": []}, "format 'burn_kernels.lock' version 2"),
        (HEAD | {"format": "x", "choices": []}, "format 'x' version 1"),
        (HEAD | {"choices": {}}, r"choices\[0\]: other fields"),
        (HEAD | {"choices": [GOOD | {"x": 1}]}, r"choices\[0\]: other fields than key, device, kernel, config"),
        (HEAD | {"choices": [GOOD, GOOD]}, r"choices\[1\]: a second one for 'a'"),
        (HEAD | {"choices": [GOOD | {"config": {"block": "3"}}]}, r"choices\[0\]: the config is not whole numbers"),
        (HEAD | {"choices": [GOOD | {"config": {"block": True}}]}, r"choices\[0\]: the config is not whole numbers"),
        (HEAD | {"choices": [GOOD | {"key": 1}, {}]}, r"choices\[0\]: .*not all text; choices\[1\]: other fields"),
    ],
)
def test_the_form_is_strict_and_all_faults_are_named(path: Path, data: Any, fault: str) -> None:
    path.parent.mkdir()
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    with pytest.raises(LockfileError, match=rf"cannot be read\n  given:    .*{fault}.*\n  expected: .*\n  mend: "):
        Lockfile(path)


def test_a_file_that_is_too_large_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Lockfile(path).append(PIN)
    monkeypatch.setattr(lockfiles, "MAX_BYTES", 10)
    with pytest.raises(LockfileError, match=r"given: .* bytes"):
        Lockfile(path)


def test_a_file_that_cannot_be_written_holds_for_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    held = Lockfile(tmp_path / "file" / "autotune.lock")
    with pytest.warns(AutotuneWarning, match="cannot be written .*holds for this process only"):
        held.append(PIN)
    assert held.find(PIN.key, PIN.device, PIN.kernel) == PIN


def test_a_write_that_fails_leaves_the_old_file_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Lockfile(path)
    held.append(PIN)
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(AutotuneWarning, match="No space left"):
        held.append(Pin("another", "d", "k", {"n": 1}))
    assert path.read_bytes() == before
    assert sorted(p.name for p in path.parent.iterdir()) == ["autotune.lock", "autotune.lock.guard"]


# -- with a selector ---------------------------------------------------------------------------------
def test_the_choice_is_appended_and_holds_whatever_is_measured_later(
    fake: Any, path: Path, use: Callable[..., Any]
) -> None:
    first, _, last = fake.configs
    tunable, selector = fake.tunable(), fake.selector()
    with selecting(selector), lock(path) as held:
        assert use(selector, tunable) == first
        assert [dict(pin.config) for pin in held.pins.values()] == [vars(first)]
        fake.times = {first: 9.0}
        plan = selector.plan(tunable, 0, next(iter(selector.decisions.values())).facts)
        selector.measure(plan)
        selector.forget()
        assert use(selector, tunable) == first
    assert use(selector, tunable) != first  # after the block the timings hold

    other = fake.selector(selector.store)
    with selecting(other), lock(path, mode="frozen"):
        assert use(other, tunable) == first
    assert last in fake.ran


def test_a_measured_choice_is_what_gets_pinned(fake: Any, path: Path, use: Callable[..., Any]) -> None:
    tunable, selector = fake.tunable(), fake.selector()
    fake.times = {fake.configs[0]: 9.0, fake.configs[1]: 5.0}
    selector.measure(selector.plan(tunable, 0, fake.tunable().problems(100, 4, fake.tunable().dtype)[0]))
    with selecting(selector), lock(path):
        assert use(selector, tunable) == fake.configs[2]
    assert '"block": 256' in path.read_text(encoding="utf-8")


def test_nothing_is_measured_under_a_lock(fake: Any, path: Path, use: Callable[..., Any]) -> None:
    from burn_kernels.autotune import using

    selector, tunable = fake.selector(), fake.tunable()
    with selecting(selector), lock(path), using("full"):
        for _ in range(3):
            use(selector, tunable)
    assert fake.ran == []


def test_a_missing_key_is_an_error_in_a_frozen_file(fake: Any, path: Path, use: Callable[..., Any]) -> None:
    Lockfile(path).append(PIN)
    selector = fake.selector()
    with selecting(selector), lock(path, mode="frozen"), pytest.raises(LockfileError, match="no choice for this key"):
        use(selector, fake.tunable())


@pytest.mark.parametrize("config", [{"block": 64}, {"block": 64, "warps": 4, "stages": 1}])
def test_a_config_that_is_not_this_kernels_is_an_error(
    fake: Any, path: Path, use: Callable[..., Any], config: dict[str, int]
) -> None:
    selector, tunable = fake.selector(), fake.tunable()
    with selecting(selector), lock(path):
        use(selector, tunable)
    data = json.loads(path.read_text(encoding="utf-8"))
    data["choices"][0]["config"] = config
    path.write_text(json.dumps(data), encoding="utf-8")
    with (
        selecting(selector),
        lock(path),
        pytest.raises(LockfileError, match=r"cannot be used\n  given: .*block, warps"),
    ):
        use(selector, tunable)


def test_a_pinned_config_that_cannot_be_launched_is_an_error_not_another_choice(
    fake: Any, path: Path, use: Callable[..., Any]
) -> None:
    selector, tunable = fake.selector(), fake.tunable()
    with selecting(selector), lock(path):
        use(selector, tunable)
        with pytest.raises(LockfileError, match=r"cannot be launched\n  given: .*out of resource.*\n  exp.*\n  mend: "):
            use(selector, tunable, fails=fake.configs[:1])


def test_the_variables_open_a_lockfile(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from burn_kernels.autotune import selection

    monkeypatch.setattr(selection, "_selector", None)
    monkeypatch.setenv("BURN_KERNELS_LOCK", str(path))
    held = current().lockfile
    assert held is not None
    assert (held.path, held.mode) == (path, "append")
    unlock()
    assert current().lockfile is None
    monkeypatch.setattr(selection, "_selector", None)
    monkeypatch.setenv("BURN_KERNELS_LOCK_MODE", "frozen")
    with pytest.raises(LockfileError, match="no lockfile to hold to"):
        current()
    monkeypatch.setattr(selection, "_selector", None)
