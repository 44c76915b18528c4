"""The graphs whose plans `replay.py` records: samples of rows, blocks of models, random programs, steps of training.

Each is a `Case`: a name, the doors that it goes through, and one graph, or several of other sizes that one plan may
serve.  Graphs of compiled functions and of the lazy stream are those that the two doors plan: they are caught there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch

import burn_torch
from burn_torch import BurnTorchError, Device, Distribution, StepScope, Tensor, compile, vjp
from burn_torch.backend import Autodiff
from burn_torch.core.spec import FLOAT_NUMBER, Spec, TensorSpec
from burn_torch.graph.ir import Graph
from burn_torch.graph.passes import dead_code
from burn_torch.graph.trace import Trace
from burn_torch.ops.op import REGISTRY
from burn_torch.ops.value import Value
from burn_torch.optim import AdamWConfig, GradientsParams
from burn_torch.transform import program as compiled
from examples.gan import gan
from examples.gpt2.gpt2 import Gpt2Config
from tests.fusion.blocks import BLOCKS, REAL, TINY, Sizes
from tests.fusion.checking import cooked, drawn
from tests.fusion.programs import PROGRAMS, row, tensor, traced
from tests.fuzz.draw import draw_program
from tests.ops.table_harness import cases, variants
from tests.transform import test_compile_models as models

__all__ = ["Case", "corpus"]

HERE = ("passes", "outside", "stream")


@dataclass(frozen=True)
class Case:
    """Graphs, the doors through which they go one after the other, and what `compile` was asked for."""

    name: str
    doors: tuple[str, ...]
    graphs: tuple[Graph, ...]
    options: dict[str, Any] = field(default_factory=dict)


def corpus(quick: bool = False) -> Iterator[Case]:
    """All cases, or of each kind a few."""
    parts = [of_rows, of_programs, of_recipes, of_random_programs, of_models, of_blocks]
    for part in parts:
        yield from part(quick)


# -- rows ------------------------------------------------------------------------------------------------
def of_rows(quick: bool) -> Iterator[Case]:
    """Each row's sample by itself, between other operations, and with the gradient of that."""
    names = sorted(name for name in REGISTRY if "::" not in name)
    for number, name in enumerate(names):
        if quick and number % 90:
            continue
        samples = cases(name)
        if not samples:
            continue
        case = next(variants(samples[0]))
        call = case.call("cpu")
        for kind in ("alone", "between", "gradient"):
            try:
                graph = _with_gradient(call) if kind == "gradient" else _of_row(call, kind == "between")
            except (BurnTorchError, TypeError, ValueError):  # a row without gradient, or that takes no such values
                continue
            if graph.nodes and graph.outputs:
                yield Case(f"row {name}, {kind}", HERE, (graph,))


def _of_row(call: Any, between: bool) -> Graph:
    trace = Trace()
    return trace.graph(_row_of(call, [trace.input(spec) for spec in call.specs if spec is not None], between)).dense()


def _row_of(call: Any, inputs: Sequence[Any], between: bool) -> list[Any]:
    arrays = iter(inputs)
    operands: list[Any] = []
    for spec in call.specs:
        x = None if spec is None else next(arrays)
        is_float = isinstance(spec, TensorSpec) and spec.dtype.is_float
        operands.append(row("tanh")(x * 2.0) + x if between and is_float else x)
    output = call.op(*operands, **call.attrs)
    results = list(output) if call.multiple else [output]
    return [_ended(y) for y in results] if between else results


def _ended(y: Any) -> Any:
    if not isinstance(y.spec, TensorSpec) or not y.spec.dtype.is_float:
        return y
    y = row("sigmoid")(y * 0.5)
    return y - row("mean")(y, dims=(y.ndim - 1,)) if y.ndim else y


def _with_gradient(call: Any) -> Graph:
    trace = Trace()
    tape = Autodiff.over(trace)
    inputs = [trace.input(spec) for spec in call.specs if spec is not None]
    tracked = [
        Value(tape, tape.track(x.primitive, x.spec), x.spec)
        if isinstance(x.spec, TensorSpec) and x.spec.dtype.is_float
        else x
        for x in inputs
    ]
    results = _row_of(call, tracked, between=True)
    hanging = [y for y in results if isinstance(y.spec, TensorSpec) and hasattr(y.primitive, "node")]
    seeds = [(y.primitive, trace.input(y.spec).primitive) for y in hanging]
    if not seeds:
        return trace.graph([])
    leaves = tape.backward(seeds)
    return dead_code(trace.graph([Value(trace, x, None) for x in leaves.values()])).dense()


# -- programs ----------------------------------------------------------------------------------------------
def of_programs(quick: bool) -> Iterator[Case]:
    """The programs of `programs.py` at their sizes, at larger ones, and at several in turn."""
    for number, (name, (function, specs, _)) in enumerate(PROGRAMS.items()):
        if quick and number:
            continue
        yield Case(f"program {name}", ("passes", "outside", "strict", "anchors", "stream"), (traced(function, specs),))
        large = [_scale_axes(spec, {6: 4096, 10: 770, 5: 385}) for spec in specs]
        yield Case(f"program {name}, large", ("outside", "strict", "anchors", "stream"), (traced(function, large),))
        sizes = [{}, {6: 12}, {6: 9}, {6: 12, 10: 20, 5: 10}]
        try:
            graphs = tuple(traced(function, [_scale_axes(spec, each) for spec in specs]) for each in sizes)
        except BurnTorchError:
            continue
        yield Case(f"program {name}, several sizes", ("stream", "compile"), graphs)
    for layers in () if quick else (1, 3):
        graph = traced(lambda *given, layers=layers: _mlp(layers, *given), _mlp_specs(layers, 192, 64))
        yield Case(f"program of {layers} layers", ("outside", "strict", "anchors", "stream", "compile"), (graph,))


def _scale_axes(spec: Spec, sizes: dict[int, int]) -> Spec:
    return spec.with_shape(tuple(sizes.get(n, n) for n in spec.shape)) if isinstance(spec, TensorSpec) else spec


def _mlp_specs(layers: int, rows: int, width: int) -> list[Spec]:
    return [tensor(rows, width), *[tensor(width, width), tensor(width)] * layers, FLOAT_NUMBER]


def _mlp(layers: int, x: Any, *weights: Any) -> Any:
    """Layers with GELU, and a backward by hand, so that endings are found."""
    first = x
    kept: list[tuple[Any, Any]] = []
    for n in range(layers):
        z = row("linear")(x, weights[2 * n], weights[2 * n + 1])
        kept.append((z, weights[2 * n]))
        x = row("gelu_approximate")(z)
    g = x * weights[-1]
    sums = []
    for z, w in reversed(kept):
        d = row("gelu_approximate_backward")(g, z)
        sums.append(row("sum_to_shape")(d, shape=(d.shape[-1],)))
        g = row("matmul")(d, row("permute")(w, axes=(1, 0)))
    return (x, g + first, *sums)


def of_recipes(quick: bool) -> Iterator[Case]:
    """Chains of element-wise operations, reductions and views, as `checking.py` draws them."""
    for seed in range(1 if quick else 80):
        shapes, steps = drawn(np.random.default_rng(seed))
        trace = Trace()
        cooked_values = cooked(steps, [trace.input(tensor(*shape)) for shape in shapes], most=1 << 24)
        if cooked_values:
            yield Case(f"recipe {seed}", HERE, (trace.graph(list(cooked_values)).dense(),))


# -- caught at the doors -------------------------------------------------------------------------------------
class _Caught(Exception):
    """Ends a call of a compiled function once its graph is known: it need not be compiled."""


def _compile_graphs(
    step: Callable[..., Any], *arguments: Sequence[Any], **options: Any
) -> tuple[list[Graph], dict[str, Any]]:
    """The graphs that `compile` would plan for these arguments, and what it was asked for."""
    graphs: list[Graph] = []
    asked: dict[str, Any] = {}

    def catch(
        self: Any, traced: Any, name: str, arguments: Any, options: compiled.ProgramOptions, *rest: Any, **given: Any
    ) -> None:
        graphs.append(traced.graph)
        asked.update({key: getattr(options, key) for key in ("precision", "memory_limit_bytes", "numerics")})
        asked["donated"] = sorted(given["donated"])
        raise _Caught

    function = compile(step, fuse=True, **options)
    for call_arguments in arguments:
        with mock.patch.object(compiled.Program, "__init__", catch):
            try:
                function(*call_arguments)
            except _Caught:
                continue
    return [graph.dense() for graph in graphs], asked


def compiled_case(name: str, step: Callable[..., Any], *arguments: Sequence[Any], **options: Any) -> Case:
    """A step through `compile`, at one or several sizes."""
    graphs, asked = _compile_graphs(step, *arguments, **options)
    return Case(name, ("compile",), tuple(graphs), asked)


@contextmanager
def _collect_graphs() -> Iterator[list[Graph]]:
    """Collects what the lazy stream runs meanwhile."""
    from tests.fusion.replay import stream_programs

    graphs: list[Graph] = []
    ready = stream_programs().Ready
    make = ready.make

    def collect(self: Any, place: str) -> None:
        graphs.append(self.graph.dense())
        make(self, place)

    with mock.patch.object(ready, "make", collect):
        yield graphs


def stream_cases(name: str, step: Callable[..., Any], *arguments: Any) -> Iterator[Case]:
    """Yields the graphs that the lazy stream runs in one call."""
    with _collect_graphs() as graphs:
        step(*arguments)
        arguments[-1].device.flush() if isinstance(arguments[-1], Tensor) else None
    seen: set[Graph] = set()
    for number, graph in enumerate(graph for graph in graphs if len(graph.nodes) > 3):
        if graph not in seen:
            seen.add(graph)
            yield Case(f"{name}, {number}", ("stream",), (graph,))


def of_random_programs(quick: bool) -> Iterator[Case]:
    """Programs of the fuzzer, forward and with the gradients of what asks for them."""
    for seed in (1,) if quick else range(60):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = draw_program(seed)
            device = Device.cpu(fused=False)

            def forward(xs: list[Tensor], program: Any = program) -> Any:
                return program(xs, program.numbers)

            def backward(xs: list[Tensor], program: Any = program) -> Any:
                def of_wanted(*wanted: Tensor) -> Any:
                    operands = list(xs)
                    for i, x in zip(program.wanted, wanted, strict=True):
                        operands[i] = x
                    return [y for y in program(operands, program.numbers) if y.dtype.is_float]

                ys, pull = vjp(of_wanted, *[xs[i] for i in program.wanted])
                return ys, pull([y * 0.5 for y in ys])

            for kind, step in (("forward", forward), ("gradient", backward)):
                if kind == "gradient" and not program.wanted:
                    continue
                try:
                    case = compiled_case(f"random {seed}, {kind}", step, [program.tensors(device)])
                except (BurnTorchError, TypeError, ValueError, IndexError):  # no program of it can be compiled
                    continue
                if case.graphs:
                    yield Case(case.name, ("passes", "compile", "stream"), case.graphs, case.options)


# -- models ----------------------------------------------------------------------------------------------------
def of_models(quick: bool) -> Iterator[Case]:
    """Steps of training of small models and of the examples, compiled and lazy, one size and several."""
    for name, make in models.MODELS.items():
        if quick and name != "mlp":
            continue
        burn_torch.seed(1)
        model, x, y = make()
        optim = models.OPTIMIZERS["adamw, amsgrad, clipped by norm"].init()
        more = [(model, optim, Tensor.cat([x] * n, 0), Tensor.cat([y] * n, 0), 0.01) for n in (1, 2, 3)]
        yield compiled_case(f"model {name}", models.training_step, more[0], donate=("model", "optim"))
        if quick:
            continue
        yield compiled_case(f"model {name}, several sizes", models.training_step, *more)
        with mock.patch.object(models, "TAPE", Device.cpu().fused().autodiff()):
            burn_torch.seed(1)
            model, x, y = make()
            yield from stream_cases(f"model {name}, lazy", models.training_step, model, optim, x, y, 0.01)
    if not quick:
        yield from _of_gpt2()
        yield from _of_images()


def _gpt2_step(model: Any, optim: Any, tokens: Tensor, targets: Tensor, lr: float, key: int) -> Any:
    with StepScope(key, model):
        loss = model.loss(tokens, targets)
        gradients = GradientsParams.from_grads(loss.backward(), model)
    model, optim = optim.step(lr, model, gradients)
    return model, optim, loss


def _of_gpt2() -> Iterator[Case]:
    for device, kind in ((Device.cpu().autodiff(), "compiled"), (Device.cpu().fused().autodiff(), "lazy")):
        config = Gpt2Config(vocab_size=512, context=64, dropout=0.0, n_layers=2, n_heads=4, d_model=64)
        model = config.init(device)
        optim = AdamWConfig(weight_decay=0.1).init()

        def given(batch: int, device: Device = device, model: Any = model, optim: Any = optim) -> tuple[Any, ...]:
            tokens = Tensor.random((batch, 64), Distribution.Uniform(0, 512), device).int()
            return model, optim, tokens, tokens, 3e-4, 1

        if kind == "lazy":
            arguments = given(2)
            with _collect_graphs() as graphs:
                _gpt2_step(*arguments)[2].into_data()
            for number, graph in enumerate(graph for graph in graphs if len(graph.nodes) > 3):
                yield Case(f"gpt2, lazy, {number}", ("stream",), (graph,))
            continue
        half = {"precision": "bfloat16", "donate": ("model", "optim")}
        yield compiled_case("gpt2", _gpt2_step, given(2), donate=("model", "optim"))
        yield compiled_case("gpt2, several sizes", _gpt2_step, given(2), given(3), given(4))
        yield compiled_case("gpt2, halves", _gpt2_step, given(2), **half)
        yield compiled_case("gpt2, halves, little memory", _gpt2_step, given(8), memory_limit_bytes=6 << 20, **half)
        yield compiled_case("gpt2, a large batch", _gpt2_step, given(512), **half)
        tokens = Tensor.from_torch(torch.zeros(1, dtype=torch.int64).expand(16, 1024), device)
        small = Gpt2Config(vocab_size=64, context=1024, dropout=0.0, n_layers=3).init(device)
        large = small.map_params(lambda param, device=device: _with_vocabulary(param, 64, 50_304, device))
        arguments = (large, optim, tokens, tokens, 3e-4, 1)
        yield compiled_case("gpt2, a large head", _gpt2_step, arguments, **half)
        yield compiled_case("gpt2, as in use", _gpt2_step, arguments, memory_limit_bytes=3000 << 20, **half)


def _with_vocabulary(param: Any, before: int, after: int, device: Device) -> Any:
    """The parameter for a larger vocabulary, of one element that stands for all: it is planned and not run."""
    first, *rest = param.shape
    shape = (after if first == before else first, *rest)
    return param.with_value(Tensor.from_torch(torch.zeros(1).expand(shape), device))


def _of_images() -> Iterator[Case]:
    from burn_torch.cli.recipes.mnist import RECIPE, MnistConfig
    from burn_torch.nn import CrossEntropyLossConfig

    device = Device.cpu().autodiff()
    model = RECIPE.model(MnistConfig(), device)
    criterion = CrossEntropyLossConfig().init(device)
    optim = AdamWConfig().init()

    def step(model: Any, optim: Any, images: Tensor, labels: Tensor) -> Any:
        loss = criterion.forward(model.forward(images), labels)
        model, optim = optim.step(1e-3, model, GradientsParams.from_grads(loss.backward(), model))
        return model, optim, loss.detach()

    def given(batch: int) -> tuple[Any, ...]:
        images = Tensor.random((batch, 28, 28), Distribution.Normal(0.0, 1.0), device)
        return model, optim, images, Tensor.random((batch,), Distribution.Uniform(0, 10), device).int()

    yield compiled_case("mnist", step, given(64), donate=("model", "optim"))
    yield compiled_case("mnist, several sizes", step, given(64), given(32), given(48))
    critic, generator = gan.make_network(64, 1, device), gan.make_network(16, 64, device)

    def learns(model: Any, images: Tensor) -> Any:
        loss = model.critic_loss(images, model.draw(32).detach())
        drawn = burn_torch.tensor.activation.softplus(-model.critic.forward(model.draw(32))).mean()
        return [
            GradientsParams.from_grads(value.backward(), part)
            for value, part in ((loss, model.critic), (drawn, model.generator))
        ]

    def gradients(model: Any, images: Tensor) -> Any:
        return [[grads.get(p.id) for _, p in model.named_params()] for grads in learns(model, images)]

    images = Tensor.random((32, 64), Distribution.Normal(0.0, 1.0), device)
    yield compiled_case("gan", gradients, (gan.Gan(generator, critic), images))


# -- blocks ----------------------------------------------------------------------------------------------------
def of_blocks(quick: bool) -> Iterator[Case]:
    """Blocks of models, forward and backward, small, at sizes as in use, at several sizes, and lazy."""
    middle = Sizes(batch=4, seq=4, width=8, heads=2, image=4, channels=4)
    for name, block in BLOCKS.items():
        if quick:
            return
        burn_torch.seed(1)
        small, other = (block.make(Device.cpu().autodiff(), sizes) for sizes in (TINY, middle))
        yield compiled_case(f"block {name}, small", block.step, small)
        yield compiled_case(f"block {name}, several sizes", block.step, small, (small[0], *other[1:]))
        yield compiled_case(f"block {name}", block.step, block.make(Device.cpu().autodiff(), REAL))
        burn_torch.seed(1)
        lazy = block.make(Device.cpu().fused().autodiff(), TINY)
        with _collect_graphs() as graphs:
            block.step(*lazy)
            Device.cpu().fused().flush()
        for number, graph in enumerate(graph for graph in graphs if len(graph.nodes) > 3):
            yield Case(f"block {name}, lazy, {number}", ("stream",), (graph,))
