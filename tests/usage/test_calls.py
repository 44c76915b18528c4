"""Every public callable with one argument wrong: no error from inside, and no meaningless value taken in silence."""

from __future__ import annotations

import inspect
import math
from typing import Final

import numpy as np
import pytest

from burn_torch import BurnTorchError, ConfigError, DTypeError, Tensor, nn, optim
from burn_torch.tensor import activation
from tests.usage import fuzzing
from tests.usage.fuzzing import WRONG, Callee

CALLEES: Final = fuzzing.all_callees()
SELDOM: Final = 8
"""The quick tests make one of so many calls, the same ones each time."""

NEVER: Final = ("text", "empty text", "object", "class", "function", "complex", "bytes", "dict", "list of texts")
"""Holds what no parameter of numbers, sizes, tensors or options takes."""

TAKES_NAN: Final = frozenset({"other", "fill_value", "value", "number", "data", "floats", "min", "max", "mode"})
"""Parameters whose numbers are values of tensors: NaN is one."""
TAKES_BOOL: Final = TAKES_NAN | {"ints", "on_value", "off_value"}


def faults(callee: Callee, chosen: np.ndarray | None) -> list[str]:
    complaints = []
    for parameter in callee.varied:
        for number, (kind, value) in enumerate(WRONG.items()):
            if chosen is not None and not chosen[number]:
                continue
            outcome, what = fuzzing.outcome(callee, {parameter: value})
            call = f"{callee.name}({parameter}={kind})"
            if outcome == "raw":
                complaints.append(f"{call}: {what}")
            elif outcome == "right" and not is_meaningful(callee, parameter, kind):
                complaints.append(f"{call}: accepted")
    return complaints


def is_meaningful(callee: Callee, parameter: str, kind: str) -> bool:
    if kind == "nan":
        return parameter in TAKES_NAN
    if kind == "bool":
        return parameter in TAKES_BOOL or isinstance(
            callee.parameters.get(parameter, _default(callee, parameter)), bool
        )
    if kind in ("class", "function") and takes_function(callee, parameter):
        return True
    return kind not in NEVER


def takes_function(callee: Callee, parameter: str) -> bool:
    """Returns whether the annotation says a callable, which a class and a function are."""
    return str(inspect.signature(callee.function).parameters[parameter].annotation).startswith("Callable[")


def _default(callee: Callee, parameter: str) -> object:
    return inspect.signature(callee.function).parameters[parameter].default


def test_the_table_has_what_is_public() -> None:
    names = {callee.name.partition(".")[0] for callee in CALLEES}
    assert names >= {"Tensor", "activation", "functional", "nn", "optim"}
    assert len(CALLEES) > 450
    right = [callee for callee in CALLEES if fuzzing.outcome(callee, {})[0] == "right"]
    assert len(right) > 0.9 * len(CALLEES)


def test_one_wrong_argument_never_rises_from_inside() -> None:
    rng = np.random.default_rng(14)
    assert [fault for callee in CALLEES for fault in faults(callee, rng.random(len(WRONG)) < 1 / SELDOM)] == []


@pytest.mark.slow
@pytest.mark.parametrize("callee", CALLEES, ids=lambda callee: callee.name)
def test_every_wrong_argument_never_rises_from_inside(callee: Callee) -> None:
    assert faults(callee, None) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Dropout(1.5),
        lambda: nn.Dropout(True),
        lambda: nn.Dropout(math.nan),
        lambda: nn.GaussianNoise(-1.0),
        lambda: nn.MaxPool2d((0, 2), (1, 1), nn.PaddingConfig2d.Valid, (1, 1), False),
        lambda: nn.LayerNorm(*_norm(), -1.0),
        lambda: optim.AdamConfig(beta_1=1.5),
        lambda: optim.AdamConfig(epsilon=-1.0),
        lambda: optim.AdamWConfig(weight_decay=-0.1),
        lambda: optim.MomentumConfig(momentum=1.5),
        lambda: optim.WeightDecayConfig(-1.0),
        lambda: optim.StepLrSchedulerConfig(0.1, 3, gamma=-1.0),
        lambda: optim.NoamLrSchedulerConfig(-1.0, 10, 8),
        lambda: nn.LinearConfig(10**20, 2),
        lambda: nn.CosineEmbeddingLossConfig(margin=3.0),
    ],
)
def test_settings_without_meaning_are_refused(make: object) -> None:
    with pytest.raises((ConfigError, DTypeError), match=r"given: [\s\S]*expected: [\s\S]*mend: "):
        make()  # type: ignore[operator]


def _norm() -> tuple[object, object]:
    layer = nn.LayerNormConfig(3).init(fuzzing.CPU)
    return layer.gamma, layer.beta


def test_a_power_may_be_infinite_where_it_is_made_directly() -> None:
    assert nn.PairwiseDistance(math.inf, 1e-6).p == math.inf
    assert nn.TripletMarginLoss(1.0, math.inf).p == math.inf


@pytest.mark.parametrize("dim", [True, np.True_, 1.0, "1", None])
def test_an_axis_is_a_whole_number(dim: object) -> None:
    with pytest.raises(BurnTorchError, match="whole number"):
        Tensor.ones((2, 2), fuzzing.CPU).sum_dim(dim)  # type: ignore[arg-type]
    with pytest.raises(BurnTorchError, match="whole number"):
        activation.softmax(Tensor.ones((2, 2), fuzzing.CPU), dim)  # type: ignore[arg-type]
