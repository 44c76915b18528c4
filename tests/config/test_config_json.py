"""Configurations as JSON: round trips, Burn's enum tags, and every way in which a file can be wrong."""

import json
import string
import sys
from enum import Enum, auto
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burn_torch.config import Config, Tag
from burn_torch.core.errors import ArtifactError, ConfigError


class Level(Enum):
    LOW = auto()
    HIGH = auto()


class Initializer(Config, enum=True):
    """Burn's enum, cut to three variants."""


class Zeros(Initializer):
    pass


class Uniform(Initializer):
    min: float
    max: float


class Kaiming(Initializer, tag="KaimingUniform"):
    gain: float
    fan_out_only: bool = False


class Value(Config, form="tuple"):
    threshold: float


class Norm(Config, form="tuple"):
    threshold: float


class Explicit(Config, form="tuple"):
    height: int
    width: int


class Same(Config):
    pass


class BatchNormConfig(Config):
    num_features: int


class LayerNormConfig(Config):
    d_model: int
    epsilon: float = 1e-5


class ModelConfig(Config):
    d_model: int
    initializer: Initializer = Kaiming(1.0)
    clipping: Value | Norm | None = None
    padding: Same | Explicit = Same()
    norm: Annotated[BatchNormConfig, Tag("Batch")] | Annotated[LayerNormConfig, Tag("Layer")] = LayerNormConfig(8)
    level: Level = Level.LOW
    lambda_: float = 0.5
    size: int | tuple[int, int] = 3
    rate: float | Literal["auto"] = "auto"
    by_class: dict[int, float] = {}  # noqa: RUF012  (a Config freezes its defaults)


BURN = """{
  "d_model": 16,
  "initializer": {"KaimingUniform": {"gain": 0.57735, "fan_out_only": false}},
  "clipping": {"Norm": 1.0},
  "padding": {"Explicit": [1, 2]},
  "norm": {"Batch": {"num_features": 3}},
  "level": "HIGH",
  "lambda": 0.25,
  "size": [3, 5],
  "rate": 1,
  "by_class": {"0": 1, "-3": 2.5}
}"""


def test_external_tags_are_read_as_serde_writes_them():
    config = ModelConfig.from_json(BURN)
    assert config.initializer == Kaiming(0.57735)
    assert config.clipping == Norm(1.0)
    assert config.padding == Explicit(1, 2)
    assert config.norm == BatchNormConfig(3)
    assert config.level is Level.HIGH
    assert (config.lambda_, config.size, config.rate) == (0.25, (3, 5), 1.0)
    assert type(config.rate) is float
    assert config.by_class == {0: 1.0, -3: 2.5}


def test_external_tags_are_written_as_serde_writes_them():
    written = ModelConfig.from_json(BURN).to_dict()
    assert written == json.loads(BURN)
    assert ModelConfig(16, initializer=Zeros()).to_dict()["initializer"] == "Zeros"


def test_a_variant_by_itself_keeps_its_tag():
    assert json.loads(Uniform(0.0, 1.0).to_json()) == {"Uniform": {"min": 0.0, "max": 1.0}}
    assert Initializer.from_json(Uniform(0.0, 1.0).to_json()) == Uniform(0.0, 1.0)
    assert Uniform.from_json(Uniform(0.0, 1.0).to_json()) == Uniform(0.0, 1.0)
    assert Initializer.from_json('"Zeros"') == Initializer.from_json('{"Zeros": null}') == Zeros()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            '{"d_model": 1, "initializer": "Zeroes"}',
            r"unknown tag\n  given:    initializer = 'Zeroes'.*\n.*\n.*'Zeros'",
        ),
        (
            '{"d_model": 1, "initializer": {"Uniform": {"min": 0}}}',
            r"missing field\n  given:    initializer.Uniform.max is",
        ),
        (
            '{"d_model": 1, "initializer": {"Zeros": null, "Uniform": null}}',
            "no single tag\n  given:    initializer has the",
        ),
        ('{"d_model": 1, "initializer": {}}', "no single tag"),
        (
            '{"d_model": 1, "initializer": 3}',
            r"wrong type\n  given:    initializer = 3 \(int\)\n  expected: Initializer: Z",
        ),
        ('{"d_model": 1, "initializer": "Uniform"}', "2 faults"),
        (
            '{"d_model": 1, "padding": {"Explicit": [1]}}',
            r"wrong length\n  given:    padding.Explicit has 1 item\n  exp.*2 \(int",
        ),
        (
            '{"d_model": 1, "padding": {"Explicit": [1, true]}}',
            r"wrong type\n  given:    padding.Explicit.1 = True \(bool\)",
        ),
        (
            '{"d_model": 1, "clipping": {"Norm": "1"}}',
            r"wrong type\n  given:    clipping.Norm = '1' \(str\)\n  expected: float",
        ),
        (
            '{"d_model": 1, "level": "LOWW"}',
            r"no such choice\n  given:    level = 'LOWW'.*\n.*'LOW', 'HIGH'\n.*'LOW'\?",
        ),
        ('{"d_model": 1, "size": 1.5}', r"wrong type\n  given:    size = 1.5 \(float\)\n  expected: int or list of 2"),
        ('{"d_model": 1, "by_class": {"01": 1}}', r"no int key\n  given:    by_class.01 = '01'\n  expected: '1'"),
        ('{"d_model": 1, "by_class": {"x": 1}}', "no int\n  given:    by_class.x = 'x'"),
        ('{"d_model": true}', r"wrong type\n  given:    d_model = True \(bool\)\n  expected: int"),
        ('{"d_model": 1.0}', r"wrong type\n  given:    d_model = 1.0 \(float\)\n  expected: int"),
        ('{"d_model": 1, "lambda": NaN}', r"not a finite number\n  given:    lambda = nan"),
        ('{"d_model": 1, "lambda": 1e999}', r"not a finite number\n  given:    lambda = inf"),
        ('{"d_model": 1, "lambda": -Infinity}', r"not a finite number\n  given:    lambda = -inf"),
        (
            '{"d_model": 1, "d_model": 1}',
            r"duplicate key\n  given:    d_model is given more than once\n  expected: each key",
        ),
        (
            '{"d_model": 1, "norm": {"Layer": {"d_model": 1, "d_model": 2}}}',
            "duplicate key\n  given:    norm.Layer.d_model",
        ),
        (
            '{"d_modl": 1}',
            r"2 faults\n  given:    \[1\] d_modl = 1 \(int\): unknown field\n +\[2\] d_model is not given",
        ),
        ("[1, 2]", r"wrong type\n  given:    = .*\n  expected: an object with the fields of ModelConfig"),
        ("3", "an object with the fields of ModelConfig"),
        ("null", "an object with the fields of ModelConfig"),
        ('{"d_model": 1', "no JSON\n  given:    Expecting"),
        ('{"d_model": 1} x', "no JSON\n  given:    Extra data"),
        ("", "no JSON\n  given:    Expecting value: line 1"),
        ('{"d_model": ' + "1" * 5000 + "}", "no JSON\n  given:    Exceeds"),
        ("[" * 100_000, "no JSON\n  given:    it is nested too deeply"),
    ],
)
def test_faults_of_a_file_are_reported_with_their_place(tmp_path, text, complaint):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"config.json, read as ModelConfig: (.|\n)*{complaint}") as caught:
        ModelConfig.load(path)
    for part in ("\n  given:    ", "\n  expected: ", "\n  mend:     "):
        assert part in str(caught.value)


def test_all_faults_of_a_file_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        ModelConfig.from_json('{"initialiser": 1, "level": 3, "clipping": {"Nrom": 1}, "size": "x", "rate": "never"}')
    message = str(caught.value)
    assert "6 faults" in message
    for fault in (
        "initialiser = 1",
        "d_model is not",
        "level = 3",
        "clipping = 'Nrom'",
        "size = 'x'",
        "rate = 'never'",
    ):
        assert fault in message
    assert "did you mean 'initializer'?" in message
    assert "did you mean 'Norm'?" in message


class Deep(Config):
    inner: "Deep | None" = None


def test_a_config_that_is_nested_too_deeply_is_refused_not_crashed():
    depth = sys.getrecursionlimit() // 2
    text = '{"inner": ' * depth + "{}" + "}" * depth
    with pytest.raises(ConfigError, match=r"(?s)nested too deeply.*\n  given: .*\n  expected: .*\n  mend:  "):
        Deep.from_json(text)


def test_bytes_that_are_no_utf8_are_refused():
    with pytest.raises(
        ConfigError, match=r"bytes, read as ModelConfig: no JSON\n  given:    'utf-8' codec.*\n.*\n  mend: "
    ):
        ModelConfig.load_binary(b'{"d_model": "\xff"}')
    assert ModelConfig.load_binary(BURN.encode()) == ModelConfig.from_json(BURN)


def test_a_missing_file_and_a_folder_are_reported(tmp_path):
    with pytest.raises(
        ConfigError, match=r"cannot be read\n  given:    .*No such file.*\n  expected: a JSON.*\n  mend:     check"
    ):
        ModelConfig.load(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        ModelConfig.load(tmp_path)


def test_save_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    ModelConfig(1).save(path)
    before = path.read_bytes()

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(
        ArtifactError, match=r"cannot be written\n  given:    .*No space left.*\n  expected: .*\n  mend:     make"
    ):
        ModelConfig(2).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_save_into_a_missing_folder_is_reported(tmp_path):
    with pytest.raises(ArtifactError, match=r"cannot be written\n  given: .*No such file"):
        ModelConfig(1).save(tmp_path / "none" / "config.json")


def test_a_saved_file_keeps_the_permissions_of_the_one_it_replaces(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("{}")
    path.chmod(0o640)
    ModelConfig(1).save(path)
    assert path.stat().st_mode & 0o777 == 0o640
    assert ModelConfig.load(path) == ModelConfig(1)


def test_two_classes_with_one_tag_are_refused():
    with pytest.raises(
        ConfigError, match=r"has this tag already\n  given:    tag 'Zeros'.*\n  expected: .*\n  mend:     class"
    ):

        class OtherZeros(Initializer, tag="Zeros"):
            pass

    with pytest.raises(
        ConfigError, match=r"(?s)two classes of a union have one tag\n  given:    .*\n  exp.*\n  mend:  "
    ):
        type(
            "Clash",
            (Config,),
            {"__annotations__": {"x": Annotated[Value, Tag("Norm")] | Norm}},
        )


def test_an_enum_is_not_built_and_has_no_fields():
    with pytest.raises(
        ConfigError, match=r"Initializer is not built itself\n.*\n  expected: one of Zeros, Uniform.*\n  mend: "
    ):
        Initializer()
    with pytest.raises(ConfigError, match=r"no fields of its own\n  given:    the fields x\n  expected: .*\n  mend: "):

        class Bad(Config, enum=True):
            x: int


# -- generated classes and values ------------------------------------------------

_finite = st.floats(allow_nan=False, allow_infinity=False)
_text = st.text(max_size=8)
_path = st.lists(st.text(string.ascii_letters + "äß. ", min_size=1, max_size=4), min_size=1, max_size=3).map(
    lambda p: Path(*p)
)
_LEAVES = [
    (bool, st.booleans()),
    (int, st.integers(-(2**70), 2**70)),
    (float, _finite),
    (str, _text),
    (Path, _path),
    (Level, st.sampled_from(Level)),
    (Literal["a", 2, True], st.sampled_from(["a", 2, True])),
    (Initializer, st.sampled_from([Zeros(), Uniform(-1.0, 1.0), Kaiming(2.0)])),
    (Value | Norm, st.sampled_from([Value(1.5), Norm(2.5)])),
    (int | str | None, st.one_of(st.integers(), _text, st.none())),
]


@st.composite
def _typed(draw, depth=2):
    type_, values = draw(st.sampled_from(_LEAVES))
    for _ in range(draw(st.integers(0, depth))):
        wrap = draw(st.sampled_from(["list", "tuple", "pair", "dict", "numbered", "optional"]))
        if wrap == "list":
            type_, values = list[type_], st.lists(values, max_size=3)
        elif wrap == "tuple":
            type_, values = tuple[type_, ...], st.lists(values, max_size=3).map(tuple)
        elif wrap == "pair":
            type_, values = tuple[type_, int], st.tuples(values, st.integers())
        elif wrap == "dict":
            type_, values = dict[str, type_], st.dictionaries(_text, values, max_size=3)
        elif wrap == "numbered":
            type_, values = dict[int, type_], st.dictionaries(st.integers(), values, max_size=3)
        else:
            type_, values = type_ | None, st.one_of(st.none(), values)
    return type_, values


_names = st.lists(
    st.text(string.ascii_lowercase, min_size=1, max_size=6).map("f_".__add__), min_size=1, max_size=4, unique=True
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_can_be_built_can_be_saved_and_read_again(data):
    fields = {name: data.draw(_typed()) for name in data.draw(_names)}
    optional = data.draw(st.sets(st.sampled_from(sorted(fields))))
    body = {"__annotations__": {name: type_ for name, (type_, _) in fields.items()}}
    body.update({name: data.draw(fields[name][1]) for name in optional})
    inner_class = type("Made", (Config,), body)
    outer = type("Outer", (Config,), {"__annotations__": {"inner": inner_class, "many": list[inner_class]}})
    inner = inner_class(**{name: data.draw(values) for name, (_, values) in fields.items()})
    config = outer(inner, [inner])

    again = outer.from_json(config.to_json())
    assert again == config
    assert hash(again) == hash(config)
    assert again.to_json() == config.to_json()
    assert outer.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    for name in fields:
        assert getattr(inner, f"with_{name}")(getattr(inner, name)) == inner


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_json_gives_a_config_or_a_config_error(data):
    scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4))
    tags = st.sampled_from(["Uniform", "Norm", "Explicit", "Batch", "Layer", "min", "max", "d_model", "0"])
    values = st.recursive(
        scalars | tags, lambda v: st.lists(v, max_size=3) | st.dictionaries(tags, v, max_size=3), max_leaves=8
    )
    names = st.sampled_from([*json.loads(BURN), "other"])
    text = json.dumps(data.draw(st.dictionaries(names, values, max_size=5)))
    try:
        config = ModelConfig.from_json(text)
    except ConfigError as error:
        message = str(error)
    else:
        message = ""
        assert ModelConfig.from_json(config.to_json()) == config
    assert message == "" or all(part in message for part in ("\n  given:    ", "\n  expected: ", "\n  mend:     "))


def test_config_itself_is_not_read() -> None:
    with pytest.raises(ConfigError, match=r"given:    Config[\s\S]*expected: a class derived[\s\S]*mend: .*derived"):
        Config.load_binary(b"{}")
