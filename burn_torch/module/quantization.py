"""Quantizer: the weights of a module as codes and scales, after training or while it goes on.

quantizer = Quantizer(Calibration.MinMax, QuantScheme(QuantValue.Q8S, QuantLevel.per_block((64, 1))))
small = model.quantize_weights(quantizer)                  # codes and scales in the place of parameters
loss = loss_of(model.fake_quantize_weights(quantizer))     # as if they were, with gradients: trains for it
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar, final

from burn_torch.core import strict_json
from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.core.quantization import Calibration, QuantPropagation, QuantScheme
from burn_torch.core.spec import Shape
from burn_torch.module import tree
from burn_torch.module.param import Param, ParamId
from burn_torch.module.param_group import ParamGroup
from burn_torch.module.tree import Tree
from burn_torch.tensor import Device, QuantizedTensor, Tensor, compute_q_params, compute_range, fake_quantize

__all__ = ["QuantizedParam", "Quantizer", "quantized_params"]

T = TypeVar("T")


class QuantizedParam(Tree):
    """Stands in the place of a parameter whose tensor is quantised: its codes and scales are parameters that are not
    trained, so that moving, compiling and recording reach them.

    `val()` is a QuantizedTensor.  Functions of tensors dequantise it; `functional.linear` multiplies by its codes.
    """

    codes: Param
    scales: Param
    outer_scales: Param | None
    scheme: QuantScheme
    shape: Shape
    float_dtype: DType
    id: ParamId

    @staticmethod
    def of(value: QuantizedTensor, id: ParamId) -> QuantizedParam:
        """A quantised tensor as a parameter of an identity."""

        def frozen(tensor: Tensor) -> Param:
            return Param(tensor, require_grad=False)

        outer = None if value.outer_scales is None else frozen(value.outer_scales)
        return QuantizedParam(
            frozen(value.codes), frozen(value.scales), outer, value.scheme, value.shape, value.float_dtype, id
        )

    def val(self) -> QuantizedTensor:
        """The quantised tensor."""
        outer = None if self.outer_scales is None else self.outer_scales.val()
        return QuantizedTensor(self.codes.val(), self.scales.val(), outer, self.scheme, self.shape, self.float_dtype)

    def base(self) -> QuantizedTensor:
        """The quantised tensor."""
        return self.val()

    def reparameterization(self) -> None:
        """None: its value is computed from nothing else."""

    def adapter(self) -> None:
        """None: there is no low-rank adapter."""

    def dequantize(self) -> Param:
        """The parameter with floats again, of the same identity."""
        return Param(self.val().dequantize(), self.id)

    @property
    def device(self) -> Device:
        """Returns where it lies."""
        return self.codes.device

    @property
    def numel(self) -> int:
        """The number of elements of the tensor, however they are stored."""
        count = 1
        for size in self.shape:
            count *= size
        return count


@final
@checked
class Quantizer:
    """Quantises the parameters of a module: how their ranges are found, by which scheme, and which of them.

    Without a group it takes every parameter of floats, biases and the scales of norms too, as Burn does.
    """

    def __init__(self, calibration: Calibration, scheme: QuantScheme, param_group: ParamGroup | None = None) -> None:
        self.calibration = calibration
        self.scheme = scheme
        self.param_group = param_group

    def set_param_group(self, group: ParamGroup) -> Quantizer:
        """The same quantizer for the parameters of a group alone: a `ParamGroup`."""
        return Quantizer(self.calibration, self.scheme, group)

    def quantize(self, tensor: Tensor) -> QuantizedTensor:
        """One tensor by the scheme, with the scales that its range asks for."""
        range = compute_range(self.scheme, tensor, self.calibration)
        return tensor.quantize(self.scheme, compute_q_params(self.scheme, range))

    def quantize_module(self, module: T) -> T:
        """See `Module.quantize_weights`."""
        return self._map(module, lambda param: QuantizedParam.of(self.quantize(param.val().detach()), param.id))

    def fake_quantize_module(self, module: T) -> T:
        """See `Module.fake_quantize_weights`."""
        return self._map(
            module,
            lambda param: param.computed(fake_quantize(param.val(), self.scheme, calibration=self.calibration)),
        )

    def _map(self, module: T, change: Callable[[Param], object]) -> T:
        inside = {id(leaf) for _, param in quantized_params(module) for _, leaf in tree.walk(param)}
        chosen = {
            id(leaf): path
            for path, leaf in tree.walk(module)
            if isinstance(leaf, Param) and id(leaf) not in inside and leaf.spec().dtype.is_float
        }

        def replace(leaf: object) -> object:
            path = chosen.get(id(leaf))
            if path is None or not isinstance(leaf, Param):
                return leaf
            if self.param_group is not None and not self.param_group.matches(leaf.id, path):
                return leaf
            try:
                return change(leaf)
            except Exception as err:
                err.add_note(f"in {path}")
                raise

        return tree.rebuild(module, replace)


# -- records --------------------------------------------------------------------------------------------
LISTED: Final = "quantized"
"""The metadata of a record that lists quantised parameters, as JSON by path: scheme, shape, element type."""


class Listed(NamedTuple):
    """Describes a quantised parameter in a record, beside its codes and scales."""

    scheme: QuantScheme
    shape: Shape
    dtype: DType

    def to_fields(self) -> dict[str, object]:
        """Names and values for JSON."""
        fields: dict[str, object] = {
            "scheme": self.scheme.to_fields(),
            "shape": list(self.shape),
            "dtype": self.dtype.name,
        }
        propagation = self.scheme.propagation
        return fields if propagation is QuantPropagation.Inhibit else {**fields, "propagation": propagation.value}

    @staticmethod
    def of(fields: Mapping[str, object]) -> Listed:
        """Reads what `to_fields` wrote.  Raises: KeyError, TypeError, ValueError, AttributeError for anything else."""
        shape: Any = fields["shape"]
        scheme = QuantScheme.from_fields(fields["scheme"])  # type: ignore[arg-type]  # it raises for what is none
        propagation = QuantPropagation(fields.get("propagation", QuantPropagation.Inhibit))
        dtype: Any = fields["dtype"]
        return Listed(scheme.with_propagation(propagation), tuple(map(operator.index, shape)), DType.of(dtype))


def write_list(listed: Mapping[str, Listed]) -> dict[str, str]:
    """The metadata that lists quantised parameters by path: nothing where there are none."""
    return {LISTED: json.dumps({path: one.to_fields() for path, one in listed.items()})} if listed else {}


def read_list(metadata: Mapping[str, str]) -> dict[str, Listed]:
    """The quantised parameters of a record by path.  Raises: ValueError for metadata that lists none rightly."""
    try:
        return {path: Listed.of(fields) for path, fields in strict_json.parse(metadata.get(LISTED, "{}")).items()}
    except (KeyError, TypeError, AttributeError) as err:
        raise ValueError(f"{type(err).__name__}: {err}") from err


def list_quantized(module: object) -> dict[str, str]:
    """The metadata of a module's record: nothing where no parameter is quantised."""
    params = quantized_params(module)
    return write_list({path: Listed(param.scheme, param.shape, param.float_dtype) for path, param in params})


def fit_to_record(module: T, keys: Collection[str], metadata: Mapping[str, str]) -> T:
    """The module with quantised parameters where a record has them, and plain ones where it has floats; without values.

    Raises: ValueError for metadata that lists no quantised parameters.
    """
    there = dict(quantized_params(module))
    listed = read_list(metadata)
    plain: dict[int, QuantizedParam] = {}
    for path, leaf in tree.walk(module):
        if isinstance(leaf, Param) and path in listed and path not in keys and path not in there:
            about = listed[path]
            if about.shape == leaf.shape:
                plain[id(leaf)] = _unread(leaf, about.scheme, about.dtype)
    floats = {
        id(param): Param.uninitialized(
            param.id, _zeros(param.shape, param.float_dtype), param.device, True, param.shape, param.float_dtype
        )
        for path, param in there.items()
        if path in keys and f"{path}.codes" not in keys
    }
    if not plain and not floats:
        return module
    memo: dict[int, object] = {}
    memo.update(floats)
    return tree.rebuild(module, lambda leaf: plain.get(id(leaf), leaf), memo)


def _unread(param: Param, scheme: QuantScheme, dtype: DType) -> QuantizedParam:
    """A quantised parameter of zeros, in the place of a plain one: its values come from a record."""
    first, *others = scheme.levels
    counts = first.counts(param.shape)

    def zeros(shape: Shape, kind: DType) -> Param:
        return Param.uninitialized(ParamId.new(), _zeros(shape, kind), param.device, False, shape, kind)

    outer = zeros(scheme.outer_counts(param.shape), others[0].param.dtype) if others else None
    codes = zeros(scheme.stored_shape(param.shape), scheme.stored)
    return QuantizedParam(codes, zeros(counts, first.param.dtype), outer, scheme, param.shape, dtype, param.id)


def _zeros(shape: Shape, dtype: DType) -> Callable[[Device, bool], Tensor]:
    return lambda device, grad: Tensor.zeros(shape, device).cast(dtype)


def quantized_params(value: object, path: str = "") -> Iterator[tuple[str, QuantizedParam]]:
    """Paths and quantised parameters of a tree."""
    for name, child in tree.children(value):
        where = f"{path}.{name}" if path else name
        if isinstance(child, QuantizedParam):
            yield where, child
        elif not isinstance(child, tree.LEAVES):
            yield from quantized_params(child, where)
