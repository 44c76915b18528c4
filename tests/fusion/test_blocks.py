"""Ten blocks of models, forward and backward: how many kernels they are, and why there are boundaries between them."""

from __future__ import annotations

import functools
import gc
import threading

import pytest

import burn_torch
from burn_torch import Device, compile, explain
from burn_torch.fusion import FusionExplanation, Reason
from burn_torch.transform.explanation import Explanation
from tests.fusion.blocks import BLOCKS, REAL

# What a good grouping by hand gives: L are functions of libraries (products, convolutions, attention, pooling, cross
# entropy, optimizer, single operations), G generated kernels.
CEILINGS = {
    # L: 6 linear, 12 products of their backward, attention and its backward: 20; a norm, a GELU; the biases of the four
    # projections around attention are sums of what libraries made.  G: residual + norm; residual + gradient of the loss
    # + bias; GELU backward + bias; two norm backwards, each with its columns and a bias; the finish of all parts: 6.
    "transformer, pre-norm": 32,
    # L: 6 linear, 18 products (attention in parts, since its weights are dropped), the scale, 3 biases: 28.  G: softmax
    # + dropout and its backward; dropout + residual + norm; GELU + dropout and its backward + bias; the end: residual +
    # norm + loss + norm backward + two biases; the first norm's backward; the value path's bias; dx; the finish: 10.
    "transformer, post-norm": 38,
    # L: 7 linear, 14 products, attention and its backward: 23; a norm.  G: residual + norm; SwiGLU and its backward;
    # residual + loss; two norm backwards with columns; the finish: 7; the four rotations, each with its `cat`: 4.
    "grouped queries, RoPE, SwiGLU": 35,
    # L: 2 convolutions and 4 gradients.  G: norm + ReLU; norm + residual + ReLU + loss and the backward of these; the
    # other norm's backward + ReLU; the end of the backward, which adds both paths: 4.
    "ResNet basic": 10,
    # L: 9.  G: as above, with one more norm on the way there and on the way back: 6.
    "ResNet bottleneck": 15,
    # L: 4 linear, 8 products, a norm, two GELUs: 15.  G: residual + norm; residual + loss + bias; two GELU backwards +
    # bias; two norm backwards with columns and biases; the finish of the token bias, of other columns; the other: 8.
    "MLP-mixer": 23,
    # L: 2 linear, 4 products, 2 `cat` that put weights side by side: 8.  G: the biases side by side; the gates; the
    # cell and its hidden state; the results side by side less the target; all of the backward; two gradients of gates
    # side by side, each with the sums of its bias; the gradient of x, of `pad` of three slices: 8.  One kernel for
    # gates and cell would hold more at once than the operations do.
    "LSTM cell": 16,
    # L: 2 convolutions, 4 gradients, pooling there and back: 8.  G: two norms + ReLU, and their backwards; the results
    # side by side less the target: 5.
    "U-Net down": 13,
    # L: a convolution and its two gradients.  G: all the rest, there and back, as each channel fits a program.
    "GAN discriminator": 4,
    # L: a norm, linear, two products, cross entropy and its backward, the number that the backward begins with, AdamW
    # of all tensors, the bias of the head: 9.  G: the norm's columns and their finish; each gradient's norm and clip:
    # sums and scale of the large one; the small ones side by side, in two launches, one of which ends the large sum.
    "loss and optimizer": 15,
}


@functools.cache
def explained(name: str) -> Explanation:
    burn_torch.seed(1)
    block = BLOCKS[name]
    return explain(compile(block.step, fuse=True), *block.make(Device.cpu().autodiff(), REAL))


def planned(name: str) -> FusionExplanation:
    explanation = explained(name).fusion
    assert explanation is not None
    return explanation


@pytest.mark.parametrize("name", BLOCKS)
def test_no_more_kernels_than_a_good_grouping_by_hand(name: str) -> None:
    explanation = planned(name)
    assert len(explanation.kernels) <= CEILINGS[name], str(explanation)


@pytest.mark.parametrize("name", BLOCKS)
def test_every_boundary_has_one_reason_of_the_closed_list(name: str) -> None:
    explanation = planned(name)
    assert explanation.boundaries
    for boundary in explanation.boundaries:
        assert boundary.reason in set(Reason)
        assert boundary.bytes > 0
        assert boundary.detail
        assert "other groups came first" not in boundary.detail, "the words for what the scheduler cannot explain"
    assert "unknown" not in str(explanation).lower()
    assert "unknown" not in explanation.to_json().lower()


@pytest.mark.parametrize("name", BLOCKS)
def test_every_value_between_two_kernels_is_a_boundary(name: str) -> None:
    explanation = planned(name)
    graph = explanation.graph
    boundary_values = {boundary.value for boundary in explanation.boundaries}
    maker = {i: node for node in graph.nodes for i in node.outputs if i is not None}
    specs = graph.specs()
    for node in graph.nodes:
        if node.call.is_number or node.call.aliases:
            continue
        for i in node.inputs:
            while isinstance(i, int) and i in maker and maker[i].call.aliases:
                i = maker[i].inputs[0]  # views have no kernel of their own
            computed = isinstance(i, int) and i in maker and not maker[i].call.is_number
            if computed and specs[i].numel and any(isinstance(j, int) for j in maker[i].inputs):  # no constant
                assert i in boundary_values, f"%{i}: {maker[i].call.op.name} -> {node.call.op.name}"


@pytest.mark.parametrize("name", BLOCKS)
def test_kernels_move_less_than_operations(name: str) -> None:
    explanation = planned(name)
    saved = sum(kernel.bytes_saved for kernel in explanation.kernels)
    moved = sum(kernel.bytes_read + kernel.bytes_written for kernel in explanation.kernels)
    assert saved > 0
    assert moved > 0
    assert all(kernel.bytes_written for kernel in explanation.kernels)


@pytest.mark.parametrize("name", BLOCKS)
def test_no_block_needs_more_memory_fused(name: str) -> None:
    """But for the first steps of reductions, which a library's take too and tell nobody."""
    before, after = next((r.bytes_before, r.bytes_after) for r in explained(name).passes if r.name == "fuse")
    parts = sum(kernel.bytes_written for kernel in planned(name).kernels if "sum" in kernel.rows)
    assert after <= before + min(parts, before // 20)


def test_the_same_block_gives_the_same_kernels_whatever_else_goes_on() -> None:
    names = [kernel.name for kernel in planned("GAN discriminator").kernels]
    over = threading.Event()

    def busy() -> None:
        while not over.wait(0.002):
            [object() for _ in range(1000)]

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(4):
            (gc.disable if turn % 2 else gc.enable)()
            explained.cache_clear()
            assert [kernel.name for kernel in planned("GAN discriminator").kernels] == names
    finally:
        gc.enable()
        over.set()
        for thread in threads:
            thread.join()
