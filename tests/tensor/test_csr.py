"""CsrTensor beside the dense matrix in float64: products, gradients, conversions, one value to transforms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import burn_torch
from burn_torch import CsrTensor, Device, Tensor
from burn_torch.core.dtype import DType
from burn_torch.core.errors import BoundsError, DTypeError, ShapeError
from burn_torch.module import Module, Param

CPU, TAPE, NUMPY = Device.cpu(), Device.cpu().autodiff(), Device.ndarray()


def draw(seed: np.random.Generator, rows: int, cols: int) -> np.ndarray:
    return seed.normal(size=(rows, cols)) * (seed.random((rows, cols)) < 0.4)


def close(x: object, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(x), expected, 1e-10, 1e-12)


@pytest.mark.parametrize("device", [CPU, NUMPY, CPU.fused()], ids=["torch", "numpy", "fused"])
def test_it_computes_what_the_dense_matrix_does(device: Device, seed: np.random.Generator) -> None:
    for rows, cols in ((5, 7), (1, 3), (4, 1), (0, 3), (3, 0)):
        dense = draw(seed, rows, cols)
        a = CsrTensor.from_dense(Tensor.from_data(dense, device))
        assert (a.shape, a.ndim, a.entries, a.dtype) == ((rows, cols), 2, np.count_nonzero(dense), DType.F64)
        close(a, dense)
        close(a.transpose(), dense.T)
        close(a.sum_dim(0), dense.sum(0, keepdims=True))
        close(a.sum_dim(1), dense.sum(1, keepdims=True))
        close(-a * 2.0 / 3, -dense * 2.0 / 3)
        for shape in ((cols,), (cols, 3), (2, cols, 3), (2, 1, cols, 2)):
            x = seed.normal(size=shape)
            close(a @ Tensor.from_data(x, device), dense @ x)
        for shape in ((rows,), (3, rows), (2, 3, rows)):
            x = seed.normal(size=shape)
            close(Tensor.from_data(x, device) @ a, x @ dense)
        x, y = seed.normal(size=(rows, 4)), seed.normal(size=(cols, 4))
        close(a.sampled_matmul(Tensor.from_data(x, device), Tensor.from_data(y, device)), (x @ y.T) * (dense != 0))
        e = np.exp(dense) * (dense != 0)
        close(a.softmax(), e / np.maximum(e.sum(1, keepdims=True), 1e-300))


def test_entries_in_any_order_and_equal_places_add_up(seed: np.random.Generator) -> None:
    rows, columns, values = seed.integers(0, 4, 30), seed.integers(0, 3, 30), seed.normal(size=30)
    dense = np.zeros((4, 3))
    np.add.at(dense, (rows, columns), values)
    a = CsrTensor.from_coo(*(Tensor.from_data(x, CPU) for x in (rows, columns, values)), (4, 3))
    assert a.entries == 30
    x, y = seed.normal(size=(3, 2)), seed.normal(size=(4, 2))
    close(a, dense)
    close(a @ Tensor.from_data(x, CPU), dense @ x)
    close(a.transposed_matmul(Tensor.from_data(y, CPU)), dense.T @ y)
    close(a.transpose() @ Tensor.from_data(y, CPU), dense.T @ y)


def test_gradients_of_values_and_of_the_dense_side_are_those_of_torch(seed: np.random.Generator) -> None:
    dense, x, g = draw(seed, 6, 5), seed.normal(size=(5, 3)), seed.normal(size=(6, 3))
    theirs = torch.from_numpy(dense.copy()).requires_grad_()
    their_x = torch.from_numpy(x.copy()).requires_grad_()
    ((theirs @ their_x).sin() * torch.from_numpy(g)).sum().backward()
    ours = Tensor.from_data(dense, TAPE).require_grad()
    our_x = Tensor.from_data(x, TAPE).require_grad()
    a = CsrTensor.from_dense(ours)
    gradients = ((a @ our_x).sin() * Tensor.from_data(g, TAPE)).sum().backward()
    close(ours.grad(gradients), theirs.grad.numpy() * (dense != 0))
    close(our_x.grad(gradients), their_x.grad.numpy())
    leaf = a.detach().require_grad()
    gradient = leaf.grad(((leaf @ our_x.detach()).sin() * Tensor.from_data(g, TAPE)).sum().backward())
    assert gradient is not None
    close(gradient, theirs.grad.numpy() * (dense != 0))
    assert leaf.grad(our_x.sum().backward()) is None


def test_narrow_values_compute_wide(seed: np.random.Generator) -> None:
    dense, x = draw(seed, 6, 50), seed.normal(size=(50, 3))
    for dtype, allowed in ((DType.F32, 1e-6), (DType.BF16, 2e-2), (DType.F16, 2e-3)):
        a = CsrTensor.from_dense(Tensor.from_data(dense, CPU)).cast(dtype)
        y = a @ Tensor.from_data(x, CPU).cast(dtype)
        assert y.dtype is dtype
        wide = np.asarray(a.cast(DType.F64)) @ np.asarray(Tensor.from_data(x, CPU).cast(dtype).cast(DType.F64))
        np.testing.assert_allclose(np.asarray(y.cast(DType.F64)), wide, allowed, allowed)


def test_torch_has_the_same_matrix(seed: np.random.Generator) -> None:
    dense = draw(seed, 4, 6)
    theirs = torch.from_numpy(dense).to_sparse_csr()
    a = CsrTensor.from_torch(theirs)
    close(a, dense)
    close(a.into_torch().to_dense().numpy(), dense)
    assert repr(a) == f"CsrTensor((4, 6), {np.count_nonzero(dense)} entries of f64, cpu)"
    with pytest.raises(DTypeError, match=r"(?s)no CSR matrix.*to_sparse_csr"):
        CsrTensor.from_torch(torch.ones(2, 2))


# -- one value to the rest of the library --------------------------------------------------------------------
def propagate(a: CsrTensor, x: Tensor) -> tuple[CsrTensor, Tensor]:
    weights = a.sampled_matmul(x, x).softmax()
    return weights, weights @ x


def test_compiled_functions_take_and_give_it(seed: np.random.Generator) -> None:
    a = CsrTensor.from_dense(Tensor.from_data(draw(seed, 5, 5), CPU))
    x = Tensor.from_data(seed.normal(size=(5, 3)), CPU)
    compiled = burn_torch.compile(propagate)
    weights, y = compiled(a, x)
    assert isinstance(weights, CsrTensor)
    assert weights.cols == 5
    close(weights, np.asarray(propagate(a, x)[0]))
    close(y, np.asarray(propagate(a, x)[1]))
    wide = CsrTensor(a.values, a.columns, a.offsets, 9)  # another matrix, though all its tensors are the same
    assert burn_torch.compile(lambda a: a * 2.0)(wide).shape == (5, 9)
    slope = burn_torch.grad(lambda values, x: propagate(a.with_values(values), x)[1].sin().sum(), argnums=1)(
        a.values, x
    )
    close(slope, np.asarray(burn_torch.compile(burn_torch.grad(lambda x, a: propagate(a, x)[1].sin().sum()))(x, a)))


def test_samples_of_values_share_places(seed: np.random.Generator) -> None:
    a = CsrTensor.from_dense(Tensor.from_data(draw(seed, 4, 3), CPU))
    values, x = seed.normal(size=(2, a.entries)), seed.normal(size=(2, 3, 2))
    many = burn_torch.vmap(lambda v, x: a.with_values(v) @ x)(Tensor.from_data(values, CPU), Tensor.from_data(x, CPU))
    each = [np.asarray(a.with_values(Tensor.from_data(v, CPU))) @ y for v, y in zip(values, x, strict=True)]
    close(many, np.stack(each))


class Convolution(Module):
    """A graph convolution over fixed edges."""

    edges: CsrTensor
    weight: Param

    def forward(self, x: Tensor) -> Tensor:
        return self.edges @ x.matmul(self.weight.val())


def test_a_module_keeps_it_as_a_field(tmp_path: Path, seed: np.random.Generator) -> None:
    dense, weight, x = draw(seed, 4, 4), seed.normal(size=(3, 2)), seed.normal(size=(4, 3))
    edges = CsrTensor.from_dense(Tensor.from_data(dense, CPU))
    model = Convolution(edges, Param.from_tensor(Tensor.from_data(weight, CPU)))
    expected = dense @ (x @ weight)
    close(burn_torch.compile(lambda model, x: model.forward(x))(model, Tensor.from_data(x, CPU)), expected)
    moved = model.to_device(NUMPY)
    assert moved.edges.device == NUMPY
    close(moved.forward(Tensor.from_data(x, NUMPY)), expected)
    model.save_file(tmp_path / "graph")
    blank = Convolution(edges, Param.from_tensor(Tensor.zeros((3, 2), (CPU, DType.F64))))
    close(blank.load_file(tmp_path / "graph").forward(Tensor.from_data(x, CPU)), expected)
    assert len(burn_torch.grad(lambda model: model.forward(Tensor.from_data(x, CPU)).sum())(model)) == 1


def test_what_does_not_fit_is_refused() -> None:
    values, columns, offsets = Tensor.ones((2,), CPU), Tensor.from_ints([0, 1], CPU), Tensor.from_ints([0, 2], CPU)
    with pytest.raises(ShapeError, match=r"(?s)do not fit together.*given:.*expected:.*mend:"):
        CsrTensor(values, columns[:1], offsets, 3)
    with pytest.raises(DTypeError, match="other types"):
        CsrTensor(columns, columns, offsets, 3)
    with pytest.raises(ShapeError, match="only matrices"):
        CsrTensor.from_dense(values)
    with pytest.raises(ShapeError, match="do not fit together"):
        CsrTensor.from_coo(columns, columns, values[:1], (2, 2))
    with pytest.raises(BoundsError, match="out of range"):
        CsrTensor.from_coo(Tensor.from_ints([0, 5], CPU), columns, values, (2, 2))
    a = CsrTensor(values, columns, offsets, 3)
    with pytest.raises(ShapeError, match="the sparse and the dense matrix"):
        a @ Tensor.ones((2, 2), CPU)
    with pytest.raises(BoundsError, match="out of range"):
        CsrTensor(values, Tensor.from_ints([0, 7], CPU), offsets, 3) @ Tensor.ones((3, 2), CPU)
    with pytest.raises(TypeError):
        a + a  # type: ignore[operator]  # not there, on purpose
