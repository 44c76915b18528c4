"""ComplexTensor beside torch's complex numbers: values, Wirtinger gradients, layouts, conversions, transforms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import burn_torch
from burn_torch import (
    ArgumentError,
    ComplexTensor,
    Device,
    DeviceError,
    DType,
    DTypeError,
    Module,
    Param,
    ShapeError,
    Tensor,
)
from burn_torch.tensor import signal

LEAVES = {"torch": Device.cpu, "numpy": Device.ndarray}
leaves = pytest.mark.parametrize("leaf", LEAVES)
Array = np.ndarray[Any, Any]


def draw(*shape: int, at: int = 3) -> Array:
    generator = np.random.default_rng(at)
    return generator.normal(size=shape) + 1j * generator.normal(size=shape)


def close(ours: object, theirs: Any, atol: float = 1e-12) -> None:
    expected = theirs.detach().resolve_conj().numpy() if isinstance(theirs, torch.Tensor) else np.asarray(theirs)
    actual = np.asarray(ours)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, atol=atol, rtol=1e-11)


def matmul(a: Any, b: Any) -> Any:
    """The product; torch takes two complex numbers only."""
    return a.to(torch.complex128) @ b.to(torch.complex128) if isinstance(a, torch.Tensor) else a @ b


# -- arithmetic and functions --------------------------------------------------------------------------------
FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sum": lambda z, w, x: z + w,
    "sum with real": lambda z, w, x: z + x + 2 + (1 - 3j),
    "real before": lambda z, w, x: (x + z) * (x - z) * (2j - z) * (x * z),
    "difference": lambda z, w, x: z - w - x - 1j,
    "product": lambda z, w, x: z * w * x * (2 + 1j) * 3,
    "quotient": lambda z, w, x: z / w,
    "quotients with real": lambda z, w, x: z / x / 2 / (1 - 2j) + x / z + (1 + 1j) / z + 2 / z,
    "matmul": lambda z, w, x: z @ w,
    "matmul with real": lambda z, w, x: matmul(z, x) + matmul(x, z),
    "power": lambda z, w, x: z**3 + z**-2 + z**0,
    "power of fractions": lambda z, w, x: z**0.7 + z ** (0.3 + 1j),
    "power of tensors": lambda z, w, x: z**w,
    "power of numbers": lambda z, w, x: 2.0**z + (1 - 2j) ** w + (x * x + 1.0) ** z,
    "abs": lambda z, w, x: abs(z) * z.abs(),
    "angle": lambda z, w, x: z.angle(),
    "conj": lambda z, w, x: z.conj() * z * z,
    "exp": lambda z, w, x: z.exp(),
    "log": lambda z, w, x: z.log(),
    "sqrt": lambda z, w, x: z.sqrt(),
    "sgn": lambda z, w, x: z.sgn(),
    "sin": lambda z, w, x: z.sin() * w.cos(),
    "sinh": lambda z, w, x: z.sinh() * w.cosh(),
    "tanh": lambda z, w, x: z.tanh(),
    "parts": lambda z, w, x: z.real * w.imag + x,
    "a part of it": lambda z, w, x: z[1:, 0] * w[0, 1:],
}


@leaves
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_equal_torch(name: str, leaf: str) -> None:
    z, w, x = draw(3, 3), draw(3, 3, at=4), draw(3, 3, at=5).real
    device = LEAVES[leaf]()
    ours = FUNCTIONS[name](*(ComplexTensor.from_data(v, device) for v in (z, w)), Tensor.from_data(x, device))
    close(ours, FUNCTIONS[name](*map(torch.from_numpy, (z, w, x.copy()))))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_and_their_gradients_equal_torch(name: str) -> None:
    function, arrays = FUNCTIONS[name], (draw(3, 3), draw(3, 3, at=4), draw(3, 3, at=5).real.copy())
    tensors = [torch.from_numpy(v).requires_grad_() for v in arrays]
    y = function(*tensors)
    weights, second = draw(*y.shape, at=6), draw(3, 3, at=7)
    upstream, v = ComplexTensor.from_data(weights, Device.cpu()), ComplexTensor.from_data(second, Device.cpu())
    z, w = (ComplexTensor.from_data(part, Device.cpu()) for part in arrays[:2])
    x = Tensor.from_data(arrays[2], Device.cpu())

    def loss(z: ComplexTensor, w: ComplexTensor, x: Tensor) -> Tensor:
        y = function(z, w, x)
        product = y * upstream.conj() if isinstance(y, ComplexTensor) else y * upstream.real
        return product.real.sum() if isinstance(product, ComplexTensor) else product.sum()

    total = (y * torch.from_numpy(weights).conj()).real.sum() if y.is_complex() else None
    total = (y * torch.from_numpy(weights).real).sum() if total is None else total
    firsts = torch.autograd.grad(total, tensors, create_graph=True, allow_unused=True)
    for i, first in enumerate(firsts):
        if first is not None:
            close(burn_torch.grad(loss, argnums=i)(z, w, x), first, atol=1e-10)

    def slope(z: ComplexTensor) -> Tensor:
        g = burn_torch.grad(loss)(z, w, x)
        return (g.real * v.real + g.imag * v.imag).sum()

    inner = (firsts[0] * torch.from_numpy(second).conj()).real.sum()
    if inner.requires_grad:
        (again,) = torch.autograd.grad(inner, tensors[0], allow_unused=True)
        if again is not None:
            close(burn_torch.grad(slope)(z), again, atol=1e-9)


def test_zero_has_the_values_and_gradients_of_torch() -> None:
    z, tz = ComplexTensor.from_data([0j, 1j], Device.cpu()), torch.tensor([0j, 1j], requires_grad=True)
    for name in ("abs", "angle", "sgn"):
        ours, theirs = getattr(z, name)(), getattr(torch, name)(tz)
        close(ours, theirs)
    g = burn_torch.grad(lambda z: (z.abs() + z.angle()).sum())(z)
    (theirs,) = torch.autograd.grad((tz.abs() + tz.angle()).sum(), tz)
    close(g, theirs)
    close(z.sqrt(), tz.sqrt())
    for function in (lambda z: z.sgn(), lambda z: z**2.5):
        (theirs,) = torch.autograd.grad(function(tz).real.sum(), tz)
        close(burn_torch.grad(lambda z, f=function: f(z).real.sum())(z), theirs, atol=1e-6)


@leaves
@pytest.mark.parametrize("name", FUNCTIONS)
def test_slopes_on_both_axes_equal_torch(name: str, leaf: str) -> None:
    function, w, x = FUNCTIONS[name], draw(4, 4, at=4), draw(4, 4, at=5).real.copy()
    z = np.diag([2.0, 1.5j, -2.0 + 0j, -1.5j]) + 0.3 * np.triu(np.ones((4, 4)), 1) - np.tril(np.ones((4, 4)), -1) * 1j
    tz = torch.from_numpy(z).requires_grad_()
    y = function(tz, torch.from_numpy(w), torch.from_numpy(x))
    (slope,) = torch.autograd.grad((y.real * 0.7 + (y.imag if y.is_complex() else 0.0)).sum(), tz, create_graph=True)
    second = torch.autograd.grad((slope.real * 0.4 - slope.imag).sum(), tz)[0] if slope.requires_grad else None

    def loss(z: ComplexTensor) -> Tensor:
        device = z.device.no_grad()
        y = function(z, ComplexTensor.from_data(w, device), Tensor.from_data(x, device))
        return (y.real * 0.7 + y.imag).sum() if isinstance(y, ComplexTensor) else (y * 0.7).sum()

    def turned(z: ComplexTensor) -> Tensor:
        g = burn_torch.grad(loss)(z)
        return (g.real * 0.4 - g.imag).sum()

    ours = ComplexTensor.from_data(z, LEAVES[leaf]())
    close(burn_torch.grad(loss)(ours), slope, atol=1e-10)
    if second is not None:
        close(burn_torch.grad(turned)(ours), second, atol=1e-9)


def test_quotients_do_not_overflow_between() -> None:
    big, device = np.array([1e300 + 1e300j, 1e-300 + 1e-300j, 1e300 + 1e-300j]), Device.cpu()
    z = ComplexTensor.from_data(big, device)
    close(z / z, np.ones(3))
    close((z / z.conj()).abs(), np.ones(3))
    close(z.abs() / z.real, [2**0.5, 2**0.5, 1.0])
    zero = ComplexTensor.from_data(np.array([0j, 0j]), device)
    one = ComplexTensor.from_data(np.array([1 + 2j, 0j]), device)
    close(one / zero, torch.tensor([1 + 2j, 0j], dtype=torch.complex128) / torch.zeros(2, dtype=torch.complex128))


def test_a_real_tensor_of_more_axes_broadcasts_both_parts() -> None:
    z, x = draw(3), draw(2, 3, at=4).real
    ours = Tensor.from_data(x, Device.cpu()) + ComplexTensor.from_data(z, Device.cpu())
    close(ours, x + z)
    assert ours.imag.shape == (2, 3)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_half_types_stay_what_they_are(dtype: DType) -> None:
    z = ComplexTensor.from_data(draw(4), Device.cpu(), dtype)
    for y in (z * z, z / (z + 1), z.exp(), signal.fft(z), z.unsqueeze_dim(1) @ z.unsqueeze_dim(0)):
        assert y.dtype is dtype
    close(z.cast(DType.F64) * 2, (z * 2).cast(DType.F64))


def test_one_number_is_true_or_false_and_several_are_neither() -> None:
    z = ComplexTensor.from_data([0j, 1j], Device.cpu())
    assert (bool(z[0]), bool(z[1])) == (False, True)
    with pytest.raises(ShapeError, match="only a tensor of one element is a number"):
        assert z


def test_comparison_is_element_by_element() -> None:
    z = ComplexTensor.from_data([1 + 2j, 1 - 2j], Device.cpu())
    assert (z == 1 + 2j).tolist() == [True, False]
    assert (z != z.conj()).tolist() == [True, True]
    assert (z == "text") is False


# -- conversions ---------------------------------------------------------------------------------------------
def test_torch_numpy_and_lists_go_both_ways() -> None:
    values = draw(2, 3)
    theirs = torch.from_numpy(values)
    z = ComplexTensor.from_torch(theirs)
    assert z.into_torch().data_ptr() == theirs.data_ptr()  # without a copy
    close(ComplexTensor.from_torch(theirs.conj()), values.conj())
    close(ComplexTensor.from_data(z.tolist(), Device.cpu(), DType.F64), values)
    assert ComplexTensor.from_data([1j], Device.cpu()).dtype is DType.F32
    assert np.asarray(ComplexTensor.from_data([1j], Device.cpu())).dtype == np.complex64
    close(ComplexTensor.view_as_complex(z.view_as_real()), values)
    close(ComplexTensor.from_polar(z.abs(), z.angle()), values)
    close(ComplexTensor.stack([z, z.conj()], 1), np.stack([values, values.conj()], 1))
    close(ComplexTensor.cat([z, z.conj()], -1), np.concatenate([values, values.conj()], -1))
    assert z[0, 0].into_scalar() == pytest.approx(values[0, 0])
    spectrum = signal.fft(z)
    assert spectrum.into_torch().data_ptr() == spectrum.real.into_torch().data_ptr()
    close(spectrum, np.fft.fft(values))
    real, imag = z
    close(real, values.real)
    close(imag, values.imag)


def test_it_prints_complex_numbers() -> None:
    z = ComplexTensor.from_data([[1 - 2j, 0.5j]], Device.cpu())
    assert "[[1.0-2.0i, 0.0+0.5i]]" in str(z)
    assert "[[1.00-2.00i, 0.00+0.50i]]" in f"{z:.2f}"
    assert "ComplexTensor {" in repr(z)
    assert 'kind:  "Complex"' in repr(z)
    assert "..." in str(ComplexTensor.from_data(np.zeros(2000) * 1j, Device.cpu()))


def test_layouts_are_those_of_both_parts() -> None:
    values = draw(2, 3, 4)
    z = ComplexTensor.from_data(values, Device.cpu())
    close(z.transpose(), values.swapaxes(1, 2))
    close(z.adjoint(), values.conj().swapaxes(1, 2))
    close(z.permute([2, 0, 1]).reshape(4, 6), values.transpose(2, 0, 1).reshape(4, 6))
    close(z.sum_dim(1) + z.mean_dim(1), values.sum(1, keepdims=True) + values.mean(1, keepdims=True))
    close(z.narrow(2, 1, 2).flip([0]), values[::-1, :, 1:3])
    close(z.map(lambda part: part.repeat_dim(0, 2)), np.concatenate([values, values]))
    assert (z.shape, z.ndim, z.dtype, z.device) == ((2, 3, 4), 3, DType.F64, Device.cpu())


# -- one value to the rest of the library --------------------------------------------------------------------
def filtered(z: ComplexTensor, gain: ComplexTensor) -> ComplexTensor:
    return signal.ifft(signal.fft(z) * gain)


def test_compiled_functions_take_and_give_it() -> None:
    z, gain = (ComplexTensor.from_data(draw(4, 8, at=at), Device.cpu()) for at in (3, 4))
    compiled = burn_torch.compile(filtered)(z, gain)
    assert isinstance(compiled, ComplexTensor)
    close(compiled, np.asarray(filtered(z, gain)))
    slope = burn_torch.compile(burn_torch.grad(lambda z, gain: filtered(z, gain).abs().sum(), argnums=1))
    close(slope(z, gain), np.asarray(burn_torch.grad(lambda g: filtered(z, g).abs().sum())(gain)))


def test_the_tape_gives_its_gradient_as_one() -> None:
    z = ComplexTensor.from_data([3 + 4j, 1j], Device.cpu().autodiff()).require_grad()
    gradients = z.abs_square().sum().backward()
    gradient = z.grad(gradients)
    assert gradient is not None
    assert gradient.tolist() == [6 + 8j, 2j]
    half = z.real.sum().backward()
    one_part = z.grad(half)
    assert one_part is not None
    assert one_part.tolist() == [1 + 0j, 1 + 0j]


class Filter(Module):
    """A fixed filter and a learnt one."""

    fixed: ComplexTensor
    real: Param
    imag: Param

    def forward(self, x: ComplexTensor) -> ComplexTensor:
        return signal.ifft(signal.fft(x) * self.fixed * ComplexTensor(self.real.val(), self.imag.val()))


def test_a_module_keeps_it_as_a_field(tmp_path: Path) -> None:
    device = Device.cpu()
    x, fixed, learnt = (ComplexTensor.from_data(draw(8, at=at), device) for at in (3, 4, 5))
    model = Filter(fixed, Param.from_tensor(learnt.real), Param.from_tensor(learnt.imag))
    expected = np.fft.ifft(np.fft.fft(draw(8)) * draw(8, at=4) * draw(8, at=5))
    close(burn_torch.compile(lambda model, x: model.forward(x))(model, x), expected)
    moved = model.to_device(Device.ndarray())
    assert moved.fixed.device == Device.ndarray()
    model.save_file(tmp_path / "filter")
    zeros = Tensor.zeros((8,), (device, DType.F64))
    other = Filter(fixed, Param.from_tensor(zeros), Param.from_tensor(zeros)).load_file(tmp_path / "filter")
    close(other.forward(x), expected)
    gradients = burn_torch.grad(lambda model: model.forward(x).abs_square().sum())(model)
    assert len(gradients) == 2


WRONG: dict[str, tuple[Callable[[Tensor], object], type[Exception], tuple[str, str, str]]] = {
    "shapes": (lambda x: ComplexTensor(x, x[0]), ShapeError, ("real .*imag", "one shape", "expand")),
    "types": (lambda x: ComplexTensor(x, x.cast("f64")), DTypeError, ("f64", "one float type", "float")),
    "integers": (lambda x: ComplexTensor(x.int(), x.int()), DTypeError, ("i64", "float type", "float")),
    "no tensor": (lambda x: ComplexTensor(x, 1.0), DTypeError, ("float", "a Tensor", "from_data")),  # type: ignore[arg-type]
    "real torch": (lambda x: ComplexTensor.from_torch(x.into_torch()), DTypeError, ("float32", "complex64", "Tensor")),
    "a last axis": (lambda x: ComplexTensor.view_as_complex(x), ShapeError, ("2, 3", "size 2", "joins")),
    "texts": (lambda x: ComplexTensor.from_data("a", x.device), DTypeError, ("", "complex numbers", "joins")),
    "bf16": (
        lambda x: ComplexTensor.from_real(x.cast("bf16")).into_torch(),
        DTypeError,
        ("bf16", "f64", "cast"),
    ),
    "a mixed list": (
        lambda x: ComplexTensor.cat([ComplexTensor.from_real(x), x], 0),  # type: ignore[list-item]
        ArgumentError,
        ("tensors=", "each a ComplexTensor", "pass a list"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused_in_words(name: str) -> None:
    call, kind, (shown, expected, mend) = WRONG[name]
    with pytest.raises(
        kind, match=rf"\n  given:    [\s\S]*{shown}[\s\S]*\n  expected: .*{expected}.*\n  mend:     .*{mend}"
    ):
        call(Tensor.zeros((2, 3), Device.cpu()))


def test_other_operands_are_left_to_python() -> None:
    z = ComplexTensor.from_data([1j], Device.cpu())
    for operation in (lambda: z + "a", lambda: "a" - z, lambda: z @ 2.0, lambda: z**None):
        with pytest.raises(TypeError, match="unsupported operand"):
            operation()  # type: ignore[no-untyped-call]
    assert (np.float64(2.0) * z).tolist() == [2j]
    assert (np.complex64(2j) * z).tolist() == [-2 + 0j]


@pytest.mark.gpu
def test_parts_on_two_devices_are_refused() -> None:
    x = Tensor.zeros((2,), Device.cpu())
    with pytest.raises(DeviceError, match=r"\n  given:    real .*cpu, imag .*cuda[\s\S]*one device[\s\S]*to_device"):
        ComplexTensor(x, x.to_device(Device.cuda(0)))
