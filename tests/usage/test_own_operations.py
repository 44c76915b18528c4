"""Operations that users declare: annotations count by what they mean, wrong declarations have errors in three parts."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any, Optional, Union  # noqa: F401  # names that annotations below mean

import numpy as np
import pytest
import torch

import burn_torch.core.spec
import burn_torch.ops
from burn_torch import ArgumentError, Device, DTypeError, Tensor, op, ops
from burn_torch.core.dtype import DType
from burn_torch.ops import REGISTRY, Number, Operand, TensorSpec

Alias = TensorSpec


@pytest.fixture(autouse=True)
def rows_are_taken_out() -> Iterator[None]:
    before = set(REGISTRY)
    yield
    for name in set(REGISTRY) - before:
        del REGISTRY[name]


def declared(annotation: Any, *, attribute: Any = None, default: Any = inspect.Parameter.empty) -> Any:
    """A row `scaled(x, factor)` or `scaled(x, *, factor)` whose second parameter has an annotation."""

    def scaled(x: TensorSpec, factor: Any) -> TensorSpec:
        return x

    def scaled_by_attribute(x: TensorSpec, *, factor: Any) -> TensorSpec:
        return x

    rule: Callable[..., Any] = scaled if attribute is None else scaled_by_attribute
    rule.__annotations__["factor"] = annotation if attribute is None else attribute
    return op(namespace="usage", torch=lambda x, factor: x if factor is None else x * factor, numpy=None)(rule)


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        ("TensorSpec", "tensor"),
        (TensorSpec, "tensor"),
        ("Alias", "tensor"),
        ("burn_torch.core.spec.TensorSpec", "tensor"),
        ("burn_torch.ops.TensorSpec", "tensor"),
        ("ops.TensorSpec", "tensor"),
        ("not_importable.TensorSpec", "tensor"),
        (Optional[TensorSpec], "optional"),  # noqa: UP045
        ("Optional[TensorSpec]", "optional"),
        ("None | TensorSpec", "optional"),
        (typing.Union[None, TensorSpec], "optional"),  # noqa: UP007
        (Number, "number"),
        ("Number", "number"),
        ("ops.Number", "number"),
        (burn_torch.core.spec.NumberSpec, "number"),
        (Operand, "operand"),
        ("Union[Number, TensorSpec]", "operand"),
        ("TensorSpec | Number | None", "optional operand"),
    ],
)
def test_an_annotation_counts_by_what_it_means(annotation: Any, kind: str) -> None:
    row = declared(annotation)
    assert row.signature.inputs == [("x", "tensor"), ("factor", kind)]
    x = Tensor.from_data(np.arange(3.0, dtype="f4"), Device.cpu())
    right = x if kind in ("tensor", "optional") else 2.0
    assert row(x, right).into_data().to_vec() == ([0.0, 1.0, 4.0] if right is x else [0.0, 2.0, 4.0])


@pytest.mark.parametrize("annotation", ["int", int, "builtins.int", "DType", DType, "tuple[int, ...]", Optional[int]])  # noqa: UP045
def test_an_attribute_counts_by_what_it_means(annotation: Any) -> None:
    row = declared(None, attribute=annotation)
    assert list(row.signature.attrs) == ["factor"]


@pytest.mark.parametrize(
    ("annotation", "attribute"),
    [
        (torch.Tensor, None),
        ("torch.Tensor", None),
        ("Tensor", None),
        ("float", None),
        (inspect.Parameter.empty, None),
        ("no such name", None),
        (None, "float"),
        (None, float),
        (None, "TensorSpec"),
        (None, inspect.Parameter.empty),
    ],
)
def test_an_annotation_without_meaning_names_the_right_ones_and_where_they_are(annotation: Any, attribute: Any) -> None:
    with pytest.raises(
        ArgumentError,
        match=r"given: [\s\S]*expected: [\s\S]*mend: +from burn_torch\.ops import Number, Operand, Tensor",
    ):
        declared(annotation, attribute=attribute)


def test_parameters_by_any_name_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"given: [\s\S]*expected: [\s\S]*mend: "):

        @op(namespace="usage")
        def row(x: TensorSpec, **others: TensorSpec) -> TensorSpec:
            return x


def test_help_shows_the_signature_of_the_rule() -> None:
    assert list(inspect.signature(ops.sum).parameters) == ["x", "dims"]
    assert list(inspect.signature(declared("Number")).parameters) == ["x", "factor"]
    assert list(inspect.signature(burn_torch.ops.Op).parameters) == ["rule", "fields", "namespace"]


@pytest.mark.parametrize(
    "declare",
    [
        lambda: op(cost="free"),
        lambda: op(view="perhaps"),
        lambda: op(nondifferentiable=True, namespace="usage")(lambda: None).gradient(lambda g, y: None),
        lambda: op()(rule_named_exp()),
    ],
)
def test_a_declaration_without_meaning_is_refused(declare: Callable[[], Any]) -> None:
    with pytest.raises(ArgumentError, match=r"given: [\s\S]*expected: [\s\S]*mend: "):
        declare()


def rule_named_exp() -> Any:
    """A rule that takes the name of a row of the table."""

    def exp(x: TensorSpec) -> TensorSpec:
        return x

    return exp


def test_an_attribute_of_another_type_is_refused() -> None:
    row = declared(None, attribute="str")
    x = Tensor.ones((2,), Device.cpu())
    for wrong in (None, 3, ["a"]):
        with pytest.raises(DTypeError, match=r"given: [\s\S]*expected: [\s\S]*mend: "):
            row(x, factor=wrong)
