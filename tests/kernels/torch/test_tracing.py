"""torch.fx traces models that hold our modules: what looks at an input is one node, as torch's own modules are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx, nn

import burn_kernels.torch as bk
from burn_kernels.torch import functional as F

IMAGES = (2, 6, 4, 5)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "layer norm": (lambda: nn.LayerNorm(6), (4, 6)),
    "rms norm": (lambda: nn.RMSNorm(6), (4, 6)),
    "batch norm": (lambda: nn.BatchNorm2d(6), IMAGES),
    "batch norm, evaluated": (lambda: nn.BatchNorm2d(6).eval(), IMAGES),
    "batch norm, the mean over batches": (lambda: nn.BatchNorm1d(6, momentum=None), (4, 6)),
    "group norm": (lambda: nn.GroupNorm(2, 6), IMAGES),
    "instance norm": (lambda: nn.InstanceNorm2d(6, affine=True), IMAGES),
    "convolution": (lambda: nn.Conv2d(6, 4, 3), IMAGES),
    "softmax": (lambda: nn.Softmax(1), (4, 6)),
    "log-softmax": (lambda: nn.LogSoftmax(1), (4, 6)),
    "dropout": (lambda: nn.Dropout(0.4), (4, 6)),
    "pairs": (lambda: nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 3), nn.ReLU()), (4, 6)),
    "swiglu": (bk.SwiGLU, (4, 6)),
    "activations": (lambda: nn.Sequential(bk.GELU(), bk.SiLU(), bk.ReLU()), (4, 6)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_traced_model_computes_the_same(name: str) -> None:
    make, shape = MODELS[name]
    model = nn.Sequential(make(), nn.Identity())
    bk.patch(model, dropout=True)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    traced = fx.symbolic_trace(model)
    x, dy = torch.randn(shape), None
    results = []
    for call in (model, traced):
        model.load_state_dict(before)
        torch.manual_seed(7)
        leaf = x.clone().requires_grad_()
        y = call(leaf)
        dy = torch.randn_like(y) if dy is None else dy
        results.append(
            (y, *torch.autograd.grad(y, leaf, dy), *(value.clone() for value in model.state_dict().values()))
        )
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_a_loss_and_an_embedding_are_one_node_each() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.loss = nn.Embedding(9, 6), nn.CrossEntropyLoss(label_smoothing=0.1)

        def forward(self, ids: Any, targets: Any) -> Any:
            return self.loss(self.table(ids), targets)

    model = Model()
    bk.patch(model)
    traced = fx.symbolic_trace(model)
    called = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert F.cross_entropy in called
    assert F.embedding in called
    ids, targets = torch.randint(0, 9, (5,)), torch.randint(0, 6, (5,))
    assert torch.equal(traced(ids, targets), model(ids, targets))


def test_a_traced_dropout_draws_a_mask_at_each_call() -> None:
    # its seed, drawn while torch.fx traced, was a constant of the graph
    model = nn.Sequential(nn.Dropout(0.5))
    bk.patch(model, dropout=True)
    traced = fx.symbolic_trace(model)
    x = torch.ones(1000)
    assert not torch.equal(traced(x), traced(x))


def test_modules_that_look_at_their_input_are_nodes_of_their_own() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    plain = [(node.op, node.target) for node in fx.symbolic_trace(model).graph.nodes]
    bk.patch(model)
    assert [(node.op, node.target) for node in fx.symbolic_trace(model).graph.nodes] == plain
