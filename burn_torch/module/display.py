"""How modules print: Burn's nested tree.

Model {
  conv1: Conv2d {ch_in: 1, ch_out: 8, stride: [1, 1], params: 80}
  activation: Relu
  params: 80
}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

from burn_torch.core.checking import checked
from burn_torch.core.errors import ArgumentError
from burn_torch.module.param import Param
from burn_torch.module.running_state import RunningState
from burn_torch.module.tree import LEAVES, Tree, join_path, named_children
from burn_torch.tensor import Tensor

if TYPE_CHECKING:
    from burn_torch.module.module import Module

__all__ = ["Content", "DisplaySettings", "format_module"]


@dataclass(frozen=True)
class DisplaySettings:
    """Holds what `print(module)` shows.  `with_...` methods give changed settings."""

    show_param_id: bool = False
    show_all_attributes: bool = False
    show_num_parameters: bool = True
    new_line_after_attribute: bool = True
    indentation_size: int = 2
    level: int = 1
    shared: Mapping[int, list[str]] | None = None
    """The modules and parameters that stand in several fields, by identity, with their paths."""
    chosen: frozenset[str] = frozenset()
    """The names of settings that the caller chose; `inherit` may replace the others, which are defaults."""

    def __post_init__(self) -> None:
        chosen = {field.name for field in fields(self)[:5] if getattr(self, field.name) != field.default}
        object.__setattr__(self, "chosen", self.chosen | chosen)

    def _with(self, name: str, value: object) -> DisplaySettings:
        return replace(self, **{name: value, "chosen": self.chosen | {name}})  # type: ignore[arg-type]  # names of fields

    def with_show_param_id(self, flag: bool) -> DisplaySettings:
        """Returns whether parameters show their ids."""
        return self._with("show_param_id", flag)

    def with_show_all_attributes(self, flag: bool) -> DisplaySettings:
        """Returns whether a module's own choice of content is ignored and every field shown."""
        return self._with("show_all_attributes", flag)

    def with_show_num_parameters(self, flag: bool) -> DisplaySettings:
        """Returns whether each module shows how many parameters it has."""
        return self._with("show_num_parameters", flag)

    def with_new_line_after_attribute(self, flag: bool) -> DisplaySettings:
        """Returns whether a module with modules inside takes a line for each of them."""
        return self._with("new_line_after_attribute", flag)

    def with_indentation_size(self, size: int) -> DisplaySettings:
        """Spaces a level."""
        return self._with("indentation_size", size)

    def inherit(self, top: DisplaySettings) -> DisplaySettings:
        """These settings with what `top` has chosen in their place, at its level: the settings of a module inside."""
        chosen = {name: getattr(top, name) for name in top.chosen}
        return replace(self, **chosen, level=top.level, shared=top.shared, chosen=self.chosen | top.chosen)

    def level_up(self) -> DisplaySettings:
        """The settings of what stands one level further in."""
        return replace(self, level=self.level + 1)


@checked
class Content:
    """Holds what one module shows: names and values, in order."""

    def __init__(self, settings: DisplaySettings, type_name: str) -> None:
        self.settings = settings
        self.type_name = type_name
        self.attributes: list[tuple[str, Any]] = []
        self.single: str | None = None
        """The text that stands for the whole module, if any."""

    def set_top_level_type(self, name: str) -> Self:
        """Another name than that of the class."""
        self.type_name = name
        return self

    def add(self, name: str, value: object) -> Self:
        """An attribute: a number, a text, a module, a parameter, a list.

        Raises: ArgumentError beside a value that stands for the whole module.
        """
        if self.single is not None:
            raise _beside_single("add", [name])
        self.attributes.append((name, value))
        return self

    def add_single(self, value: object) -> Self:
        """A value without a name."""
        return self.add("", value)

    def add_debug_attribute(self, name: str, value: object) -> Self:
        """An attribute as `repr` writes it: a text in quotes, a dataclass with its fields."""
        return self.add(name, repr(value))

    def add_formatted(self, value: object) -> Self:
        """A value that stands for the whole module, as `str` writes it.

        Raises: ArgumentError beside other attributes.
        """
        if self.attributes:
            raise _beside_single("add_formatted", [name for name, _ in self.attributes])
        self.single = str(value)
        return self

    def optional(self) -> Self | None:
        """The content; None where it holds nothing."""
        return self if self.attributes or self.single is not None else None


def _beside_single(method: str, names: list[str]) -> ArgumentError:
    return ArgumentError(
        f"Content.{method}: one value stands for the whole module",
        given=f"attributes {', '.join(names)} beside a formatted value",
        expected="add_formatted alone, or any number of attributes",
        mend="add the value by a name: content.add(name, value)",
    )


def format_module(module: Module, settings: DisplaySettings) -> str:
    """The nested tree of a module as text."""
    own = module.custom_settings()
    if own is not None:
        settings = own.inherit(settings)
    content = Content(settings, type(module).__name__)
    custom = None if settings.show_all_attributes else module.custom_content(content)
    if custom is None:
        content = Content(settings, type(module).__name__)
        for name in module.__module_fields__:
            content.add(name, module._fields()[name])
    if content.single is not None:
        return content.single
    if settings.shared is None:
        settings = replace(settings, shared=_shared_nodes(module))
    attributes = content.attributes
    params = module.num_params()
    if params and settings.show_num_parameters:
        attributes = [*attributes, ("params", params)]
    if not attributes:
        return content.type_name
    inner = settings.level_up()
    lines = [f"{name}: {_text(value, inner)}" if name else _text(value, inner) for name, value in attributes]
    if settings.new_line_after_attribute and custom is None:
        pad = " " * (settings.indentation_size * settings.level)
        end = " " * (settings.indentation_size * (settings.level - 1))
        return f"{content.type_name} {{\n" + "".join(f"{pad}{line}\n" for line in lines) + f"{end}}}"
    return f"{content.type_name} {{{', '.join(lines)}}}"


def _shared_nodes(module: Module) -> dict[int, list[str]]:
    paths: dict[int, list[str]] = {}

    def walk(value: object, path: str) -> None:
        for name, child in named_children(value):
            where = join_path(path, name)
            if isinstance(child, Tree | Param):
                known = paths.setdefault(id(child), [])
                known.append(where)
                if len(known) > 1:
                    continue
            if not isinstance(child, LEAVES):
                walk(child, where)

    walk(module, "")
    return {node: known for node, known in paths.items() if len(known) > 1}


def _text(value: object, settings: DisplaySettings) -> str:
    paths = (settings.shared or {}).get(id(value))
    return _alone(value, settings) + (f" (one object: {', '.join(paths)})" if paths else "")


def _shows_itself(value: object) -> bool:
    """Returns whether a value is a module: of all trees these say what they show."""
    return isinstance(value, Tree) and hasattr(type(value), "custom_content")


def _alone(value: Any, settings: DisplaySettings) -> str:
    if _shows_itself(value):
        return format_module(value, settings)
    if isinstance(value, Param):
        ident = f"id: {value.id}, " if settings.show_param_id else ""
        return f"Param {{{ident}rank: {len(value.shape)}, shape: {list(value.shape)}}}"
    if isinstance(value, RunningState):
        return f"RunningState {{shape: {list(value.value().shape)}}}"
    if isinstance(value, Tensor):
        return f"Tensor {{rank: {value.ndim}, shape: {list(value.shape)}, dtype: {value.dtype}}}"
    if isinstance(value, tuple | list):
        if any(_shows_itself(item) or isinstance(item, Param) for item in value):
            pad = " " * (settings.indentation_size * settings.level)
            end = " " * (settings.indentation_size * (settings.level - 1))
            inner = settings.level_up()
            lines = (f"{pad}{i}: {_text(item, inner)}\n" for i, item in enumerate(value))
            return "[\n" + "".join(lines) + f"{end}]"
        return "[" + ", ".join(_text(item, settings) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
