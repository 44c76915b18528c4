"""The narrow waist stays narrow: what `Backend` asks of every backend, and where the rest is."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import burn_torch
from burn_torch import Autodiff, Device, Fusion, LibTorch, NdArray, Tensor
from burn_torch.backend import Backend
from burn_torch.backend.base import capabilities
from burn_torch.backend.batched import Batched
from burn_torch.backend.capabilities import Capabilities
from burn_torch.backend.decorator import Decorator, detached, leaf_primitive
from burn_torch.backend.tracing import Session
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError

METHODS = {"compile", "copy", "execute", "from_data", "into_data", "leaf", "lift", "spec", "sync", "version"}
STACKS = [
    LibTorch(),
    NdArray(),
    Autodiff(LibTorch()),
    Autodiff(NdArray(), "balanced", trains=False),
    Fusion(LibTorch()),
    Autodiff(Autodiff(Fusion(LibTorch()))),
    Batched(LibTorch()),
]


def test_a_backend_has_ten_methods() -> None:
    own = {name for name, value in vars(Backend).items() if callable(value) or isinstance(value, property)}
    assert {name for name in own if not name.startswith("_")} == METHODS
    assert len(METHODS) <= 10


def test_a_leaf_writes_six_of_them() -> None:
    assert Backend.__abstractmethods__ == {"copy", "execute", "from_data", "into_data", "spec", "sync"}


@pytest.mark.parametrize("kind", [Autodiff, Batched, Fusion])
def test_a_decorator_writes_no_delegation(kind: type[Decorator]) -> None:
    """`Decorator` has every method that only asks the inner backend."""
    plain = {"from_data", "into_data", "spec", "lift", "leaf", "__reduce__", "onto"}
    assert not plain & set(vars(kind))
    assert "unwrapped" in vars(kind)


@pytest.mark.parametrize("stack", STACKS, ids=repr)
def test_equal_stacks_are_one_object_in_pickles_too(stack: Backend) -> None:
    assert pickle.loads(pickle.dumps(stack)) is stack
    device = Device(stack)
    assert pickle.loads(pickle.dumps(device)) is device
    if isinstance(stack, Decorator):
        assert stack.onto(stack.inner) is stack


@pytest.mark.parametrize("stack", [Fusion(LibTorch()), Autodiff(LibTorch(), "balanced"), Batched(LibTorch())], ids=repr)
def test_a_session_has_one_stack_for_each_real_one(stack: Any) -> None:
    with Session(LibTorch()).opened() as session:
        traced = session.stack(stack)
        assert traced is session.stack(stack) is type(stack)._intern(session.leaf, *stack._options)
        assert (traced.session, traced.real, traced.lasting) == (session, stack, False)
        assert Device(traced) is Device(stack)


@pytest.mark.parametrize("device", [Device.cpu(fused=False), Device.cpu(fused=True), Device.ndarray()], ids=repr)
def test_the_leafs_primitive_lies_under_all_decorators(device: Device) -> None:
    twice = device.autodiff().autodiff()
    x = Tensor.from_data([1.0, 2.0], twice).require_grad()
    y = x * 2.0
    bare = leaf_primitive(y.backend, y.primitive)
    assert np.array_equal(np.asarray(bare), [2.0, 4.0])
    constant = detached(y.backend, y.primitive)
    assert leaf_primitive(y.backend, constant) is bare
    assert detached(y.backend, constant) is constant


def test_capabilities_are_the_leafs_under_any_decorators() -> None:
    torch_own = LibTorch().capabilities
    assert capabilities(Autodiff(Fusion(LibTorch()))) is torch_own is capabilities(Batched(LibTorch()))
    assert capabilities(Autodiff(NdArray())).places() == ["cpu"]
    assert not Device.ndarray().supports_dtype(DType.BF16)
    assert Device.cpu().supports_dtype(DType.BF16)


def test_no_capability_is_a_method_of_the_protocol_too() -> None:
    own = {name for name, value in inspect.getmembers(Capabilities, callable) if not name.startswith("_")}
    assert own & METHODS == set()
    assert {"program", "recorded", "settings", "generates", "reading", "pinned"} <= own


def questions_of_type(source: str) -> list[int]:
    """The lines that ask whether something is of a class of backends."""
    kinds = {"Autodiff", "Fusion", "LibTorch", "NdArray", "TraceLeaf"}
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass")
        if kinds & {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
    ]


def test_no_floor_above_asks_for_a_class_of_backends() -> None:
    """A further leaf or decorator is named nowhere above: there are questions on `Backend` and on `Device`."""
    package = Path(burn_torch.__file__).parent
    above = [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] != "backend"]
    texts = {str(path): path.read_text(encoding="utf-8") for path in above}
    naming = {name: text for name, text in texts.items() if re.search("Autodiff|Fusion|LibTorch|NdArray|Trace", text)}
    assert {name: lines for name, text in naming.items() if (lines := questions_of_type(text))} == {}
    assert questions_of_type("isinstance(x.backend, Autodiff)\nisinstance(leaf, A | NdArray)\nfoo(LibTorch)") == [1, 2]


def test_a_device_without_gradients() -> None:
    plain = Device.cpu(fused=False)
    assert plain.no_grad() is plain is plain.autodiff().no_grad()
    assert plain.autodiff().autodiff().no_grad() is plain.autodiff()


@pytest.mark.parametrize("decorator", [Autodiff, Fusion])
def test_a_decorator_over_no_backend_is_refused(decorator: Any) -> None:
    match = rf"given:    NoneType None[\s\S]*expected: a backend[\s\S]*mend:     {decorator.__name__}\(LibTorch\(\)\)"
    with pytest.raises(ArgumentError, match=match):
        decorator(None)
