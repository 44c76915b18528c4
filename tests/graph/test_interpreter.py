"""The interpreter, the oracle of every executor: on random graphs, on every leaf, against what leaves compile."""

from __future__ import annotations

from hypothesis import given, settings

from burn_torch.backend.libtorch.leaf import LibTorch
from burn_torch.backend.ndarray.leaf import NdArray
from tests.graph.random_graphs import Program, assert_same_bits, on_host, programs


@settings(max_examples=200, deadline=None)
@given(programs(exact=True))
def test_leaves_agree_in_every_bit_where_rows_round_once(program: Program) -> None:
    assert_same_bits(program.run(NdArray()), program.run(LibTorch()))


@settings(max_examples=100, deadline=None)
@given(programs())
def test_compiled_graph_gives_the_bits_of_the_interpreter(program: Program) -> None:
    for leaf in (LibTorch(), NdArray()):
        outputs = leaf.compile(program.graph)(*program.inputs(leaf))
        assert_same_bits(on_host(leaf, outputs), program.run(leaf))


@settings(max_examples=50, deadline=None)
@given(programs(backward=True, max_nodes=8))
def test_compiled_gradients_give_the_bits_of_the_interpreter(program: Program) -> None:
    leaf = LibTorch()
    outputs = leaf.compile(program.graph)(*program.inputs(leaf))
    assert_same_bits(on_host(leaf, outputs), program.run(leaf))
