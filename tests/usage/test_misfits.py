"""Calls whose arguments fit no parameter, and functions of numpy and torch that are handed our values."""

from __future__ import annotations

import inspect
import math
import pickle
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import burn_torch
from burn_torch import BurnTorchError, Device, DType, Tensor, nn
from burn_torch.core.errors import DTypeError
from burn_torch.core.misfits import worded
from burn_torch.tensor import activation, functional, linalg, signal

CPU = Device.cpu()
X: Any = Tensor.from_data(np.arange(6.0, dtype="f4").reshape(2, 3), CPU)
MODEL: Any = nn.LinearConfig(3, 2).init(CPU.autodiff())
ANY: Any = burn_torch


@pytest.mark.parametrize(
    ("call", "mend"),
    [
        (lambda: X.sum_dim(axis=1), r"sum_dim\(dim=1\)"),
        (lambda: X.sum_dim(1, keepdim=True), r"sum_dim\(dim=1\); without keepdim: .*squeeze_dim"),
        (lambda: X.argmax(axis=1, keepdims=True), r"argmax\(dim=1\); without keepdims"),
        (lambda: X.argmax(), r"argmax\(dim=-1\)"),
        (lambda: X.topk(2), r"topk\(k=2, dim=-1\)"),
        (lambda: X.topk(2, dim=1, largest=False), r"topk\(k=2, dim=1\); without largest"),
        (lambda: X.sort(dim=1, descending=True), r"sort\(dim=1\); without descending: sort_descending"),
        (lambda: X.sort(1, True), r"sort\(dim=1\); without the last argument"),
        (lambda: X.gather(1, index=3), r"gather\(dim=1, indices=3\)"),
        (lambda: X.scatter(dim=1, index=3, src=4), r"scatter\(dim=1, indices=3, values=4\)"),
        (lambda: X.var(1, unbiased=False), r"without unbiased: .*var_bias"),
        (lambda: X.cumsum(axis=1), r"cumsum\(dim=1\)"),
        (lambda: X.permute(dims=[1, 0]), r"permute\(\*\[1, 0\]"),
        (lambda: X.unsqueeze(dim=0), r"unsqueeze\(rank=0\)|unsqueeze_dim"),
        (lambda: X.add(X, alpha=2), r"without alpha: multiply first"),
        (lambda: X.clamp(a_min=0), r"clamp\(min=0"),
        (lambda: Tensor.zeros((2, 3)), r"zeros\(shape=\(2, 3\).*options=Device.cpu\(\)\)"),
        (lambda: ANY.Tensor.zeros((2, 3), dtype="f32", device="cpu"), r"options=\(device, dtype\)"),
        (lambda: ANY.Tensor.zeros((2, 3), CPU, DType.F32), "without the last argument"),
        (lambda: ANY.Tensor.cat([X, X], axis=0), r"dim=0"),
        (lambda: ANY.activation if False else activation.relu(X, inplace=True), r"without inplace"),
        (lambda: activation.softmax(X, axis=1), r"dim=1"),
        (lambda: functional.linear(input=X, weight=X), r"x="),
        (lambda: nn.LinearConfig(3, 2).init(), r"init\(device=Device.cpu\(\)\)"),
        (lambda: ANY.optim.AdamConfig().init(MODEL), r"init\(\)"),
        (lambda: ANY.optim.AdamConfig().init().step(), r"gradients=GradientsParams.from_grads"),
        (lambda: ANY.data.DataLoader([1, 2], batch_size=2), r"batcher="),
        (lambda: ANY.Distribution.Normal(0), r"std="),
        (lambda: ANY.Device.cpu(0), r"cpu\(\)"),
    ],
)
def test_a_call_that_fits_no_parameter_is_written_right(call: Callable[[], Any], mend: str) -> None:
    with pytest.raises(BurnTorchError, match=rf"given: [\s\S]*expected: [\s\S]*mend: .*{mend}"):
        call()


@pytest.mark.parametrize(
    ("call", "mend"),
    [
        (lambda: ANY.optim.Adam(lr=1), r"optim\.AdamConfig\(.*\)\.init\(\)"),
        (lambda: ANY.optim.Adam(), r"optim\.AdamConfig\(.*\)\.init\(\)"),
        (lambda: ANY.optim.Adam(3, None, 0.9, 0.9, 1.0, False, 0.0), r"AdamConfig"),
        (lambda: ANY.nn.LinearConfig(3, 2)(X), r"config\.init\(device\)\.forward\(x\)"),
        (lambda: ANY.tensor([1]), r"Tensor\.from_data"),
        (lambda: ANY.Tensor([1, 2]), r"Tensor\.from_data.*Tensor\.zeros.*Tensor\.from_torch"),
        (lambda: ANY.Tensor(3), r"Tensor\.zeros"),
        (lambda: ANY.Tensor(), r"Tensor\.from_data"),
        (lambda: ANY.Tensor(2, 3, 4), r"Tensor\.zeros"),
        (lambda: ANY.Tensor(2, 3, 4, 5), r"Tensor\.zeros"),
        (lambda: ANY.Tensor([1.0], requires_grad=True), r"Tensor\.from_data"),
        (lambda: MODEL.weight + 1, r"param\.val\(\)"),
        (lambda: X @ MODEL.weight, r"param\.val\(\)"),
        (lambda: -MODEL.weight, r"param\.val\(\)"),
        (lambda: ANY.DType.float32, r"DType\.F32"),
        (lambda: ANY.DType.f32, r"DType\.F32"),
        (lambda: ANY.optim.AdamConfig().step(), r"init\(\) makes the optimizer"),
        (lambda: ANY.DType("f32"), r"DType\.F32"),
        (lambda: ANY.DType("int64"), r"DType\.I64"),
        (lambda: ANY.DType(np.float16), r"DType\.F16"),
        (lambda: ANY.DType["bool"], r"DType\.BOOL"),
        (lambda: ANY.DType(), r"DType\.F32"),
        (lambda: ANY.Module(3), r"class Net\(Module\)"),
        (lambda: ANY.nn.Relu(inplace=True), r"Relu\(\)"),
        (lambda: X.__delitem__(0), r"Tensor\.cat"),
        (lambda: np.asarray(MODEL.weight), r"param\.val\(\)"),
        (lambda: np.mean(MODEL.weight), r"param\.val\(\)"),
        (lambda: torch.relu(MODEL.weight), r"param\.val\(\)"),
    ],
)
def test_what_is_no_constructor_or_function_says_which_is(call: Callable[[], Any], mend: str) -> None:
    with pytest.raises((BurnTorchError, AttributeError), match=rf"given: [\s\S]*expected: [\s\S]*mend: .*{mend}"):
        call()


@pytest.mark.parametrize(
    ("call", "mend"),
    [
        (lambda: torch.relu(X), r"x\.relu\(\.\.\.\); x\.into_torch\(\)"),
        (lambda: torch.nn.functional.softmax(X, dim=1), "softmax"),
        (lambda: torch.nn.functional.cross_entropy(X, X), r"x\.into_torch\(\)"),
        (lambda: torch.nn.Linear(3, 2)(X), r"linear"),
        (lambda: torch.cat([X, X]), r"x\.cat|Tensor\.cat"),
        (lambda: torch.where(X > 0, X, X), r"x\.where"),
        (lambda: torch.special.erf(X), r"into_torch"),
        (lambda: torch.ones(2, 3) @ X, r"Tensor\.from_torch"),
        (lambda: torch.ones(2, 3) + X, r"Tensor\.from_torch"),
        (lambda: np.exp(X), r"x\.exp"),
        (lambda: np.maximum(X, 0.0), r"max_pair"),
        (lambda: np.add.reduce(X), r"np\.asarray\(x\)"),
        (lambda: np.ones((2, 3)) @ X, r"Tensor\.from_data"),
    ],
)
def test_functions_of_others_name_ours(call: Callable[[], Any], mend: str) -> None:
    with pytest.raises((TypeError, AttributeError), match=rf"given: [\s\S]*expected: [\s\S]*mend: .*{mend}"):
        call()


@pytest.mark.parametrize(
    "function",
    [
        np.sum,
        np.transpose,
        np.squeeze,
        np.shape,
        np.ndim,
        np.size,
        np.sort,
        np.argmax,
        np.cumsum,
        np.nonzero,
        np.round,
        lambda x: np.mean(x, axis=0),
        lambda x: np.repeat(x, 2),
        lambda x: np.repeat(x, 2, axis=1),
        lambda x: np.concatenate([x, x]),
        lambda x: np.where(x > 2, x, 0.0),
        lambda x: np.einsum("ijk->kji", x),
        lambda x: np.split(x, 2, axis=0),
        lambda x: np.take(x, [1, 0]),
        lambda x: np.clip(x, 1.0, 2.0),
        lambda x: np.reshape(x, (3, -1)),
        lambda x: np.linalg.norm(x),
        lambda x: np.float32(2.0) * x,
        lambda x: np.float64(2.0) < x,
        lambda x: np.array(2.0) - x,
        lambda x: np.int64(2) + x,
    ],
)
def test_functions_of_numpy_give_what_they_give_for_arrays(function: Any) -> None:
    array = np.arange(12.0, dtype="f4").reshape(2, 1, 6)
    ours, theirs = function(Tensor.from_data(array, CPU)), function(array)
    pairs = zip(ours, theirs, strict=True) if isinstance(theirs, list | tuple) else [(ours, theirs)]
    for one, other in pairs:
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize(
    ("call", "mend"),
    [
        (lambda: X.dtype == torch.float32, r"DType\.F32"),
        (lambda: X.dtype != "f32", r"DType\.F32"),
        (lambda: X.dtype in ("float64", "float32"), r"DType\.F64"),
        (lambda: X.dtype == np.dtype("int8"), r"DType\.I8"),
        (lambda: X.dtype == np.float32, r"DType\.F32"),
        (lambda: X.dtype == float, r"DType\.F32"),
        (lambda: X.device == "cpu", r"Device\.cpu\(\)"),
        (lambda: X.device != torch.device("cpu"), r"Device\.cpu\(\)"),
        (lambda: MODEL.weight == 0.0, r"param\.val\(\)"),
        (lambda: MODEL.weight != X, r"param\.val\(\)"),
    ],
)
def test_what_would_never_be_equal_says_so(call: Callable[[], Any], mend: str) -> None:
    with pytest.raises(BurnTorchError, match=rf"given: [\s\S]*expected: [\s\S]*mend: .*{mend}"):
        call()


def test_types_devices_and_parameters_compare_by_identity() -> None:
    assert X.dtype == DType.F32 != DType.F64
    assert X.dtype != 3
    assert X.dtype != "automatic"
    assert DType.F32 in {DType.F32: 1}
    assert pickle.loads(pickle.dumps(DType.BF16)) is DType.BF16
    assert X.device == CPU != CPU.autodiff()
    assert X.device != 0
    assert MODEL.weight == MODEL.weight != MODEL.bias
    assert MODEL.weight in [MODEL.bias, MODEL.weight]


def test_torch_makes_tensors_of_ours() -> None:
    for make in (torch.tensor, torch.as_tensor, torch.asarray):
        assert make(X).tolist() == X.tolist()
    assert math.sqrt(X.sum()) == pytest.approx(15.0**0.5)
    with pytest.raises(BurnTorchError, match="one element"):
        math.sqrt(X)


def test_a_worded_function_binds_as_before() -> None:
    def plain(a: int, b: int = 2, *rest: int, c: int = 3, **named: int) -> Any:
        return a, b, rest, c, named

    ours = worded(plain)
    for args, named in (((1,), {}), ((1, 5), {"c": 4}), ((1, 2, 3, 4), {"d": 6}), ((), {"a": 1, "b": 0})):
        assert ours(*args, **named) == plain(*args, **named)
    with pytest.raises(BurnTorchError, match=r"it needs a[\s\S]*mend: .*plain\(a=\.\.\., b=1\)"):
        ours(b=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("package", [functional, linalg, signal], ids=lambda package: package.__name__)
def test_functions_of_a_package_are_named_with_it(package: ModuleType) -> None:
    functions = {name: x for name in package.__all__ if inspect.isfunction(x := getattr(package, name))}
    assert len(functions) > 20
    for function in functions.values():
        subject = f"{package.__name__.rpartition('.')[2]}.{function.__name__}"  # of two names the first
        with pytest.raises(DTypeError, match=rf"^{re.escape(subject)}: .*takes no nonsense"):
            function(nonsense=1)


def test_what_is_public_is_found_again_by_pickle() -> None:
    places = [module for name, module in list(sys.modules.items()) if name.startswith("burn_torch.")]
    public = {
        f"{module.__name__}.{name}": vars(module)[name]
        for module in places
        for name in getattr(module, "__all__", ())
        if name in vars(module)
    }
    methods = {f"Tensor.{name}": inspect.getattr_static(Tensor, name) for name in dir(Tensor) if name[0] != "_"}
    functions = {name: x for name, x in {**public, **methods}.items() if inspect.isfunction(x) or inspect.isclass(x)}
    assert {"burn_torch.tensor.activation.relu", "burn_torch.tensor.functional.linear", "Tensor.argmax"} <= set(
        functions
    )
    assert [name for name, x in functions.items() if pickle.loads(pickle.dumps(x)) is not x] == []
