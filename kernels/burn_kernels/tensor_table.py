"""The addresses of the tensors of an optimizer's step: a table on the device, so that one launch reaches them all.

A row a chunk: its length, and the addresses of the chunk in each tensor that belongs to it.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from burn_kernels.errors import KernelArgumentError, KernelDTypeError, KernelShapeError
from burn_kernels.launch import check
from burn_kernels.operators import Operator

__all__ = ["CHUNK", "Table", "Tensors", "recall", "staging_for", "step_operator", "table"]

CHUNK = 8_192
"""Elements of a chunk: large enough that its table row is nothing beside it, small enough to spread few tensors."""

Tensors = Sequence[torch.Tensor]
Group = list[torch.Tensor]
V = TypeVar("V")


@dataclass(frozen=True)
class Table:
    """The address of each chunk of each tensor; valid while no tensor in it moves.

    `inputs` are parameters, gradients and states; `results` new parameters and states: for a step in place the same
    tensors.
    """

    inputs: tuple[list[torch.Tensor], ...]
    results: tuple[list[torch.Tensor], ...]
    copies: list[torch.Tensor] | None
    chunks: torch.Tensor
    aligned: bool

    @functools.cached_property
    def kinds(self) -> str:
        """The element types beside that of the parameters, as flags of a key."""
        groups = zip("gs", [group for group in self.inputs[1:3] if group], strict=False)
        words = [f"{letter}={str(group[0].dtype).removeprefix('torch.')}" for letter, group in groups]
        return " ".join([*words, f"copy={str(self.copies[0].dtype).removeprefix('torch.')}"] if self.copies else words)


def table(
    params: Tensors,
    grads: Tensors,
    *states: Tensors,
    copies: Tensors | None = None,
    in_place: bool = False,
    staging: torch.Tensor | None = None,
) -> Table:
    """Collects what a step reads and writes; `copies` receive the new parameters in their own type (bfloat16, say).

    staging: pinned memory from `staging_for`, from which the table is copied without waiting: for a step that is
    captured in a CUDA graph, which copies from there at each replay.  It must live and stay as it is as long.

    Raises: KernelShapeError, KernelDTypeError, KernelDeviceError where the tensors do not belong together, and
    KernelArgumentError where one does not lie in order.
    """
    named = {"params": params, "grads": grads} | {f"states[{i}]": state for i, state in enumerate(states)}
    if copies is not None:
        named["copies"] = copies
    groups = _groups("table", **named)
    loose = [f"{name}[{i}] with strides {x.stride()}" for name, group in zip(named, groups, strict=True)
             for i, x in enumerate(group) if not x.is_contiguous()]  # fmt: skip
    if loose:
        raise KernelArgumentError(
            "table: tensors that do not lie in order",
            given=", ".join(loose),
            expected="contiguous tensors: the kernel goes by addresses",
            mend="keep parameters, gradients and states as x.contiguous() makes them",
        )
    copied = None if copies is None else groups.pop()
    results = [groups[0], *groups[2:]]
    if not in_place:
        results = [[torch.empty_like(x) for x in group] for group in results]
    rows, aligned = _chunks(groups, results, copied)
    if staging is not None:
        rows = staging.copy_(rows)
    chunks = rows.to(groups[0][0].device, non_blocking=staging is not None) if groups[0] else rows
    return Table(tuple(groups), tuple(results), copied, chunks, aligned)


def staging_for(params: Tensors) -> torch.Tensor:
    """Pinned memory for the table of these parameters: what `table(staging=...)` takes."""
    rows = sum(-(-p.numel() // CHUNK) for p in params)
    return torch.empty((rows, 9), dtype=torch.int64, pin_memory=True)


def _chunks(inputs: Sequence[Tensors], results: Sequence[Tensors], copies: Tensors | None) -> tuple[torch.Tensor, bool]:
    # a row: length, then addresses of p g m v, of the new p m v, and of the copy; 0 where there is none
    columns: list[Tensors | None] = [*inputs[:4], *[None] * (4 - len(inputs)), *results, *[None] * (3 - len(results))]
    columns.append(copies)
    rows: list[list[int]] = []
    bits = 0
    for index, param in enumerate(inputs[0]):
        here = [(0, 0) if c is None else (c[index].data_ptr(), c[index].element_size()) for c in columns]
        for address, _ in here:
            bits |= address
        rows += [
            [min(CHUNK, param.numel() - start), *(address + start * size for address, size in here)]
            for start in range(0, param.numel(), CHUNK)
        ]
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 9), bits % 16 == 0


def _groups(op: str, **named: Tensors) -> list[list[torch.Tensor]]:
    """The groups as lists, of one length, shapes that agree, each of one float type, all on one device."""
    groups = {name: list(group) for name, group in named.items()}
    lengths = {name: len(group) for name, group in groups.items()}
    if len(set(lengths.values())) > 1:
        raise KernelShapeError(
            f"{op}: the groups have different lengths",
            given=", ".join(f"{length} {name}" for name, length in lengths.items()),
            expected="one tensor of each for each parameter",
            mend="leave out parameters without a gradient from all groups",
        )
    for name, group in groups.items():
        kinds = {x.dtype for x in group}
        if len(kinds) > 1 or not all(kind.is_floating_point for kind in kinds):
            raise KernelDTypeError(
                f"{op}: {name} are not of one float type",
                given=", ".join(sorted(str(kind) for kind in kinds)),
                expected="one float type",
                mend="make one table for each type",
            )
    for index, param in enumerate(groups["params"]):
        here = {f"{name}[{index}]": group[index] for name, group in groups.items()}
        check(op, {**here, "params[0]": groups["params"][0]}, dict.fromkeys(here, param.shape), alike=[])
    return list(groups.values())


# -- operators ---------------------------------------------------------------------------------------
_TABLES: OrderedDict[tuple[Any, ...], tuple[torch.Tensor, bool]] = OrderedDict()
_MOST_KEPT = 32


def step_operator(
    schema: str, states: str, step: Callable[..., None], reference: Callable[..., Sequence[Tensors]]
) -> Operator:
    """The operator of PyTorch that does a step in place: parameters and states, and copies of the new parameters.

    schema     its arguments after the lists of tensors
    states     the names of the states; `?` behind one that an optimizer may do without, as SGD without momentum
    step       (table, clip=, **options), by kernels
    reference  (params, grads, *states, clip=, **options) -> the new parameters and states
    """

    names = states.split()

    def keep(params: Tensors, groups: Sequence[Group]) -> list[Group | None]:
        """The states, None for those that the optimizer does without."""
        pairs = zip(names, groups, strict=True)
        return [None if name.endswith("?") and params and not group else group for name, group in pairs]

    def run(params: Group, grads: Group, *others: Any, **options: Any) -> None:
        *groups, copies, clip = others
        kept = [group for group in keep(params, groups) if group is not None]
        step(_recall_table(params, grads, kept, copies), clip=clip, **options)

    def run_plain(params: Tensors, grads: Tensors, *others: Any, **options: Any) -> None:
        *groups, copies, clip = others
        new = reference(params, grads, *keep(params, groups), clip=clip, **options)
        pairs = [*zip((params, *groups), new, strict=True), *([(copies, new[0])] if copies else [])]
        for group, values in pairs:
            for x, value in zip(group, values, strict=True):
                x.copy_(value)

    def pair_betas(known: dict[str, Any]) -> dict[str, Any]:
        if "beta1" in known:
            known["betas"] = known.pop("beta1"), known.pop("beta2")
        return known

    name, _, options = schema.partition("(")
    written = [*(group.removesuffix("?") for group in names), "copies"]
    lists = ", ".join(f"Tensor({letter}!)[] {group}" for letter, group in zip("bcd", written, strict=False))
    return Operator(
        schema=f"{name}(Tensor(a!)[] params, Tensor[] grads, {lists}, Tensor? clip, {options} -> ()",
        inputs=f"params grads {' '.join(written)} clip",
        results="",
        forward=run,
        reference=run_plain,
        fake=lambda *_: None,
        options=pair_betas,
    )


def _recall_table(params: Group, grads: Group, states: Sequence[Group], copies: Group) -> Table:
    """The table of these tensors; their addresses are on the device already if they lay there lately.

    Only addresses are kept, not tensors: gradients that are set to None give their memory back.
    """
    groups = [params, grads, *states, *([copies] if copies else [])]
    key = tuple(tuple((x.data_ptr(), x.numel(), x.dtype, x.get_device()) for x in group) for group in groups)

    def make() -> tuple[torch.Tensor, bool]:
        new = table(params, grads, *states, copies=copies or None, in_place=True)
        return new.chunks, new.aligned

    return Table((params, grads, *states), (params, *states), copies or None, *recall(_TABLES, key, make))


def recall(values: OrderedDict[Any, V], key: object, make: Callable[[], V]) -> V:
    """The value of a key, made unless it is among the last ones that were asked for."""
    value = values.pop(key, None)  # in one step, as another thread may take an entry out
    values[key] = value = make() if value is None else value
    if len(values) > _MOST_KEPT:
        values.popitem(last=False)
    return value
