"""Decides which tensors a pickle of torch.save describes, and what else it asks for: read, never run.

A pickle is a program for a small stack machine.  This one goes through its words and builds only marks: "a call of
that name with these arguments".  No name is looked up, nothing is imported or called, so a hostile file can be shown as
well as a sound one.  Source: Python's pickletools, and torch/serialization.py for what the marks mean.
"""

from __future__ import annotations

import io
import pickletools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, final

from burn_torch.record.faults import Foreign, Unsound
from burn_torch.record.layout import MAX_TENSORS, checked_shape

__all__ = ["MAX_PICKLE_BYTES", "Named", "PickledTensor", "Walk", "is_harmless", "tensors_of", "word_of"]

MAX_PICKLE_BYTES: Final = 32 << 20
"""A tensor takes some 200 bytes of a pickle: this is more than MAX_TENSORS need."""
MAX_WORDS: Final = 1_500_000
MAX_NODES: Final = 4 * MAX_TENSORS
"""Containers and calls; a tensor has 8."""
MAX_DEPTH: Final = 64
MAX_VISITS: Final = 4 * MAX_TENSORS
MAX_PROTOCOL: Final = 5
"""The newest version of pickles."""


@final
@dataclass(frozen=True)
class Named:
    """A name that the pickle wants looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@final
@dataclass(eq=False, slots=True)
class Node:
    """A container, or the call of a name, with what was put into it since."""

    kind: str
    called: Any
    args: list[Any]
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    state: Any = None


@final
@dataclass(frozen=True)
class PickledTensor:
    """A tensor as a pickle describes it."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int | None
    """None for an element type whose size is not known here."""
    storage: str
    offset: int
    strides: tuple[int, ...]


class _Mark:
    """Says where a group of values begins on the stack."""


@final
class Walk:
    """Goes through one pickle.  `root` is what it would give, `asked` every name that it wants looked up."""

    def __init__(self, data: bytes) -> None:
        self.asked: dict[Named, None] = {}
        self._storages: list[Node] = []
        self._calls: list[Node] = []
        self._stack: list[Any] = []
        self._memo: dict[int, object] = {}
        self._nodes = 0
        file = io.BytesIO(data)
        words = 0
        try:
            for word, argument, _ in pickletools.genops(file):
                words += 1
                if words > MAX_WORDS:
                    raise Unsound(f"its pickle has more than {MAX_WORDS} words")
                self._take(word.name, argument)
            self.root = self._stack.pop()
        except (ValueError, IndexError, KeyError, AttributeError, TypeError, OverflowError) as err:
            raise Unsound(f"its pickle cannot be read ({type(err).__name__}: {str(err)[:120]})") from err
        self.used = file.tell()
        """How many bytes it had."""

    def _take(self, word: str, argument: Any) -> None:
        stack = self._stack
        if word in _PUSHED:
            stack.append(argument)
        elif word in _CONSTANTS:
            stack.append(_CONSTANTS[word])
        elif word in _GROUPS:
            kind, count = _GROUPS[word]
            self._push_group(kind, count)
        elif word in ("BINPUT", "LONG_BINPUT", "PUT"):
            self._memo[int(argument)] = stack[-1]
        elif word == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif word in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self._memo[int(argument)])
        elif word == "PROTO":
            if argument > MAX_PROTOCOL:
                raise Unsound(f"its pickle is of version {argument}, and the newest is {MAX_PROTOCOL}")
        elif word not in ("FRAME", "STOP", "READONLY_BUFFER"):
            _WORDS[word](self, argument)

    def _push_group(self, kind: str, count: int | None) -> None:
        values = self._group() if count is None else self._stack[len(self._stack) - count :] if count else []
        if count is not None:
            if count > len(self._stack):
                raise IndexError("the stack is too short")
            del self._stack[len(self._stack) - count :]
        node = self._node(kind, None, [] if kind == "dict" else values)
        if kind == "dict":
            node.pairs = list(zip(values[::2], values[1::2], strict=True))
        self._stack.append(node)

    def _node(self, kind: str, called: object, args: list[object]) -> Node:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise Unsound(f"its pickle has more than {MAX_NODES} parts")
        return Node(kind, called, args)

    def _group(self) -> list[Any]:
        """Returns what stands above the last mark, taken off the stack."""
        at = len(self._stack) - 1
        while not isinstance(self._stack[at], _Mark):
            at -= 1
            if at < 0:
                raise IndexError("a group without a beginning")
        values = self._stack[at + 1 :]
        del self._stack[at:]
        return values

    def _name(self, module: object, name: object) -> None:
        named = Named(str(module)[:200], str(name)[:200])
        self.asked[named] = None
        self._stack.append(named)

    def _global(self, argument: object) -> None:
        module, _, name = str(argument).partition(" ")
        self._name(module, name)

    def _stack_global(self, _: object) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._name(module, name)

    def _instance(self, argument: object) -> None:
        values = self._group()
        self._global(argument)
        self._push_call(self._stack.pop(), values)

    def _object(self, _: object) -> None:
        called, *values = self._group()
        self._push_call(called, values)

    def _call(self, _: object) -> None:
        args, called = self._stack.pop(), self._stack.pop()
        self._push_call(called, list(args.args))

    def _push_call(self, called: object, args: list[object]) -> None:
        self._calls.append(self._node("call", called, args))
        self._stack.append(self._calls[-1])

    def _call_with_names(self, _: object) -> None:
        self._stack.pop()
        self._call(None)

    def _build(self, _: object) -> None:
        state = self._stack.pop()
        if isinstance(self._stack[-1], Node):
            self._stack[-1].state = state

    def _append(self, _: object) -> None:
        value = self._stack.pop()
        self._stack[-1].args.append(value)

    def _appends(self, _: object) -> None:
        values = self._group()
        self._stack[-1].args.extend(values)

    def _set_item(self, _: object) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._stack[-1].pairs.append((key, value))

    def _set_items(self, _: object) -> None:
        values = self._group()
        self._stack[-1].pairs.extend(zip(values[::2], values[1::2], strict=True))

    def _persistent_on_stack(self, _: object) -> None:
        storage = self._stack.pop()
        self._add_storage(list(storage.args))

    def _add_storage(self, args: list[object]) -> None:
        storage = self._node("storage", None, args)
        self._storages.append(storage)
        self._stack.append(storage)

    def storage_bytes(self) -> dict[str, int]:
        """How many bytes the pickle says that each storage has, by its key.

        Raises: Unsound for one of no kind; Foreign for one of a kind that records do not hold.
        """
        sizes: dict[str, int] = {}
        for node in self._storages:
            if node.args[:1] == ["module"]:  # the class of a module, in files before 1.6: it asks for more than tensors
                continue
            try:
                _, kind, key, _, count = node.args[:5]
                if _QUANTISED.fullmatch(kind.name):
                    raise Foreign(
                        f"the storage {str(key)[:80]} holds quantised numbers ({kind.name[:40]})",
                        "in PyTorch, make them floats first: tensor.dequantize()",
                    )
                itemsize = 1 if kind.name == "UntypedStorage" else _STORAGES[kind.name][1]
                wanted = sizes.setdefault(str(key), count * itemsize)
                if type(count) is not int or count < 0 or wanted != count * itemsize:
                    raise ValueError(f"{count} elements")
            except (ValueError, AttributeError, TypeError, KeyError) as err:
                raise Unsound(f"it has a storage that none is ({type(err).__name__}: {str(err)[:80]})") from err
        return sizes

    def require_given_bytes(self) -> None:
        """Raises: Foreign for a call that makes a value of more bytes than it is given.

        torch's reader would run it: `bytearray(2 ** 33)` takes 30 bytes of a pickle and 8 GiB of memory.
        """
        for node in self._calls:
            name, args = str(node.called), node.args
            grows = (
                (name in _BYTEARRAYS and not all(map(_holds_bytes, args[:1])))
                or (name == _ENCODE and args[1:] not in (["latin1"], ["latin-1"]))
                or (_TENSOR_CLASS.fullmatch(name) is not None and args != [])
            )
            if grows:
                raise Foreign(
                    f"it asks for a call of {name} that makes more bytes than the file has",
                    "in PyTorch, save the state_dict alone: torch.save(model.state_dict(), path)",
                )


_PUSHED: Final = frozenset(
    ["INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
     "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
     "BINBYTES8", "BYTEARRAY8", "NEXT_BUFFER"]
)  # fmt: skip
_CONSTANTS: Final = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_GROUPS: Final[dict[str, tuple[str, int | None]]] = {
    "EMPTY_LIST": ("list", 0), "LIST": ("list", None), "EMPTY_TUPLE": ("tuple", 0), "TUPLE": ("tuple", None),
    "TUPLE1": ("tuple", 1), "TUPLE2": ("tuple", 2), "TUPLE3": ("tuple", 3), "EMPTY_DICT": ("dict", 0),
    "DICT": ("dict", None), "EMPTY_SET": ("set", 0), "FROZENSET": ("set", None),
}  # fmt: skip
_WORDS: Final[dict[str, Callable[[Walk, Any], object]]] = {
    "GLOBAL": Walk._global, "STACK_GLOBAL": Walk._stack_global, "INST": Walk._instance, "OBJ": Walk._object,
    "NEWOBJ": Walk._call, "NEWOBJ_EX": Walk._call_with_names, "REDUCE": Walk._call, "BUILD": Walk._build,
    "APPEND": Walk._append, "APPENDS": Walk._appends, "ADDITEMS": Walk._appends, "SETITEM": Walk._set_item,
    "SETITEMS": Walk._set_items, "BINPERSID": Walk._persistent_on_stack,
    "PERSID": lambda walk, argument: walk._add_storage([argument]),
    "MARK": lambda walk, _: walk._stack.append(_Mark()),
    "POP": lambda walk, _: walk._stack.pop(),
    "POP_MARK": lambda walk, _: walk._group(),
    "DUP": lambda walk, _: walk._stack.append(walk._stack[-1]),
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), lambda walk, argument: walk._name("copyreg extension", argument)),
}  # fmt: skip


# -- what the marks mean -------------------------------------------------------------------------------------------
_STORAGES: Final = {
    "DoubleStorage": ("f64", 8), "FloatStorage": ("f32", 4), "HalfStorage": ("f16", 2), "BFloat16Storage": ("bf16", 2),
    "LongStorage": ("i64", 8), "IntStorage": ("i32", 4), "ShortStorage": ("i16", 2), "CharStorage": ("i8", 1),
    "ByteStorage": ("u8", 1), "BoolStorage": ("bool", 1), "ComplexFloatStorage": ("complex64", 8),
    "ComplexDoubleStorage": ("complex128", 16),
}  # fmt: skip
_QUANTISED: Final = re.compile(r"QU?Int\d+(x\d+)?Storage")
_DTYPES: Final = {
    "float64": ("f64", 8), "float32": ("f32", 4), "float16": ("f16", 2), "bfloat16": ("bf16", 2), "int64": ("i64", 8),
    "int32": ("i32", 4), "int16": ("i16", 2), "int8": ("i8", 1), "uint64": ("u64", 8), "uint32": ("u32", 4),
    "uint16": ("u16", 2), "uint8": ("u8", 1), "bool": ("bool", 1), "complex64": ("complex64", 8),
    "complex128": ("complex128", 16), "float8_e4m3fn": ("f8_e4m3", 1), "float8_e5m2": ("f8_e5m2", 1),
}  # fmt: skip
_REBUILT: Final = ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3")
_DTYPE_NAME: Final = re.compile(r"q?u?int\d+\w*|b?float\d+\w*|complex\d+|bool")
_PLAIN: Final = frozenset(
    [f"{module}.{name}" for module in ("builtins", "__builtin__") for name in ("bytearray", "set", "complex")]
    + ["collections.OrderedDict", "collections.Counter", "torch.Size", "torch.device"]
)
_BYTEARRAYS: Final = ("builtins.bytearray", "__builtin__.bytearray")
_ENCODE: Final = "_codecs.encode"
_TENSOR_CLASS: Final = re.compile(r"torch\.(\w+\.)*\w*Tensor")
_WRAPPERS: Final = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")


def _holds_bytes(value: object) -> bool:
    """Returns whether a value is text, bytes or a list, and not a number of bytes to make."""
    return isinstance(value, str | bytes) or (
        isinstance(value, Node) and (value.kind == "list" or str(value.called) == _ENCODE)
    )


def is_harmless(asked: Named) -> bool:
    """Returns whether tensors, and the plain containers that torch.load takes with them, ask for this name."""
    return (
        str(asked) in (*_REBUILT, *_WRAPPERS, *_PLAIN)
        or (asked.module in ("torch", "torch.cuda", "torch.storage") and asked.name.endswith("Storage"))
        or (asked.module == "torch" and _DTYPE_NAME.fullmatch(asked.name) is not None)
    )


def tensors_of(root: object) -> Iterator[PickledTensor]:
    """The tensors below a value, by dotted keys.  Raises: Unsound for one that cannot be, or nesting without end."""
    left = MAX_VISITS
    waiting: list[tuple[object, str, int]] = [(root, "", 0)]
    while waiting:
        value, path, depth = waiting.pop()
        left -= 1
        if left < 0:
            raise Unsound(f"its pickle has more than {MAX_VISITS} parts")
        if not isinstance(value, Node):
            continue
        if depth > MAX_DEPTH:
            raise Unsound(f"it is nested deeper than {MAX_DEPTH} levels")
        called = str(value.called)
        if value.kind == "call" and called in _WRAPPERS and value.args:
            waiting.append((value.args[0], path, depth + 1))
        elif value.kind == "call" and called in _REBUILT:
            yield _tensor(path or "tensor", value)
        else:
            inner = list(enumerate(value.args)) + value.pairs
            if isinstance(value.state, Node):
                inner += value.state.pairs
            waiting += [
                (item, f"{path}.{word_of(key)}" if path else word_of(key), depth + 1) for key, item in inner[::-1]
            ]


def word_of(key: object) -> str:
    """The key of a dict as a part of a path."""
    if isinstance(key, int) and key.bit_length() > 64:  # Python writes no number of more than 4,300 digits
        return "?"
    return str(key) if isinstance(key, str | int | float | bool) else "?"


def _tensor(key: str, node: Node) -> PickledTensor:
    try:
        storage, offset, size, strides = node.args[:4]
        _, kind, name, _, _ = storage.args[:5]
        shape = checked_shape(key, tuple(size.args))
        lies = int(offset), tuple(map(int, strides.args))
        named = next((arg for arg in node.args[3:] if isinstance(arg, Named) and arg.module == "torch"), None)
        known = _STORAGES.get(kind.name) if named is None else _DTYPES.get(named.name)
    except (ValueError, AttributeError, TypeError) as err:
        raise Unsound(f"{key} is described as no tensor is ({type(err).__name__}: {str(err)[:80]})") from err
    dtype, itemsize = known or (kind.name if named is None else named.name, 0)
    count = 1
    for length in shape:
        count *= length
    return PickledTensor(key, dtype, shape, count * itemsize if itemsize else None, str(name), *lies)
