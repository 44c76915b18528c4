"""Every registered kernel: launchers on this machine's devices against float64, and what they refuse."""

from __future__ import annotations

import dataclasses
import doctest
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from burn_kernels import (
    REGISTRY,
    KernelArgumentError,
    KernelDeviceError,
    KernelDTypeError,
    KernelError,
    KernelLimitError,
    KernelShapeError,
    KernelSpec,
    Problem,
    cross_entropy,
    dropout,
    errors,
    glu,
    launch,
    norm,
    optimizer,
    register,
    softmax,
    verify,
)
from burn_kernels.launch import H200, recording
from burn_kernels.registry import FAMILIES
from burn_kernels.spec import Draw

CPU_DTYPES = (torch.float64, torch.float32, torch.bfloat16)


@functools.cache
def problems(spec: KernelSpec) -> list[Problem]:
    return list(spec.problems(Draw(sum(map(ord, spec.name)))))


def cases() -> list[Any]:
    params = []
    for spec in REGISTRY.values():
        for index, problem in enumerate(problems(spec)):
            shapes = "-".join("x".join(map(str, x.shape)) for x in problem.inputs if isinstance(x, torch.Tensor))
            params.append(pytest.param(spec, index, id=f"{spec.name}-{index}-{shapes}"))
    return params


@pytest.mark.parametrize("dtype", CPU_DTYPES, ids=str)
@pytest.mark.parametrize(("spec", "index"), cases())
def test_launchers_on_the_cpu(spec: KernelSpec, index: int, dtype: torch.dtype) -> None:
    assert verify(spec, problems(spec)[index], dtype=dtype) == []


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("spec", "index"), cases())
def test_kernels_on_a_gpu(spec: KernelSpec, index: int, dtype: torch.dtype) -> None:
    assert verify(spec, problems(spec)[index], dtype=dtype, device="cuda") == []


# -- the registry --------------------------------------------------------------------------------------
def test_every_family_registers_an_operation() -> None:
    homes = {functools.partial(spec.problems).func.__module__ for spec in REGISTRY.values()}
    without = [name for name in FAMILIES if not any(home.startswith(f"burn_kernels.{name}") for home in homes)]
    assert without == ["random"]  # whose numbers are exact, and checked one by one


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_spec_says_what_it_moves_and_counts(name: str) -> None:
    spec = REGISTRY[name]
    for problem in problems(spec):
        tensors = [x for x in problem.inputs if isinstance(x, torch.Tensor) and x.is_floating_point()]
        size = sum(x.numel() * x.element_size() for x in tensors[:1])
        forward = spec.bytes_moved(*problem.inputs, **problem.options)
        assert forward >= size
        assert spec.flops(*problem.inputs, **problem.options) >= 0
        if spec.gradient is not None:
            assert spec.bytes_moved(*problem.inputs, backward=True, **problem.options) >= forward
    assert spec.limits
    assert torch.float32 in spec.dtypes


def test_a_name_is_registered_once() -> None:
    with pytest.raises(
        KernelArgumentError, match=r"(?s)'softmax' is registered twice.*burn_kernels.softmax.*one spec a name.*another"
    ):
        register(REGISTRY["softmax"])


def test_half_a_gradient_is_refused() -> None:
    spec = dataclasses.replace(REGISTRY["softmax"], name="half", reference_gradient=None)
    with pytest.raises(KernelArgumentError, match=r"(?s)one half of a gradient.*gradient.*both.*write the other"):
        register(spec)
    assert "half" not in REGISTRY


def test_numbers_are_drawn_again_from_the_same_seed() -> None:
    assert torch.equal(Draw(3).normal(4, mean=2.0), Draw(3).normal(4, mean=2.0))
    assert sorted(set(Draw(3).integers(0, 5, 100).tolist())) == [0, 1, 2, 3, 4]


# -- what launchers refuse -------------------------------------------------------------------------------
X = torch.ones(4, 6)
W = torch.ones(6)
TARGETS = torch.zeros(4, dtype=torch.int64)
CUBE = torch.ones(2, 3, 4)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            KernelShapeError,
            r"softmax: the input has no axis.*x \(\).*x \(\*batch, cols\).*unsqueeze",
            lambda: softmax.forward(torch.tensor(1.0)),
        ),
        (
            KernelDTypeError,
            r"softmax: the element types do not fit.*int64.*one float type.*cast",
            lambda: softmax.forward(TARGETS),
        ),
        (
            KernelShapeError,
            r"softmax backward: dy has another shape.*dy \(4, 5\).*expected: dy \(4, 6\).*belong together",
            lambda: softmax.backward(torch.ones(4, 5), X),
        ),
        (
            KernelDTypeError,
            r"log_softmax backward: the element types.*dy \(4, 6\) float16.*y \(4, 6\) float32.*one float type",
            lambda: softmax.log_backward(X.half(), X),
        ),
        (
            KernelDeviceError,
            r"softmax backward: the tensors lie on different devices.*dy \(4, 6\) float32 meta.*all on meta.*move",
            lambda: softmax.backward(torch.empty(4, 6, device="meta"), X),
        ),
        (
            KernelShapeError,
            r"layer_norm: w and b have another shape.*w \(5,\).*expected: w \(6,\), b \(6,\).*belong",
            lambda: norm.layer_norm(X, torch.ones(5), torch.ones(4)),
        ),
        (
            KernelShapeError,
            r"rms_norm backward: rstd has another shape.*rstd \(4,\).*expected: rstd \(4, 1\)",
            lambda: norm.rms_norm_backward(X, X, W, torch.ones(4)),
        ),
        (
            KernelArgumentError,
            r"cross_entropy: an option is outside.*'median'.*none, mean, sum.*choose",
            lambda: cross_entropy.forward(X, TARGETS, reduction="median"),
        ),
        (
            KernelArgumentError,
            r"cross_entropy: an option is outside.*smoothing 1.5.*from 0 to 1",
            lambda: cross_entropy.forward(X, TARGETS, smoothing=1.5),
        ),
        (
            KernelShapeError,
            r"cross_entropy: the sizes do not fit.*x \(2, 3, 4\).*x \(rows, cols\).*flatten",
            lambda: cross_entropy.forward(CUBE, TARGETS),
        ),
        (
            KernelDTypeError,
            r"cross_entropy: targets are class numbers.*float32.*integers.*int64",
            lambda: cross_entropy.forward(X, torch.ones(4)),
        ),
        (
            KernelArgumentError,
            r"cross_entropy: targets that are no class.*1 targets, the first 6.*from 0 to 5.*labels",
            lambda: cross_entropy.forward(X, torch.tensor([0, 1, 6, -100])),
        ),
        (
            KernelArgumentError,
            r"the gradient in the forward needs one upstream.*'none'.*'mean' or 'sum'.*call forward, then backward",
            lambda: cross_entropy.forward_with_gradient(X, TARGETS, reduction="none"),
        ),
        (
            KernelShapeError,
            r"cross_entropy backward: dloss has another shape.*dloss \(4,\).*expected: dloss \(\)",
            lambda: cross_entropy.backward(torch.ones(4), X, TARGETS, torch.ones(4)),
        ),
        (
            KernelArgumentError,
            r"glu: no such activation.*'mish'.*silu, gelu, gelu_tanh, relu.*swiglu is silu",
            lambda: glu.forward(X, X, kind="mish"),
        ),
        (
            KernelShapeError,
            r"glu backward: up has another shape.*up \(6,\).*expected: up \(4, 6\)",
            lambda: glu.backward(X, X, W),
        ),
        (
            KernelArgumentError,
            r"dropout: the probability.*prob 1.25.*from 0 to 1.*share",
            lambda: dropout.forward(X, 1.25, 0, 0),
        ),
        (
            KernelShapeError,
            r"table: the groups have different lengths.*2 params, 1 grads.*one tensor of each.*leave out",
            lambda: optimizer.table([X, X], [X]),
        ),
        (
            KernelDTypeError,
            r"table: grads are not of one float type.*float16, torch.float32.*one float type.*one table",
            lambda: optimizer.table([X, X], [X, X.half()]),
        ),
        (
            KernelShapeError,
            r"table: grads\[1\] has another shape.*grads\[1\] \(6,\).*expected: grads\[1\] \(4, 6\)",
            lambda: optimizer.table([X, X], [X, W]),
        ),
        (
            KernelArgumentError,
            r"table: tensors that do not lie in order.*grads\[0\] with strides \(1, 4\).*contiguous.*x.contiguous",
            lambda: optimizer.table([X], [torch.ones(6, 4).T]),
        ),
        (
            KernelArgumentError,
            r"adamw: an option is outside.*step 0.*step from 1.*first step",
            lambda: optimizer.adamw([X], [X], [X], [X], lr=0.1, step=0),
        ),
        (
            KernelShapeError,
            r"adamw_: the table is of another optimizer.*1 states.*expected: 2.*make the table",
            lambda: optimizer.adamw_(optimizer.table([X], [X], [X]), lr=0.1, step=1),
        ),
        (
            KernelArgumentError,
            r"sgd: momentum without velocities.*momentum 0.9.*velocities, one.*zeros before the first",
            lambda: optimizer.sgd([X], [X], lr=0.1, momentum=0.9),
        ),
        (
            KernelShapeError,
            r"sgd: clip has another shape.*clip \(2,\).*expected: clip \(\)",
            lambda: optimizer.sgd([X], [X], lr=0.1, clip=torch.ones(2)),
        ),
    ],
)
def test_refusals_say_what_was_given_expected_and_how_to_mend(
    error: type[KernelError], message: str, call: Callable[[], object]
) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        call()


def test_float64_on_a_machine_that_runs_kernels_is_past_the_limit() -> None:
    with (
        recording(H200),
        pytest.raises(KernelLimitError, match=r"(?s)softmax.*torch.float64.*float32, float16 or bfloat16.*reference"),
    ):
        softmax.forward(X.double())


# -- in place, aliases, absence ------------------------------------------------------------------------------
def test_forms_in_place_write_where_they_say() -> None:
    x, targets = torch.randn(4, 6), torch.tensor([0, 5, -100, 2])
    loss, dx = cross_entropy.forward_with_gradient(x, targets)
    spare = x.clone()
    results = cross_entropy.forward_with_gradient_(spare, targets)
    assert results[1] is spare
    assert torch.equal(spare, dx)
    assert torch.equal(results[0], loss)
    p, g, m, v = (torch.rand(5) for _ in range(4))
    expected = optimizer.adamw([p], [g], [m], [v], lr=0.1, step=3)
    copies = [torch.empty(5, dtype=torch.bfloat16)]
    optimizer.adamw_(optimizer.table([p], [g], [m], [v], copies=copies, in_place=True), lr=0.1, step=3)
    assert [x.tolist() for x in (p, m, v)] == [group[0].tolist() for group in expected]
    assert torch.equal(copies[0], p.bfloat16())


def test_a_step_out_of_place_into_a_table() -> None:
    p, g = torch.rand(5), torch.rand(5)
    table = optimizer.table([p], [g])
    optimizer.sgd_(table, lr=0.5)
    assert torch.equal(table.results[0][0], p - 0.5 * g)


def test_candidates_begin_with_the_default() -> None:
    for cols in (1, 49, 1024, 5120, 8192, 16_384, 32_768, 50_257, 128_256):
        assert softmax.default(cols, 2, H200) == softmax.candidates(cols, 2, H200)[0]
        assert norm.default(cols, 2, H200) == norm.candidates(cols, 2, H200)[0]
        assert norm.backward_default(cols, 2, H200) == norm.backward_candidates(cols, 2, H200)[0]
        chosen = cross_entropy.default(cols, 2, H200)
        assert chosen == cross_entropy.candidates(cols, 2, H200)[0]
        assert chosen.lanes >= 32 * chosen.warps  # at least a vector a thread: what the form in place relies on


def run_alone(program: str) -> None:
    here = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "error", "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=here)
    assert ran.returncode == 0, ran.stderr


def test_importing_the_package_imports_no_family_until_one_is_named_or_a_registry_is_read() -> None:
    run_alone("""
import sys
import burn_kernels
loaded = [name for name in sys.modules if name.startswith("burn_kernels.")]
assert loaded == ["burn_kernels.lazy", "burn_kernels.registry"] and "torch" not in sys.modules, loaded
from burn_kernels import softmax
assert "burn_kernels.glu" not in sys.modules
from burn_kernels.autotune.tunable import TUNABLES
assert not TUNABLES.holds("glu") and TUNABLES["glu"].name == "glu" and "glu" in TUNABLES
assert all(f"burn_kernels.{name}" in sys.modules for name in burn_kernels.registry.FAMILIES)
try:
    burn_kernels.no_such_name
except AttributeError as error:
    assert "no attribute 'no_such_name'" in str(error)
else:
    raise AssertionError
assert all(hasattr(burn_kernels, name) for name in burn_kernels.__all__) and callable(burn_kernels.verify)
""")


def test_everything_but_kernels_works_without_triton() -> None:
    run_alone("""
import sys
sys.modules["triton"] = None  # import triton raises ImportError
import torch, burn_kernels
assert not burn_kernels.AVAILABLE
x = torch.randn(3, 5, dtype=torch.float64)
for spec in burn_kernels.REGISTRY.values():
    from burn_kernels.spec import Draw
    for problem in spec.problems(Draw(0)):
        assert burn_kernels.verify(spec, problem, dtype=torch.float32) == [], spec.name
        break
""")


@pytest.mark.parametrize("module", [errors, launch, optimizer], ids=lambda module: module.__name__)
def test_examples_in_docstrings(module: ModuleType) -> None:
    ran = doctest.testmod(module)
    assert ran.attempted > 0
    assert ran.failed == 0


def test_a_gpu_without_triton_takes_the_reference_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu: Any = SimpleNamespace(is_cuda=True, dtype=torch.float32)
    monkeypatch.setattr(launch, "AVAILABLE", False)
    launch.warn_without_triton.cache_clear()
    with pytest.warns(RuntimeWarning, match="Triton is not installed, so plain torch computes"):
        assert not launch.runs_kernel("softmax", on_gpu)
    assert not launch.runs_kernel("softmax", on_gpu)  # a second warning would be an error here
