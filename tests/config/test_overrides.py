"""`apply_overrides`: changes typed on a command line."""

from enum import Enum
from pathlib import Path
from typing import Literal

import pytest

from burn_torch.config import Config, apply_overrides
from burn_torch.core.errors import ConfigError


class Kind(Enum):
    A = 1
    B = 2


class Norm(Config, form="tuple"):
    threshold: float


class Value(Config, form="tuple"):
    threshold: float


class Optimizer(Config):
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    clipping: Norm | Value | None = None


class Layer(Config):
    d_output: int
    bias: bool = True


class Range(Config):
    low: int = 0
    high: int = 10

    def __post_init__(self):
        if self.low > self.high:
            raise ConfigError("low is above high\n  given:    both\n  expected: low <= high\n  mend:     swap them")


class Training(Config):
    optimizer: Optimizer = Optimizer()
    layers: list[Layer] = [Layer(3), Layer(4)]  # noqa: RUF012  (a Config freezes its defaults)
    epochs: int = 3
    name: str = "run"
    note: str | None = None
    folder: Path = Path("runs")
    kind: Kind = Kind.A
    mode: Literal["fast", 2] = "fast"
    weights: dict[str, float] = {"a": 1.0}  # noqa: RUF012  (a Config freezes its defaults)
    sizes: list[int] = []  # noqa: RUF012  (a Config freezes its defaults)
    range: Range = Range()
    limit: int | float | Literal["auto"] = "auto"


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("optimizer.lr=0.1", "optimizer.lr", 0.1),
        ("optimizer.lr=1", "optimizer.lr", 1.0),
        ("optimizer.betas=0.8,0.9", "optimizer.betas", (0.8, 0.9)),
        ("optimizer.betas=[0.8, 0.9]", "optimizer.betas", (0.8, 0.9)),
        ("optimizer.betas.1=0.5", "optimizer.betas", (0.9, 0.5)),
        ('optimizer.clipping={"Norm": 2}', "optimizer.clipping", Norm(2.0)),
        ("optimizer.clipping=none", "optimizer.clipping", None),
        ('optimizer={"lr": 0.5}', "optimizer", Optimizer(lr=0.5)),
        ("layers.1.d_output=7", "layers", [Layer(3), Layer(7)]),
        ("layers.0.bias=false", "layers", [Layer(3, bias=False), Layer(4)]),
        ("epochs=10", "epochs", 10),
        ("name=a=b c", "name", "a=b c"),
        ("name=", "name", ""),
        ("note=null", "note", None),
        ("note=text", "note", "text"),
        ("folder=a/b", "folder", Path("a/b")),
        ("kind=B", "kind", Kind.B),
        ("mode=2", "mode", 2),
        ("weights.a=2", "weights", {"a": 2.0}),
        ("weights.b=2", "weights", {"a": 1.0, "b": 2.0}),
        ('weights={"c": 1}', "weights", {"c": 1.0}),
        ("sizes=1,2, 3", "sizes", [1, 2, 3]),
        ("sizes=", "sizes", []),
        ("limit=3", "limit", 3),
        ("limit=3.5", "limit", 3.5),
        ("limit=auto", "limit", "auto"),
    ],
)
def test_text_is_read_as_the_type_of_its_field(override, path, value):
    changed = apply_overrides(Training(), [override])
    field_value = changed
    for key in path.split("."):
        field_value = getattr(field_value, key)
    assert field_value == value
    assert type(field_value) is type(value) or isinstance(value, (list, dict))
    assert changed == Training.from_json(changed.to_json())


def test_later_changes_count_and_the_original_stays():
    base = Training()
    changed = apply_overrides(
        base, ["epochs=1", "epochs=2", 'optimizer={"lr": 0.5}', "optimizer.clipping=null", "optimizer.lr=2"]
    )
    assert (changed.epochs, changed.optimizer.lr) == (2, 2.0)
    assert base == Training()
    assert apply_overrides(base, []) == base


def test_variants_are_entered_by_their_fields():
    start = apply_overrides(Training(), ['optimizer.clipping={"Norm": 2}', "optimizer.clipping.threshold=3"])
    assert start.optimizer.clipping == Norm(3.0)


def test_fields_are_checked_together_after_all_changes():
    assert apply_overrides(Training(), ["range.low=20", "range.high=30"]).range == Range(low=20, high=30)
    with pytest.raises(
        ConfigError, match=r"low is above high\n  given:    in range: both\n  expected: low <= high\n  mend: "
    ):
        apply_overrides(Training(), ["range.low=20"])


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        (
            "epochs",
            r"no override\n  given:    'epochs'\n  expected: dotted.path=value\n  mend:     write it like epochs=VALUE",
        ),
        ("=3", "no override"),
        ("a..b=3", "no override"),
        (
            "optimiser.lr=1",
            r"unknown field\n  given:    optimiser = .*\n  exp.*\n  mend:     did you mean 'optimizer'\?",
        ),
        (
            "optimizer.lrr=1",
            r"unknown field\n  given:    optimizer.lrr = '1'.*\n.*of Optimizer: lr, betas.*\n  mend:     did you",
        ),
        (
            "optimizer.lr=fast",
            r"no float\n  given:    optimizer.lr = 'fast'\n  expected: float\n  mend:     write a number",
        ),
        ("optimizer.lr=nan", "not a finite number\n  given:    optimizer.lr = nan"),
        (
            "optimizer.lr.x=1",
            r"nothing below this\n  given:    optimizer.lr.x leads into optimizer.lr\n|nothing below this",
        ),
        ("optimizer.betas=1", r"wrong length\n  given:    optimizer.betas has 1 item"),
        ("optimizer.betas=[1", r"no value\n  given:    optimizer.betas = '\[1'"),
        (
            "optimizer.clipping=Nrom",
            r"unknown tag\n  given:    optimizer.clipping = 'Nrom'.*\n.*\n  mend:     did you mean 'Norm'",
        ),
        (
            "optimizer.clipping.threshold=1",
            (
                r"nothing below this\n.*\n  expected: optimizer.clipping as a whole: .* or null\n"
                r"  mend:     write optimizer.clipping=... first"
            ),
        ),
        ("epochs=3.5", r"no int\n  given:    epochs = '3.5'\n  expected: int\n  mend:     write a whole number"),
        ("epochs=true", "no int"),
        ("layers.0.bias=1", r"no bool\n  given:    layers.0.bias = '1'\n  expected: true or false"),
        (
            "layers.2.bias=true",
            r"no such position\n  given:    layers.2 = .*\n  expected: a position below 2 in layers",
        ),
        ("layers.x=3", "no such position"),
        ("kind=b2", r"no such choice\n  given:    kind = 'b2'.*\n  expected: Kind: one of 'A', 'B'"),
        ("mode=fsat", r"no such choice(.|\n)*did you mean 'fast'"),
        ("limit=soon", r"no such value\n  given:    limit = 'soon'\n  expected: int, float or one of 'auto'"),
        ("weights.x.y=3", "no such key\n  given:    weights.x = '3'"),
        ("sizes=1,x", r"no int\n  given:    sizes.1 = 'x'"),
    ],
)
def test_faults_name_their_place(override, complaint):
    with pytest.raises(ConfigError, match=rf"Training: {complaint}") as caught:
        apply_overrides(Training(), [override])
    for part in ("\n  given:    ", "\n  expected: ", "\n  mend:     "):
        assert part in str(caught.value)


def test_all_faults_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        apply_overrides(Training(), ["optimiser.lr=1", "epochs=x", "oops", "layers.0.bias=2"])
    assert "4 faults" in str(caught.value)
