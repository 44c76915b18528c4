"""The names of PyTorch and of Rust's Burn that are spelt otherwise here: each is an AttributeError with a hint."""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import pytest
import torch
import torch.utils.data

import burn_torch
from burn_torch import ArgumentError, Device, Module, Param, Tensor, data, nn, optim
from burn_torch.core import spellings
from burn_torch.core.spellings import layers, packages, read_tables, tensors
from burn_torch.tensor import activation, functional

CPU = Device.cpu()
X = Tensor.from_data(np.arange(6.0, dtype="f4").reshape(2, 3), CPU)
MODULES: Final = {"nn": nn, "optim": optim, "data": data, "burn_torch": burn_torch, "functional": functional}
TABLES: Final[dict[str, tuple[dict[str, str], Any]]] = {
    "Tensor": (tensors.TENSOR, X),
    "Param": (tensors.PARAM, Param.from_tensor(X)),
    "Device": (packages.DEVICE, CPU),
    "Config": (packages.CONFIG, nn.DropoutConfig(0.5)),
    "Module": (layers.MODULE, nn.Relu()),
    "nn": (layers.NN, nn),
    "functional": (layers.FUNCTIONAL, functional),
    "optim": (packages.OPTIM, optim),
    "data": (packages.DATA, data),
    "burn_torch": (packages.BURN_TORCH, burn_torch),
}


def says_what_to_write(owner: Any, name: str) -> bool:
    try:
        getattr(owner, name)
    except AttributeError as err:
        return bool(re.search(r"given: +.*\n +expected: .*\n +mend: +\S", str(err)))
    return True  # a name of ours


def names_of(twin: Any) -> list[str]:
    return [name for name in dir(twin) if not name.startswith("_")]


@pytest.mark.parametrize("file", ["arguments.txt", "layers.txt", "packages.txt", "tensors.txt"])
def test_a_file_names_each_thing_once_a_section(file: str) -> None:
    text = (Path(spellings.__file__).parent / file).read_text(encoding="utf-8")
    for section in re.split(r"^\[", text, flags=re.MULTILINE)[1:]:
        title, _, lines = section.partition("]\n")
        entries = re.sub(r"^#.*\n|= .*\n", "", lines, flags=re.MULTILINE)
        assert sorted(entries.split()) == sorted(read_tables(file, title)[0])


def test_every_name_of_torchs_tensor_is_ours_or_says_what_to_write() -> None:
    assert [name for name in names_of(torch.Tensor) if not says_what_to_write(X, name)] == []
    assert [name for name in names_of(torch.Tensor) if not says_what_to_write(Tensor, name)] == []


@pytest.mark.parametrize(
    ("ours", "twin"),
    [
        (nn, torch.nn),
        (optim, torch.optim),
        (data, torch.utils.data),
        (burn_torch, torch),
        (functional, torch.nn.functional),
    ],
)
def test_every_name_of_a_package_of_torch_is_ours_or_says_what_to_write(ours: Any, twin: Any) -> None:
    assert [name for name in names_of(twin) if not says_what_to_write(ours, name)] == []


def test_every_name_of_numpy_is_ours_or_says_what_to_write() -> None:
    assert [name for name in names_of(np.ndarray) if not says_what_to_write(X, name)] == []
    functions = [n for n in names_of(np) if callable(getattr(np, n)) and not isinstance(getattr(np, n), type)]
    assert [name for name in functions if not says_what_to_write(X, name)] == []
    assert [name for name in names_of(np) if not says_what_to_write(burn_torch, name)] == []


@pytest.mark.parametrize("owner", TABLES)
def test_every_name_of_a_table_says_what_to_write(owner: str) -> None:
    table, value = TABLES[owner]
    assert [name for name in table if not says_what_to_write(value, name)] == []


def test_hints_name_what_is_there() -> None:
    """Methods and classes that hints name exist: x.method(, nn.Name, Tensor.name, Device.name, activation.name."""
    homes: dict[str, Any] = {
        "x": Tensor,
        "Tensor": Tensor,
        "Param": Param,
        "param": Param,
        "Device": Device,
        "device": Device,
        "nn": nn,
        "optim": optim,
        "activation": activation,
        "functional": functional,
        "burn_torch": burn_torch,
        "DType": burn_torch.DType,
        "Distribution": burn_torch.Distribution,
    }
    wrong = []
    for owner, (table, _) in TABLES.items():
        for name, text in table.items():
            for home, named in re.findall(r"(?<![\w.])([A-Za-z_]+)((?:\.[A-Za-z_]\w*)+)", text):
                if home in homes and not _has(homes[home], named[1:].split(".")):
                    wrong.append(f"{owner}.{name}: {home}{named}")
    assert wrong == []


def _has(home: Any, names: list[str]) -> bool:
    """Returns whether an attribute is there, and of a package the one behind it too."""
    for name in names if isinstance(home, ModuleType) else names[:1]:
        if not hasattr(home, name):
            try:
                importlib.import_module(f"{home.__name__}.{name}")
            except ImportError:
                return False
        home = getattr(home, name)
    return True


def test_hints_that_are_expressions_compute() -> None:
    names = {"x": X, "number": 1.0, "math": math, "np": np, "Tensor": Tensor, "DType": burn_torch.DType, "device": CPU}
    for name in (
        "nanmean",
        "nansum",
        "ptp",
        "log10",
        "trace",
        "diag",
        "exp2",
        "T",
        "ravel",
    ):
        text = tensors.TENSOR[name].partition(", or")[0]
        assert isinstance(eval(text, {**names, "n": 2, "x": X[:, :2] if name in ("trace", "diag") else X}), Tensor), (
            name
        )


def test_a_name_that_nobody_knows_is_pythons_own_error() -> None:
    for owner in (X, nn, burn_torch, nn.Relu()):
        with pytest.raises(AttributeError) as caught:
            owner.no_such_name  # noqa: B018
        assert "mend" not in str(caught.value)


def test_dir_and_hasattr_know_no_foreign_names() -> None:
    assert not hasattr(X, "view")
    assert not hasattr(Tensor, "view")
    assert "view" not in dir(X)
    assert "view" not in dir(Tensor)
    assert "data" not in dir(Param)
    assert not hasattr(nn, "Sequential")


def test_a_form_in_place_names_the_form_that_gives_a_tensor() -> None:
    with pytest.raises(AttributeError, match=r"tensors never change: x = x\.add"):
        X.add_  # type: ignore[attr-defined]  # noqa: B018


def test_burns_own_spellings() -> None:
    with pytest.raises(AttributeError, match=r"mend: +Device\.cpu\(\)"):
        Device.default()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"LinearConfig.*new"):
        nn.LinearConfig.new(3, 2)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="nothing: a tensor never changes"):
        X.clone()  # type: ignore[attr-defined]


def test_a_module_that_is_called_runs_forward_or_says_that_it_has_none() -> None:
    assert nn.Relu()(X - 2.0).into_data().to_vec() == [0.0, 0.0, 0.0, 1.0, 2.0, 3.0]

    class Coder(Module):
        layer: nn.Relu

        def encode(self, x: Tensor) -> Tensor:
            return self.layer(x)  # type: ignore[no-any-return]  # a call is typed as loosely as forward may be

    expected = r"Coder: this module has no forward[\s\S]*expected: +a call of one of its methods: encode[\s\S]*mend: +"
    with pytest.raises(ArgumentError, match=expected):
        Coder(nn.Relu())(X)

    class Own(Module):
        scale: float

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.scale

    assert Own(2.0)(X).into_data().to_vec() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


@pytest.mark.parametrize(
    ("call", "mend"),
    [
        (lambda: X.sum(1), "sum_dim"),
        (lambda: X.sum(dim=1, keepdim=True), "sum_dim"),
        (lambda: X.mean(dim=1), "mean_dim"),
        (lambda: X.sum(axis=1), "sum_dim"),  # type: ignore[arg-type]
        (lambda: X.mean(axis=0, keepdims=True), "mean_dim"),  # type: ignore[arg-type]
        (lambda: X.max(axis=-1), "max_dim"),  # type: ignore[arg-type]
        (lambda: X.prod(1), "prod_dim"),
        (lambda: X.max(1), "max_dim"),
        (lambda: X.min(dim=-1), "min_dim"),
        (lambda: X.any(1), "any_dim"),
        (lambda: X.all(1), "all_dim"),
        (lambda: X.squeeze(1), "squeeze_dim"),
        (lambda: X.squeeze(dim=0), "squeeze_dim"),
        (lambda: X.transpose(0, 1), "swap_dims"),
        (lambda: X.t(0, 1), "swap_dims"),
        (lambda: X.clamp(min=0.0), "clamp_min"),
        (lambda: X.clamp(max=0.0), "clamp_max"),
        (lambda: X.clamp(0.0), "clamp_min"),
        (lambda: X.unsqueeze(1), "unsqueeze_dim"),
        (lambda: X.unsqueeze(2), "unsqueeze_dim"),
    ],
)
def test_arguments_as_pytorch_writes_them_name_the_method(call: Any, mend: str) -> None:
    with pytest.raises(burn_torch.BurnTorchError, match=rf"given: [\s\S]*expected: [\s\S]*mend: .*{mend}"):
        call()


@pytest.mark.parametrize(
    "name",
    [
        "jit", "pmap", "stop_gradient", "remat", "tree_map", "tree_util", "lax", "numpy", "device_put", "device_get",
        "devices", "make_jaxpr", "eval_shape", "block_until_ready", "array", "PRNGKey",
    ],
)  # fmt: skip
def test_names_of_jax_say_what_to_write(name: str) -> None:
    with pytest.raises(AttributeError, match=r"given: [\s\S]*expected: [\s\S]*mend: +\S"):
        getattr(burn_torch, name)


@pytest.mark.parametrize(
    "name",
    [
        "expand_dims", "swapaxes", "astype", "T", "ravel", "copy", "fill", "itemsize", "nbytes", "ptp", "compress",
        "float16",
    ],
)  # fmt: skip
def test_names_of_numpys_arrays_say_what_to_write(name: str) -> None:
    with pytest.raises(AttributeError, match=r"given: [\s\S]*expected: [\s\S]*mend: +\S"):
        getattr(X, name)
