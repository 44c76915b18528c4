"""The example's GPT-2 against torch in float64: loss, all gradients, what each position sees; and its program."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from burn_torch import Device, Tensor
from tests.nn.twin_modules import filled

FOUND = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "gpt2" / "gpt2.py"))
SIZES = {"vocab_size": 11, "context": 7, "d_model": 6, "n_heads": 2, "n_layers": 2}


@pytest.fixture
def model():
    return FOUND["Gpt2Config"](**SIZES, dropout=0.0).init(Device.cpu().autodiff())


def torch_loss(values, tokens, targets):
    """GPT-2 written with torch's functions, in the dtype of the values."""

    def norm(x, path):
        return F.layer_norm(x, (SIZES["d_model"],), values[f"{path}.gamma"], values[f"{path}.beta"])

    def linear(x, path):
        return x @ values[f"{path}.weight"] + values[f"{path}.bias"]

    batch, seq = tokens.shape
    x = values["tokens.weight"][tokens] + values["positions"][:seq]
    for i in range(SIZES["n_layers"]):
        packed = linear(norm(x, f"blocks.{i}.norm_1"), f"blocks.{i}.qkv")
        query, key, value = packed.view(batch, seq, 3, SIZES["n_heads"], -1).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
        scores = scores.masked_fill(torch.ones(seq, seq, dtype=torch.bool).triu(1), -torch.inf)
        read = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, seq, -1)
        x = x + linear(read, f"blocks.{i}.projection")
        inner = F.gelu(linear(norm(x, f"blocks.{i}.norm_2"), f"blocks.{i}.inner"), approximate="tanh")
        x = x + linear(inner, f"blocks.{i}.outer")
    logits = norm(x, "norm") @ values["tokens.weight"].T
    return F.cross_entropy(logits.reshape(batch * seq, -1), targets.reshape(-1))


@pytest.mark.parametrize("seq", [7, 4])
def test_loss_and_gradients_are_those_of_torch(seed, model, seq):
    values = {path: 0.3 * seed.standard_normal(param.shape) for path, param in model.named_params()}
    model = filled(model, values)
    tokens, targets = (seed.integers(0, SIZES["vocab_size"], (3, seq)) for _ in range(2))
    leaves = {path: torch.tensor(value, requires_grad=True) for path, value in values.items()}
    expected = torch_loss(leaves, torch.from_numpy(tokens), torch.from_numpy(targets))
    gradients = torch.autograd.grad(expected, list(leaves.values()))

    device = Device.cpu().autodiff()
    loss = model.loss(Tensor.from_data(tokens, device), Tensor.from_data(targets, device))
    assert abs(float(loss.into_scalar()) - expected.item()) < 1e-12
    grads = loss.backward()
    for (path, param), gradient in zip(model.named_params(), gradients, strict=True):
        got = param.val().grad(grads)
        assert got is not None
        np.testing.assert_allclose(got.into_data().array, gradient.numpy(), rtol=0, atol=1e-12, err_msg=path)


def test_a_position_sees_nothing_after_it(seed, model):
    tokens = seed.integers(0, SIZES["vocab_size"], (1, 7))
    other = tokens.copy()
    other[0, 5:] = (other[0, 5:] + 1) % SIZES["vocab_size"]
    ones, others = (model.forward(Tensor.from_data(t, Device.cpu())).into_data().array for t in (tokens, other))
    np.testing.assert_array_equal(ones[:, :5], others[:, :5])
    assert (ones[:, 5:] != others[:, 5:]).any()


def test_gpt2_of_the_paper_has_124_million_parameters():
    assert FOUND["Gpt2Config"]().init(Device.cpu()).num_params() == 124_439_808  # tied: the table counts once


def test_the_program_learns_and_writes(capsys):
    text = np.array([0, 1, 2, 3] * 40)
    config = FOUND["Gpt2Config"](vocab_size=4, context=8, d_model=16, n_heads=2, n_layers=1, dropout=0.1)
    model, last = FOUND["train"](config, text, 80, Device.cpu().autodiff(), lr=1e-2)
    assert last < 0.1
    assert model.valid().generate([0, 1], 6, np.random.default_rng(0)) == [0, 1, 2, 3, 0, 1, 2, 3]
    assert capsys.readouterr().out.startswith("step    0  loss 1.")
