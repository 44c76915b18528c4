"""Runs attention with functions of scores: `fusion::attention` and its lists, by the kernels of `burn_kernels`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import torch
from torch import Tensor

from burn_torch.backend.libtorch.generated.kernel_files import module_of
from burn_torch.backend.libtorch.generated.triton_kernels import generates
from burn_torch.core.dtype import DType
from burn_torch.core.frames import warn_user
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.reasons import FusionWarning, Unfusible
from burn_torch.fusion.rows.attention_row import attention, attention_backward, attention_blocks
from burn_torch.fusion.rows.row import body_of
from burn_torch.fusion.triton.scores import write_scores
from burn_torch.ops.op import Call, Candidate, Op

__all__ = ["MODIFIED", "flatten_captured", "functions_of", "modified_attention"]

_Functions: TypeAlias = tuple[object, object, object]
"""The score, its slope and what is seen as functions of Triton; None for one that the graphs do not have."""

_FLOATS: Final = (DType.F32, DType.F16, DType.BF16)
_MOST_COLUMNS: Final = 256
"""The largest width of a head."""
_TILE: Final = 128
"""Positions of the largest tile: one lies in one block."""


@functools.lru_cache(maxsize=1024)
def functions_of(score: str, seen: str, count: int, *, short: bool) -> _Functions | None:
    """The functions of two graphs, as Triton has them; None where it has no such operation."""
    try:
        text = write_scores(body_of(score) if score else None, body_of(seen) if seen else None, count, short=short)
    except Unfusible as fault:
        warn_user(
            FusionWarning,
            "attention computes the scores of all pairs, and writes them to memory",
            given=f"a function of scores that no kernel holds: {fault}",
            expected="operations of generated kernels on f32, f16, bf16 and whole numbers",
            mend="compute what it needs outside, in a tensor that it reads at indices",
        )
        return None
    module = module_of(text.name, text.source)
    functions = [getattr(module, name) if name in text.names else None for name in ("score", "slope", "seen")]
    return functions[0], functions[1], functions[2]


def flatten_captured(tensors: Sequence[Tensor]) -> tuple[Tensor | int, ...]:
    """Tensors as functions read them: each with its number of elements, and its sizes."""
    return tuple(entry for x in tensors for entry in (x.contiguous(), x.numel(), *x.shape))


def modified_attention(call: Call) -> Candidate | None:
    """Returns the kernel of a Call; None where its decomposition computes."""
    place = next((spec.place for spec in call.results if isinstance(spec, TensorSpec)), "")
    return MODIFIED[call.op](call) if generates(place) else None


def _takes(call: Call, first: int) -> bool:
    query, key, value = (call.tensor(first + n) for n in range(3))
    lists = call.specs[first + 5 if call.op is attention_backward else 4]
    block, tile = call.attrs["block"], _TILE if query.place.startswith("cuda") else 16
    captured = [spec for spec in call.specs[7 if call.op is attention else 9 :] if isinstance(spec, TensorSpec)]
    return (
        query.dtype in _FLOATS
        and query.shape[3] == value.shape[3] <= _MOST_COLUMNS
        and bool(query.numel and key.numel)
        and (not call.attrs["seen"] or lists is not None)
        and block % tile == 0
        and all(0 < spec.numel < 1 << 31 for spec in captured)
    )


def _attrs(call: Call) -> _Functions | None:
    attrs = call.attrs
    return functions_of(attrs["score"], attrs["seen"], attrs["count"], short=call.tensor(0).dtype is not DType.F32)


def _attention(call: Call) -> Candidate | None:
    functions = _attrs(call) if _takes(call, 0) else None
    if functions is None:
        return None
    from burn_kernels.attention import modified

    blind, block = bool(call.attrs["seen"]) and call.specs[3] is None, call.attrs["block"]

    def run(
        query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, lines: Tensor | None, columns: Tensor | None,
        scale: float, *captured: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        body = modified.Body(*functions, flatten_captured(captured), lines, columns, block)
        y, lse = modified.forward_modified(query, key, value, sinks, body, scale=float(scale))
        # the row says 0 of a query that sees nothing, where kernels say what the logarithm is
        return y, torch.where(lse == -math.inf, 0.0, lse) if blind else lse

    return run


def _backward(call: Call) -> Candidate | None:
    functions = _attrs(call) if _takes(call, 1) and any(call.attrs["live"]) else None
    if functions is None:
        return None
    from burn_kernels.attention import modified

    live, block = call.attrs["live"], call.attrs["block"]

    def run(
        g: Tensor, query: Tensor, key: Tensor, value: Tensor, y: Tensor, lse: Tensor, lines: Tensor | None,
        columns: Tensor | None, scale: float, *captured: Tensor,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        body = modified.Body(*functions, flatten_captured(captured), lines, columns, block)
        grads = modified.backward_modified(g, query, key, value, y, lse, body, scale=float(scale))
        return tuple(grad if used else None for grad, used in zip(grads, live, strict=True))

    return run


def _blocks(call: Call) -> Candidate | None:
    attrs = call.attrs
    functions, sizes = functions_of("", attrs["seen"], 0, short=True), attrs["sizes"]
    if functions is None or attrs["block"] & (attrs["block"] - 1) or max(sizes) >= 1 << 30:
        return None
    from burn_kernels.attention import modified

    return lambda first, *captured: modified.block_lists(
        functions[2], flatten_captured(captured), sizes, attrs["block"], like=first
    )


MODIFIED: Final[dict[Op, Callable[[Call], Candidate | None]]] = {
    attention: _attention,
    attention_backward: _backward,
    attention_blocks: _blocks,
}
"""By the row: makes the function of a Call."""
