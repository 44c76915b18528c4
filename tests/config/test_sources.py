"""Settings from several sources: precedence, origins, all faults at once, and TOML that reads back."""

from __future__ import annotations

import json
from typing import Annotated

import pytest

from burn_torch.config import Config, Tag
from burn_torch.config.overrides import edit_of_text
from burn_torch.config.sources import DEFAULT, environment_edits, file_edits, from_sources, leaves, to_toml
from burn_torch.core.errors import ConfigError
from burn_torch.core.faults import Place


class First(Config):
    rate: float = 0.1


class Second(Config):
    rate: float = 0.2
    power: int = 2


class Inner(Config):
    lr: float = 1e-5
    kind: Annotated[First, Tag("A")] | Annotated[Second, Tag("B")] = First()
    lambda_: float = 1.0


class Outer(Config):
    name: str = 'a "quoted" word\n'
    limit: int | None = None
    flags: tuple[bool, ...] = (True, False)
    table: dict[str, int] = {"x y": 1}  # noqa: RUF012  # a Config freezes its defaults
    inner: Inner = Inner()


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def typed(text):
    edit = edit_of_text(text, Place(), "--set")
    assert edit is not None
    return edit


def test_a_later_source_wins_and_every_value_says_where_it_came_from(tmp_path):
    toml = write(tmp_path, "a.toml", 'limit = 3\nname = "file"\n[inner]\nlr = 0.5\nlambda = 4\n')
    other = write(tmp_path, "b.json", '{"inner": {"lr": 0.25}}')
    edits = [*file_edits(toml, Outer), *file_edits(other, Outer)]
    edits += [*environment_edits("S__", {"S__INNER__LAMBDA": "5", "PATH": "x"}), typed("name=typed")]
    config, origins = from_sources(Outer(), edits)
    assert (config.limit, config.name, config.inner.lr, config.inner.lambda_) == (3, "typed", 0.25, 5.0)
    assert origins["limit"] == toml
    assert origins["inner.lr"] == other
    assert origins["inner.lambda"] == "S__INNER__LAMBDA"
    assert origins["name"] == "--set"
    assert origins["flags"] == DEFAULT
    assert origins.keys() == {leaf.path for leaf in leaves(config)}


@pytest.mark.parametrize("rate", ["inner.kind.rate", "inner.kind.B.rate"])
def test_a_variant_in_a_file_is_whole_and_an_override_goes_into_it(rate, tmp_path):
    path = write(tmp_path, "a.toml", "[inner.kind.B]\npower = 7\n")
    config, origins = from_sources(Outer(), [*file_edits(path, Outer), typed(f"{rate}=0.9")])
    assert config.inner.kind == Second(rate=0.9, power=7)
    assert (origins["inner.kind.power"], origins["inner.kind.rate"]) == (path, "--set")
    assert {leaf.key for leaf in leaves(config)} >= {"inner.kind.B.power", "inner.kind.B.rate"}


def test_all_faults_of_all_sources_at_once(tmp_path):
    path = write(tmp_path, "a.toml", 'limit = "3"\nnmae = "x"\n')
    edits = [*file_edits(path, Outer), *environment_edits("S__", {"S__INNER__LR": "fast"}), typed("inner.lrr=1")]
    with pytest.raises(ConfigError, match="4 faults") as caught:
        from_sources(Outer(), edits)
    text = str(caught.value)
    for part in (f"nmae = 'x' (str), from {path}: unknown field", "from S__INNER__LR", "mean 'name'?", "mean 'lr'?",
                 "inner.lrr = '1' (str), from --set: unknown field", "limit = '3' (str)"):  # fmt: skip
        assert part in text


def test_toml_reads_back(tmp_path):
    config = Outer(inner=Inner(kind=Second(rate=1e-300)), flags=(), limit=None)
    text = to_toml(config, {"inner.lr": "elsewhere"})
    assert from_sources(Outer(), file_edits(write(tmp_path, "a.toml", text), Outer))[0] == config
    assert "# limit is not set" in text
    assert next(line for line in text.splitlines() if line.endswith("# elsewhere")).startswith("inner.lr = 1e-05 ")
    values = json.dumps(config.to_dict())
    assert from_sources(Outer(), file_edits(write(tmp_path, "a.json", values), Outer))[0] == config


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.toml", "x = = 1", "given:    .*a.toml: .*line 1[\\s\\S]*read as TOML"),
        ("a.json", "{", "given:    .*a.json: [\\s\\S]*read as JSON"),
        ("a.json", "[1]", "expected: a TOML file, or JSON"),
        ("a.toml", None, "No such file or directory[\\s\\S]*check the path"),
    ],
)
def test_files_that_hold_no_settings(name, text, says, tmp_path):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        file_edits(path, Outer)
