"""Checks the `pointwise` template of a user's row where it is declared: kernels are written from it much later."""

from __future__ import annotations

import ast
import re

from burn_torch.core.errors import ArgumentError, explain

__all__ = ["require_template"]

_MOST = 8


def require_template(name: str, template: str, inputs: list[str]) -> None:
    """Raises: ArgumentError for a template that is no expression of the inputs."""
    fault = _fault(template, inputs)
    if fault is not None:
        raise ArgumentError(
            explain(
                f"{name}: its pointwise template is no expression of its inputs",
                given=f"pointwise={template!r}: {fault}",
                expected="an expression of "
                + (", ".join(f"{{{i}}} ({x})" for i, x in enumerate(inputs)) or "numbers")
                + ', as in "exp({0}) + 1.0"',
                mend="leave pointwise out of a row that is more than that: it runs as a library's operation then",
            )
        )


def _fault(template: str, inputs: list[str]) -> str | None:
    named = {int(n) for n in re.findall(r"\{(\d+)\}", template)}
    unknown = sorted(n for n in named if n >= len(inputs))
    if unknown:
        return f"{{{unknown[0]}}} is none of {len(inputs)} inputs"
    if len(inputs) > _MOST:
        return f"{len(inputs)} inputs, of which {_MOST} may be"
    try:
        ast.parse(re.sub(r"\{(\d+)\}", r"_\1", template).strip(), mode="eval")
    except (SyntaxError, ValueError) as err:
        return getattr(err, "msg", None) or str(err)
    return None
