"""All launches of a program at once: a CUDA graph of its kernels, whose parameters are set before each launch.

A launch costs the driver 3.7 us on the machine of benchmarks/notes/fusion.md; to set the parameters of a kernel in a
graph that is there, 0.6 us; to launch such a graph, 1.6 us, of one kernel as of eight.  So a program of several small
kernels and nothing else, once it has run a few times, is launched in one call:

    v3 = make0()                                  # memory for the results, as ever
    words0[0] = p0; words0[1] = v3.data_ptr()
    set(graph, node0, parameters0)
    ...
    launch(graph, stream)

What is under way is not affected by parameters that are set for the next launch: the driver says so.  Intermediate
values are held until the launch, since others could be given their memory before it; so programs that make much run
kernel by kernel, where the host is no matter anyway.
"""

from __future__ import annotations

import ctypes
import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, final

import torch

from burn_torch.backend.libtorch.generated.kernel_variants import device_of
from burn_torch.backend.libtorch.generated.quick_launch import current_device, current_stream, launched_with, maker
from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel
from burn_torch.backend.libtorch.tensors.modes import in_inference
from burn_torch.core.source import Source
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.graph.ir import Graph, Literal
from burn_torch.ops.value import Primitive

__all__ = ["Together", "together"]

_LEAST: Final = 2
"""Kernels of a program that is worth a graph."""
_MOST_BYTES: Final = 16 << 20
"""The limit on the bytes of all results: beyond it memory is the bound, and it should hold no more than planned."""
_AFTER: Final = 8
"""The number of runs that go kernel by kernel; as many again where something is not as it was."""
_ALIGNED: Final = 15
_PLACES: Final = "cuda"

_Run = Callable[..., Sequence[Primitive]]


def together(run: _Run, graph: Graph, functions: Sequence[Primitive]) -> _Run:
    """`run`, or what launches its kernels at once where it has nothing else; `functions` are those of its nodes."""
    if len(functions) < _LEAST or not all(isinstance(f, FusedKernel) and not f.held for f in functions):
        return run
    specs = [spec for node in graph.nodes for spec in node.call.results]
    if not all(isinstance(spec, TensorSpec) and spec.place.startswith(_PLACES) for spec in specs):
        return run
    if sum(spec.numel * spec.dtype.itemsize for spec in specs if isinstance(spec, TensorSpec)) > _MOST_BYTES:
        return run
    return Together(run, graph, functions)


@final
class Together:
    """A program of kernels.  Any number of threads may call it."""

    def __init__(self, plain: _Run, graph: Graph, kernels: Sequence[FusedKernel]) -> None:
        self.plain: Final = plain
        self.graph: Final = graph
        self.kernels: Final = tuple(kernels)
        self.at_once: _Run | None = None
        self._wait = self._left = _AFTER

    def __call__(self, *inputs: object) -> Sequence[object]:
        """The outputs."""
        at_once = self.at_once
        if at_once is None or in_inference():
            return self.one_by_one(*inputs) if at_once is None else self.plain(*inputs)
        try:
            return at_once(*inputs)
        except _Refused:  # nothing was launched
            self.at_once, self._left = None, 0
            return self.plain(*inputs)

    def one_by_one(self, *inputs: object) -> Sequence[object]:
        """The outputs, each kernel launched by itself; after a few times they are put together."""
        outputs = self.plain(*inputs)
        self._left -= 1
        if not self._left:
            self._wait = self._left = 4 * self._wait  # where it cannot be, it is tried ever more seldom
            self.at_once = _at_once(self)
        return outputs


# -- the driver ------------------------------------------------------------------------------------------
class _Parameters(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        *((name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")),
        *((name, ctypes.c_void_p) for name in ("parameters", "extra", "kernel", "context")),
    )


_NAMES: Final = (
    "cuGraphCreate", "cuGraphAddKernelNode_v2", "cuGraphInstantiateWithFlags", "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphLaunch", "cuGraphExecDestroy", "cuGraphDestroy",
)  # fmt: skip


@cache
def _driver() -> object:
    """The driver's library; None where it has no such graphs."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return library if all(hasattr(library, name) for name in _NAMES) else None


@cache
def _setting() -> object:
    """Returns the function that sets the parameters of a kernel.  It waits for nothing, so Python's lock is kept: given
    away at each of eight kernels, busy threads would take it."""
    return ctypes.PyDLL("libcuda.so.1").cuGraphExecKernelNodeSetParams_v2


@final
class _Node:
    """A kernel in the graph: its arguments as words of 8 bytes, of which the driver takes what it needs."""

    def __init__(
        self, kernel: FusedKernel, types: Sequence[str], constant: Sequence[Primitive], ready: Any, grid: int
    ) -> None:
        self.kernel: Final = kernel
        self.watchers: Final = ready.watchers
        self.words: Final = (ctypes.c_uint64 * (len(types) + 2))()
        at = [i for i, kind in enumerate(types) if kind != "constexpr"]
        at += [len(types), len(types) + 1]  # memory of its own, which it has not
        begin = ctypes.addressof(self.words)
        self._pointers: Final = (ctypes.c_void_p * len(at))(*[begin + 8 * i for i in at])
        function, (warps, _, shared) = ready.head[0], ready.head[5]
        self.parameters: Final = _Parameters(
            function, grid, 1, 1, 32 * warps, 1, 1, shared, ctypes.addressof(self._pointers), None, None, None
        )
        self.reference: Final = ctypes.byref(self.parameters)
        self.handle: Final = ctypes.c_void_p()
        self.types: Final = tuple(types)
        for i, value in enumerate(constant, len(types) - len(constant)):
            self.put(i, value)

    def put(self, i: int, value: Primitive) -> None:
        """Writes an argument as its type wants it."""
        if self.types[i] == "fp32":
            struct.pack_into("f", self.words, 8 * i, value)
        elif self.types[i] != "constexpr":
            self.words[i] = value


def _node_of(kernel: FusedKernel) -> _Node | None:
    """The node of a kernel whose quick way is known; None for one that must be launched by Triton."""
    from burn_kernels.prepared import prepared

    variant = next((v for layouts, v in kernel.variants.items() if not any(layouts)), None)
    if variant is None or variant.last is None or kernel.without is not None or not variant.settled():
        return None
    tiles, compiled = variant.last
    ready = prepared(compiled, kernel_device(variant.kernel))
    if ready is None or not ready.by_c:
        return None
    _, cooperative, dependent, _, _, packed = ready.head[:6]
    types = list(getattr(compiled.src, "signature", {}).values())
    count = len(variant.kernel.inputs) + len(variant.kernel.outputs)
    constant = (*variant.kernel.sizes, *tiles.blocks(variant.kernel).values())
    known = all(kind[0] == "*" for kind in types[:count]) and set(types[count:]) <= _TYPES
    if cooperative or dependent or len(packed) != 3 or packed[1] != 1 or not known:
        return None
    if len(types) != count + len(variant.kernel.numbers) + len(constant):
        return None
    return _Node(kernel, types, constant, ready, tiles.programs(variant.kernel))


_TYPES: Final = frozenset({"fp32", "i32", "i64", "u32", "u64", "constexpr"})


def kernel_device(kernel: Any) -> int:
    """The number of the GPU a kernel writes on."""
    index = device_of(kernel).index
    return torch.cuda.current_device() if index is None else index


@final
class _Graph:
    """A graph of kernels, one after the other, as the driver has it."""

    def __init__(self, driver: Any, nodes: Sequence[_Node]) -> None:
        graph, self.handle = ctypes.c_void_p(), ctypes.c_void_p()
        _done(driver.cuGraphCreate(ctypes.byref(graph), 0))
        try:
            before: Any = None
            for node in nodes:
                needed = None if before is None else (ctypes.c_void_p * 1)(before)
                count = ctypes.c_size_t(0 if before is None else 1)
                _done(driver.cuGraphAddKernelNode_v2(ctypes.byref(node.handle), graph, needed, count, node.reference))
                before = node.handle.value
            _done(driver.cuGraphInstantiateWithFlags(ctypes.byref(self.handle), graph, ctypes.c_ulonglong(0)))
        except BaseException:
            driver.cuGraphDestroy(graph)
            raise
        # at the end of the process the driver is gone before this could ask it
        weakref.finalize(self, _destroy_graph, driver, ctypes.c_void_p(self.handle.value), graph).atexit = False


def _destroy_graph(driver: Any, handle: ctypes.c_void_p, graph: ctypes.c_void_p) -> None:
    driver.cuGraphExecDestroy(handle)
    driver.cuGraphDestroy(graph)


class _Refused(Exception):
    """The driver does not take something."""


def _done(code: int) -> None:
    if code:
        raise _Refused(f"CUDA error {code}")


# -- the function that runs it ------------------------------------------------------------------------------
def _at_once(program: Together) -> _Run | None:
    """Returns the function that runs a program in one launch; None while it cannot be."""
    from burn_kernels.launch import seen, undisturbed

    driver = _driver()
    if driver is None or seen() or _capturing()():
        return None
    nodes = [_node_of(kernel) for kernel in program.kernels]
    known = [node for node in nodes if node is not None]
    if len(known) < len(nodes):
        return None
    try:
        graph = _Graph(driver, known)
    except _Refused:
        return None
    return _write_run(program, known, graph, driver, undisturbed(_all_settled(program.kernels), known[0].watchers))


def _all_settled(kernels: Sequence[FusedKernel]) -> Callable[[], bool]:
    """Returns a function that asks whether the tiles of all are still those to use."""
    ways = {f"s{n}": way for n, way in enumerate({id(w): w for w in map(_settled_of, kernels)}.values())}
    source = Source("tiles", **ways)
    source.add(f"def settled(): return {' and '.join(f'{name}()' for name in ways)}")
    return source.function("settled")


def _settled_of(kernel: FusedKernel) -> Callable[[], bool]:
    return next(v.settled for layouts, v in kernel.variants.items() if not any(layouts))


def _write_run(
    program: Together, nodes: Sequence[_Node], graph: _Graph, driver: Any, holds: Callable[[], bool]
) -> _Run:
    inputs = program.graph.inputs
    tensors = [f"v{i}" for i, spec in inputs if isinstance(spec, TensorSpec)]
    numbers = [f"v{i}" for i, spec in inputs if isinstance(spec, NumberSpec)]
    device = kernel_device(nodes[0].kernel.variants[next(iter(nodes[0].kernel.variants))].kernel)
    names: dict[str, Any] = {
        "holds": holds, "capturing": _capturing(), "plain": program.one_by_one, "lock": threading.Lock(),
        "set_": _setting(), "launch": driver.cuGraphLaunch, "graph": graph,
        "stream": current_stream(), "Stream": ctypes.c_void_p, "done": _done, "refill": _refill(program.graph, nodes),
    }  # fmt: skip
    asked = [*(f"{x}.is_contiguous()" for x in tensors), "holds()", "not capturing()"]
    if (current := current_device()) is not None:
        names["device"] = current
        asked.append(f"device() == {device}")
    values = "".join(f"v{i}, " for i, _ in inputs)
    lines = [f"if not ({' and '.join(asked)}):", f"    return plain({values})"]
    lines += [f"p{x[1:]} = {x}.data_ptr()" for x in tensors]
    if tensors:
        lines += [f"if ({' | '.join(f'p{x[1:]}' for x in tensors)}) & {_ALIGNED}:", f"    return plain({values})"]
    lines += ["handle = graph.handle", "with lock:"]
    changed = " or ".join(f"{x} is not k{x[1:]}" for x in numbers) or "not known"
    kept = "".join(f"k{x[1:]}, " for x in numbers)
    body = [f"{kept}= known"] if numbers else []
    body += [
        f"if {changed}:",
        f"    refill({values})",
        f"    known = ({''.join(f'{x}, ' for x in numbers)})" if numbers else "    known = True",
    ]
    for n, (node, part) in enumerate(zip(program.graph.nodes, nodes, strict=True)):
        (variant,) = [v for layouts, v in part.kernel.variants.items() if not any(layouts)]
        kernel = variant.kernel
        names |= {f"words{n}": part.words, f"node{n}": part.handle, f"reference{n}": part.reference}
        addresses = [f"p{node.inputs[position]}" for position in kernel.inputs]
        for j, (i, spec) in enumerate(zip(node.outputs, kernel.outputs, strict=True)):
            name = f"v{i}" if i is not None else f"unread{n}_{j}"
            if j in variant.over:
                operand = node.inputs[variant.over[j]]
                body += [f"{name} = v{operand}", f"p{name[1:]} = p{operand}"]
            else:
                names[f"make{n}_{j}"] = maker(spec, device)
                body += [f"{name} = make{n}_{j}()", f"p{name[1:]} = {name}.data_ptr()"]
            addresses.append(f"p{name[1:]}")
        body += [f"words{n}[{k}] = {address}" for k, address in enumerate(addresses)]
        body.append(f"done(set_(handle, node{n}, reference{n}))")
    body.append(f"done(launch(handle, Stream(stream({device}))))")
    lines += [f"    {line}" for line in body]
    lines.append(f"return ({''.join('None, ' if i is None else f'v{i}, ' for i in program.graph.outputs)})")
    first = f"({'None, ' * len(numbers)})" if numbers else "False"
    source = Source("launches at once", **names)
    source.add(f"known = {first}")
    with source.block(f"def run({values}):"):
        source.add("nonlocal known", *lines)
    return source.function("run")


def _refill(graph: Graph, nodes: Sequence[_Node]) -> Callable[..., None]:
    """Writes the numbers of all kernels, of the inputs of the program."""
    names = [i for i, _ in graph.inputs]

    def refill(*given: object) -> None:
        values = dict(zip(names, given, strict=True))
        for node, part in zip(graph.nodes, nodes, strict=True):
            (variant,) = [v for layouts, v in part.kernel.variants.items() if not any(layouts)]
            kernel = variant.kernel
            read = [i.value if isinstance(i, Literal) else None if i is None else values.get(i) for i in node.inputs]
            for k, argument in enumerate(kernel.numbers, len(kernel.inputs) + len(kernel.outputs)):
                part.put(k, launched_with(argument, read))

    return refill


def _capturing() -> Callable[[], bool]:
    asks: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)
    return asks or torch.cuda.is_current_stream_capturing
