"""burn_torch.tensor.linalg against torch in float64: values and gradients on both leaves, edges, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, DType, Tensor, compile, hessian, vjp, vmap
from burn_torch.core.errors import ArgumentError, AutodiffError, DTypeError, ShapeError
from burn_torch.tensor import check_closeness, linalg
from burn_torch.tensor.linalg import Norm
from tests.tensor.leaves import LEAVES

Function = Callable[..., Any]
L = torch.linalg

SQUARE, BATCH, TALL, WIDE, EMPTY = (4, 4), (2, 1, 3, 3), (2, 5, 3), (3, 5), (0, 3, 3)


def regular(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape)


def symmetric(*shape: int) -> np.ndarray[Any, Any]:
    x = regular(*shape)
    return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])


def rebuilt(u: Any, s: Any, vt: Any) -> Any:
    return (u * s[..., None, :] if isinstance(s, torch.Tensor) else u * s.unsqueeze_dim(-2)) @ vt


def with_trace(x: torch.Tensor) -> torch.Tensor:
    return x.diagonal(0, -2, -1).sum(-1, keepdim=True)


def of_signs(x: Any) -> Any:
    return x * x  # what does not depend on the signs of vectors


CASES: dict[str, tuple[Function, Function, list[tuple[Any, ...]]]] = {
    "det": (linalg.det, L.det, [(regular(*SQUARE),), (regular(*BATCH),), (regular(*EMPTY),)]),
    "det of singular": (linalg.det, L.det, [(np.ones((1, 1)) * 0,)]),
    "slogdet": (linalg.slogdet, L.slogdet, [(regular(*SQUARE),), (regular(*BATCH),)]),
    "logdet": (linalg.logdet, torch.logdet, [(symmetric(*SQUARE),)]),
    "diag": (linalg.diag, lambda x: x.diagonal(0, -2, -1), [(regular(*TALL),), (regular(*WIDE),)]),
    "trace": (linalg.trace, with_trace, [(regular(*SQUARE),), (regular(*TALL),), (regular(*EMPTY),)]),
    "lu": (linalg.lu, L.lu, [(regular(*SQUARE),), (regular(*TALL),), (regular(*WIDE),), (regular(*EMPTY),)]),
    "qr": (linalg.qr, L.qr, [(regular(*SQUARE),), (regular(*TALL),), (regular(*WIDE),)]),
    "complete qr": (
        lambda x: linalg.qr(x, reduced=False),
        lambda x: L.qr(x, mode="complete"),
        [(regular(*WIDE),), (regular(*BATCH),)],
    ),
    "cholesky": (linalg.cholesky, L.cholesky, [(symmetric(*SQUARE),), (symmetric(*BATCH),)]),
    "upper cholesky": (
        lambda x: linalg.cholesky(x, upper=True), lambda x: L.cholesky(x, upper=True), [(symmetric(*SQUARE),)]
    ),
    "eigvalsh": (linalg.eigvalsh, L.eigvalsh, [(symmetric(*SQUARE),), (symmetric(*BATCH),)]),
    "eigh": (
        lambda x: of_signs(linalg.eigh(x)[1]),
        lambda x: of_signs(L.eigh(x)[1]),
        [(symmetric(*SQUARE),), (symmetric(*BATCH),)],
    ),
    "svdvals": (linalg.svdvals, L.svdvals, [(regular(*SQUARE),), (regular(*TALL),), (regular(*WIDE),)]),
    "svd": (
        lambda x: [rebuilt(*linalg.svd(x, full_matrices=False)), *map(of_signs, linalg.svd(x, full_matrices=False))],
        lambda x: [rebuilt(*L.svd(x, full_matrices=False)), *map(of_signs, L.svd(x, full_matrices=False))],
        [(regular(*SQUARE),), (regular(*TALL),), (regular(*WIDE),)],
    ),
    "solve": (
        linalg.solve,
        L.solve,
        [
            (regular(*SQUARE), regular(4, 2)),
            (regular(*SQUARE), regular(4)),
            (regular(*BATCH), regular(2, 1, 3)),
            (regular(*BATCH), regular(4, 3, 2)),
            (regular(*EMPTY), regular(3, 2)),
        ],
    ),
    "solve_triangular": (
        lambda a, b: linalg.solve_triangular(a, b, upper=True),
        lambda a, b: L.solve_triangular(a, b, upper=True),
        [(symmetric(*SQUARE), regular(4, 2)), (symmetric(*BATCH), regular(3, 2))],
    ),
    "inverse": (
        linalg.inverse, L.inv, [(regular(*SQUARE),), (regular(*BATCH),), (regular(*EMPTY),), (regular(3, 3, 3),)]
    ),
    "pinv": (linalg.pinv, L.pinv, [(regular(*SQUARE),), (regular(*TALL),), (regular(*WIDE),), (regular(2, 0, 3),)]),
    "lstsq": (
        lambda a, b: linalg.lstsq(a, b).solution,
        lambda a, b: L.lstsq(a, b).solution,
        [(regular(*TALL), regular(2, 5, 2)), (regular(5, 3), regular(5, 2))],
    ),
    "matrix_power": (
        lambda x: [linalg.matrix_power(x, n) for n in (0, 1, 2, 5, -2)],
        lambda x: [L.matrix_power(x, n) for n in (0, 1, 2, 5, -2)],
        [(regular(*SQUARE),), (regular(*BATCH),), (regular(2, 2, 2),)],
    ),
    "matvec": (
        linalg.matvec,
        lambda m, v: (m @ v[..., None])[..., 0],
        [(regular(*WIDE), regular(5)), (regular(*TALL), regular(1, 3))],
    ),
    "outer": (
        linalg.outer,
        lambda x, y: x[..., :, None] * y[..., None, :],
        [(regular(3), regular(4)), (regular(2, 3), regular(1, 4)), (regular(0), regular(2))],
    ),
    "outer_dim": (
        lambda x, y: linalg.outer_dim(x, y, 0), lambda x, y: x[:, None] * y[None], [(regular(3, 2), regular(4, 2))]
    ),
    "kron": (
        linalg.kron,
        torch.kron,
        [(regular(2, 3), regular(3, 2)), (regular(2), regular(2, 2, 2)), (regular(), regular(2))],
    ),
    "tensordot": (
        lambda x, y: [linalg.tensordot(x, y, 1), linalg.tensordot(x, y, ([0, 2], [-2, 0])), linalg.tensordot(x, y, 0)],
        lambda x, y: [torch.tensordot(x, y, 1), torch.tensordot(x, y, ([0, 2], [1, 0])), torch.tensordot(x, y, 0)],
        [(regular(2, 3, 4), regular(4, 2, 3))],
    ),
    "vector_norm": (
        lambda x: [linalg.vector_norm(x, p, -1) for p in (0, 1, 3, 0.5, -1.5, math.inf, -math.inf, "L2", Norm.Lp(4))],
        lambda x: [L.vector_norm(x, p, -1, True) for p in (0, 1, 3, 0.5, -1.5, math.inf, -math.inf, 2, 4)],
        [(regular(3, 4),), (regular(0, 4),)],
    ),
    "named norms": (
        lambda x: [f(x, 0) for f in (linalg.l1_norm, linalg.l2_norm, linalg.max_abs_norm, linalg.min_abs_norm)],
        lambda x: [L.vector_norm(x, p, 0, True) for p in (1, 2, math.inf, -math.inf)],
        [(regular(3, 4),)],
    ),
    "vector_normalize": (
        lambda x: linalg.vector_normalize(x, Norm.L2, -1, 1e-12),
        lambda x: torch.nn.functional.normalize(x, dim=-1),
        [(regular(3, 4),), (np.zeros((2, 3)),)],
    ),
    "cosine_similarity": (
        lambda x, y: linalg.cosine_similarity(x, y, -1),
        lambda x, y: torch.nn.functional.cosine_similarity(x, y, -1)[..., None],
        [(regular(3, 4), regular(3, 4, seed=1)), (regular(3, 4), regular(4, seed=1))],
    ),
    "einsum": (
        lambda x, y, z: [linalg.einsum(e, *({"x": x, "y": y, "z": z}[n] for n in names)) for e, names in EQUATIONS],
        lambda x, y, z: [torch.einsum(e, *({"x": x, "y": y, "z": z}[n] for n in names)) for e, names in EQUATIONS],
        [(regular(3, 4), regular(4, 3), regular(2, 3, 3))],
    ),
}  # fmt: skip
"""Functions, torch's twins, and inputs."""

EQUATIONS = (
    ("ij,jk->ik", "xy"), ("ij,jk", "xy"), ("ij->ji", "x"), ("ij->", "x"), ("ij,ji->", "xy"), ("i j , k l -> i l", "xy"),
    ("bii->bi", "z"), ("bii", "z"), ("...ij->...ji", "z"), ("...i,ij->...j", "zx"), ("bij,jk,kl,bli->b", "zxyz"),
    ("ab,cd,ef->fa", "xyx"), ("A...,b...->bA", "yy"), ("...->...", "x"),
)  # fmt: skip
"""Equations of one tensor and of more: sums, diagonals, ellipses, letters of any case, spaces."""


def several(y: Any) -> list[Any]:
    return list(y) if isinstance(y, list | tuple) else [y]


def gradients_of_torch(twin: Function, inputs: Any) -> tuple[list[Any], list[Any], list[Any]]:
    xs = [torch.tensor(x, requires_grad=True) for x in inputs]
    ys = several(twin(*xs))
    generator = np.random.default_rng(3)
    seeds = [torch.from_numpy(np.asarray(generator.normal(size=tuple(y.shape)))) for y in ys]
    smooth = [(y, g) for y, g in zip(ys, seeds, strict=True) if y.requires_grad]
    grads = torch.autograd.grad([y for y, _ in smooth], xs, [g for _, g in smooth], allow_unused=True)
    return ys, seeds, [torch.zeros_like(x) if g is None else g for x, g in zip(xs, grads, strict=True)]


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("name", CASES)
def test_function_and_gradient_equal_torch(name: str, leaf: str) -> None:
    function, twin, calls = CASES[name]
    for inputs in calls:
        expected, seeds, slopes = gradients_of_torch(twin, inputs)
        xs = [Tensor.from_data(x, LEAVES[leaf]().autodiff()).require_grad() for x in inputs]
        results = several(function(*xs))
        assert [tuple(y.shape) for y in results] == [tuple(y.shape) for y in expected]
        for y, z in zip(results, expected, strict=True):
            np.testing.assert_allclose(np.asarray(y), z.detach().numpy(), rtol=1e-9, atol=1e-10)
        total = sum(((y * Tensor.from_data(g.numpy(), y.device)).sum() for y, g in zip(results, seeds, strict=True)))
        grads = total.backward()  # type: ignore[union-attr]  # there is one result at least
        for x, g in zip(xs, slopes, strict=True):
            ours = x.grad(grads)
            np.testing.assert_allclose(
                np.zeros(x.shape) if ours is None else np.asarray(ours), g.numpy(), rtol=1e-7, atol=1e-8
            )


def test_second_derivatives_of_norms_know_elements_that_are_zero() -> None:
    x = np.array([[3.0, 0.0, -4.0], [0.0, 2.0, 0.0]])
    expected = np.zeros((2, 3, 2, 3))
    for i, row in enumerate(x):
        size = np.linalg.norm(row)
        expected[i, :, i] = (np.eye(3) - np.outer(row, row) / size**2) / size
    for f in (linalg.l2_norm, lambda x, dim: linalg.cdist(x, x.zeros_like(), 2.0).narrow(-1, 0, 1)):
        actual = hessian(lambda x, f=f: f(x, -1).sum())(on("torch", x))
        np.testing.assert_allclose(np.asarray(actual), expected, atol=1e-14)


# -- edges --------------------------------------------------------------------------------------------------
def on(leaf: str, values: Any) -> Tensor:
    return Tensor.from_data(np.asarray(values, np.float64), LEAVES[leaf]())


def attached(leaf: str, values: Any) -> Tensor:
    return Tensor.from_data(np.asarray(values, np.float64), LEAVES[leaf]().autodiff()).require_grad()


@pytest.mark.gpu
@pytest.mark.parametrize("function", [linalg.eigh, linalg.svd])
def test_gradients_that_no_sign_changes_are_those_of_the_cpu(function: Function) -> None:
    results = []
    for device in (Device.cpu(), Device.cuda(0)):
        x = Tensor.from_data(symmetric(2, 4, 4), device.autodiff()).require_grad()
        parts = [of_signs(part) for part in function(x)]
        weights = [Tensor.from_data(regular(*part.shape, seed=7), x.device) for part in parts]
        loss = sum((part * weight).sum() for part, weight in zip(parts, weights, strict=True))
        results.append([np.asarray(x.grad(loss.backward())), *map(np.asarray, parts)])
    for expected, actual in zip(*results, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("leaf", LEAVES)
def test_gradient_of_det_of_a_singular_matrix_is_its_cofactors(leaf: str) -> None:
    x = attached(leaf, [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
    grad = x.grad(linalg.det(x).sum().backward())
    np.testing.assert_allclose(np.asarray(grad), [[4, 4, -4], [-2, -2, 2], [0, 0, 0]], atol=1e-12)
    broken = attached(leaf, [[math.nan, 1.0], [0.0, 1.0]])
    assert np.isnan(np.asarray(broken.grad(linalg.det(broken).sum().backward()))).all()


@pytest.mark.parametrize("leaf", LEAVES)
def test_lu_decomposition_gives_the_order_of_rows(leaf: str) -> None:
    x = on(leaf, regular(5, 5))
    packed, order = linalg.lu_decomposition(x)
    lower, upper = packed.tril(-1) + Tensor.eye(5, (x.device, x.dtype)), packed.triu()
    np.testing.assert_allclose(np.asarray(lower @ upper), np.asarray(x)[np.asarray(order)], atol=1e-12)
    with pytest.raises(ArgumentError, match=r"(?s)singular.*given:.*\(2, 2\).*expected:.*rank.*mend:"):
        linalg.lu_decomposition(on(leaf, [[1.0, 2.0], [2.0, 4.0]]))
    with pytest.raises(ShapeError, match=r"(?s)batch.*given:.*expected: x \(n, n\).*mend:.*lu"):
        linalg.lu_decomposition(on(leaf, regular(2, 3, 3)))
    *_, upper = linalg.lu(on(leaf, [[1.0, 2.0], [2.0, 4.0]]))
    assert np.asarray(upper)[1, 1] == 0


@pytest.mark.parametrize("leaf", LEAVES)
def test_vectors_of_equal_values_have_no_gradient_but_what_they_span_has(leaf: str) -> None:
    turn = L.qr(torch.from_numpy(regular(3, 3)))[0].numpy()
    x = attached(leaf, turn * [1.0, 1.0, 4.0] @ turn.T)
    values, vectors = linalg.eigh(x)
    np.testing.assert_allclose(np.asarray(x.grad(values.sum().backward(retain_graph=True))), np.eye(3), atol=1e-12)
    with pytest.raises(ArgumentError, match=r"(?s)equal eigenvalues.*given:.*about 1.*expected:.*differ.*mend:.*alone"):
        vectors.narrow(-1, 0, 1).sum().backward()
    plane = linalg.eigh(x)[1].narrow(-1, 0, 2)
    weight = regular(3, 3)
    grad = x.grad((plane @ plane.transpose() * Tensor.from_data(weight, x.device)).sum().backward())
    v = turn[:, 2]  # the plane is 1 - v v^T, and v moves by (3 - ...)^-1
    moved = (np.eye(3) - np.outer(v, v)) @ (weight + weight.T) @ v / -3.0
    np.testing.assert_allclose(np.asarray(grad), (np.outer(moved, v) + np.outer(v, moved)) / 2, atol=1e-10)


@pytest.mark.parametrize("leaf", LEAVES)
def test_gradients_that_do_not_exist_are_refused(leaf: str) -> None:
    flat = attached(leaf, np.eye(3)[:, :2] * [1.0, 0.0])
    left, values, _ = linalg.svd(flat, full_matrices=False)
    assert np.isfinite(np.asarray(flat.grad(values.sum().backward(retain_graph=True)))).all()
    weight = Tensor.from_data(regular(3, 2), flat.device)
    with pytest.raises(ArgumentError, match=r"(?s)no derivative.*given:.*or one is 0.*expected:.*mend:"):
        (left * weight).sum().backward()
    tall = attached(leaf, regular(3, 2))
    for function in (lambda: linalg.svd(tall)[0], lambda: linalg.qr(tall, reduced=False)[0]):
        with pytest.raises(AutodiffError, match=r"(?s)not determine.*given:.*1 .*expected:.*mend:.*call"):
            function().sum().backward()
    with pytest.raises(ArgumentError, match=r"(?s)singular.*given:.*expected:.*rank.*mend:"):
        linalg.qr(attached(leaf, np.ones((2, 2)) * 0))[1].sum().backward()


@pytest.mark.parametrize("leaf", LEAVES)
def test_data_that_do_not_fit_are_refused_in_words(leaf: str) -> None:
    ones = on(leaf, np.ones((2, 2)) * 0)
    for function in (linalg.inverse, lambda x: linalg.solve(x, x), lambda x: linalg.solve_triangular(x, x, upper=True)):
        with pytest.raises(
            ArgumentError, match=r"(?s)singular.*given:.*\(2, 2\) f64.*expected:.*full rank.*mend:.*pinv"
        ):
            function(ones)
    for values in (-np.eye(2), np.full((2, 2), math.nan)):
        with pytest.raises(ArgumentError, match=r"(?s)not positive definite.*given:.*expected:.*above 0.*mend:.*eye"):
            linalg.cholesky(on(leaf, values))
    with pytest.raises(ArgumentError, match=r"(?s)did not converge.*given:.*expected:.*finite.*mend:.*is_finite"):
        linalg.svd(on(leaf, np.full((2, 2), math.nan)))


REFUSED: list[tuple[Callable[[Tensor], Any], type[Exception], str]] = [
    (lambda x: linalg.det(x.narrow(0, 0, 2)), ShapeError, "not square.*(2, 3).*pinv"),
    (lambda x: linalg.det(x.int()), DTypeError, "element type.*i64.*float"),
    (lambda x: linalg.diag(x.flatten()), ShapeError, "too few axes.*2 axes.*unsqueeze"),
    (lambda x: linalg.solve(x, x.narrow(0, 0, 2)), ShapeError, "does not fit.*n, k.*column"),
    (lambda x: linalg.solve(x, x.cast("f32")), DTypeError, "element types differ.*one element type.*cast"),
    (lambda x: linalg.lstsq(x, x.narrow(0, 0, 2)), ShapeError, "does not fit.*3 rows.*column"),
    (lambda x: linalg.matvec(x, x), ShapeError, "does not fit.*1 axes.*matmul"),
    (lambda x: linalg.outer(x, x.flatten()), ShapeError, "numbers of axes differ.*as many.*unsqueeze"),
    (lambda x: linalg.tensordot(x, x, 5), ShapeError, "do not pair.*0 to 2.*dims=1"),
    (lambda x: linalg.tensordot(x, x.narrow(0, 0, 2), ([0], [0])), ShapeError, "differ in size.*pairs.*dims"),
    (lambda x: linalg.vector_norm(x, "L7", 0), ArgumentError, "no such norm.*'L7'.*Norm.L2"),
    (lambda x: linalg.vector_norm(x, math.nan, 0), ArgumentError, "no such norm.*nan.*Norm.L2"),
    (lambda x: linalg.l2_norm(x.int(), 0), DTypeError, "takes floats.*i64.*float()"),
    (lambda x: linalg.l2_norm(x, 2), ShapeError, "out of range.*dim 2.*-2 to 1"),
    (lambda x: linalg.pinv(x, -1.0), ArgumentError, "below 0.*0 or more.*1e-6"),
    (lambda x: linalg.matrix_power(x, 0.5), DTypeError, "whole number.*0.5.*int"),
    (lambda x: linalg.einsum("ij,jk", x), ShapeError, "2 terms for 1.*one term.*write"),
    (lambda x: linalg.einsum("i", x), ShapeError, "term 0 is 'i'.*letter for each axis.*write"),
    (lambda x: linalg.einsum("ij->ik", x), ShapeError, "right side.*each once.*write"),
    (lambda x: linalg.einsum("i1", x), ShapeError, "'1' is no letter.*letters.*write"),
    (lambda x: linalg.einsum("ij,jk", x, x.narrow(0, 0, 2)), ShapeError, "sizes 3 and 2.*one size.*write"),
    (lambda x: linalg.einsum("ii", x.narrow(0, 0, 1)), ShapeError, "sizes.*another term.*write"),
    (lambda x: linalg.einsum(x, x), DTypeError, "no text.*a text.*write"),
    (lambda x: linalg.det(3), DTypeError, "no tensor.*int.*from_data"),
    (lambda x: check_closeness(x, x.flatten()), ShapeError, "shapes differ.*one shape.*reshape"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refusals_have_three_parts(number: int) -> None:
    function, error, words = REFUSED[number]
    what, *parts = words.split(".*")
    expected = "(?s)" + ".*".join([what, "given:.*expected:.*mend:"])
    with pytest.raises(error, match=expected) as caught:
        function(on("torch", regular(3, 3)))
    for part in parts:
        assert part in str(caught.value)


def test_missing_names_lead_to_ours() -> None:
    with pytest.raises(AttributeError, match=r"(?s)'inv'.*mend:.*inverse\(x\)"):
        linalg.inv  # noqa: B018
    with pytest.raises(AttributeError, match=r"(?s)'svd'.*mend:.*linalg\.svd"):
        on("torch", regular(2, 2)).svd  # noqa: B018


def test_norms_have_names_and_exponents() -> None:
    assert [n.to_exponent() for n in (Norm.L0, Norm.L1, Norm.L2, Norm.LInf, Norm.LNegInf, Norm.Lp(3.0))] == [
        0, 1, 2, math.inf, -math.inf, 3,
    ]  # fmt: skip
    assert [repr(Norm.of(n)) for n in (2, "LInf", Norm.Lp(3.0))] == ["Norm.L2", "Norm.LInf", "Norm.Lp(3.0)"]


@pytest.mark.parametrize("leaf", LEAVES)
def test_norms_of_integers_and_of_zeros(leaf: str) -> None:
    whole = Tensor.from_data(np.array([[3, 0, -4]]), LEAVES[leaf]())
    norms = [linalg.vector_norm(whole, n, 1).item() for n in (0, 1, math.inf, -math.inf)]
    assert norms == [2, 7, 4, 0]
    for p in (0.5, 1.0, 1.5, 2.0, 3.0):
        x = attached(leaf, [0.0, 0.0])
        grad = x.grad(linalg.lp_norm(x, p, 0).sum().backward())
        assert np.asarray(grad).tolist() == [0.0, 0.0]
    assert linalg.cosine_similarity(on(leaf, [0.0, 0.0]), on(leaf, [1.0, 0.0]), 0).item() == 0.0


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16])
def test_half_types_are_computed_in_float32_and_rounded_once(dtype: DType) -> None:
    x = Tensor.from_data(symmetric(4, 4), Device.cpu()).cast(dtype)
    wide = x.float()
    for function in (
        linalg.det, linalg.cholesky, linalg.inverse, linalg.eigvalsh, linalg.svdvals, linalg.pinv, linalg.lu,
        lambda x: linalg.lstsq(x, x)[0], lambda x: linalg.l2_norm(x * 100.0, 0) / 100.0, lambda x: linalg.solve(x, x),
    ):  # fmt: skip
        for y, z in zip(several(function(x)), several(function(wide)), strict=True):
            assert y.dtype is dtype
            np.testing.assert_allclose(np.asarray(y.float()), np.asarray(z), rtol=2e-2, atol=2e-2)
    large = Tensor.from_data(np.full(8, 300.0), Device.cpu()).cast(dtype)
    assert abs(linalg.l2_norm(large, 0).float().item() - 300 * math.sqrt(8)) < 4


@pytest.mark.parametrize("leaf", LEAVES)
def test_rank_and_least_squares_of_a_matrix_without_full_rank(leaf: str) -> None:
    a, b = regular(5, 2) @ regular(2, 4, seed=1), regular(5)
    fit = linalg.lstsq(on(leaf, a), on(leaf, b))
    expected = np.linalg.lstsq(a, b, rcond=None)
    np.testing.assert_allclose(np.asarray(fit.solution), expected[0], atol=1e-10)
    np.testing.assert_allclose(np.asarray(fit.residuals), ((a @ expected[0] - b) ** 2).sum(), atol=1e-10)
    assert fit.rank.item() == linalg.matrix_rank(on(leaf, a)).item() == expected[2] == 2
    assert linalg.matrix_rank(on(leaf, np.zeros((0, 3)))).item() == 0


def test_functions_compile_and_take_strided_inputs() -> None:
    x = Tensor.from_data(symmetric(3, 4, 4), Device.cpu())

    def several_of(x: Tensor) -> Tensor:
        product = linalg.einsum(
            "bij,bjk,bki->b", linalg.inverse(x), linalg.cholesky(x), linalg.eigh(x)[0].unsqueeze_dim(1) * x
        )
        return product + linalg.det(x) + linalg.svdvals(x).sum_dim(-1).squeeze_dim(-1) + linalg.trace(x).squeeze_dim(-1)

    np.testing.assert_allclose(np.asarray(compile(several_of)(x)), np.asarray(several_of(x)), rtol=1e-12)
    turned = Tensor.from_torch(x.into_torch().permute(2, 1, 0).contiguous().permute(2, 1, 0))
    np.testing.assert_allclose(np.asarray(several_of(turned)), np.asarray(several_of(x)), rtol=1e-12)
    value, back = vjp(several_of, x)
    assert value.shape == (3,)
    assert np.isfinite(np.asarray(back(value.ones_like()))).all()


def test_closeness_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    x = on("torch", [1.0, 2.0, 3.0, 4.0, 5.0, 6.001, 7.002, 8.003, 9.004, 10.1])
    y = on("torch", [1.0, 2.0, 3.0, 4.000, 5.0, 6.0, 7.001, 8.002, 9.003, 10.004])
    check_closeness(x, y)
    text = capsys.readouterr().out
    assert "Epsilon: 1e-1\n  Close elements: 10/10 (100.00%)\n  [PASS]" in text
    assert "Epsilon: 1e-3\n  Close elements: 9/10 (90.00%)\n  [WARN]" in text
    assert "Epsilon: 1e-8\n  Close elements: 5/10 (50.00%)\n  [FAIL]" in text


def test_systems_of_many_samples_broadcast_as_those_of_one() -> None:
    a, b = Tensor.from_data(symmetric(4, 3, 3), Device.cpu()), Tensor.from_data(regular(4, 2, 3, 2), Device.cpu())
    for function in (linalg.solve, lambda a, b: linalg.solve_triangular(a, b, upper=True)):
        for ours, one in (
            (vmap(function)(a, b), [function(a[i], b[i]) for i in range(4)]),
            (vmap(lambda a, f=function: f(a, b[0]))(a), [function(a[i], b[0]) for i in range(4)]),
            (vmap(lambda b, f=function: f(a[0], b))(b), [function(a[0], b[i]) for i in range(4)]),
        ):
            np.testing.assert_allclose(np.asarray(ours), np.stack([np.asarray(y) for y in one]), atol=1e-12)


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize(
    ("first", "second", "dim"), [((1, 2, 3), (2, 1, 3), -2), ((3,), (2, 1), 1), ((2, 1), (3,), -1)]
)
def test_cosine_similarity_counts_a_broadcast_number_as_often_as_it_stands(
    leaf: str, first: tuple[int, ...], second: tuple[int, ...], dim: int
) -> None:
    x, y = regular(*first), regular(*second, seed=1)
    expected = torch.nn.functional.cosine_similarity(torch.from_numpy(x), torch.from_numpy(y), dim).numpy()
    actual = np.asarray(linalg.cosine_similarity(on(leaf, x), on(leaf, y), dim).squeeze_dim(dim))
    np.testing.assert_allclose(actual, expected, rtol=1e-13)
