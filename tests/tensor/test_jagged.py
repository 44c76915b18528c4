"""JaggedTensor beside loops over its sequences: conversions, reductions, embedding, attention, transforms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import burn_torch
from burn_torch import Device, JaggedTensor, Tensor
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, BoundsError, DTypeError, ShapeError
from burn_torch.tensor import functional

CPU, TAPE, NUMPY = Device.cpu(), Device.cpu().autodiff(), Device.ndarray()
DEVICES = pytest.mark.parametrize("device", [CPU, NUMPY, CPU.fused()], ids=["torch", "numpy", "fused"])


def draw(seed: np.random.Generator, lengths: list[int], *features: int) -> list[np.ndarray]:
    return [seed.normal(size=(n, *features)) for n in lengths]


def jagged(parts: list[np.ndarray], device: Device = CPU) -> JaggedTensor:
    return JaggedTensor.from_list([Tensor.from_data(p, device) for p in parts])


def close(x: object, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(x), expected, 1e-9, 1e-11)


LENGTHS = [[3, 0, 5, 1], [0, 0], [4], [2, 2, 2]]


@DEVICES
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_sequences_come_back_as_they_were(lengths: list[int], device: Device, seed: np.random.Generator) -> None:
    parts = draw(seed, lengths, 2)
    x = jagged(parts, device)
    assert (len(x), x.total, x.dtype) == (len(lengths), sum(lengths), DType.F64)
    assert x.lengths().into_data().to_vec() == lengths
    assert x.longest() == max(lengths)
    for ours, theirs in zip(x, parts, strict=True):
        close(ours, theirs)
    for longest in (None, max(lengths) + 2, 2):
        size = max(lengths) if longest is None else longest
        padded, hidden = np.full((len(lengths), size, 2), -7.0), np.ones((len(lengths), size), bool)
        for i, part in enumerate(parts):
            padded[i, : len(part)], hidden[i, : len(part)] = part[:size], False
        close(x.to_padded(-7.0, longest), padded)
        close(x.to_padded(longest=longest), np.where(hidden[..., None], 0.0, padded))
        np.testing.assert_array_equal(np.asarray(x.mask_pad(longest)), hidden)
    at = Tensor.from_ints(lengths, device)
    close(JaggedTensor.from_padded(x.to_padded(9.0), at).values, np.concatenate(parts))
    close(JaggedTensor.from_lengths(x.values, at).sum(), np.stack([p.sum(0) for p in parts]))


def test_lists_of_numbers_and_nothing_at_all() -> None:
    x = JaggedTensor.from_list([[5, 2, 9], [], [7, 1]], CPU)
    assert [part.into_data().to_vec() for part in x.to_list()] == [[5, 2, 9], [], [7, 1]]
    assert x.dtype is DType.I64
    for empty in (JaggedTensor.from_list([], CPU), JaggedTensor.from_list([[], []], CPU)):
        assert empty.total == 0
        assert empty.to_padded().shape == (len(empty), 0)
        assert empty.sum().shape == (len(empty),)
    assert repr(x) == f"JaggedTensor(3 sequences, values {x.values.spec})"


@DEVICES
def test_reductions_softmax_and_operators_are_those_of_a_loop(device: Device, seed: np.random.Generator) -> None:
    parts, others = draw(seed, [3, 1, 5], 2), draw(seed, [3, 1, 5], 2)
    x, y = jagged(parts, device), jagged(others, device)
    for name in ("sum", "mean", "prod", "max", "min"):
        close(getattr(x, name)(), np.stack([getattr(np, name)(p, axis=0) for p in parts]))
    exponents = [np.exp(p) for p in parts]
    close(x.softmax().values, np.concatenate([e / e.sum(0) for e in exponents]))
    close((2 - x * y / 3 + (-x) - 1 / y).values, np.concatenate(parts) * -np.concatenate(others) / 3 + 2
          - np.concatenate(parts) - 1 / np.concatenate(others))  # fmt: skip
    close((x - x.expand(x.mean())).values, np.concatenate([p - p.mean(0) for p in parts]))
    close(x.map(lambda v: v.tanh()).values, np.tanh(np.concatenate(parts)))
    assert x.ids().into_data().to_vec() == [0] * 3 + [1] + [2] * 5


def attend(
    parts: list[torch.Tensor], keys: list[torch.Tensor], values: list[torch.Tensor], causal: bool, softcap: float | None
) -> torch.Tensor:
    results = []
    for q, k, v in zip(parts, keys, values, strict=True):
        repeat = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[2])
        scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
        if causal:
            scores = scores.masked_fill(torch.ones(len(q), len(k)).triu(1).bool(), -math.inf)
        y = (
            torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)
            if len(k)
            else torch.zeros(*q.shape[:2], v.shape[2], dtype=q.dtype)
        )
        results.append(y)
    return torch.cat(results)


@DEVICES
@pytest.mark.parametrize(("causal", "softcap"), [(False, None), (True, 1.5)])
def test_attention_is_that_of_each_sequence(
    causal: bool, softcap: float | None, device: Device, seed: np.random.Generator
) -> None:
    lengths, key_lengths = [3, 0, 5, 1], [3, 2, 5, 1] if causal else [4, 2, 1, 0]
    q, k, v = draw(seed, lengths, 4, 3), draw(seed, key_lengths, 2, 3), draw(seed, key_lengths, 2, 5)
    y = jagged(q, device).attention(jagged(k, device), jagged(v, device), causal=causal, softcap=softcap)
    expected = attend(*([torch.from_numpy(p) for p in parts] for parts in (q, k, v)), causal, softcap)
    close(y.values, expected.numpy())


def test_gradients_of_attention_are_those_of_torch(seed: np.random.Generator) -> None:
    lengths = [3, 0, 5, 1]
    parts = [draw(seed, lengths, 2, 3) for _ in range(3)]
    theirs = [[torch.from_numpy(p).requires_grad_() for p in each] for each in parts]
    ours = [JaggedTensor.from_list([Tensor.from_data(p, TAPE) for p in each]).require_grad() for each in parts]
    y = ours[0].attention(ours[1], ours[2], causal=True)
    g = seed.normal(size=y.values.shape)
    gradients = (y.values * Tensor.from_data(g, TAPE)).sum().backward()
    (attend(*theirs, True, None) * torch.from_numpy(g)).sum().backward()
    for our, their in zip(ours, theirs, strict=True):
        gradient = our.grad(gradients)
        assert gradient is not None
        close(gradient.values, np.concatenate([np.zeros(t.shape) if t.grad is None else t.grad.numpy() for t in their]))


def test_an_embedding_and_attention_compile_as_one_step(seed: np.random.Generator) -> None:
    table = Tensor.from_data(seed.normal(size=(10, 8)), CPU)
    tokens = JaggedTensor.from_list([[5, 2, 9], [], [7, 1]], CPU)

    def step(table: Tensor, tokens: JaggedTensor) -> Tensor:
        x = tokens.embedding(table).map(lambda v: v.reshape((-1, 2, 4)))
        return x.attention(x, x, causal=True, longest=3).map(lambda v: v.flatten(1, 2)).mean()

    close(burn_torch.compile(step)(table, tokens), np.asarray(step(table, tokens)))
    loss = burn_torch.grad(lambda table, tokens: step(table, tokens).sin().sum())
    close(burn_torch.compile(loss)(table, tokens), np.asarray(loss(table, tokens)))
    rows = np.asarray(table)[[5, 2, 9, 7, 1]].reshape(5, 1, 2, 4)
    q = torch.from_numpy(rows.reshape(5, 2, 4))
    expected = attend(*[[q[:3], q[3:3], q[3:]]] * 3, True, None).reshape(5, 8).numpy()
    close(step(table, tokens), np.stack([expected[:3].mean(0), np.zeros(8), expected[3:].mean(0)]))


def test_padded_attention_agrees_in_narrow_types(seed: np.random.Generator) -> None:
    q, k, v = (jagged(draw(seed, [6, 2, 9], 2, 8)).cast(DType.BF16) for _ in range(3))
    y = q.attention(k, v).cast(DType.F64)
    padded = (x.to_padded().cast(DType.F64).swap_dims(1, 2) for x in (q, k, v))
    mask = q.mask_pad().reshape((3, 1, 1, 9))
    wide = functional.attention(*padded, mask).swap_dims(1, 2)
    expected = JaggedTensor.from_padded(wide, q.lengths())
    np.testing.assert_allclose(np.asarray(y.values), np.asarray(expected.values), 0.03, 0.03)


def test_many_samples_of_entries_share_sequences(seed: np.random.Generator) -> None:
    x = seed.normal(size=(3, 5, 2))
    at = Tensor.from_ints([0, 2, 2, 5], CPU)
    many = burn_torch.vmap(lambda v: JaggedTensor(v, at).softmax().max())(Tensor.from_data(x, CPU))
    each = [np.asarray(JaggedTensor(Tensor.from_data(v, CPU), at).softmax().max()) for v in x]
    np.testing.assert_allclose(np.asarray(many), np.stack(each), 1e-12)


def test_what_does_not_fit_is_refused() -> None:
    x = JaggedTensor.from_list([[1.0, 2.0], [3.0]], CPU)
    with pytest.raises(ShapeError, match=r"(?s)do not fit together.*given:.*expected:.*mend:"):
        JaggedTensor(x.values, Tensor.from_ints([], CPU))
    with pytest.raises(DTypeError, match="whole numbers"):
        JaggedTensor(x.values, x.values)
    with pytest.raises(ShapeError, match="not as many"):
        x.with_values(x.values[:2])
    with pytest.raises(ShapeError, match="sequences of the two sides differ"):
        x + JaggedTensor.from_list([[1.0]], CPU)
    with pytest.raises(ArgumentError, match="lie on no device"):
        JaggedTensor.from_list([[1.0]])
    with pytest.raises(ArgumentError, match="from_list"):
        JaggedTensor.from_list([3], CPU)  # type: ignore[list-item]  # refused
    with pytest.raises(BoundsError, match="not those of sequences"):
        JaggedTensor(x.values, Tensor.from_ints([0, 9], CPU)).to_list()
    with pytest.raises(BoundsError, match="not those of segments"):
        np.asarray(JaggedTensor(x.values, Tensor.from_ints([0, 9], CPU)).sum())
    q = x.map(lambda v: v.reshape((3, 1, 1)))
    with pytest.raises(BoundsError, match="longer than longest says"):
        q.attention(q, q, longest=1)
    with pytest.raises(DTypeError, match="key has no sequences"):
        q.attention(q.values, q)  # type: ignore[arg-type]  # refused
