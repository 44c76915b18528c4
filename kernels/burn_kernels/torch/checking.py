"""`check`: runs every fused operation of a model beside plain torch and float64, on the model's own inputs.

The model runs once, forward and backward, and what each operator of `torch.ops.burn_kernels` was given is kept, one
call for each set of shapes, strides, types and options.  Each is then run again by itself:

* outputs and the gradients of all inputs, for random upstream gradients, against float64: the error may be 1.1 times
  that of plain torch in the same type plus half a unit in the last place (`burn_kernels.verify` has the exact rule)
* a gradient that is missing is a fault
* memory that the operation allocates is full of NaN beforehand, so what nobody writes is found
* its inputs and the upstream gradient are compared bit by bit with what they were
* a second run must give the same bits, and an upstream gradient that lies otherwise in memory the same gradients
* rows that lie 2^30 elements apart must give what they give side by side: an offset of 32 bits fails there

An operation that raises is a fault by its error.  On tensors for which the references compute, those of a CPU, it is
they that are checked, and the report says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from burn_kernels._triton import AVAILABLE
from burn_kernels.arguments import checked
from burn_kernels.errors import KernelArgumentError
from burn_kernels.launch import Launch, observing
from burn_kernels.spec import Draw
from burn_kernels.torch._problems import ADAPTERS, DRAWN, Adapter, Call, cast_call
from burn_kernels.torch.defining import fallbacks
from burn_kernels.verification import compare, convolved_alike, poisoned

__all__ = ["Finding", "Report", "check"]

REFERENCE = "reference used: no kernel runs on these tensors"
LIBRARY = "torch's own kernels: they were chosen here"
"""The config of a finding without launches, though kernels run on such tensors."""


# -- the report ----------------------------------------------------------------------------------------
@checked
@dataclass(frozen=True)
class Finding:
    """The outcome of one call; a sound one has no faults."""

    op: str
    where: tuple[str, ...]
    """The modules of the model that made it; empty for a drawn one."""
    inputs: str
    """Names, shapes, strides where they matter, options."""
    dtype: str
    config: str
    """The kernels that ran with their constants, or that the reference was used."""
    faults: tuple[str, ...]
    errors: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """For outputs and gradients the relative RMS error against float64: ours, and that of plain torch."""

    def __str__(self) -> str:
        place = f" in {', '.join(self.where)}" if self.where else ""
        lines = [f"{self.op}{place}: {self.inputs}, {self.dtype}; {self.config}"]
        return "\n".join([*lines, *(f"  {fault}" for fault in self.faults)])


@checked
@dataclass(frozen=True)
class Report:
    """The findings of `check`, one for each call that it ran."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    """The checks that could not be made, and why."""

    @property
    def ok(self) -> bool:
        """Tells if nothing is wrong."""
        return not self.faulty

    @property
    def faulty(self) -> list[Finding]:
        """The findings with faults."""
        return [finding for finding in self.findings if finding.faults]

    @property
    def reference_used(self) -> bool:
        """Tells if plain torch computed at least one of the calls."""
        return any(finding.config == REFERENCE for finding in self.findings)

    def __str__(self) -> str:
        ops = ", ".join(sorted({finding.op for finding in self.findings}))
        lines = [f"{len(self.findings)} calls of {ops}: {len(self.faulty)} with faults"]
        lines += [str(finding) for finding in self.faulty]
        if self.reference_used:
            lines.append("where no kernel runs, on CPU tensors, the reference was used and checked")
        return "\n".join([*lines, *self.notes])


# -- check ---------------------------------------------------------------------------------------------
@checked
def check(
    model: nn.Module | None = None,
    batch: object = None,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    ops: Sequence[str] | None = None,
    shapes: int = 50,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    seed: int = 0,
    offsets: bool = True,
) -> Report:
    """Checks the fused operations that `model` runs on `batch`; or, without a model, `ops` on drawn shapes.

    `batch` is what the model is called with: a tensor, a tuple of positional or a mapping of keyword arguments.
    `loss` makes a number of its output; without it every float of the output gets a random upstream gradient.
    Parameters, `.grad`, buffers and random states are as before afterwards.
    Without a model: `ops` are names (None for all), each run on `shapes` problems of random sizes and layouts in
    `dtype` on `device`.  `offsets` asks for the look at offsets past 32 bits, which takes 9 GiB of address space on a
    CPU, of which little is touched, and of memory on a GPU; where that is not to be had a note says so.
    Raises: KernelArgumentError where there is nothing to check.
    """
    notes: list[str] = []
    findings: list[Finding] = []
    if model is not None:
        calls = _record(model, batch, loss, seed, findings)
    else:
        names = sorted(DRAWN) if ops is None else list(ops)
        unknown = [name for name in names if name not in DRAWN]
        if unknown:
            raise KernelArgumentError(
                "check: no such operation",
                given=", ".join(unknown),
                expected=f"names of {', '.join(sorted(DRAWN))}",
                mend="leave ops out for all of them",
            )
        calls = []
        for number, name in enumerate(names):
            draw = Draw(1000 * seed + number)
            for _ in range(shapes):
                calls.append(cast_call(DRAWN[name](draw), dtype, torch.device(device)))
    examined = [_examine(call, seed + number) for number, call in enumerate(calls)]
    findings += examined
    if offsets:
        findings += _offsets(calls, examined, notes)
    return Report(tuple(findings), tuple(notes))


# -- recording -----------------------------------------------------------------------------------------
class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.path: list[str] = []
        self.calls: dict[Any, tuple[Call, list[str]]] = {}

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
        if func.namespace == "burn_kernels":
            self._keep(func._opname, args)
        return func(*args, **(kwargs or {}))

    def _keep(self, name: str, args: tuple[object, ...]) -> None:
        if name not in ADAPTERS:
            return  # a gradient: its operation's call stands for it
        key = (name, *(_outline(argument) for argument in args))
        where = self.path[-1] if self.path else ""
        if key not in self.calls:
            self.calls[key] = Call(name, tuple(_replica(argument) for argument in args)), []
        places = self.calls[key][1]
        if where and where not in places:
            places.append(where)


def _outline(argument: object) -> object:
    if isinstance(argument, torch.Tensor):
        # where in its memory it begins matters to 16 bytes
        start = argument.storage_offset() * argument.element_size() % 16
        return tuple(argument.shape), argument.stride(), argument.dtype, argument.device, start
    return tuple(map(_outline, argument)) if isinstance(argument, (list, tuple)) else argument


def _record(
    model: nn.Module, batch: object, loss: Callable[[Any], torch.Tensor] | None, seed: int, findings: list[Finding]
) -> list[Call]:
    """The calls that the model makes; if its run raises, that is a finding, and the calls until then are looked at."""
    recorder = _Recorder()
    raised: Exception | None = None
    eager = torch.compiler.set_stance("force_eager")
    try:
        with _as_it_was(model), _paths(model, recorder), torch.enable_grad(), eager, recorder:
            output = _run(model, batch)
            total = loss(output) if loss is not None else _sum_weighted(output, seed)
            wanted = [p for p in model.parameters() if p.requires_grad]
            if total.requires_grad and wanted:
                torch.autograd.grad(total, wanted, allow_unused=True)
    except Exception as error:  # told below, or raised again
        raised = error
    if raised is not None:
        if not recorder.calls:
            raise raised
        fault = f"its own run {_raises(raised)}"
        findings.append(Finding(type(model).__name__, (), "the batch", "any", "the whole model", (fault,)))
    if not recorder.calls:
        raise KernelArgumentError(
            "check: the model ran none of the fused operations",
            given=f"{type(model).__name__} with {sum(1 for _ in model.modules())} modules",
            expected="a model that uses burn_kernels.torch",
            mend="call patch(model) first, and read its report",
        )
    return [replace(call, where=tuple(places)) for call, places in recorder.calls.values()]


def _raises(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    return f"raises {type(error).__name__}: {first}"


def _run(model: nn.Module, batch: object) -> object:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


def _sum_weighted(output: object, seed: int) -> torch.Tensor:
    """A number to which each float of the output contributes by a random weight."""
    leaves = torch.utils._pytree.tree_leaves(output)
    floats = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
    if not floats:
        return torch.zeros(())
    generator = torch.Generator().manual_seed(seed)
    parts = [(x * torch.randn(x.shape, generator=generator).to(x)).sum() for x in floats]
    return torch.stack([part.double().to("cpu") for part in parts]).sum()


@contextlib.contextmanager
def _as_it_was(model: nn.Module) -> Iterator[None]:
    """Buffers and random states are given back; gradients are never written, as none is accumulated."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=cuda):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


@contextlib.contextmanager
def _paths(model: nn.Module, recorder: _Recorder) -> Iterator[None]:
    """Lets the recorder know in which module it is."""
    handles = []
    for path, module in model.named_modules():
        name = path or type(module).__name__

        def enter(_: nn.Module, __: object, name: str = name) -> None:
            recorder.path.append(name)

        def leave(_: nn.Module, __: object, ___: object) -> None:
            recorder.path.pop()

        handles.append(module.register_forward_pre_hook(enter, prepend=True))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


# -- one call ------------------------------------------------------------------------------------------
def _replica(argument: object) -> Any:
    """The same tensor in memory of its own, strides, offset and what lies between its elements included."""
    if isinstance(argument, (list, tuple)):
        return [_replica(item) for item in argument]
    if not isinstance(argument, torch.Tensor):
        return argument
    x = argument.detach()
    copy = torch.empty(0, dtype=x.dtype, device=x.device)
    return copy.set_(x.untyped_storage().clone(), x.storage_offset(), x.size(), x.stride())


def _bytes(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())


def _examine(call: Call, seed: int) -> Finding:
    adapter = ADAPTERS[call.op]
    errors: dict[str, tuple[float, float]] = {}
    with _watch() as seen, convolved_alike():
        faults = _faults(lambda: _compare(adapter, call, seed, errors))
    return _finding(adapter, call, seen, faults, errors)


@dataclass
class _Seen:
    """The launches and fallbacks of a call."""

    launches: list[Launch]
    fell_back: bool = False


@contextlib.contextmanager
def _watch() -> Iterator[_Seen]:
    before = fallbacks()
    with observing() as launches:
        seen = _Seen(launches)
        yield seen
    seen.fell_back = fallbacks() != before


def _faults(look: Callable[[], list[str]]) -> list[str]:
    try:
        return look()
    except Exception as error:  # whatever a kernel raises is what is wrong with it, under its name
        return [_raises(error)]


def _finding(
    adapter: Adapter, call: Call, seen: _Seen, faults: Sequence[str], errors: Mapping[str, tuple[float, float]]
) -> Finding:
    return Finding(
        op=adapter.label(call.args),
        where=call.where,
        inputs=_inputs(adapter, call.args),
        dtype=_dtype(call.args),
        config=_config(seen, on_gpu=AVAILABLE and any(x.is_cuda for x in _tensors(call.args))),
        faults=tuple(faults),
        errors=errors,
    )


def _compare(adapter: Adapter, call: Call, seed: int, errors: dict[str, tuple[float, float]]) -> list[str]:
    if adapter.verify is not None:
        return _twice_alike(adapter, call) + adapter.verify(call.args)
    names = [adapter.names[at] for at in adapter.graded if call.args[at] is not None]
    ys, args, leaves = _forward(call, adapter)
    faults = _note_writes("the forward", adapter, call.args, args)
    exact, exact_leaves = _plain(adapter, call.args, torch.float64)
    common, common_leaves = _plain(adapter, call.args, None)
    kind = next(x.dtype for x in call.args if isinstance(x, torch.Tensor) and x.is_floating_point())
    outputs = ["output"] if len(exact) == 1 else [f"output {number}" for number in range(len(exact))]
    size = adapter.size(call.args)
    for name, *results in zip(outputs, ys, exact, common, strict=True):
        output, sure, usual_one = results
        faults += compare(name, output, sure, usual_one, kind, floor=size)
        _note(errors, name, output, sure, usual_one)
    if not leaves:
        again = _forward(call, adapter)[0]
        pairs = [(name, _same_bits(*both)) for name, *both in zip(outputs, ys, again, strict=True)]
        return faults + [f"the {name}: other bits the second time" for name, same in pairs if not same]
    generator = torch.Generator().manual_seed(seed)
    dys = [
        torch.randn(truth.shape, dtype=torch.float64, generator=generator).to(y.dtype).to(y.device)
        for truth, y in zip(exact, ys, strict=True)
    ]
    kept, floor = [dy.clone() for dy in dys], adapter.floor(call.args, dys[0])
    if not all(y.requires_grad for y in ys):
        return [*faults, "the output carries no gradient"]
    with poisoned():
        grads = _grads(ys, leaves, dys)
    faults += _note_writes("the backward", adapter, call.args, args)
    if not all(torch.equal(dy, before) for dy, before in zip(dys, kept, strict=True)):
        faults.append("the backward writes to the upstream gradient")
    expected = _grads(exact, exact_leaves, [dy.to("cpu", torch.float64) for dy in dys])
    usual = _grads(common, common_leaves, [dy.to(y.dtype) for dy, y in zip(dys, common, strict=True)])
    for name, grad, truth, plain in zip(names, grads, expected, usual, strict=True):
        if grad is None or truth is None or plain is None:
            faults += [f"gradient of {name}: missing"] if truth is not None else []
            continue
        faults += compare(f"gradient of {name}", grad, truth, plain, kind, floor=floor)
        _note(errors, f"gradient of {name}", grad, truth, plain)
    again, _, fresh = _forward(call, adapter)
    repeated = _grads(again, fresh, dys)
    for name, one, other in zip([*outputs, *names], [*ys, *grads], [*again, *repeated], strict=True):
        if one is not None and other is not None and not _same_bits(one, other):
            faults.append(f"{f'the {name}' if name in outputs else f'gradient of {name}'}: other bits the second time")
    if any(dy.dim() > 0 and dy.numel() > 1 for dy in dys):
        third, _, leaves = _forward(call, adapter)
        spread = [torch.stack([dy, torch.full_like(dy, float("nan"))], -1)[..., 0] for dy in dys]
        loose = _grads(third, leaves, spread)
        for name, grad, truth, plain in zip(names, loose, expected, usual, strict=True):
            if grad is not None and truth is not None and plain is not None:
                words = f"gradient of {name} from a strided upstream gradient"
                faults += compare(words, grad, truth, plain, kind, floor=floor)
    return faults


Tensors = list[torch.Tensor]


def _grads(ys: Sequence[torch.Tensor], leaves: Tensors, dys: Tensors) -> tuple[torch.Tensor | None, ...]:
    return torch.autograd.grad(ys, leaves, dys, allow_unused=True)


def _forward(call: Call, adapter: Adapter) -> tuple[Tensors, list[Any], Tensors]:
    """The outputs that the twin gives too, the arguments they were made from, those of them that carry gradients."""
    args = [_replica(argument) for argument in call.args]
    leaves = [args[at].requires_grad_() for at in adapter.graded if args[at] is not None]
    with torch.enable_grad(), poisoned():
        outputs = getattr(torch.ops.burn_kernels, call.op)(*args)
    return list(outputs)[: adapter.outputs(args)] if isinstance(outputs, tuple) else [outputs], args, leaves


def _plain(adapter: Adapter, args: Sequence[object], dtype: torch.dtype | None) -> tuple[Tensors, Tensors]:
    device = None if dtype is None else "cpu"

    def cast(x: object) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        kind = dtype if dtype is not None and x.is_floating_point() else x.dtype
        return x.detach().to(device or x.device, kind, copy=True)

    arguments = [cast(argument) for argument in args]
    leaves = [arguments[at].requires_grad_() for at in adapter.graded if arguments[at] is not None]
    with torch.enable_grad():
        outputs = adapter.twin(*arguments)
    return list(outputs) if isinstance(outputs, tuple) else [outputs], leaves


def _note_writes(when: str, adapter: Adapter, before: Sequence[Any], after: Sequence[Any]) -> list[str]:
    pairs = zip(adapter.names, before, after, strict=True)
    return [
        f"{when} writes to {name}"
        for name, old, new in pairs
        if isinstance(old, torch.Tensor) and not torch.equal(_bytes(old), _bytes(new.detach()))
    ]


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    raw = [x.detach().contiguous().reshape(-1).view(torch.uint8) for x in (one, other)]
    return torch.equal(*raw)


def _twice_alike(adapter: Adapter, call: Call) -> list[str]:
    first, second = (torch.utils._pytree.tree_leaves(adapter.run(_replica(list(call.args)))) for _ in range(2))
    same = all(_same_bits(one, other) for one, other in zip(first, second, strict=True))
    return [] if same else ["other bits the second time"]


def _note(errors: dict[str, tuple[float, float]], name: str, output: Any, exact: Any, common: Any) -> None:
    size = float(exact.detach().double().norm())
    if size > 0.0:
        pair = (float((x.detach().to("cpu", torch.float64) - exact.detach()).norm()) / size for x in (output, common))
        errors[name] = tuple(pair)  # type: ignore[assignment]  # two of them


# -- words ---------------------------------------------------------------------------------------------
def _inputs(adapter: Adapter, args: Sequence[object]) -> str:
    words = []
    for name, argument in zip(adapter.names, args, strict=True):
        if isinstance(argument, torch.Tensor):
            gaps = "" if argument.is_contiguous() else f" strides {argument.stride()}"
            words.append(f"{name} {tuple(argument.shape)}{gaps}")
        elif isinstance(argument, (list, tuple)):
            words.append(f"{name} {len(argument)} tensors")
        elif argument is not None:
            words.append(f"{name} {argument!r}")
    return ", ".join(words)


def _tensors(args: Sequence[object]) -> list[torch.Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(list(args)) if isinstance(x, torch.Tensor)]


def _dtype(args: Sequence[object]) -> str:
    kinds = {str(x.dtype).removeprefix("torch.") for x in _tensors(args) if x.is_floating_point()}
    return ", ".join(sorted(kinds))


def _config(seen: _Seen, *, on_gpu: bool) -> str:
    if not seen.launches:
        return LIBRARY if on_gpu and not seen.fell_back else REFERENCE
    words = []
    for launch in seen.launches:
        name = getattr(getattr(launch.kernel, "fn", launch.kernel), "__name__", "kernel")
        constants = ", ".join(f"{key}={value}" for key, value in launch.constants.items())
        words.append(f"{name}({constants}) {launch.warps} warps")
    return "; ".join(dict.fromkeys(words))


# -- offsets past 32 bits ------------------------------------------------------------------------------
FAR = (1 << 30) + 8
"""The stride of the rows: it fits 32 bits, its double does not."""


def _offsets(calls: Sequence[Call], findings: Sequence[Finding], notes: list[str]) -> list[Finding]:
    """Runs each kind of call once more with three rows that lie FAR apart; the third begins past element 2^31."""
    kinds: dict[Any, Call] = {}
    for call, finding in zip(calls, findings, strict=True):
        if finding.config not in (REFERENCE, LIBRARY) and ADAPTERS[call.op].far is not None:
            x = call.args[0]
            kinds.setdefault((call.op, finding.op, x.dtype, x.device), call)
    findings_far = []
    for call in kinds.values():
        adapter, x = ADAPTERS[call.op], call.args[0]
        assert adapter.far is not None
        try:
            far = adapter.far(call.args, _Room(x))
        except (RuntimeError, MemoryError) as error:
            first = str(error).splitlines()[0]
            notes.append(f"{adapter.label(call.args)}: offsets past 32 bits were not looked at: {first}")
            continue
        findings_far.append(_examine_far(replace(call, args=far.args), far.dy, adapter))
        del far
        if x.is_cuda:
            torch.cuda.empty_cache()  # gigabytes that nobody wants again, and that other processes may
    return findings_far


class _Room:
    """Address space in which rows lie FAR apart, with as much before it: where a wrapped offset would read."""

    def __init__(self, like: torch.Tensor) -> None:
        self.like = like
        self.cols = max(8, min(64, like.shape[-1] if like.dim() else 1))
        size = (1 << 31) + 2 * FAR + 16 * self.cols
        if like.is_cuda and torch.cuda.mem_get_info(like.device)[0] < 1.2 * size * like.element_size():
            raise RuntimeError(f"{size * like.element_size() >> 30} GiB of memory are not free")
        self.room = torch.empty(size, dtype=like.dtype, device=like.device)
        self.used = 0
        self.generator = torch.Generator().manual_seed(0)

    def rows(self) -> torch.Tensor:
        """Three rows of random numbers; what a 32-bit offset would read in their stead is 0."""
        shape, strides = (3, self.cols), (FAR, 1)
        start = self.used
        self.used += self.cols
        for wrapped in range(3):
            at = (wrapped * FAR + (1 << 31)) % (1 << 32) - (1 << 31) + (1 << 31) + start
            self.room[at : at + self.cols] = 0
        x = self.room.as_strided(shape, strides, (1 << 31) + start)
        return x.copy_(torch.randn(shape, generator=self.generator))


def _examine_far(call: Call, dy: torch.Tensor | None, adapter: Adapter) -> Finding:
    with _watch() as seen:
        faults = _faults(lambda: _compare_far(call, dy, adapter))
    return _finding(adapter, call, seen, [f"offsets past 32 bits: {fault}" for fault in faults], {})


def _compare_far(call: Call, dy: torch.Tensor | None, adapter: Adapter) -> list[str]:
    args = list(call.args)
    leaves = [args[at].requires_grad_() for at in adapter.graded if args[at] is not None]
    with torch.enable_grad():
        outputs = getattr(torch.ops.burn_kernels, call.op)(*args)
    y = outputs[0] if isinstance(outputs, tuple) else outputs
    (exact, *_), exact_leaves = _plain(adapter, args, torch.float64)
    (common, *_), common_leaves = _plain(adapter, args, None)
    faults = compare("output", y, exact, common, args[0].dtype)
    if dy is None or faults:
        return faults
    kind = leaves[0].dtype
    grads = torch.autograd.grad(y, leaves, dy)
    expected = torch.autograd.grad(exact, exact_leaves, dy.detach().to("cpu", torch.float64))
    usual = torch.autograd.grad(common, common_leaves, dy.detach().contiguous())
    names = [adapter.names[at] for at in adapter.graded if args[at] is not None]
    for name, grad, truth, plain in zip(names, grads, expected, usual, strict=True):
        faults += compare(f"gradient of {name}", grad, truth, plain, kind)
    return faults
