"""GELU as the ending of a library's product: where it is put, the same values, and what waits for the backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Tensor, compile, seed
from burn_torch.backend import LibTorch
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion import explain, plan_of
from burn_torch.fusion.planning.again import kept_less
from burn_torch.fusion.rewrites.choices import Asked, Choices
from burn_torch.fusion.rewrites.endings import with_endings
from burn_torch.fusion.triton.products import Product
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.graph.passes.memory import peak_bytes
from burn_torch.graph.verifier import verify
from burn_torch.ops.gelu_products import linear_gelu, matmul_gelu_backward
from burn_torch.optim import AdamWConfig, GradientsParams
from examples.gpt2.gpt2 import Gpt2Config
from tests.fusion.checking import made
from tests.fusion.choosing import choosing
from tests.fusion.programs import row, tensor, traced

LAYERS, BATCH, ROWS, WIDTH = 3, 2, 96, 8
ASKED: list[Asked] = []


@pytest.fixture
def endings() -> Iterator[None]:
    """All products end with what they can end with."""
    ASKED.clear()

    def yes(asked: Asked) -> int | None:
        ASKED.append(asked)
        return 1 if asked.ending.startswith("gelu") else None

    with choosing(ending=yes):
        yield


def layers(x: Any, *weights: Any, gelu: str = "gelu_approximate", read_too: bool = False) -> Any:
    """linear, GELU, linear, residual, over (batch, rows, width); then all gradients by hand, as a tape has them."""

    def flat(y: Any) -> Any:
        return row("reshape")(y, shape=(BATCH * ROWS, y.shape[-1]))

    def turned(y: Any) -> Any:
        return row("permute")(y, axes=(1, 0))

    kept, more = [], []
    for number in range(LAYERS):
        up, bias, down = weights[3 * number : 3 * number + 3]
        z = row("linear")(x, up, bias)
        y = row(gelu)(z)
        kept.append((x, z, y, up, down))
        more.append(z * 2.0)
        x = x + row("linear")(y, down, None)
    g, grads = x * 0.5, []
    for x, z, y, up, down in reversed(kept):
        d = row("matmul")(flat(g), turned(down))
        grads.append(row("matmul")(turned(flat(y)), flat(g)))
        if read_too:
            more.append(d)
        dz = flat(row(gelu + "_backward")(row("reshape")(d, shape=z.shape), z))
        grads += [row("matmul")(turned(flat(x)), dz), row("sum_to_shape")(dz, shape=dz.shape[1:])]
        g = g + row("reshape")(row("matmul")(dz, turned(up)), shape=x.shape)
    return (g, *grads, *more) if read_too else (g, *grads)


def graph_of(**options: Any) -> Graph:
    shapes = [(BATCH, ROWS, WIDTH), *[(WIDTH, 4 * WIDTH), (4 * WIDTH,), (4 * WIDTH, WIDTH)] * LAYERS]
    return traced(lambda *given: layers(*given, **options), [tensor(*shape) for shape in shapes])


def counts(graph: Graph) -> Counter[str]:
    return Counter(node.call.op.name for node in graph.nodes)


def values(graph: Graph) -> list[Any]:
    return made([spec for _, spec in graph.inputs if isinstance(spec, TensorSpec)], np.random.default_rng(1))


@pytest.mark.usefixtures("endings")
def test_both_directions_are_found_and_compute_the_same() -> None:
    graph = graph_of()
    rewritten = with_endings(graph, LibTorch().capabilities.choices)
    verify(rewritten)
    rows = counts(rewritten)
    assert (rows["linear_gelu"], rows["matmul_gelu_backward"]) == (LAYERS, LAYERS)
    assert not rows["gelu_approximate"] + rows["gelu_approximate_backward"] + rows["sum_to_shape"]
    assert {node.call.attrs["rank"] for node in rewritten.nodes if "gelu" in node.call.op.name} == {1}
    size = Product(BATCH * ROWS, 4 * WIDTH, WIDTH, graph.inputs[0][1].dtype, "cpu")  # type: ignore[union-attr]  # a tensor
    both = [a for a in dict.fromkeys(ASKED) if a.product == size and a.ending.startswith("gelu")]
    assert both == [
        Asked(size, "gelu_kept", bias=True, turned=(False, False)),
        Asked(size, "gelu_slope_and_sums", bias=False, turned=(False, True)),
    ]
    inputs = values(graph)
    torch.testing.assert_close(interpret(rewritten, LibTorch(), inputs), interpret(graph, LibTorch(), inputs))


@pytest.mark.usefixtures("endings")
def test_what_others_read_stays() -> None:
    rows = counts(with_endings(graph_of(read_too=True), LibTorch().capabilities.choices))
    assert (rows["linear_gelu"], rows["matmul_gelu_backward"]) == (LAYERS, 0)  # z is there, d would not be
    exact = graph_of(gelu="gelu")
    assert with_endings(exact, LibTorch().capabilities.choices) is exact


def test_other_algorithms_take_products_that_end_with_nothing() -> None:
    wanted: list[Asked] = []

    def plain(asked: Asked) -> int | None:
        wanted.append(asked)
        return 2 if asked.ending in ("none", "bias") else None

    graph = graph_of()
    rewritten = with_endings(graph, Choices(ending=plain))
    verify(rewritten)
    rows, old = counts(rewritten), counts(graph)
    assert rows["fusion::library_product"] == old["linear"] + old["matmul"]
    assert not rows["linear"] + rows["matmul"]
    assert {(a.ending, a.bias, a.turned) for a in wanted if not a.ending.startswith("gelu")} == {
        ("bias", True, (False, False)),
        ("none", False, (False, False)),
        ("none", False, (False, True)),
        ("none", False, (True, False)),
    }
    inputs = values(graph)
    torch.testing.assert_close(interpret(rewritten, LibTorch(), inputs), interpret(graph, LibTorch(), inputs))


def test_without_anybody_to_ask_nothing_changes() -> None:
    graph = graph_of()
    assert with_endings(graph, Choices()) is graph


@pytest.mark.usefixtures("endings")
def test_a_limit_of_memory_makes_gelu_again_in_a_kernel_of_its_own() -> None:
    """No kernel of the backward reads z any more, so one is made; without a limit y waits."""
    graph = with_endings(graph_of(), LibTorch().capabilities.choices)
    before = plan_of(graph)
    one = 4 * BATCH * ROWS * 4 * WIDTH
    assert counts(kept_less(before).graph)["linear_gelu"] == LAYERS
    after = kept_less(before, peak_bytes(before.graph) - one)
    verify(after.graph)
    assert peak_bytes(after.graph) <= peak_bytes(before.graph) - one
    alone = [group for group in after.groups if group.rows == ("gelu_approximate",)]
    assert alone
    assert alone[0].bytes_written == one
    inputs = values(graph)
    torch.testing.assert_close(interpret(after.graph, LibTorch(), inputs), interpret(graph, LibTorch(), inputs))
    reports = explain(after).kernels
    assert len(reports) == len(explain(before).kernels) + len(alone)
    assert all(report.generated for report in reports if report.rows == ("gelu_approximate",))


@pytest.mark.usefixtures("endings")
def test_boundaries_name_the_library() -> None:
    reasons = {
        (b.producer, str(b.reason))
        for b in plan_of(with_endings(graph_of(), LibTorch().capabilities.choices)).boundaries
    }
    assert ("linear_gelu", "library") in reasons
    assert "unknown" not in {reason for _, reason in reasons}


def test_rows_do_not_fit_together() -> None:
    x, w = tensor(6, 4), tensor(4, 5)
    assert matmul_gelu_backward.bind([x, w, tensor(6, 5)], {}).results[1].shape == (5,)
    with pytest.raises(Exception, match="do not fit together"):
        matmul_gelu_backward.bind([x, w, tensor(5, 6)], {})
    with pytest.raises(Exception, match="does not fit the weight"):
        linear_gelu.bind([x, tensor(5, 4), None], {})


@pytest.mark.usefixtures("endings")
def test_a_training_step_learns_the_same() -> None:
    """Two layers of GPT-2 in mixed precision: the first losses with endings and without."""
    fused_losses = losses()
    assert {asked.ending for asked in ASKED} >= {"gelu_kept", "gelu_slope_and_sums", "none", "bias"}
    with choosing(ending=None):
        torch.testing.assert_close(fused_losses, losses(), rtol=1e-3, atol=0)
    assert fused_losses[-1] < fused_losses[0]


def losses() -> list[float]:
    device = Device.cpu().autodiff()
    seed(3)
    model = Gpt2Config(vocab_size=64, context=16, d_model=32, n_heads=2, n_layers=2, dropout=0.0).init(device)
    optim = AdamWConfig(weight_decay=0.1).init()
    tokens = Tensor.from_torch(torch.arange(64).reshape(4, 16) * 7 % 64, device)

    def train(model: Any, optim: Any, tokens: Tensor, lr: float) -> tuple[Any, Any, Tensor]:
        loss = model.loss(tokens, tokens)
        model, optim = optim.step(lr, model, GradientsParams.from_grads(loss.backward(), model))
        return model, optim, loss

    step = compile(train, donate=("model", "optim"), precision="bfloat16", fuse=True)
    values_of_loss = []
    for _ in range(3):
        model, optim, loss = step(model, optim, tokens, 1e-2)
        values_of_loss.append(float(loss.into_scalar()))
    return values_of_loss
