"""Parameters that are computed when they are read: own reparameterizations, weight norm, spectral norm."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.nn.utils import parametrizations

from burn_torch import ArgumentError, Device, DType, DTypeError, Module, Param, ShapeError, StepScope, Tensor, nn
from burn_torch.module import (
    ModuleMapper,
    ModuleVisitor,
    ParamGroup,
    Reparameterization,
    SpectralNorm,
    SpectralNormMapper,
    WeightNorm,
    WeightNormMapper,
)
from burn_torch.optim import SgdConfig
from burn_torch.transform import compile, value_and_grad


class Scaled(Reparameterization):
    """A weight times a number."""

    NAME: ClassVar[str] = "scaled"
    scale: Param

    def materialize(self, base: Tensor) -> Tensor:
        return base * self.scale.val()


class Scaling:
    """Gives matrices a number."""

    def reparameterize(self, path: str, param: Param) -> tuple[Param, Reparameterization | None]:
        if len(param.shape) != 2:
            return param.set_require_grad(False), None
        return param, Scaled(Param.from_data([2.0], param.device))


class Net(Module):
    """One layer in two places, and another one."""

    first: nn.Linear
    again: nn.Linear
    last: nn.Linear

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3) -> (batch, 2)."""
        return self.last.forward(self.again.forward(self.first.forward(x).tanh()).tanh())


def net(device: Device) -> Net:
    shared = nn.LinearConfig(3, 3).init(device)
    return Net(shared, shared, nn.LinearConfig(3, 2).init(device))


def values(x: Tensor) -> np.ndarray[Any, Any]:
    return np.asarray(x.detach())


PLACES = [Device.cpu().autodiff(), Device.ndarray().autodiff()]


@pytest.mark.parametrize("device", PLACES, ids=str)
def test_a_reparameterized_module_lives_as_any_other(device: Device, tmp_path: Path, seed: Any) -> None:
    plain = net(device)
    model = plain.apply_reparameterization(Scaling())
    x = Tensor.from_data(seed.standard_normal((4, 3)).astype("f"), device)
    below = ["weight", "weight.scaled.scale", "bias"]
    assert [path for path, _ in model.named_params()] == [
        f"{layer}.{name}" for layer in ("first", "last") for name in below
    ]
    assert model.num_params() == plain.num_params() + 2
    weight = model.first.weight
    assert weight is model.again.weight  # a shared parameter stays shared
    assert weight.id == plain.first.weight.id
    assert isinstance(weight.reparameterization(), Scaled)
    assert weight.adapter() is None
    np.testing.assert_array_equal(values(weight.val()), 2 * values(weight.base()))
    np.testing.assert_array_equal(values(plain.first.weight.base()), values(plain.first.weight.val()))
    assert plain.first.weight.reparameterization() is None

    def step(model: Net, x: Tensor) -> tuple[Tensor, Net]:
        loss, grads = value_and_grad(lambda model: model.forward(x).square().sum())(model)
        return loss, SgdConfig().init().step(0.1, model, grads)[0]

    first, eager = step(model, x)
    again, compiled = compile(step)(model, x)
    np.testing.assert_allclose(values(again), values(first), rtol=1e-6)
    for (path, one), (_, other) in zip(eager.named_params(), compiled.named_params(), strict=True):
        np.testing.assert_allclose(values(one.val()), values(other.val()), rtol=1e-5, atol=1e-6, err_msg=path)
        assert (one is not dict(model.named_params())[path]) == ("bias" not in path)
    assert values(eager.last.weight.change.scale.val())[0] != 2.0  # type: ignore[attr-defined]  # a node in the place of a Param

    saved = eager.save_file(tmp_path / "net")
    loaded = net(device).apply_reparameterization(Scaling()).load_file(saved)
    np.testing.assert_array_equal(values(loaded.forward(x)), values(eager.forward(x)))
    there = eager.to_device(Device.cpu())
    np.testing.assert_allclose(
        values(there.forward(x.inner().to_device(Device.cpu()))), values(eager.forward(x)), rtol=1e-5
    )
    np.testing.assert_array_equal(values(eager.valid().train().forward(x)), values(eager.forward(x)))

    merged = eager.merge_reparameterizations()
    assert merged.first.weight is merged.again.weight
    assert isinstance(merged.first.weight, Param)
    assert merged.first.weight.require_grad
    np.testing.assert_allclose(values(merged.forward(x)), values(eager.forward(x)), rtol=1e-6)


def test_visitors_and_mappers_see_the_base_at_the_path_of_the_parameter() -> None:
    model = net(Device.cpu()).apply_reparameterization(Scaling())
    seen: list[str] = []
    names: list[str] = []

    class Paths(ModuleVisitor):
        def visit_float_with_path(self, path: str, id: object, tensor: Tensor) -> None:
            seen.append(path)

        def enter_module(self, name: str, container: str) -> None:
            names.append(name)

    class Doubling(ModuleMapper):
        def map_float(self, param: Param) -> Param:
            return param.map(lambda value: value * 2.0)

    model.last.visit(Paths())
    assert seen == ["weight", "weight.scaled.scale", "bias"]
    assert names == ["weight", "scaled", "scale", "bias"]
    np.testing.assert_array_equal(values(model.map(Doubling()).last.weight.val()), 4 * values(model.last.weight.val()))


@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
def test_norms_of_half_types_neither_overflow_nor_vanish(scale: float, seed: Any) -> None:
    array = seed.normal(size=(6, 70)) * scale
    plain = nn.LinearConfig(6, 70, bias=False).init(Device.cpu())
    half = plain.map_params(lambda param: param.map(lambda _: Tensor.from_data(array, Device.cpu()).cast(DType.F16)))
    known = values(half.weight.val().cast(DType.F64))
    normed = half.apply_reparameterization(WeightNormMapper()).weight.val()
    np.testing.assert_allclose(values(normed.cast(DType.F64)), known, rtol=2e-3, atol=1e-7)
    spectral = half.apply_reparameterization(SpectralNormMapper()).weight.val()
    assert np.linalg.norm(values(spectral.cast(DType.F64)), 2) == pytest.approx(1.0, rel=0.05)


def torch_linear(linear: nn.Linear) -> torch.nn.Linear:
    twin = torch.nn.Linear(*linear.weight.shape, dtype=torch.float64)
    assert linear.bias is not None
    with torch.no_grad():
        twin.weight.copy_(torch.from_numpy(values(linear.weight.val()).T.copy()))
        twin.bias.copy_(torch.from_numpy(values(linear.bias.val()).copy()))
    return twin


def double(linear: nn.Linear) -> nn.Linear:
    return linear.map_params(lambda param: param.map(lambda value: value.detach().cast(DType.F64)))


@pytest.mark.parametrize("device", PLACES, ids=str)
def test_weight_norm_is_that_of_torch(device: Device, seed: Any) -> None:
    plain = double(nn.LinearConfig(5, 3).init(device))
    ours = plain.apply_reparameterization(WeightNormMapper(dim=1))
    theirs: Any = parametrizations.weight_norm(torch_linear(plain), dim=0)
    norm: Any = ours.weight.reparameterization()
    assert isinstance(norm, WeightNorm)
    np.testing.assert_allclose(values(ours.weight.val()), values(plain.weight.val()), rtol=1e-12)
    norm = norm.map_params(lambda param: param.map(lambda value: value.detach() * 1.5))
    ours = nn.Linear(ours.weight._with_fields({"change": norm}), ours.bias)  # type: ignore[attr-defined]  # a node in the place of a Param
    twins = theirs.parametrizations.weight
    with torch.no_grad():
        twins.original0.mul_(1.5)
    x, g = seed.standard_normal((4, 5)), seed.standard_normal((4, 3))
    y = ours.forward(Tensor.from_data(x, device))
    expected = theirs(torch.from_numpy(x))
    np.testing.assert_allclose(values(y), expected.detach().numpy(), rtol=1e-12)
    grads = (y * Tensor.from_data(g, device)).sum().backward()
    (expected * torch.from_numpy(g)).sum().backward()
    for param, twin in [(ours.weight.stored, twins.original1), (norm.g, twins.original0)]:  # type: ignore[attr-defined]  # as above
        gradient = param.val().grad(grads)
        assert gradient is not None
        np.testing.assert_allclose(values(gradient).T.reshape(twin.shape), twin.grad.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("device", PLACES, ids=str)
def test_spectral_norm_is_that_of_torch_and_leaves_its_vectors_to_the_step(device: Device, seed: Any) -> None:
    plain = double(nn.LinearConfig(5, 3).init(device))
    ours = plain.apply_reparameterization(SpectralNormMapper(dim=1))
    theirs: Any = parametrizations.spectral_norm(torch_linear(plain))
    norm, twin = ours.weight.reparameterization(), theirs.parametrizations.weight[0]
    assert isinstance(norm, SpectralNorm)
    ours = ours.map_params(lambda param: param.map(lambda value: value.detach() * 2.0))
    with torch.no_grad():
        theirs.parametrizations.weight.original.mul_(2.0)
        theirs.bias.mul_(2.0)
        for name in ("u", "v"):
            getattr(twin, f"_{name}").copy_(torch.from_numpy(seed.standard_normal(getattr(twin, f"_{name}").shape)))
    start = {
        state.id: Tensor.from_data(t.numpy(), device.no_grad()) for state, t in [(norm.u, twin._u), (norm.v, twin._v)]
    }
    ours = ours.with_states(start)
    x, g = seed.standard_normal((4, 5)), seed.standard_normal((4, 3))
    with StepScope(1, ours) as scope:
        y = ours.forward(Tensor.from_data(x, device))
    expected = theirs(torch.from_numpy(x))
    np.testing.assert_allclose(values(y), expected.detach().numpy(), rtol=1e-10)
    grads = (y * Tensor.from_data(g, device)).sum().backward()
    (expected * torch.from_numpy(g)).sum().backward()
    gradient = ours.weight.base().grad(grads)
    assert gradient is not None
    np.testing.assert_allclose(
        values(gradient).T, theirs.parametrizations.weight.original.grad.numpy(), rtol=1e-9, atol=1e-12
    )
    moved: Any = ours.with_states(scope.states).weight.reparameterization()
    np.testing.assert_allclose(values(moved.u.value()), twin._u.numpy(), rtol=1e-10)
    np.testing.assert_allclose(values(moved.v.value()), twin._v.numpy(), rtol=1e-10)
    valid = ours.valid()
    theirs.eval()
    before = values(valid.weight.val())
    np.testing.assert_array_equal(values(valid.weight.val()), before)  # reading it elsewhere moves nothing
    np.testing.assert_array_equal(values(ours.merge_reparameterizations().weight.val()), before)


def test_norms_of_convolutions_are_over_all_axes_but_one(seed: Any) -> None:
    conv = nn.Conv2dConfig((2, 3), (3, 3)).init(Device.cpu())
    twin: Any = parametrizations.spectral_norm(torch.nn.Conv2d(2, 3, 3), n_power_iterations=50)
    with torch.no_grad():
        twin.parametrizations.weight.original.copy_(torch.from_numpy(values(conv.weight.val()).copy()))
    twin(torch.zeros(1, 2, 5, 5))
    value = values(conv.apply_reparameterization(SpectralNormMapper(n_power_iterations=3)).weight.val())
    assert np.linalg.svd(value.reshape(3, -1))[1][0] == pytest.approx(1.0, abs=2e-2)  # after 15 iterations
    lengths = conv.apply_reparameterization(WeightNormMapper(dim=-4)).weight.reparameterization()
    assert isinstance(lengths, WeightNorm)
    expected = np.linalg.norm(values(conv.weight.val()).reshape(3, -1), axis=1)
    np.testing.assert_allclose(values(lengths.g.val()), expected, rtol=1e-6)


class Short(Reparameterization):
    """Gives another shape."""

    def materialize(self, base: Tensor) -> Tensor:
        return base.flatten(0, 1)


class Half(Reparameterization):
    """Gives another type."""

    def materialize(self, base: Tensor) -> Tensor:
        return base.cast(DType.F16)


def test_mistakes_are_refused_in_words() -> None:
    model = net(Device.cpu())
    with pytest.raises(ArgumentError, match=r"says nothing of parameters[\s\S]*reparameterize\(path, param\)"):
        model.apply_reparameterization(3)  # type: ignore[arg-type]
    twice = model.apply_reparameterization(Scaling())
    with pytest.raises(ArgumentError, match=r"first\.weight is reparameterized already\n.*WeightNorm .* with Scaled"):
        twice.apply_reparameterization(WeightNormMapper())
    elsewhere = WeightNormMapper().set_param_group(ParamGroup.from_path("z"))
    assert twice.apply_reparameterization(elsewhere) is twice
    with pytest.raises(ShapeError, match=r"no axis 2\n.*first\.weight \(3, 3\)\n.*dim from -2 to 1"):
        model.apply_reparameterization(WeightNormMapper(dim=2))
    with pytest.raises(ArgumentError, match=r"these settings compute nothing\n.*n_power_iterations 0"):
        SpectralNormMapper(n_power_iterations=0)
    for kind, error in ((Short, ShapeError), (Half, DTypeError)):

        class Wrong:
            def reparameterize(self, path: str, param: Param) -> tuple[Param, Reparameterization | None]:
                return param, kind() if path == "last.weight" else None  # noqa: B023  # called in this turn of the loop

        with pytest.raises(error, match=rf"{kind.__name__}\.materialize: the value is not like the base"):
            model.apply_reparameterization(Wrong()).last.weight.val()
