"""Arguments that annotations refuse are told in one error, at the border; what is right costs little and passes."""

from __future__ import annotations

import inspect
import io
import math
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO

import numpy as np
import pytest

from burn_torch import ArgumentError, ConfigError, DTypeError
from burn_torch.core.checking import above, at_least, checked, holds, taken_by
from burn_torch.core.dtype import DType


class Closes(Protocol):
    def close(self) -> None: ...


@checked(count=at_least(1), rate=above(0))
def run(
    path: str | Path,
    count: int = 1,
    *rest: float,
    flag: bool = False,
    rate: float | None = None,
    sizes: Sequence[int] = (),
    pair: tuple[int, str] = (1, "a"),
    mode: Literal["a", "b"] = "a",
    action: Callable[[int], int] | None = None,
    names: Mapping[str, int] | None = None,
    items: Iterable[str] = (),
    dtype: DType = DType.F32,
    stream: TextIO | None = None,
    target: Closes | None = None,
    anything: Any = None,
) -> tuple[Any, ...]:
    return path, count, rest


RIGHT: list[dict[str, Any]] = [
    {"path": "a"},
    {"path": Path("a")},
    {"count": np.int64(3)},
    {"flag": np.True_},
    {"rate": 2},
    {"rate": np.float32(0.5)},
    {"sizes": [1, 2]},
    {"sizes": np.array([1, 2])},
    {"sizes": range(3)},
    {"pair": [1, "b"]},
    {"mode": "b"},
    {"action": len},
    {"names": {"a": 1}},
    {"items": iter(["a"])},
    {"stream": io.StringIO()},
    {"target": io.StringIO()},
    {"anything": object()},
]
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"path": ""}, "a path"),
    ({"path": 3}, "a path"),
    ({"path": b"a"}, "a path"),
    ({"count": 0}, "1 or more"),
    ({"count": 2.0}, "a whole number"),
    ({"count": True}, "a whole number"),
    ({"count": "2"}, "a whole number"),
    ({"count": None}, "a whole number"),
    ({"flag": 1}, "True or False"),
    ({"rate": math.nan}, "a number"),
    ({"rate": math.inf}, "above 0"),
    ({"rate": 0}, "above 0"),
    ({"sizes": "12"}, "a list"),
    ({"sizes": [1, "2"]}, "each a whole number"),
    ({"sizes": {1: 2}}, "a list"),
    ({"pair": (1, 2)}, "a whole number, a text"),
    ({"pair": (1,)}, "a whole number, a text"),
    ({"mode": "c"}, "'a' or 'b'"),
    ({"action": 3}, "a function"),
    ({"names": {1: 1}}, "a mapping"),
    ({"items": "ab"}, "a list"),
    ({"dtype": "f32"}, "a DType"),
    ({"stream": "out"}, "a stream"),
    ({"target": io.StringIO}, "with close"),
]


@pytest.mark.parametrize("arguments", RIGHT)
def test_what_an_annotation_means_is_taken(arguments: dict[str, Any]) -> None:
    assert run(**{"path": "p", **arguments})[0] == arguments.get("path", "p")


@pytest.mark.parametrize(("arguments", "expected"), WRONG)
def test_what_an_annotation_refuses_is_reported(arguments: dict[str, Any], expected: str) -> None:
    (name,) = arguments
    with pytest.raises(ArgumentError) as caught:
        run(**{"path": "p", **arguments})
    text = str(caught.value)
    assert f"given:    run({name}=" in text
    assert expected in text[text.index("expected:") :]
    assert f"mend:     for {name} pass " in text
    assert any(__file__ in note for note in caught.value.__notes__)


def test_all_arguments_are_reported_at_once_and_those_without_a_name_too() -> None:
    with pytest.raises(ArgumentError, match=r"path and count and rest and flag are not what it takes"):
        run(3, 0, 1.0, "rest", flag=2)  # type: ignore[arg-type]  # the name of the parameter was taken for its default
    assert run("p", 2, 0.5, 1) == ("p", 2, (0.5, 1))


def test_what_fits_no_parameter_is_reported_in_three_parts() -> None:
    with pytest.raises(
        DTypeError, match=r"run: it needs path\n +given: +run\(\)\n +expected: +run\(path, [\s\S]*mend: +run\("
    ):
        run()  # type: ignore[call-arg]
    with pytest.raises(DTypeError, match=r"takes no colour[\s\S]*mend: +run\(path='p'\); without colour"):
        run("p", colour=3)  # type: ignore[call-arg]


def test_a_type_error_from_inside_is_passed_on() -> None:
    @checked
    def add(x: int) -> int:
        return x + "a"  # type: ignore[operator, no-any-return]

    with pytest.raises(TypeError, match="unsupported operand"):
        add(1)


@checked(error=ConfigError, but=("quick",))
@dataclass(frozen=True)
class Settings:
    size: int
    name: str = "a"

    @classmethod
    def of(cls, text: str) -> Settings:
        return cls(int(text))

    @staticmethod
    def double(x: int) -> int:
        return 2 * x

    def grown(self, by: int) -> Settings:
        return Settings(self.size + by)

    def quick(self, by: int) -> Any:
        return by


def test_a_class_has_its_constructor_and_public_methods_checked() -> None:
    assert Settings.of("3").grown(2) == Settings(5)
    assert Settings.double(4) == 8
    assert Settings(1).quick("anything") == "anything"  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(Settings(4))) == Settings(4)
    for wrong, words in (
        (lambda: Settings("3"), r"Settings\(size='3'\)"),  # type: ignore[arg-type]
        (lambda: Settings.of(3), r"of\(3\)"),  # type: ignore[arg-type]
        (lambda: Settings.double("a"), r"double\('a'\)"),  # type: ignore[arg-type]
        (lambda: Settings(1).grown(0.5), r"grown\(0\.5\)"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError, match=words):
            wrong()


def test_a_checked_function_is_itself_to_help_and_tracebacks() -> None:
    assert list(inspect.signature(run).parameters)[:2] == ["path", "count"]
    assert run.__code__.co_name == "run"
    assert Settings.grown.__qualname__ == "Settings.grown"


def test_an_array_of_numbers_is_taken_by_its_first_and_any_other_array_by_each() -> None:
    taken = taken_by(Sequence[int])
    assert taken is not None
    assert holds(taken, np.broadcast_to(np.int64(3), (10**12,)))  # a walk over each would not end
    assert holds(taken, np.zeros(0, np.int32))
    refused = [np.array(3), np.zeros((2, 2), np.int64), np.array([1.0]), np.array([1, "a"], object)]
    assert not any(holds(taken, array) for array in refused)
