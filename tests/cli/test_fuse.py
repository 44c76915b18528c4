"""`--fuse`: in the settings, in the words of a run, across a resume."""

from __future__ import annotations

import json

import pytest

from burn_torch.backend.libtorch.generated.c_kernels import compiler

SMALL = ["--set", "channels=4", "--set", "hidden=16", "--seed", "3"]


@pytest.mark.skipif(compiler() is None, reason="no C compiler with OpenMP here")
def test_a_run_keeps_the_setting_and_its_bits(burn, tmp_path):
    done = burn("train", "digits", "--epochs", 1, "--fuse", "--artifact-dir", "whole", *SMALL, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == "trains digits on cpu, fused, kept in whole"
    assert json.loads((tmp_path / "whole/config.json").read_text())["fuse"] is True
    origins = json.loads((tmp_path / "whole/config.origins.json").read_text())["origins"]
    assert origins["fuse"] == "--fuse"
    burn(
        "train", "digits", "--epochs", 1, "--fuse", "--limit-steps", 9, "--artifact-dir", "parts", *SMALL, cwd=tmp_path
    )
    done = burn("resume", "parts", cwd=tmp_path)
    assert done.out.splitlines()[0] == "resumes digits on cpu, fused, kept in parts"
    parts, whole = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("parts", "whole"))
    assert parts == whole
    report = json.loads(burn("evaluate", "whole", "--json", cwd=tmp_path).out)
    kept = json.loads((tmp_path / "whole/result.json").read_text())["metrics"]["valid"]["Loss"][-1]
    assert report["metrics"]["Loss"] == pytest.approx(kept, rel=1e-6)


def test_settings_say_it_too(burn, tmp_path):
    shown = json.loads(burn("train", "digits", "--set", "fuse=true", "--show-config", "--json", cwd=tmp_path).out)
    assert (shown["config"]["fuse"], shown["origins"]["fuse"]) == (True, "--set")
    shown = json.loads(burn("train", "digits", "--no-fuse", "--show-config", "--json", cwd=tmp_path).out)
    assert (shown["config"]["fuse"], shown["origins"]["fuse"]) == (False, "--no-fuse")
    shown = json.loads(burn("train", "digits", "--show-config", "--json", cwd=tmp_path).out)
    assert shown["config"]["fuse"] is None


def test_what_does_not_go_together(burn, trained, tmp_path):
    done = burn("train", "digits", "--fuse", "--no-compile", cwd=tmp_path)
    assert done.code == 2
    assert "fuse = true, from --fuse, with --no-compile" in done.err
    assert "expected: one of them" in done.err
    assert not (tmp_path / "artifacts").exists()
    done = burn("train", "digits", "--resume", "--artifact-dir", trained, "--no-fuse", cwd=tmp_path)
    assert done.code == 2
    assert "a resumed run keeps its settings" in done.err
    assert "--resume with --no-fuse" in done.err


def test_explain_shows_the_kernels(burn, tmp_path):
    assert "kernels, " in burn("explain", "digits", "--fuse", *SMALL[:4], cwd=tmp_path).out
    assert "fused_" not in burn("explain", "digits", *SMALL[:4], cwd=tmp_path).out
