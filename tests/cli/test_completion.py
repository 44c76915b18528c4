"""Completion scripts: what shells themselves make of them; those that are not here are passed over by name."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from burn_torch.cli import registry, shells
from burn_torch.cli.main import make_parser
from burn_torch.core.errors import ConfigError

NEEDED = "needs shtab: pip install 'burn-torch[completion]'"

COMPLETED = [
    ("tr", {"train"}),
    ("train fash", {"fashion-mnist"}),
    ("train digits --precisio", {"--precision"}),
    ("train --precision b", {"bfloat16"}),
    ("--vers", {"--version"}),
    ("completion z", {"zsh"}),
    ("info --", {"--help", "--json"}),
    ("bench --devices cu", {"cuda:0"}),
    ("train --seed ", set()),
    ("runs pl", {"plot"}),
    ("runs plot --met", {"--metric"}),
]


@pytest.fixture(scope="module")
def script(burn, tmp_path_factory):
    pytest.importorskip("shtab", reason=NEEDED)
    folder = tmp_path_factory.mktemp("completion")

    def written(shell):
        done = burn("completion", shell, cwd=folder)
        assert (done.code, done.err) == (0, "")
        path = folder / f"completion.{shell}"
        path.write_text(done.out)
        return path

    return written


def shell(name, text, cwd):
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    ran = subprocess.run([program, "-c", text], cwd=cwd, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.mark.parametrize(("line", "words"), COMPLETED)
def test_bash_completes(line, words, script, tmp_path):
    (tmp_path / "mine.py").write_text("")
    run = f"""source {script("bash")}
COMP_WORDS=(burn-torch {" ".join(f"'{word}'" for word in line.split(" "))})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_burn_torch
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    assert set(shell("bash", run, tmp_path).split()) == words


def test_bash_completes_files_of_recipes_and_data(script, tmp_path):
    (tmp_path / "mine.py").write_text("")
    for line, wanted in (
        ("train mi", "mine.py"),
        ("train digits --config mi", "mine.py"),
        ("predict run mi", "mine.py"),
    ):
        words = f"COMP_WORDS=(burn-torch {line}); COMP_CWORD={len(line.split())}"
        run = f"source {script('bash')}; {words}; _shtab_burn_torch"
        assert wanted in shell("bash", f'{run}; echo "${{COMPREPLY[@]}}"', tmp_path).split()


def test_zsh_and_fish_read_their_scripts(script, tmp_path):
    for name in ("zsh", "fish"):
        path = script(name)
        if shutil.which(name):
            assert shell(name, f"{name} -n {path}", tmp_path) == ""


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_in_the_script(name, script):
    text = script(name).read_text()
    for command, parser in next(a for a in make_parser()._actions if a.choices and a.nargs == "A...").choices.items():
        assert command in text
        for action in parser._actions:
            for option in action.option_strings:
                if action.help != "==SUPPRESS==" and option.startswith("--"):
                    assert (f"-l {option[2:]}" if name == "fish" else option) in text, (command, option)
    assert all(recipe in text for recipe in registry.recipes())


def test_fish_completes(script, tmp_path):
    path = script("fish")
    for line, words in COMPLETED[:4]:
        candidates = shell("fish", f"source {path}; complete -C 'burn-torch {line}'", tmp_path).splitlines()
        assert {one.split("\t")[0] for one in candidates} == words


def test_a_folder_is_completed_by_folders_alone_and_recipes_also_by_files(script, tmp_path):
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "minerals").mkdir()
    for line, wanted in (("resume min", {"minerals"}), ("bench mi", {"mine.py", "minerals"})):
        run = f"source {script('bash')}; COMP_WORDS=(burn-torch {line}); COMP_CWORD=2; _shtab_burn_torch"
        assert set(shell("bash", f'{run}; echo "${{COMPREPLY[@]}}"', tmp_path).split()) == wanted


def test_without_shtab_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(
        ConfigError,
        match=r"a completion script needs the package shtab\s+given: .*\s+expected: a Python with the extra completion"
        r"\s+mend: .*pip install 'burn-torch\[completion\]'",
    ):
        shells.write_script(make_parser(), "bash")


def test_no_command_imports_shtab_before_it_writes_a_script(environment):
    code = "import sys, burn_torch.cli.main as m; m.make_parser(); print('shtab' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
