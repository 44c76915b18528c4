"""Config classes: declaring, building, changing, comparing."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pytest

from burn_torch.config import Config, replace
from burn_torch.core.errors import ConfigError


class Reduction(Enum):
    MEAN = "Mean"
    SUM = "Sum"


class LinearConfig(Config):
    d_input: int
    d_output: int
    bias: bool = True
    init_scale: float = 0.5


class NetConfig(Config):
    hidden: list[LinearConfig]
    name: str = "net"
    kernel: tuple[int, int] = (3, 3)
    dropout: float | None = None
    reduction: Reduction = Reduction.MEAN
    mode: Literal["fast", "eager", 3] = "eager"
    labels: dict[str, int] = {"a": 1}  # noqa: RUF012  (a Config freezes its defaults)
    folder: Path = Path("runs")
    COUNT: ClassVar[int] = 7


class Tree(Config):
    value: int
    children: "list[Tree]" = []  # noqa: RUF012  (a Config freezes its defaults)


def test_required_fields_go_by_position_or_by_name():
    assert LinearConfig(3, 4, bias=False) == LinearConfig(d_input=3, d_output=4, bias=False)
    assert LinearConfig(3, d_output=4).bias is True
    assert str(inspect.signature(LinearConfig)) == "(d_input, d_output, *, bias=True, init_scale=0.5)"


def test_optional_field_without_default_is_none_as_in_burn():
    class WithOption(Config):
        size: int
        limit: float | None

    assert WithOption(3).limit is None
    assert WithOption.from_json('{"size": 3}') == WithOption(3)


def test_a_required_field_may_follow_one_with_a_default():
    class Cosine(Config):
        initial_lr: float
        min_lr: float = 0.0
        num_iters: int = dataclasses.field(kw_only=True)

    assert Cosine(0.1, num_iters=5).to_dict() == {"initial_lr": 0.1, "min_lr": 0.0, "num_iters": 5}


def test_all_faults_of_a_call_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        LinearConfig("3", bais=True, bias=1)
    message = str(caught.value)
    assert message.startswith("LinearConfig: 4 faults\n  given:    [1] bais = True (bool): unknown field")
    assert "d_input = '3' (str): wrong type" in message
    assert "d_output is not given: missing field" in message
    assert "bias = 1 (int): wrong type" in message
    assert "did you mean 'bias'?" in message


def test_one_fault_has_the_three_parts():
    with pytest.raises(
        ConfigError,
        match=r"^LinearConfig: wrong type\n  given:    bias = 1 \(int\)\n  expected: bool\n  mend:     give bias a",
    ):
        LinearConfig(3, 4, bias=1)


def test_default_fields_are_not_positional():
    with pytest.raises(
        ConfigError,
        match=r"too many positional arguments\n  given:    3 pos.*\n  expected: 2: d_input, d_.*\n  mend:     give",
    ):
        LinearConfig(3, 4, False)


def test_a_field_given_twice_is_reported():
    with pytest.raises(
        ConfigError, match=r"given twice\n  given:    d_input by position and by name\n  exp.*\n  mend: "
    ):
        LinearConfig(3, 4, d_input=5)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("name", 3, "str"),
        ("kernel", [3], r"list of 2 \(int, int\)"),
        ("kernel", (3, True), "int"),
        ("kernel", "33", "list of 2"),
        ("dropout", "0.5", "float or null"),
        ("dropout", True, "float or null"),
        ("dropout", float("nan"), "a finite float"),
        ("dropout", float("inf"), "a finite float"),
        ("dropout", 10**400, "a finite float"),
        ("reduction", "Meen", "Reduction: one of 'Mean', 'Sum'"),
        ("mode", "quick", "one of 'fast', 'eager', 3"),
        ("mode", 3.0, "one of 'fast', 'eager', 3"),
        ("labels", {"a": "b"}, "int"),
        ("labels", {1: 1}, "str"),
        ("labels", [], "object of str to int"),
        ("folder", 3, "path"),
        ("hidden", [1], "LinearConfig"),
        ("hidden", None, "list of LinearConfig"),
    ],
)
def test_ill_typed_values_are_refused(field, value, expected):
    with pytest.raises(ConfigError, match=rf"NetConfig: .*\n  given:    {field}.*\n  expected: {expected}.*\n  mend: "):
        NetConfig(**{"hidden": [], field: value})


def test_values_are_normalised():
    net = NetConfig([LinearConfig(1, 2)], kernel=[np.int64(5), 5], dropout=np.float32(0.5), folder="a/b")
    assert net.kernel == (5, 5)
    assert type(net.kernel[0]) is int
    assert type(net.dropout) is float
    assert net.folder == Path("a/b")
    assert type(LinearConfig(1, 2, init_scale=1).init_scale) is float


def test_builders_and_replace_make_a_new_config():
    config = LinearConfig(3, 4)
    assert config.with_bias(False) == replace(config, bias=False) == dataclasses.replace(config, bias=False)
    assert config.with_d_input(9).d_input == 9
    assert config == LinearConfig(3, 4)
    assert LinearConfig.with_bias.__doc__ == "The configuration with another `bias`."
    with pytest.raises(
        ConfigError, match=r"unknown field\n  given:    biass = .*\n  exp.*\n  mend:     did you mean 'bias'"
    ):
        replace(config, biass=False)


def test_a_config_does_not_change():
    net = NetConfig([LinearConfig(1, 2)])
    with pytest.raises(
        dataclasses.FrozenInstanceError, match=r"given:    a change of name.*\n  exp.*\n.*config.with_name"
    ):
        net.name = "x"
    with pytest.raises(dataclasses.FrozenInstanceError, match="does not change"):
        del net.name
    for change in (
        lambda: net.hidden.append(LinearConfig(3, 4)),
        lambda: net.hidden.__setitem__(0, LinearConfig(3, 4)),
        lambda: net.hidden.sort(),
        lambda: net.labels.update(b=2),
        lambda: net.labels.pop("a"),
        lambda: net.labels.__setitem__("a", 2),
    ):
        with pytest.raises(
            ConfigError, match=r"does not change\n  given: .*\n  expected: a new.*\n  mend:     replace"
        ):
            change()
    assert net == NetConfig([LinearConfig(1, 2)])


def test_the_list_given_is_not_the_list_kept():
    hidden = [LinearConfig(1, 2)]
    net = NetConfig(hidden)
    hidden.clear()
    assert len(net.hidden) == 1


def test_equality_and_hash_are_by_value_and_class():
    class Other(Config):
        d_input: int
        d_output: int
        bias: bool = True
        init_scale: float = 0.5

    one, two = NetConfig([LinearConfig(1, 2)]), NetConfig([LinearConfig(1, 2)])
    assert one == two
    assert hash(one) == hash(two)
    assert len({one, two, NetConfig([])}) == 2
    assert LinearConfig(1, 2) != LinearConfig(1, 3)
    assert LinearConfig(1, 2) != Other(1, 2)


def test_repr_is_python_and_str_is_json():
    config = LinearConfig(3, 4)
    assert eval(repr(config)) == config
    assert str(config) == '{\n  "d_input": 3,\n  "d_output": 4,\n  "bias": true,\n  "init_scale": 0.5\n}'


def test_copies_and_pickles_are_equal():
    net = NetConfig([LinearConfig(1, 2)], labels={"x": 3})
    again = pickle.loads(pickle.dumps(net))
    assert again == net
    assert hash(again) == hash(net)
    assert copy.deepcopy(net) == copy.copy(net) == net
    assert copy.deepcopy(net.hidden) == net.hidden
    with pytest.raises(ConfigError, match="does not change"):
        again.hidden.append(1)


def test_dataclass_tools_see_the_fields():
    assert [field.name for field in dataclasses.fields(LinearConfig)] == ["d_input", "d_output", "bias", "init_scale"]
    assert NetConfig.COUNT == 7
    assert "COUNT" not in NetConfig([]).to_dict()


def test_a_class_may_name_itself():
    tree = Tree(1, children=[Tree(2), Tree(3, children=[Tree(4)])])
    assert Tree.from_json(tree.to_json()) == tree


class Early(Config):
    later: "Later"


class Later(Config):
    x: int = 1


def test_a_class_may_name_one_that_is_declared_further_down():
    assert Early(Later(x=2)).to_dict() == {"later": {"x": 2}}
    assert str(inspect.signature(Early)) == "(later)"


def test_fields_are_inherited_and_a_derived_class_is_no_substitute():
    class Wide(LinearConfig):
        width: int

    assert Wide(1, 2, 3, bias=False).to_dict() == {
        "d_input": 1,
        "d_output": 2,
        "bias": False,
        "init_scale": 0.5,
        "width": 3,
    }
    with pytest.raises(
        ConfigError, match=r"wrong type\n  given:    hidden.0 = .*Wide\)\n  expected: LinearConfig\n  mend: "
    ):
        NetConfig([Wide(1, 2, 3)])


def test_an_annotation_that_names_nothing_is_reported_at_the_first_use():
    class Lost(Config):
        x: "Nowhere"  # noqa: F821  (the fault under test)

    with pytest.raises(
        ConfigError, match=r"class Lost: .*\n  given:    name 'Nowhere'.*\n  expected: types.*\n  mend:     import"
    ):
        Lost(1)


def test_rules_between_fields_belong_to_the_class():
    class Range(Config):
        low: int
        high: int

        def __post_init__(self):
            if self.low > self.high:
                raise ConfigError(
                    "low is above high\n  given:    low=2, high=1\n  expected: low <= high\n  mend:     swap"
                )

    class Outer(Config):
        range: Range
        other: int = 0

    with pytest.raises(ConfigError, match=r"^low is above high"):
        Range(2, 1)
    with pytest.raises(
        ConfigError, match=r"low is above high\n  given:    in range: low=2, high=1\n  exp.*\n  mend:     swap"
    ):
        Outer.from_json('{"range": {"low": 2, "high": 1}}')
    with pytest.raises(ConfigError, match=r"2 faults(.|\n)*low is above high(.|\n)*other = 'x'"):
        Outer.from_json('{"range": {"low": 2, "high": 1}, "other": "x"}')


@pytest.mark.parametrize("name", ["save", "load", "to_json", "_private"])
def test_names_that_config_uses_are_refused(name):
    with pytest.raises(
        ConfigError, match=rf"this name is taken\n  given:    {name} is .*\n  expected: .*\n  mend:     call"
    ):
        type("Clash", (Config,), {"__annotations__": {name: int}})


@pytest.mark.parametrize(
    "type_", [object, complex, list, dict, set[int], dict[float, int], np.ndarray, LinearConfig | dict[str, int]]
)
def test_types_that_json_cannot_hold_are_refused_when_the_class_is_declared(type_):
    with pytest.raises(ConfigError, match=r"(?s)class Odd: .*\n  given:    .*\n  expected: .*\n  mend:     "):
        type("Odd", (Config,), {"__annotations__": {"x": type_}})


def test_config_itself_is_not_built():
    with pytest.raises(
        ConfigError, match=r"Config is not built itself\n  given: .*\n  expected: a class derived.*\n  mend: "
    ):
        Config()


def test_importing_config_needs_neither_torch_nor_numpy():
    code = "import sys, burn_torch.config; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"
