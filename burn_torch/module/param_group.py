"""ParamGroup: some parameters of a model, told by their paths or identities."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, final

from burn_torch.core.checking import checked
from burn_torch.core.errors import ArgumentError, ConfigError
from burn_torch.core.wording import described
from burn_torch.module.param import ParamId

if TYPE_CHECKING:
    from burn_torch.module.module import Module

__all__ = ["ParamGroup", "no_members", "require_group"]

Test = Callable[[ParamId | None, str], bool]


@checked(error=ConfigError)
@final
class ParamGroup:
    """Some parameters of a model, told by path or id.

        ParamGroup.from_path("encoder")              everything below encoder, and encoder itself
        ParamGroup.from_regex(r"\\.bias$")            paths in which it is found, as Burn's
        ParamGroup.from_predicate("norm")            paths that contain a text; or a function of the path
        ParamGroup.from_ids([param.id])
        ParamGroup.all()

    Groups combine: `a | b` (`fuse`) has the parameters of both, `a - b` (`exclude`) those of a that b has not.
    `serialize` writes a group as JSON can hold it, and `deserialize` reads it.
    """

    __slots__ = ("_rule", "_test", "_values")

    def __init__(self, rule: str, values: tuple[object, ...] = ()) -> None:
        if rule not in _RULES:
            raise ConfigError(
                "ParamGroup: no such rule",
                given=f"{rule!r:.60}",
                expected=f"one of {', '.join(_RULES)}",
                mend="ParamGroup.from_path(path), .from_regex(pattern), .from_ids(ids), .all()",
            )
        self._rule: Final = rule
        self._values: Final = values
        self._test: Final = _RULES[rule](*values)

    @staticmethod
    def all() -> ParamGroup:
        """Every parameter."""
        return ParamGroup("all")

    @staticmethod
    def from_ids(ids: Iterable[ParamId]) -> ParamGroup:
        """The parameters with these ids."""
        return ParamGroup("ids", tuple(ids))

    @staticmethod
    def from_path(path: str) -> ParamGroup:
        """The parameter at a path, or all below a module; Burn takes the path of a parameter alone."""
        return ParamGroup.from_paths([path])

    @staticmethod
    def from_paths(paths: Iterable[str]) -> ParamGroup:
        """The parameters at, or below, any of some paths."""
        return ParamGroup("paths", tuple(paths))

    @staticmethod
    def from_predicate(predicate: str | Callable[[str], bool]) -> ParamGroup:
        """The parameters whose path contains a text, or whose path a function says yes to."""
        return ParamGroup.from_predicates([predicate])

    @staticmethod
    def from_predicates(predicates: Iterable[str | Callable[[str], bool]]) -> ParamGroup:
        """The parameters whose path contains all of some texts, and which all of some functions say yes to."""
        return ParamGroup("predicates", tuple(predicates))

    @staticmethod
    def from_any_predicates(predicates: Iterable[str | Callable[[str], bool]]) -> ParamGroup:
        """The parameters of any of some texts and functions."""
        return ParamGroup("any", tuple(map(ParamGroup.from_predicate, predicates)))

    @staticmethod
    def from_regex(pattern: str) -> ParamGroup:
        """The parameters in whose path a regular expression is found; `^` and `$` bind it to the path's ends.

        Raises: ConfigError for what is no regular expression.
        """
        return ParamGroup.from_regexes([pattern])

    @staticmethod
    def from_regexes(patterns: Iterable[str]) -> ParamGroup:
        """The parameters in whose path all of some regular expressions are found."""
        return ParamGroup("regexes", tuple(patterns))

    @staticmethod
    def from_any_regexes(patterns: Iterable[str]) -> ParamGroup:
        """The parameters in whose path any of some regular expressions is found."""
        return ParamGroup("any", tuple(map(ParamGroup.from_regex, patterns)))

    def fuse(self, other: ParamGroup) -> ParamGroup:
        """The parameters of both."""
        return ParamGroup("any", (self, other))

    def exclude(self, other: ParamGroup) -> ParamGroup:
        """The parameters that the other one has not."""
        return ParamGroup("without", (self, other))

    def matches(self, ident: ParamId | None, path: str) -> bool:
        """Returns whether a parameter belongs to it; None for one whose identity is unknown."""
        return self._test(ident, path)

    def ids_from_module(self, module: Module) -> list[ParamId]:
        """The ids of its parameters in a model."""
        return [param.id for path, param in module.named_params() if self.matches(param.id, path)]

    # -- files --------------------------------------------------------------------------------------------
    def serialize(self) -> dict[str, object]:
        """The group as JSON can hold it: its rule, with texts, or with groups in the same form.

        Raises: ConfigError for a group that a Python function tells, which no file can hold.
        """
        return {self._rule: [self._write_value(value) for value in self._values]}

    @staticmethod
    def deserialize(written: Mapping[str, object]) -> ParamGroup:
        """The group that `serialize` wrote.  Raises: ConfigError for anything else."""
        rule, values = next(iter(written.items()), (None, None))
        if len(written) != 1 or rule not in _RULES or not isinstance(values, list | tuple):
            raise _not_a_group(written)
        try:
            return ParamGroup(str(rule), tuple(_read(rule, value) for value in values))
        except (TypeError, ValueError) as err:
            if isinstance(err, ConfigError):
                raise
            raise _not_a_group(written) from None

    def _write_value(self, value: object) -> object:
        if isinstance(value, ParamGroup):
            return value.serialize()
        if callable(value):
            raise ConfigError(
                "ParamGroup.serialize: a Python function cannot be written",
                given=f"the predicate {_name_of(value)}",
                expected="a group of paths, texts, regular expressions or ids",
                mend="say it by a text or a regular expression: ParamGroup.from_predicate('norm')",
            )
        return str(value)

    def __reduce__(self) -> tuple[object, ...]:
        return ParamGroup, (self._rule, self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ParamGroup) and (self._rule, self._values) == (other._rule, other._values)

    def __hash__(self) -> int:
        return hash((self._rule, self._values))

    __or__ = fuse
    __sub__ = exclude

    def __repr__(self) -> str:
        if self._rule == "all":
            return "all"
        if self._rule == "ids":
            return f"{len(self._values)} ids"
        words = [_name_of(value) if callable(value) else str(value) for value in self._values]
        return _JOINED_BY[self._rule].join(words)


def require_group(what: str, group: object) -> ParamGroup:
    """Returns the group.  Raises: ArgumentError for what is none."""
    if isinstance(group, ParamGroup):
        return group
    raise ArgumentError(
        f"{what}: parameters are told by a group",
        given=described(group),
        expected="a ParamGroup",
        mend="ParamGroup.from_path('encoder'), .from_regex(pattern), .from_predicate(text), .from_ids(ids)",
    )


def no_members(what: str, group: ParamGroup, paths: list[str]) -> ArgumentError:
    """The error for a group that has nothing of a module, whose paths it shows."""
    shown = ", ".join(paths[:6]) + (f" and {len(paths) - 6} more" if len(paths) > 6 else "")
    return ArgumentError(
        f"{what}: the module has no parameter of this group",
        given=f"the group {group!r}",
        expected=f"one that has any of {shown}" if paths else "a module with parameters",
        mend="look at the paths: model.named_params()",
    )


# -- rules ------------------------------------------------------------------------------------------------
def _all(*values: object) -> Test:
    if values:
        raise TypeError("it has no values")
    return lambda ident, path: True


def _ids(*ids: ParamId) -> Test:
    wanted = frozenset(ids)
    return lambda ident, path: ident in wanted


def _paths(*paths: str) -> Test:
    return lambda ident, path: any(path == one or path.startswith(f"{one}.") for one in paths)


def _predicates(*predicates: str | Callable[[str], bool]) -> Test:
    return lambda ident, path: all(bool(one(path)) if callable(one) else one in path for one in predicates)


def _regexes(*patterns: str) -> Test:
    try:
        compiled = [re.compile(text) for text in patterns]
    except re.error as err:
        raise ConfigError(
            "ParamGroup: this is not a regular expression",
            given=f"{err.pattern!r}: {err.msg}",
            expected="a regular expression, which is searched for in paths",
            mend=r"escape dots, as in r'^blocks\.0\.', or use from_path('blocks.0')",
        ) from None
    return lambda ident, path: all(one.search(path) for one in compiled)


def _any(*groups: ParamGroup) -> Test:
    return lambda ident, path: any(group.matches(ident, path) for group in groups)


def _without(group: ParamGroup, other: ParamGroup) -> Test:
    return lambda ident, path: group.matches(ident, path) and not other.matches(ident, path)


_RULES: Final[Mapping[str, Callable[..., Test]]] = {
    "all": _all,
    "ids": _ids,
    "paths": _paths,
    "predicates": _predicates,
    "regexes": _regexes,
    "any": _any,
    "without": _without,
}
_JOINED_BY: Final = {
    "paths": ", ",
    "predicates": " and ",
    "regexes": " and ",
    "any": " or ",
    "without": " without ",
}


def _read(rule: object, value: object) -> object:
    if rule in ("any", "without") and isinstance(value, Mapping):
        return ParamGroup.deserialize(value)
    if not isinstance(value, str) or rule in ("any", "without"):
        raise TypeError("it is not what the rule takes")
    return ParamId.parse(value) if rule == "ids" else value


def _not_a_group(written: object) -> ConfigError:
    return ConfigError(
        "ParamGroup.deserialize: this is not a group that serialize wrote",
        given=described(written),
        expected='one rule with its values, such as {"paths": ["encoder"]}; rules: ' + ", ".join(_RULES),
        mend="write it with group.serialize()",
    )


def _name_of(predicate: object) -> str:
    return getattr(predicate, "__name__", "a predicate")
