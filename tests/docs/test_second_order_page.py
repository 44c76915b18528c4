"""The four programs of second order on the page of transforms, as the page writes them, against torch in float64."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Tensor, compile, grad, hvp, nn, value_and_grad
from burn_torch.module import GradientsParams, Param
from tests.docs.test_pages import ROOT, script

CPU = Device.cpu()
TAPE = CPU.autodiff()
PATHS = ("inner.weight", "inner.bias", "outer.weight", "outer.bias")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Returns what the page imports and defines, without what it runs."""
    text = script((ROOT / "docs/building-blocks/transforms.md").read_text(encoding="utf-8"))
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)
    tree = ast.parse(text)
    tree.body = [part for part in tree.body if isinstance(part, kinds) and not _is_compiled(part)]
    file: Path = tmp_path_factory.mktemp("page") / "transforms.py"
    file.write_text(ast.unparse(tree), encoding="utf-8")
    module = ModuleType("transforms_page")
    exec(compile_source(file), module.__dict__)
    return module


def _is_compiled(part: ast.stmt) -> bool:
    return isinstance(part, ast.FunctionDef) and bool(part.decorator_list)


def compile_source(file: Path) -> Any:
    import builtins

    return builtins.compile(file.read_text(encoding="utf-8"), str(file), "exec")


def model_of(page: ModuleType, rng: np.random.Generator, d_output: int = 2) -> Any:
    def layer(rows: int, columns: int) -> nn.Linear:
        weight, bias = (Tensor.from_data(rng.standard_normal(shape), TAPE) for shape in ((rows, columns), (columns,)))
        return nn.Linear(Param(weight), Param(bias))

    return page.Mlp(layer(3, 8), nn.Dropout(0.0), layer(8, d_output))


def twin(model: Any) -> list[torch.Tensor]:
    values = dict(model.named_params())
    return [torch.tensor(np.asarray(values[p].val().into_data().values), requires_grad=True) for p in PATHS]


def forward(values: Any, x: torch.Tensor) -> torch.Tensor:
    w, b, v, c = values
    return (x @ w + b).tanh() @ v + c


def judge(model: Any, grads: GradientsParams, expected: Any) -> None:
    params = dict(model.named_params())
    assert len(grads) == len(PATHS)
    for path, g in zip(PATHS, expected, strict=True):
        ours = grads.get(params[path].id)
        assert ours is not None
        np.testing.assert_allclose(ours.into_data().values, g.numpy(), rtol=1e-6, atol=1e-9)


def data(rng: np.random.Generator) -> tuple[Tensor, Tensor, torch.Tensor, torch.Tensor]:
    x, y = rng.standard_normal((16, 3)), rng.standard_normal((16, 2))
    return Tensor.from_data(x, CPU), Tensor.from_data(y, CPU), torch.from_numpy(x), torch.from_numpy(y)


def runs(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    return [function, compile(function), compile(function, fuse=True)]


def twin_meta(values: Any, x: torch.Tensor, y: torch.Tensor, lr: Any) -> torch.Tensor:
    for _ in range(2):
        slopes = torch.autograd.grad((forward(values, x) - y).square().mean(), values, create_graph=True)
        values = [v - lr * s for v, s in zip(values, slopes, strict=True)]
    return (forward(values, x * 0.5) - y).square().mean()


def test_maml_and_its_hypergradient(page: ModuleType, seed: np.random.Generator) -> None:
    model = model_of(page, seed)
    x, y, s, t = data(seed)
    values, rate = twin(model), torch.tensor([0.1], dtype=torch.float64, requires_grad=True)
    loss = twin_meta(values, s, t, rate)
    *expected, slope = torch.autograd.grad(loss, [*values, rate])
    both = value_and_grad(page.meta_loss, argnums=(0, 3))
    for run in runs(both):
        value, (grads, ours) = run(model, x, y, Tensor.from_data([0.1], (CPU, "f64")))
        np.testing.assert_allclose(value.into_data().values, [loss.item()], rtol=1e-9)
        judge(model, grads, expected)
        np.testing.assert_allclose(ours.into_data().values, slope.numpy(), rtol=1e-6)
    judge(model, grad(page.meta_loss)(model, x, y, 0.1), expected)
    tracked = Tensor.from_data([0.1], (TAPE, "f64")).require_grad()
    by_backward = tracked.grad(page.meta_loss(model, x, y, tracked).backward())
    assert by_backward is not None
    np.testing.assert_allclose(by_backward.into_data().values, slope.numpy(), rtol=1e-6)


def test_gradient_penalty(page: ModuleType, seed: np.random.Generator) -> None:
    critic = model_of(page, seed, 1)
    x, _, s, _ = data(seed)
    values, leaf = twin(critic), s.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(forward(values, leaf).sum(), leaf, create_graph=True)
    loss = (slopes.square().sum(1).sqrt() - 1).square().mean() + forward(values, leaf).mean()
    expected = torch.autograd.grad(loss, values)

    def by_backward(critic: Any, x: Tensor) -> GradientsParams:
        return GradientsParams.from_grads(page.penalised(critic, x).backward(), critic)

    for run in (*runs(grad(page.penalised)), by_backward, compile(by_backward)):
        judge(critic, run(critic, x), expected)


def test_straight_through(page: ModuleType, seed: np.random.Generator) -> None:
    points, direction = seed.standard_normal((2, 9)) * 3.0
    x, v = (Tensor.from_data(each, CPU) for each in (points, direction))
    leaf = torch.from_numpy(points).requires_grad_()
    rounded = leaf + (leaf.round() - leaf).detach()
    (first,) = torch.autograd.grad(rounded.square().sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad((first * torch.from_numpy(direction)).sum(), leaf)

    def both(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return grad(page.squares)(x), hvp(page.squares, (x,), (v,))[0]

    for run in runs(both):
        for ours, theirs in zip(run(x, v), (first, second), strict=True):
            np.testing.assert_allclose(ours.into_data().values, theirs.detach().numpy(), rtol=1e-6)
