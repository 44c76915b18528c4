"""The module that `load` gives: fields for the weights, and a forward that runs the plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np

from burn_torch.core.checking import checked
from burn_torch.core.errors import BurnTorchError, OnnxError
from burn_torch.module import Module, Param, RunningState
from burn_torch.onnx.ir import split_multiple
from burn_torch.onnx.operators.registry import FAULTS, HOST
from burn_torch.onnx.plan import Body, Literal, Plan, Ref, Source, Step, Weight, plan_of
from burn_torch.onnx.reader import read_bytes, read_model
from burn_torch.onnx.report import report_on
from burn_torch.tensor import Device, Tensor

__all__ = ["ImportedModel", "load", "module_of", "on_device", "run_plan", "run_step"]

Env: TypeAlias = dict[str, Any]


class ImportedModel(Module):
    """A model of an ONNX file.  Its fields are the file's weights: Params, and RunningStates that are not trained."""

    plan: ClassVar[Plan]

    def forward(self, *inputs: object, **named: object) -> Any:
        """The outputs: one value, or a tuple of several.  Inputs come in the file's order, or by name.

        A value is a Tensor, a sequence of them (a list), or an array that the host is to know, such as a shape.
        Raises: OnnxError for inputs that are missing or not known, and where an operator cannot compute; errors of
        the table name the node.
        """
        plan = self.plan
        env = dict(zip(plan.input_names, _arguments(plan, inputs, named), strict=True))
        _require_fixed_sizes(plan, env)
        fields = {name: _field(getattr(self, name)) for name in plan.weights}
        outputs_of_plan = run_plan(plan, env, fields)
        device = _device(env, fields)
        outputs = tuple(on_device(value, device) for value in outputs_of_plan)
        return outputs[0] if len(outputs) == 1 else outputs


def _field(value: Param | RunningState) -> Tensor:
    return value.val() if isinstance(value, Param) else value.value()


def _arguments(plan: Plan, inputs: tuple[object, ...], named: Mapping[str, object]) -> list[Any]:
    names = plan.input_names
    wrong = [name for name in named if name not in names]
    missing = [name for name in names[len(inputs) :] if name not in named]
    twice = [name for name in names[: len(inputs)] if name in named]
    optional = {name for name, info in zip(names, plan.inputs, strict=True) if info.kind == "optional"}
    missing = [name for name in missing if name not in optional]
    if wrong or missing or twice or len(inputs) > len(names):
        raise OnnxError(
            "forward: these are not the inputs of the model",
            given=f"{len(inputs)} by place and {', '.join(named) or 'none'} by name",
            expected=f"{', '.join(names)}: each once",
            mend=f"missing {', '.join(missing) or 'none'}; not known {', '.join(wrong) or 'none'}",
        )
    return [*inputs, *[named.get(name) for name in names[len(inputs) :]]]


def _require_fixed_sizes(plan: Plan, env: Env) -> None:
    """Raises: OnnxError for inputs that have other sizes than the file fixes."""
    wrong = [
        (name, value.shape, info)
        for info, (name, value) in zip(plan.inputs, env.items(), strict=True)
        if info.shape is not None and isinstance(value, Tensor | np.ndarray) and not _fits(value.shape, info.shape)
    ]
    if wrong:
        raise OnnxError(
            "forward: inputs have other sizes than the file fixes",
            given="; ".join(f"{name} {shape}" for name, shape, _ in wrong),
            expected="; ".join(str(info) for _, _, info in wrong),
            mend='give tensors of these sizes, "16 * n" being any multiple of 16, or export the model with other axes',
        )


def _fits(shape: tuple[int, ...], declared: tuple[int | str | None, ...]) -> bool:
    if math.prod(shape) == 1 and not declared:
        return True  # a number, with or without an axis
    return len(shape) == len(declared) and all(
        size == fixed if isinstance(fixed, int) else fixed is None or size % split_multiple(fixed)[0] == 0
        for size, fixed in zip(shape, declared, strict=True)
    )


def _device(env: Env, fields: Mapping[str, Tensor]) -> Device:
    for value in (*env.values(), *fields.values()):
        for part in value if isinstance(value, list) else (value,):
            if isinstance(part, Tensor):
                return part.device
    return Device.cpu()


def on_device(value: object, device: Device) -> Any:
    """A value as a tensor where it is known on the host only; lists value by value."""
    if isinstance(value, HOST):
        return Tensor.from_data(value, device)
    return [on_device(part, device) for part in value] if isinstance(value, list) else value


# -- running -----------------------------------------------------------------------------------------------
def run_plan(plan: Plan, env: Env, fields: Mapping[str, Tensor]) -> tuple[Any, ...]:
    """The outputs of a plan at inputs and weights by name."""
    device = _device(env, fields)
    for step in plan.steps:
        run_step(step, env, fields, device)
        for name in step.last_use:
            del env[name]
    return tuple(_value(source, env, fields) for source in plan.outputs)


def _value(source: Source, env: Env, fields: Mapping[str, Tensor]) -> Any:
    if isinstance(source, Ref):
        return env[source.name]
    if isinstance(source, Weight):
        return fields[source.name]
    return source.value if isinstance(source, Literal) else None


def run_step(step: Step, env: Env, fields: Mapping[str, Tensor], device: Device) -> None:
    """Computes one step and puts its outputs among the values.  Raises: OnnxError, and errors of the table."""
    attributes: dict[str, Any] = {
        name: partial(_run_body, value, env, fields, device) if isinstance(value, Body) else value
        for name, value in step.attributes.items()
    }
    if "device" in step.entry.attributes:
        attributes["device"] = device
    if step.placed:
        attributes["place"] = device
    try:
        results = step.entry(*[_value(source, env, fields) for source in step.inputs], **attributes)
    except BurnTorchError as err:
        err.add_note(f"in {step.label}")
        raise
    except FAULTS as err:
        raise OnnxError(
            f"{step.label} cannot compute with these inputs",
            given=f"{type(err).__name__}: {str(err).partition(chr(10))[0]}",
            expected="inputs of the shapes and types that the model was made for",
            mend="check the inputs of the model; if they are right, the model is malformed",
        ) from err
    parts = results if step.packed else (results,)
    for name, part in zip(step.outputs, parts, strict=False):
        if name is not None:
            env[name] = part


def _run_body(body: Body, env: Env, fields: Mapping[str, Tensor], device: Device, *inputs: object) -> tuple[Any, ...]:
    inner = {name: env[name] for name in body.captured} | dict(zip(body.inputs, inputs, strict=True))
    for step in body.steps:
        run_step(step, inner, fields, device)
    return tuple(_value(source, inner, fields) for source in body.outputs)


# -- making ---------------------------------------------------------------------------------------------------
@checked
def load(
    path: str | Path | bytes, device: Device | None = None, *, memory_limit_bytes: int | None = None
) -> ImportedModel:
    """The model of an ONNX file as a module: its weights are parameters, and it trains and compiles as any other.

        model = burn_torch.onnx.load("m.onnx", Device.cpu().autodiff())
        y = model.forward(x)

    On a device with gradients a quantised model of QuantizeLinear and DequantizeLinear pairs trains: weights that the
    file stores as codes become numbers that are rounded whenever they are read, and gradients go straight through the
    rounding.  Elsewhere such weights are worked out once.

    Nothing of the file is executed.  External data is read from the file's own folder only; bytes are read as a file
    without a folder.  `memory_limit_bytes` bounds constants that are worked out from others: 64 MiB and four times the
    weights of the file unless given.

    Raises: OnnxError for a file that is missing or damaged, and one that names every node that is not supported.
    """
    model = read_bytes(path) if isinstance(path, bytes) else read_model(path)
    try:
        report_on(model).check()
        place = device or Device.cpu()
        return module_of(plan_of(model, memory_limit_bytes, trains=place.is_autodiff()), place)
    except OnnxError as err:
        if model.source not in str(err):
            err.add_note(f"in {model.source}")
        raise


def _keep_fields(self: Module, **fields: Param | RunningState) -> None:
    """The constructor: a signature of its own for each field would take time that grows with their square."""
    if fields.keys() != set(self.__module_fields__):
        odd = sorted(fields.keys() ^ set(self.__module_fields__))
        raise TypeError(f"missing or unexpected keyword arguments: {', '.join(odd)}")
    self.__dict__.update(fields)


def module_of(plan: Plan, device: Device) -> ImportedModel:
    """A module of a class of its own, whose fields are the plan's weights."""
    kinds = {name: Param if plan.trained[name] else RunningState for name in plan.weights}
    members = {"__annotations__": kinds, "__doc__": f"Imported from {plan.source}.", "plan": plan}
    members["__init__"] = _keep_fields
    cls = cast(type[ImportedModel], type("Model", (ImportedModel,), members))
    inner = device.no_grad()
    values = {
        name: Param(Tensor.from_data(data, device))
        if plan.trained[name]
        else RunningState(Tensor.from_data(data, inner))
        for name, data in plan.weights.items()
    }
    return cls(**values)
