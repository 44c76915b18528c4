"""The dtype policy: bf16 products, f32 everything else that matters, one cast a value."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from burn_torch import ops
from burn_torch.backend.libtorch import LibTorch
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ConfigError
from burn_torch.core.spec import TensorSpec
from burn_torch.graph import Graph, verify
from burn_torch.graph.passes import common_subexpressions, dead_code, dtype_policy
from burn_torch.ops import REGISTRY
from tests.graph.passes.checks import check_signature, names, run, spec, traced
from tests.graph.passes.example_graphs import deep_mlp, mnist_step
from tests.graph.random_graphs import Program, programs

X, W = spec(4, 3), spec(3, 3)


def policy(graph: Graph) -> Graph:
    after = verify(dtype_policy(graph, "bfloat16"))
    check_signature(graph, after)
    return after


def types(graph: Graph) -> list[tuple[str, str]]:
    """Rows and the types of their first results."""
    return [(n.call.op.name, n.call.results[0].dtype.name) for n in graph.nodes]


@settings(max_examples=80, deadline=None)
@given(program=programs(backward=True, max_nodes=10))
def test_graphs_stay_valid_and_run(program: Program) -> None:
    after = policy(program.graph)
    run(after, program, LibTorch())
    assert dtype_policy(program.graph, "float32") is program.graph


def test_products_are_low_and_the_rest_follows_or_is_high() -> None:
    graph = policy(traced(lambda x, w: ops.sum(ops.relu(ops.linear(x, w, None)) * 2.0, dims=(0,)), X, W))
    assert types(graph) == [
        ("cast", "bf16"), ("cast", "bf16"), ("linear", "bf16"), ("relu", "bf16"), ("mul", "bf16"), ("cast", "f32"),
        ("sum", "f32"),
    ]  # fmt: skip


def test_the_widest_type_wins_and_constants_do_not_count() -> None:
    def function(x: Any, w: Any) -> Any:
        y = ops.linear(x, w, None)
        return y + x, y + ops.full.run(x.backend, type(x), (1.0,), {"shape": (3,), "dtype": DType.F32, "place": "cpu"})

    dtypes = types(policy(traced(function, X, W)))
    assert [dtype for name, dtype in dtypes if name == "add"] == ["f32", "bf16"]


def test_a_value_is_cast_once_to_each_type() -> None:
    def function(x: Any, w: Any) -> Any:
        y = ops.linear(ops.linear(x, w, None), w, None)
        return ops.exp(y) + ops.softmax(y, dim=1) + ops.linear(y, w, None)

    graph = policy(traced(function, X, W))
    casts = Counter((n.inputs[0], n.call.attrs["dtype"]) for n in graph.nodes if n.call.op.name == "cast")
    assert set(casts.values()) == {1}
    assert sum(i == 1 for i, _ in casts) == 1, "the weight is cast once"
    assert common_subexpressions(graph) is graph


def test_a_view_of_what_was_cast_is_no_second_cast() -> None:
    def function(x: Any, w: Any) -> Any:
        y = ops.linear(x, w, None)
        return ops.matmul(ops.permute(x, axes=(1, 0)), y), ops.linear(ops.reshape(x, shape=(4, 3)), w, None)

    graph = policy(traced(function, X, W))
    assert [n.inputs[0] for n in graph.nodes if n.call.op.name == "cast" and n.call.results[0].dtype is DType.BF16] == [
        0,
        1,
    ]


def test_a_part_of_a_value_is_cast_alone_unless_the_whole_is_needed_too() -> None:
    def part(x: Any) -> Any:
        return ops.slice(x, ranges=((0, 3, 1), (0, 3, 1)))

    alone = policy(traced(lambda x, w: ops.matmul(part(x), w), X, W))
    assert [n.call.results[0].shape for n in alone.nodes if n.call.op.name == "cast"] == [(3, 3), (3, 3), (3, 3)]
    both = policy(traced(lambda x, w: (ops.matmul(x, w), ops.matmul(part(x), w)), X, W))
    casts = [
        n.call.results[0].shape
        for n in both.nodes
        if n.call.results[0].dtype is DType.BF16 and n.call.op.name == "cast"
    ]
    assert casts == [(4, 3), (3, 3)]


def test_cross_entropy_reads_low_logits_and_its_losses_stay_high() -> None:
    targets = TensorSpec.of((4,), DType.I64, "cpu")

    def function(x: Any, w: Any, t: Any, g: Any) -> Any:
        logits = ops.linear(x, w, None)
        slope = ops.cross_entropy_backward(g, logits, t, None, None)
        return ops.cross_entropy(logits, t, None, None), ops.matmul(slope, w)

    graph = policy(traced(function, X, W, targets, spec(4)))
    losses = {name: dtype for name, dtype in types(graph) if name.startswith("cross_entropy")}
    assert losses == {"cross_entropy": "f32", "cross_entropy_backward": "bf16"}
    assert sum(n.call.op.name == "cast" for n in graph.nodes) == 3, "x, w, and the product that is an output"


def test_what_attention_keeps_for_its_backward_stays_high() -> None:
    def function(q: Any, k: Any, v: Any, g: Any) -> Any:
        y, lse = ops.attention(q, k, v, None, None, 0.5, None, causal=True)
        return ops.attention_backward(g, q, k, v, y, lse, None, None, 0.5, None, causal=True)

    graph = policy(traced(function, *[spec(2, 2, 3, 4)] * 4))
    forward, backward = (n.call for n in graph.nodes if n.call.op.name.startswith("attention"))
    assert [s.dtype for s in forward.results] == [DType.BF16, DType.F32]
    assert [s.dtype for s in backward.specs if isinstance(s, TensorSpec)] == [*[DType.BF16] * 5, DType.F32]
    assert [s.dtype for s in backward.results] == [DType.BF16] * 3


def test_types_that_are_not_float32_are_left_alone() -> None:
    wide = spec(3, 3, dtype=DType.F64)
    graph = traced(lambda x, y: ops.matmul(x, y) * 2.0, wide, wide)
    assert policy(graph) is graph
    whole = spec(3, 3, dtype=DType.I64)
    graph = traced(lambda x, y: ops.matmul(x, y), whole, whole)
    assert policy(graph) is graph


@pytest.mark.parametrize("example", [mnist_step(4), deep_mlp(2)], ids=["mnist", "mlp"])
def test_a_training_step_keeps_float32_parameters_and_gradients(example: tuple[Graph, tuple[int, ...]]) -> None:
    graph = dead_code(policy(example[0]))
    specs = graph.specs()
    for node in graph.nodes:
        if node.call.op.runs is not None:
            floats = {specs[i] for i in node.inputs if isinstance(i, int) and isinstance(specs[i], TensorSpec)}
            assert {s.dtype for s in floats if isinstance(s, TensorSpec)} == {DType.F32}
        if node.call.op.precision == "low":
            assert node.call.results[0].dtype is DType.BF16
        if node.call.op.precision == "high":
            assert all(s.dtype is not DType.BF16 for s in node.call.specs if isinstance(s, TensorSpec))
    cast = Counter(n.inputs[0] for n in graph.nodes if n.call.op.name == "cast" and n.call.attrs["dtype"] is DType.BF16)
    assert max(cast.values()) == 1, "each weight is cast once a step"


def test_the_step_learns_as_autocast_does(seed: np.random.Generator) -> None:
    # gradient of a two-layer network: ours against torch under autocast, both near float32
    leaf = LibTorch()
    shapes = [(16, 8), (8, 32), (32, 4), (16, 4)]
    x, v, w, g = (torch.from_numpy(seed.normal(size=s).astype(np.float32)) for s in shapes)

    def step(x: Any, v: Any, w: Any, g: Any) -> Any:
        hidden = ops.linear(x, v, None)
        y = ops.relu(hidden)
        dy = ops.relu_backward(ops.matmul(g, ops.permute(w, axes=(1, 0))), y)
        return ops.matmul(ops.permute(y, axes=(1, 0)), g), ops.matmul(ops.permute(x, axes=(1, 0)), dy)

    graph = policy(traced(step, *[leaf.spec(t) for t in (x, v, w, g)]))
    data = tuple(TensorData.of(t.numpy()) for t in (x, v, w, g))
    ours = run(graph, Program(graph, data), leaf)
    weights = [t.clone().requires_grad_() for t in (v, w)]
    with torch.autocast("cpu", torch.bfloat16):
        out = torch.relu(x @ weights[0]) @ weights[1]
    gradients = torch.autograd.grad(out, weights, g.to(out.dtype))
    for actual, expected in zip(ours, reversed(gradients), strict=True):
        assert actual.dtype == np.float32
        np.testing.assert_array_equal(actual, expected.numpy())


def test_precisions_agree_with_the_lists_of_torch_autocast() -> None:
    # https://docs.pytorch.org/docs/stable/amp.html, "CUDA ops that autocast to float16" and "to float32"
    low = {"matmul", "linear", "conv", "conv_transpose", "prelu", "attention", "linear_gelu", "matmul_gelu_backward"}
    high = {"pow", "acos", "asin", "cosh", "cumprod", "cumsum", "exp", "expm1", "group_norm", "layer_norm", "log",
            "log_softmax", "log1p", "prod", "recip", "rsqrt", "sinh", "softmax", "softplus", "sum",
            "tan", "binary_cross_entropy_with_logits", "negative_log_likelihood"}  # fmt: skip
    ours_alone = {"mean", "var", "var_mean", "logsumexp", "linear_scan", "band_scan", "log_band_scan", "ctc_loss",
                  "deform_conv", "quiet_softmax", "rms_norm", "batch_norm",
                  "batch_norm_inference", "log_sigmoid", "binary_cross_entropy", "embedding_backward",
                  "embedding_onto_backward", "cross_entropy_with_probabilities", "sgd_update", "momentum_update",
                  "lion_update", "adam_update", "lu", "qr", "cholesky", "eigh", "svd", "solve",
                  "solve_triangular", "det", "cofactors", "slogdet", "pinv", "over_gaps"}  # fmt: skip
    precisions = {name: row.precision for name, row in REGISTRY.items() if "::" not in name}
    assert {name for name in low if precisions[name] != "low"} == set()
    assert {name for name in high | ours_alone if precisions[name] != "high"} == set()
    gradients = {name for name, precision in precisions.items() if precision != "follow"} - low - high - ours_alone
    for name in gradients:  # a gradient row does as its forward row
        forward = name.removesuffix("_backward").removesuffix("_input_gradient").removesuffix("_weight_gradient")
        assert precisions[forward] == precisions[name], name


def test_another_precision_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"(?s)no such precision.*given:.*'float16'.*expected:.*'bfloat16'.*mend:"):
        dtype_policy(traced(lambda x: x, X), "float16")  # type: ignore[arg-type]
    assert names(dtype_policy(traced(lambda x: x * 1.0, X), "bfloat16")) == ["mul"]
