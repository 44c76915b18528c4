"""Products that take up what lies around them: when, how it is explained, and who says that it pays."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from burn_kernels import matmul
from burn_kernels.autotune import levels, selection
from burn_torch.backend import LibTorch
from burn_torch.backend.libtorch.generated.anchors import chosen
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion import Choices, Reason, explain, plan_of
from burn_torch.fusion.body.reasons import Unfusible
from burn_torch.fusion.rows.product_row import product
from burn_torch.fusion.triton.products import Product, ProductTiles, is_product, lower_product, product_in
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.passes.memory import peak_bytes
from burn_torch.graph.verifier import verify
from burn_torch.ops.op import REGISTRY
from tests.fusion.programs import gelu, row, tensor, traced

TILES = ProductTiles(64, 64, 32, 8, 4, 3)
X, W, B = tensor(6, 10), tensor(10, 8), tensor(8)


def always(size: Product, around: str) -> ProductTiles:
    return TILES


def mlp(x: Any, w: Any, b: Any) -> Any:
    return gelu(row("matmul")(x, w) + b)


# -- what joins ------------------------------------------------------------------------------------------
def test_without_a_chooser_or_timings_the_library_computes_products() -> None:
    graph = traced(mlp, [X, W, B])
    for chooser in (None, chosen, lambda size, around: None):
        plan = plan_of(graph, Choices(product=chooser))
        assert [node.call.op.name for node in plan.graph.nodes] == ["matmul", "fusion::kernel"]
        (boundary,) = plan.boundaries
        assert boundary.reason is Reason.LIBRARY
        assert boundary.detail == "no timing puts a generated matmul before the library's"


def test_one_kernel_where_it_is_chosen_and_the_same_results_operation_by_operation() -> None:
    graph = traced(mlp, [X, W, B])
    apart = plan_of(graph)
    plan = plan_of(graph, Choices(product=always))
    verify(plan.graph)
    assert plan.kernels == 1
    (group,) = plan.groups
    assert group.rows[0] == "matmul"
    assert group.bytes_read == (60 + 80 + 8) * 4
    assert group.bytes_written == 48 * 4
    assert group.bytes_saved == apart.groups[0].bytes_saved + 2 * 48 * 4  # the product is neither written nor read
    assert plan.boundaries == ()
    assert peak_bytes(plan.graph) <= peak_bytes(apart.graph)
    inputs = [torch.randn(spec.shape) for spec in (X, W, B)]
    torch.testing.assert_close(interpret(plan.graph, LibTorch(), inputs), interpret(graph, LibTorch(), inputs))


def test_the_chooser_gets_the_sizes_and_what_comes_with_the_product() -> None:
    asked: list[tuple[Product, str]] = []

    def chooser(size: Product, around: str) -> None:
        asked.append((size, around))

    def program(x: Any, w: Any, b: Any) -> Any:
        z = row("linear")(row("tanh")(x), w, b)
        return row("relu")(z) * z, z

    plan_of(traced(program, [tensor(2, 3, 10), W, B]), Choices(product=chooser))
    size = Product(6, 8, 10, DType.F32, "cpu")
    assert asked == [(size, "before after kept"), (size, "after kept"), (size, "before")]


def test_the_report_names_the_kernel_its_source_and_its_tiles() -> None:
    (report,) = explain(plan_of(traced(mlp, [X, W, B]), Choices(product=always))).kernels
    assert report.generated
    assert report.source is not None
    assert "from burn_kernels.matmul import place" in report.source
    assert report.name in report.source
    assert str(report).startswith(f"{report.name}: matmul, add, div, erf")
    assert "64 x 64 elements a program, 4 warps" in str(report)


def test_other_readers_of_the_product_and_of_its_operands_stay_apart() -> None:

    def program(x: Any, w: Any, v: Any) -> Any:
        h = row("tanh")(x)  # read by two products: it is written
        z = row("matmul")(h, w)
        return row("relu")(z), row("cumsum")(z, dim=1), row("matmul")(h, v)

    plan = plan_of(traced(program, [X, W, tensor(10, 3)]), Choices(product=always))
    names = [node.call.op.name for node in plan.graph.nodes]
    assert sorted(names) == ["cumsum", "fusion::product", "matmul", "tanh"]
    reasons = {(b.producer, b.consumer): b.reason for b in plan.boundaries}
    assert reasons == {("tanh", "matmul"): Reason.LIBRARY, ("matmul", "cumsum"): Reason.LIMIT}


def test_nothing_joins_that_waits_for_what_needs_the_product() -> None:

    def program(x: Any, w: Any, v: Any) -> Any:
        z = row("matmul")(x, w)
        return z + row("matmul")(z, v)

    plan = plan_of(traced(program, [X, W, tensor(8, 8)]), Choices(product=always))
    verify(plan.graph)
    assert [node.call.op.name for node in plan.graph.nodes] == ["matmul", "fusion::product"]


def test_two_layers_are_two_kernels() -> None:

    def program(x: Any, w: Any, b: Any, v: Any) -> Any:
        return row("sigmoid")(row("matmul")(mlp(x, w, b), v))

    plan = plan_of(traced(program, [X, W, B, tensor(8, 4)]), Choices(product=always))
    assert [node.call.op for node in plan.graph.nodes] == [product, product]
    assert len(plan.groups) == 2
    assert {b.reason for b in plan.boundaries} <= {Reason.LIMIT}


@pytest.mark.parametrize(
    ("specs", "fits"),
    [
        ((X, W), True),
        ((tensor(4, 6, 10), W), True),
        ((tensor(4, 6, 10), tensor(1, 10, 8)), True),
        ((tensor(4, 6, 10), tensor(4, 10, 8)), False),  # many products, each with a right side of its own
        ((tensor(6, 10, dtype=DType.F64), tensor(10, 8, dtype=DType.F64)), False),
        ((tensor(6, 0), tensor(0, 8)), False),
    ],
)
def test_which_products_kernels_compute(specs: tuple[TensorSpec, TensorSpec], fits: bool) -> None:
    assert is_product(REGISTRY["matmul"].bind(list(specs), {})) is fits


def test_a_reduction_beside_a_product_is_refused_by_name() -> None:
    graph = traced(lambda x, w: row("sum")(row("matmul")(x, w), dims=(1,)), [X, W])
    with pytest.raises(Unfusible, match="unsupported operation: sum in the tiles of a product"):
        lower_product(graph)
    with pytest.raises(Unfusible, match="unsupported operation: 0 products in one kernel"):
        product_in(traced(lambda x: x + 1.0, [X]))
    turned = traced(lambda x, w: row("permute")(row("matmul")(x, w), axes=(1, 0)) + 1.0, [X, W])
    with pytest.raises(Unfusible, match="no kernel is generated for matmul"):
        lower_product(turned)


# -- who says that it pays -------------------------------------------------------------------------------
def test_timings_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    decision = SimpleNamespace(source="measured", config=matmul.Config(matmul.TILES, 128, 64, 32, 8, 4, 3))
    asked: list[tuple[str, Any]] = []

    def decide(tunable: Any, index: int, facts: Any, fixed: bool) -> Any:
        asked.append((tunable.key(facts), index))
        return decision

    monkeypatch.setattr(selection, "current", lambda: SimpleNamespace(decide=decide))
    size = Product(8192, 4096, 1024, DType.BF16, "cuda:1")
    assert chosen(size, "after") == ProductTiles(128, 64, 32, 8, 4, 3)
    assert chosen(size, "after kept") is not None
    assert asked == [
        ("linear rows<=8192 features=4096 inner=1024 bfloat16 packed align=16 gelu bias", 1),
        ("linear rows<=8192 features=4096 inner=1024 bfloat16 packed align=16 gelu bias kept", 1),
    ]
    assert chosen(size, "before after") is None  # nothing was timed for that
    assert chosen(dataclasses.replace(size, place="cpu"), "after") is None
    for source, way in (("default", matmul.TILES), ("model", matmul.TILES), ("measured", matmul.LIBRARY)):
        decision.source, decision.config = source, dataclasses.replace(decision.config, way=way)
        assert chosen(size, "after") is None


def test_in_deterministic_mode_only_a_lockfile_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed: list[bool] = []

    def decide(tunable: Any, index: int, facts: Any, plain: bool) -> Any:
        fixed.append(plain)
        return SimpleNamespace(source="default", config=matmul.Config(matmul.LIBRARY))

    monkeypatch.setattr(selection, "current", lambda: SimpleNamespace(decide=decide))
    with levels.deterministic(True):
        assert chosen(Product(64, 64, 64, DType.F32, "cuda:0"), "after") is None
    assert fixed == [True]
