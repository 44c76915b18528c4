"""Defines what layers share: the checks of their configurations, and the note that they leave on an error of their
forward.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, ForwardRef, Generic, TypeVar, get_args

from burn_torch.backend.base import computes_at_once
from burn_torch.config import Config
from burn_torch.config.rules import Rules
from burn_torch.core.ambient import first_element
from burn_torch.core.checking import on_error
from burn_torch.core.errors import BurnTorchError, MovedError, ShapeError
from burn_torch.module import Content, DisplaySettings, Module, draw
from burn_torch.module.initializer import Initializer
from burn_torch.tensor import Device, Tensor

__all__ = [
    "KAIMING",
    "XAVIER",
    "InlineLayer",
    "ParameterlessConfig",
    "RecurrentConfig",
    "Rules",
    "drawn_like",
    "fields_of",
    "in_layer",
    "noting_layer",
    "range_on_host",
    "require_ndim",
]

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=Module)

KAIMING = Initializer.KaimingUniform(gain=3**-0.5, fan_out_only=False)
"""Even in +-1 / sqrt(fan_in): the default of Burn's and PyTorch's linear and convolution layers."""

XAVIER = Initializer.XavierNormal(gain=1.0)
"""Burn's default for recurrent layers: as much variance forwards as backwards."""


# -- configurations -----------------------------------------------------------------------------------------
class ParameterlessConfig(Config, Generic[M]):
    """Base of the configuration of a layer without parameters, whose fields are those of the layer.

    class EluConfig(ParameterlessConfig["Elu"]): ...        `init` makes an Elu, which may be declared further down
    """

    def __init_subclass__(cls, **settings: Any) -> None:
        for base in cls.__dict__.get("__orig_bases__", ()):
            for layer in get_args(base):
                cls.init = _init_of(cls, layer.__forward_arg__)  # type: ignore[method-assign]  # one for each class
        super().__init_subclass__(**settings)

    if TYPE_CHECKING:

        def init(self, device: Device | None = None) -> M: ...


def _init_of(cls: type[Config], layer: str) -> Callable[..., Any]:
    def init(self: Config, device: Device | None = None) -> Any:
        kind = vars(sys.modules[cls.__module__])[layer]
        return kind(*[getattr(self, name) for name in kind.__module_fields__])

    init.__module__, init.__qualname__ = cls.__module__, f"{cls.__qualname__}.init"
    init.__doc__ = f"The {layer}; it has no parameters, so the device does not matter."
    init.__annotations__["return"] = ForwardRef(layer, module=cls.__module__)
    return init


class RecurrentConfig(Config):
    """Holds what the configurations of recurrent layers check: their sizes, and a bound of the state."""

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "d_input", "d_hidden").positive("clip").stop()


class InlineLayer(Module):
    """A layer that shows all its fields on one line."""

    def custom_content(self, content: Content) -> Content:
        """All fields, as they stand."""
        for name in self.__module_fields__:
            value = getattr(self, name)
            shown = value.value if isinstance(value, Enum) else str(value) if isinstance(value, Config) else value
            content.add(name.rstrip("_"), shown)
        return content


# -- errors -------------------------------------------------------------------------------------------------
def in_layer(err: BurnTorchError, layer: Module) -> BurnTorchError:
    """The error with a note of the layer it rose in: "in Linear(d_input=3, d_output=4, bias=True)"."""
    try:
        content = layer.custom_content(Content(DisplaySettings(), type(layer).__name__))
    except MovedError:  # a compiled function has taken the layer over, as the error says
        return err
    fields = [] if content is None else content.attributes
    shown_fields = (f"{name}={value.spec if isinstance(value, Tensor) else value}" for name, value in fields)
    note = f"in {type(layer).__name__}({', '.join(shown_fields)})"
    if note not in getattr(err, "__notes__", ()):
        err.add_note(note)
    return err


def noting_layer(method: F) -> F:
    """Marks a public method of a layer, whose errors get a note of the layer."""
    return on_error(in_layer)(method)


def require_ndim(x: Tensor, layer: Module, expected: str) -> None:
    """Raises: ShapeError unless x has the axes that `expected` names, such as "(batch, seq, d_model)"."""
    if x.ndim != expected.count(",") + 1:
        shown = (
            str(x.spec) if isinstance(x, Tensor) else f"{type(x).__module__}.{type(x).__qualname__} {tuple(x.shape)}"
        )
        raise in_layer(
            ShapeError(
                f"{type(layer).__name__}: the input has {x.ndim} axes",
                given=shown,
                expected=expected,
                mend="reshape it, or insert axes with unsqueeze_dim",
            ),
            layer,
        )


# -- values -------------------------------------------------------------------------------------------------
def fields_of(config: Config) -> dict[str, Any]:
    """The values of a configuration by their names, as they stand."""
    return {name: getattr(config, name) for name in inspect.signature(type(config)).parameters}


def drawn_like(layer: Module, row: Any, numbers: tuple[float, ...], x: Tensor) -> Tensor:
    """Random numbers of x's shape and type, from the step scope's key for this layer: a constant of the tape."""
    spec = x.spec
    attrs = {"shape": spec.shape, "dtype": spec.dtype, "place": spec.place, "start": first_element(spec.shape)}
    drawn: Tensor = row.run(x.backend, Tensor, (*numbers, *draw(layer)), attrs)
    return drawn


def range_on_host(x: Tensor) -> tuple[float, float] | None:
    """The least and the largest element, where they can be read at once: on the host, of a value that is no trace.

    None elsewhere, and for a tensor without elements; a NaN makes both NaN.
    """
    if x.spec.place != "cpu" or not x.spec.numel or not computes_at_once(x.backend):
        return None
    plain = x.no_grad()
    return float(plain.min()), float(plain.max())
