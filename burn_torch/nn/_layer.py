"""Defines what layers share: the checks of their configurations, and the note that they leave on an error of their
forward.
"""

from __future__ import annotations

from typing import Any

from burn_torch.config.rules import Rules
from burn_torch.core.ambient import first_element
from burn_torch.core.errors import BurnTorchError, ShapeError
from burn_torch.module import Content, DisplaySettings, Module, draw
from burn_torch.module.initializer import Initializer
from burn_torch.tensor import Tensor

__all__ = ["KAIMING", "XAVIER", "Rules", "drawn_like", "in_layer", "inline", "require_ndim"]

KAIMING = Initializer.KaimingUniform(gain=3**-0.5, fan_out_only=False)
"""Even in +-1 / sqrt(fan_in): the default of Burn's and PyTorch's linear and convolution layers."""

XAVIER = Initializer.XavierNormal(gain=1.0)
"""Burn's default for recurrent layers: as much variance forwards as backwards."""


def in_layer(err: BurnTorchError, layer: Module) -> BurnTorchError:
    """The error with a note of the layer it rose in: "in Linear(d_input=3, d_output=4, bias=True)"."""
    content = layer.custom_content(Content(DisplaySettings(), type(layer).__name__))
    fields = [] if content is None else content.attributes
    shown_fields = (f"{name}={value.spec if isinstance(value, Tensor) else value}" for name, value in fields)
    err.add_note(f"in {type(layer).__name__}({', '.join(shown_fields)})")
    return err


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


def inline(layer: Module, content: Content) -> Content:
    """All fields of a layer on one line: what layers without a choice of their own show."""
    for name in layer.__module_fields__:
        content.add(name.rstrip("_"), getattr(layer, name))
    return content


def drawn_like(layer: Module, row: Any, numbers: tuple[float, ...], x: Tensor) -> Tensor:
    """Random numbers of x's shape and type, from the step scope's key for this layer: a constant of the tape."""
    spec = x.spec
    attrs = {"shape": spec.shape, "dtype": spec.dtype, "place": spec.place, "start": first_element(spec.shape)}
    made: Tensor = row.run(x.backend, Tensor, (*numbers, *draw(layer)), attrs)
    return made
