"""An imported model can be exported again, for any batch and length; an error says where it cannot."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

pytest.importorskip("onnx")

from burn_torch import Device, OnnxError, Tensor
from burn_torch.onnx import export, load


def session(path):
    return pytest.importorskip("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])


class Encoder(torch.nn.Module):
    """Tokens with a class token before them, learned positions, attention with heads and a causal mask."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(20, 8), torch.nn.Embedding(40, 8)
        self.first = torch.nn.Parameter(torch.randn(1, 1, 8))
        self.attention, self.norm, self.out = torch.nn.Linear(8, 24), torch.nn.LayerNorm(8), torch.nn.Linear(8, 5)

    def forward(self, ids):
        x = torch.cat([self.first.expand(ids.shape[0], -1, -1), self.tokens(ids)], 1)
        batch, seq, _ = x.shape
        x = x + self.places(torch.arange(seq))
        q, k, v = self.attention(self.norm(x)).view(batch, seq, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mask = torch.full((seq, seq), float("-inf")).triu(1)
        weights = torch.softmax(q @ k.transpose(-1, -2) / seq**0.5 + mask, -1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, seq, 8) + x)


def test_what_was_imported_goes_out_again_for_any_batch_and_length(tmp_path):
    torch.manual_seed(0)
    module, ids = Encoder().eval(), torch.randint(0, 20, (2, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (ids,),
            tmp_path / "in.onnx",
            input_names=["ids"],
            dynamo=False,
            opset_version=17,
            dynamic_axes={"ids": {0: "batch", 1: "seq"}},
        )
    model = load(tmp_path / "in.onnx", Device.cpu().autodiff())
    tensor = Tensor.from_data(ids.numpy(), Device.cpu())
    axes = {"ids": {0: "batch", 1: "seq"}}
    export(model, tensor, tmp_path / "out.onnx", input_names=["ids"], dynamic_dims=axes)
    other = torch.randint(0, 20, (3, 11))
    (output,) = session(tmp_path / "out.onnx").run(None, {"ids": other.numpy()})
    np.testing.assert_allclose(output, module(other).detach().numpy(), atol=1e-5)


def test_an_index_that_depends_on_a_size_is_put_together_when_the_graph_runs(tmp_path):
    def last_rows(x):
        n = x.dims()[0]
        return x.select(0, Tensor.from_data(np.array([n - 1, 2 * n - 2 - n, 0]), x.device))

    x = Tensor.from_data(np.arange(12, dtype=np.float32).reshape(4, 3), Device.cpu())
    export(last_rows, x, tmp_path / "m.onnx", dynamic_batch=True)
    more = np.arange(27, dtype=np.float32).reshape(9, 3)
    (rows,) = session(tmp_path / "m.onnx").run(None, {"x": more})
    np.testing.assert_array_equal(rows, more[[8, 7, 0]])


def test_data_that_depends_on_a_size_names_what_reads_it(tmp_path):
    def weighted(x):
        return x * Tensor.from_data(np.random.default_rng(0).random(x.dims()[0]).astype(np.float32), x.device)

    with pytest.raises(
        OnnxError, match=r"depends on the size[\s\S]*read by mul at .*weighted[\s\S]*expected[\s\S]*mend"
    ):
        export(weighted, Tensor.zeros((4,), Device.cpu()), tmp_path / "m.onnx", dynamic_batch=True)
