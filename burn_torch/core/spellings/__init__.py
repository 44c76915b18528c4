"""Names of PyTorch, numpy and Rust's Burn, and what they are called here: the hints of missing names.

A class takes the names as descriptors that raise, a package looks into its table in `__getattr__`: so a name that is
there costs nothing, `hasattr` stays false, and `dir` lists none of them.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from burn_torch.core import errors

__all__ = [
    "Named",
    "attach_spellings",
    "hint",
    "hint_missing",
    "missing_from_package",
    "missing_name",
    "read_tables",
    "refuse_calls",
]


def read_tables(file: str, *sections: str) -> list[dict[str, str]]:
    """Reads tables of names from a file beside this one: after `[section]`, lines of `names = what to write here`.

    Names may take several lines; `{name}` stands for each of them.
    """
    tables: dict[str, dict[str, str]] = {}
    names: list[str] = []
    for line in (Path(__file__).parent / file).read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            table = tables[line.strip("[]")] = {}
        elif not line.startswith("#"):
            listed, equals, instead = line.partition("= ")
            names += listed.split()
            if equals:
                table |= {name: instead.replace("{name}", name) for name in names}
                names = []
    return [tables[section] for section in sections]


def hint(name: str, table: Mapping[str, str], twin: str) -> str | None:
    """Returns what to write for a name; None for one that neither the table nor torch's `twin`, nor numpy, knows.

    twin    where torch has such names: "Tensor", "nn", "optim", "", "utils.data"
    """
    known = table.get(name)
    if known is not None:
        return known
    base = name.removesuffix("_")
    if name.startswith("_"):
        return None
    if not _is_of_torch(twin, name):
        return _hint_of_numpy(name) if twin in ("", "Tensor") else None
    if base != name:  # torch's form in place
        return f"tensors never change: x = {table.get(base, f'x.{base}(...)')}"
    for part, words in _FAMILIES.items():
        if part in name:
            return words
    where = f"torch.{twin}.{name}" if twin else f"torch.{name}"
    return (
        f"{where} has no counterpart here; write it with operations of Tensor, or as an operation of your own"
        " (burn_torch.op); without gradients torch itself does it: Tensor.from_torch(function(x.into_torch()))"
    )


def _hint_of_numpy(name: str) -> str | None:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if hasattr(numpy, name):
        call, back = f"np.{name}(np.asarray(x), ...)", "Tensor.from_data(array, device) brings an array back"
        return f"np.{name} has no counterpart here; {call} computes on the host, without gradients, and {back}"
    return f"np.asarray(x).{name}, of numpy's array" if hasattr(numpy.ndarray, name) else None


def missing_name(owner: str, name: str, instead: str) -> AttributeError:
    """The error of a name that is spelt otherwise here."""
    what = f"{owner} has no attribute {name!r}"
    return AttributeError(errors.explain(what, given=name, expected="a name of burn_torch", mend=instead))


def missing_from_package(package: str, name: str, table: Mapping[str, str], twin: str) -> AttributeError:
    """The error of a package that has no such name, with a hint where there is one."""
    instead = hint(name, table, twin)
    if instead is None:
        return AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
    return missing_name(f"module {package!r}", name, instead)


def hint_missing(scope: dict[str, Any], table: Mapping[str, str], torch: str) -> None:
    """Gives a package a `__getattr__` that answers every missing name, with a hint where there is one.

    Set at run time: a type checker that saw it would take every name for one of the package.

    torch   torch's package of such names: "nn", "optim", "utils.data"
    """

    def answer(name: str) -> NoReturn:
        raise missing_from_package(scope["__name__"], name, table, torch)

    scope["__getattr__"] = answer


def refuse_calls(package: str, instead: str) -> None:
    """Makes a package that torch has as a function say what to write where it is called."""

    class Called(types.ModuleType):
        def __call__(self, *args: object, **kwargs: object) -> NoReturn:
            what = f"{package} is a package, not a function"
            call = f"{package}(...)"
            raise errors.ArgumentError(errors.explain(what, given=call, expected="a name of it", mend=instead))

    sys.modules[package].__class__ = Called


class Named(type):
    """A class of which `dir` lists what is there, and not the spellings that raise."""

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if not isinstance(_attribute_of(cls, name), _Spelling)]


class _Spelling:
    """A name that is spelt otherwise here: read, of a class or of an instance, it is an AttributeError that says so."""

    __slots__ = ("name", "table", "twin")

    def __init__(self, name: str, table: Mapping[str, str], twin: str) -> None:
        self.name: Final = name
        self.table: Final = table
        self.twin: Final = twin

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        kind, instead = type(instance) if owner is None else owner, hint(self.name, self.table, self.twin)
        assert instead is not None, "a name of the table, of torch or of numpy has a hint"
        raise missing_name(f"{kind.__name__!r} object", self.name, instead)


def attach_spellings(cls: type, table: Mapping[str, str], *, twin: type | None = None) -> None:
    """Gives a class the names of a table, of its twin in torch and of numpy's arrays and functions, that it has not."""
    names = [*table]
    if twin is not None:
        numpy = sys.modules["numpy"]
        functions = [name for name, one in vars(numpy).items() if callable(one) and not isinstance(one, type)]
        names += [name for name in (*dir(twin), *dir(numpy.ndarray), *functions) if not name.startswith("_")]
    own = {name for base in cls.__mro__ for name in vars(base)}
    for name in dict.fromkeys(names):
        if name not in own:
            setattr(cls, name, _Spelling(name, table, "" if twin is None else "Tensor"))


def _attribute_of(cls: type, name: str) -> object:
    return next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)


def _is_of_torch(twin: str, name: str) -> bool:
    place: Any = sys.modules.get("torch")
    for part in filter(None, twin.split(".")):
        place = getattr(place, part, None)
    return place is not None and hasattr(place, name)


_FAMILIES: Final[Mapping[str, str]] = {
    "sparse": "there are no sparse tensors; keep values and indices, and use gather, scatter and select_assign",
    "quantize": "x.quantize_dynamic(QuantScheme(QuantValue.Q8S)) is a QuantizedTensor; fake_quantize trains with it",
    "storage": "a tensor has no storage of its own; x.into_torch() shares its memory",
    "complex": "ComplexTensor(real, imag) is a complex number of two real tensors",
    "autocast": "burn_torch computes in the element types that tensors have; compile(fn, precision='bfloat16')",
    "rng_state": "burn_torch.seed(n) starts the default key again; a StepScope has a key of its own",
    "hook": "there are no hooks: a function that is called with the value in forward does the same",
}
"""Names of torch by a part of them."""
