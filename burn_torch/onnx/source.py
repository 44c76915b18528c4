"""A plan as a Python module: fields with their shapes, a forward of one line an operator, `init` and `from_record`.

Every name in it comes from `Names`, every value from `literal`, every comment from `plain`: text of the file reaches
the source as identifiers, as quoted ASCII, or not at all.
"""

from __future__ import annotations

from pathlib import PurePath
from textwrap import wrap
from typing import Any, Final

import numpy as np

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.onnx.inference import Known, inferred
from burn_torch.onnx.layout import WIDTH, Group, Keyword, array, lines, literal, plain
from burn_torch.onnx.operators.registry import Entry
from burn_torch.onnx.plan import Body, Literal, Plan, Ref, Source, Step, Weight, all_steps

__all__ = ["RECORD", "source_of"]

RECORD: Final = "model.safetensors"
_COMPUTED: Final = frozenset({DType.F64, DType.F32, DType.F16, DType.BF16, DType.I64, DType.I32})
"""Types of which operators of Python mean what the ONNX operators mean."""


def source_of(plan: Plan) -> str:
    """The text of the module."""
    return _Writer(plan).text()


class _Writer:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.known = inferred(plan)
        self.uses: set[str] = set()

    def text(self) -> str:
        plan = self.plan
        forward = self.forward()
        fields = self.fields()
        init = self.init()
        opsets = ", ".join(f"{plain(domain) or 'ai.onnx'} {int(version)}" for domain, version in plan.opsets.items())
        header = [f"Made by: {plain(plan.producer)}"] if plan.producer else []
        imports = ["from __future__ import annotations", "", "from pathlib import Path"]
        if "Any" in self.uses:
            imports.append("from typing import Any")
        imports.append("")
        if "np" in self.uses:
            imports.append("import numpy as np")
        names = ["Device", "Module"]
        names += [name for name in ("Param", "RunningState") if name in self.uses]
        names += ["Tensor"] if "Tensor" in self.uses else []
        imports.append(f"from burn_torch import {', '.join(names)}")
        helpers = [name for name in ("as_tensor", "parameter", "state") if name in self.uses]
        ours = [f"from burn_torch.onnx import {', '.join(helpers)}"] if helpers else []
        if "op" in self.uses:
            ours.insert(int("as_tensor" in helpers), "from burn_torch.onnx import operators as op")
        imports += ours
        if "activation" in self.uses:
            imports.append("from burn_torch.tensor import activation")
        title = plain(PurePath(plan.source).name)
        return _tidy(
            [
                f'"""Imported from {title} by burn_torch.onnx.',
                "",
                *wrap(f"Opset: {opsets}", WIDTH, subsequent_indent="    "),
                *header,
                '"""',
                "",
                *imports,
                "",
                '__all__ = ["Model"]',
                "",
                "",
                "class Model(Module):",
                f'    """{title} as a module."""',
                "",
                *fields,
                *([""] if fields else []),
                *forward,
                "",
                *init,
                "",
            ]
        )

    # -- fields ----------------------------------------------------------------------------------------
    def fields(self) -> list[str]:
        fields = []
        for name, data in self.plan.weights.items():
            kind = "Param" if self.plan.trained[name] else "RunningState"
            self.uses.add(kind)
            known = Known(data.shape, data.dtype, False)
            fields.append(_comment(f"    {name}: {kind}", str(known)))
        return fields

    def init(self) -> list[str]:
        text = ["    @classmethod", "    def init(cls, device: Device) -> Model:"]
        text.append('        """With zeros for weights: what a record is loaded into."""')
        items = []
        for name, data in self.plan.weights.items():
            call = "parameter" if self.plan.trained[name] else "state"
            self.uses.add(call)
            shape = literal(tuple(int(size) for size in data.shape))
            items.append(Keyword(name, Group(f"{call}(", (shape, f'"{data.dtype.name}"', "device"), ")")))
        text += lines("return ", Group("cls(", tuple(items), ")"), 8)
        text += [
            "",
            "    @classmethod",
            "    def from_record(cls, device: Device, path: str | Path | None = None) -> Model:",
            f'        """With the weights of a record; without a path, of {RECORD} beside this file."""',
            f'        own = Path(__file__).with_name("{RECORD}")',
            "        return cls.init(device).load_file(own if path is None else path)",
        ]
        return text

    # -- forward -----------------------------------------------------------------------------------------
    def forward(self) -> list[str]:
        plan = self.plan
        body: list[str] = []
        if any(step.placed or "device" in step.entry.attributes for step in all_steps(plan.steps)) or any(
            not self.certain(source) for source in plan.outputs
        ):
            body.append(f"        device = {self.device()}")
        annotated = self.annotated()
        for step in plan.steps:
            body += self.step(step, 8, annotated)
        if len(plan.outputs) == 1 and not self.certain(plan.outputs[0]):
            self.uses.add("as_tensor")
            value = Group("as_tensor(", (self.given(plan.outputs[0], "raw"), "device"), ")")
            results = ["\n".join(lines("", value, 8)).strip()]
        else:
            results = [self.result(source, i, body) for i, source in enumerate(plan.outputs)]
        flat = f"        return {', '.join(results)}"
        if len(flat) <= WIDTH or len(results) == 1:
            body.append(flat)
        else:
            body += ["        return (", *(f"            {name}," for name in results), "        )"]
        if all(self.certain(source) for source in plan.outputs) and all(
            not isinstance(source, Ref) or source.name in annotated or source.name in plan.input_names
            for source in plan.outputs
        ):
            several = ", ".join(["Tensor"] * len(results)) if len(results) < 6 else "Tensor, ..."
            kind = "Tensor" if len(results) == 1 else f"tuple[{several}]"
            self.uses.add("Tensor")
        else:
            kind = "Any"
            self.uses.add("Any")
        arguments = tuple(f"{name}: {self.annotation(i)}" for i, name in enumerate(plan.input_names))
        header = lines("def ", Group("forward(", ("self", *arguments), f") -> {kind}:"), 4)
        return [*header, *self.docstring(), *body]

    def docstring(self) -> list[str]:
        plan = self.plan
        inputs = [self.told(name, plain(str(info))) for name, info in zip(plan.input_names, plan.inputs, strict=True)]
        outputs = [
            self.told(source.name if isinstance(source, Ref) else "", plain(name))
            for source, name in zip(plan.outputs, plan.output_names, strict=True)
        ]
        return [
            '        """Computes the outputs of the model.',
            "",
            *(f"        {line}" for line in ["Inputs:", *(f"    {text}" for text in inputs)] if inputs),
            *(f"        {line}" for line in ["Outputs:", *(f"    {text}" for text in outputs)]),
            '        """',
        ]

    def told(self, name: str, words: str) -> str:
        known = self.known.get(name)
        return f"{words.partition(' (')[0] if known else words} {known or ''}".rstrip()[: WIDTH - 20]

    def annotation(self, position: int) -> str:
        info = self.plan.inputs[position]
        if info.kind == "tensor":
            self.uses.add("Tensor")
            return "Tensor"
        self.uses.add("Any")
        return "list[Any]" if info.kind == "sequence" else "Any = None" if info.kind == "optional" else "Any"

    def device(self) -> str:
        for name, info in zip(self.plan.input_names, self.plan.inputs, strict=True):
            if info.kind == "tensor":
                return f"{name}.device"
        return "self.devices()[0]" if self.plan.weights else "Device.cpu()"

    def certain(self, source: Source) -> bool:
        """Returns whether a value is a tensor on a device, known beforehand."""
        if isinstance(source, Ref):
            known = self.known.get(source.name)
            return known is not None and not known.on_host and source.name in self.plan.on_device
        return isinstance(source, Weight)

    def annotated(self) -> set[str]:
        """Outputs that one step gives alone: they get an annotation, as operators are typed loosely."""
        wanted = {source.name for source in self.plan.outputs if isinstance(source, Ref)}
        return {
            step.outputs[0]
            for step in self.plan.steps
            if not step.packed and step.outputs[0] in wanted and self.certain(Ref(step.outputs[0]))
        }

    def result(self, source: Source, position: int, body: list[str]) -> str:
        """An output; what may lie on the host is made a tensor before."""
        if self.certain(source):
            return str(self.given(source))
        self.uses.add("as_tensor")
        name = source.name if isinstance(source, Ref) else f"output_{position}_"
        body += lines(f"{name} = ", Group("as_tensor(", (self.given(source, "raw"), "device"), ")"), 8)
        return name

    # -- steps -----------------------------------------------------------------------------------------------
    def step(self, step: Step, indent: int, annotated: set[str]) -> list[str]:
        before: list[str] = []
        for body in step.bodies:
            before += self.body(body, indent)
        names = [name or "_" for name in step.outputs]
        if step.packed:
            target = f"{', '.join(names)}{',' if len(names) == 1 else ''}"
            if step.entry.multiple and "outputs" not in step.entry.attributes and names:
                target = ", ".join([*names, "*_"])
        else:
            target = names[0]
        if target in annotated:
            self.uses.add("Tensor")
            target = f"{target}: Tensor"
        if len(target) > WIDTH - 30:  # too long a line to unpack into
            written = lines("found = ", self.call(step), indent)
            space = " " * indent
            return [*before, *written, *(f"{space}{name} = found[{i}]" for i, name in enumerate(step.outputs) if name)]
        written = lines(f"{target} = ", self.call(step, WIDTH - indent - len(target) - 3), indent)
        known = [self.known[name] for name in step.outputs if name in self.known]
        if len(known) == 1 and len(written) >= 1:
            written = _with_comment(written, str(known[0]), indent)
        return before + written

    def call(self, step: Step, width: int = WIDTH) -> Any:
        entry = step.entry
        if entry.written is not None and self.plainly(step):
            short = entry.written.format(*[self.given(source) for source in step.inputs])
            if len(short) <= width:
                self.uses.update(["activation"] if "activation." in short else [])
                return short
        self.uses.add("op")
        items: list[Any] = [self.given(source, entry.kind(i)) for i, source in enumerate(step.inputs)]
        for name, value in step.attributes.items():
            if isinstance(value, Body):
                items.append(Keyword(name, value.name))
            elif not _is_default(entry, name, value):
                items.append(Keyword(name, self.value(value)))
        if "device" in entry.attributes:
            items.append(Keyword("device", "device"))
        if step.placed:
            items.append(Keyword("place", "device"))
        return Group(f"op.{entry.name}(", tuple(items), ")")

    def plainly(self, step: Step) -> bool:
        """Returns whether Python's own form means the same: all inputs are tensors of types that the table computes
        on.
        """
        tensors = [source for source in step.inputs if not isinstance(source, Literal)]
        numbers = [source for source in step.inputs if isinstance(source, Literal)]
        if not tensors or any(not isinstance(source.value, int | float) for source in numbers):
            return False
        kinds = [
            self.plan.weights[source.name].dtype if isinstance(source, Weight) else self.known[source.name].dtype
            for source in tensors
            if isinstance(source, Weight) or (isinstance(source, Ref) and self.certain(source))
        ]
        if step.entry.op == "Not":
            return len(kinds) == 1
        if step.entry.op == "Relu" and kinds and not kinds[0].is_float:
            return False
        return len(kinds) == len(tensors) and all(kind in _COMPUTED for kind in kinds)

    def value(self, value: object) -> Any:
        if isinstance(value, np.ndarray):
            self.uses.add("np")
        return self.data(value) if isinstance(value, TensorData) else literal(value)

    def data(self, value: TensorData) -> Any:
        """bfloat16 in the source: its values, and a cast back."""
        self.uses.update(("np", "op"))
        return Group("op.bfloat16(", (array(value.values),), ")")

    def given(self, source: Source, kind: str = "tensor") -> Any:
        if source is None:
            return "None"
        if isinstance(source, Ref):
            return source.name
        if isinstance(source, Weight):
            return f"self.{source.name}.{'val' if self.plan.trained[source.name] else 'value'}()"
        value = source.value
        if isinstance(value, TensorData):
            return self.data(value)
        if isinstance(value, np.ndarray):
            bare = kind == "host" and value.dtype == np.int64 and value.size > 0 and value.ndim <= 1
            if not bare:
                self.uses.add("np")
            return array(value, bare=bare)
        return literal(value)

    def body(self, body: Body, indent: int) -> list[str]:
        self.uses.add("Any")
        arguments = tuple(f"{name}: Any" for name in body.inputs)
        text = ["", *lines("def ", Group(f"{body.name}(", arguments, ") -> tuple[Any, ...]:"), indent)]
        for step in body.steps:
            text += self.step(step, indent + 4, set())
        results = Group("(", tuple(self.given(source, "raw") for source in body.outputs), ")")
        return [*text, *lines("return ", results, indent + 4), ""]


def _is_default(entry: Entry, name: str, value: object) -> bool:
    default = entry.attributes.get(name)
    if name == "kernel_shape" and entry.op in ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv"):
        return True  # the weight has it
    if default is None and name in ("dilations", "strides", "pads") and isinstance(value, tuple):
        return set(value) <= {0 if name == "pads" else 1}
    return type(default) is type(value) and not isinstance(value, np.ndarray) and default == value


def _tidy(text: list[str]) -> str:
    """The lines, with one blank line at most within a class, and none where a function begins."""
    following: list[str] = []
    after = ""
    for line in reversed(text):
        following.append(after)
        after = line or after
    kept: list[str] = []
    for line, after in zip(text, reversed(following), strict=True):
        if not line and kept and after.startswith(" ") and (not kept[-1] or kept[-1].endswith(":")):
            continue
        kept.append(line)
    return "\n".join(kept)


def _comment(line: str, comment: str) -> str:
    whole = f"{line}  # {comment}"
    return whole if len(whole) <= WIDTH else line


def _with_comment(written: list[str], comment: str, indent: int) -> list[str]:
    whole = f"{written[-1]}  # {comment}"
    return [*written[:-1], whole] if len(whole) <= WIDTH else [f"{' ' * indent}# {comment}", *written]
