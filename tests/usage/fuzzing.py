"""Calls of every public constructor, method and function with one argument wrong, made from signatures.

A call may succeed, or raise one of the library's errors in three parts, or Python's own TypeError for arguments that
fit no parameter.  Anything else is a fault: an error from inside, or a meaningless value that is taken in silence.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import math
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from burn_torch import BurnTorchError, Device, Distribution, DType, Module, Tensor, nn, optim
from burn_torch.config import Config
from burn_torch.config._schema import schema_of
from burn_torch.tensor import activation, functional

CPU: Final = Device.cpu()


def tensor(*shape: int, dtype: str = "f4") -> Tensor:
    rng = np.random.default_rng(0)
    values = rng.normal(size=shape) if dtype.startswith("f") else rng.integers(0, 2, shape)
    return Tensor.from_data(np.asarray(values).astype(dtype), CPU)


def _make_closed_file() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


WRONG: Final[dict[str, Any]] = {
    "None": None,
    "text": "no",
    "empty text": "",
    "negative": -3,
    "zero": 0,
    "huge": 10**20,
    "below": -(2**70),
    "bool": True,
    "float": 2.5,
    "nan": math.nan,
    "inf": math.inf,
    "minus inf": -math.inf,
    "empty list": [],
    "long list": [1] * 12,
    "list of texts": ["a", "b"],
    "list of floats": [0.5, 1.5],
    "list of negatives": [-7, -9],
    "nested list": [[1, 2], [3]],
    "dict": {"a": 1},
    "object": object(),
    "class": int,
    "function": len,
    "complex": 1j,
    "bytes": b"x",
    "numpy float": np.float32(0.5),
    "numpy int": np.int64(-4),
    "numpy array": np.ones((2, 2)),
    "torch number": torch.tensor(3.0),
    "torch tensor": torch.ones(2, 2),
    "tensor of another rank": tensor(2, 1, 1, 3, 1),
    "tensor without axes": tensor(),
    "empty tensor": tensor(0, 3),
    "tensor of integers": tensor(2, 3, dtype="i8"),
    "tensor of truth values": tensor(2, 3, dtype="?"),
    "tensor elsewhere": Tensor.ones((2, 3), Device.ndarray()),
    "device": CPU,
    "dtype": DType.F32,
    "missing path": Path("no/such/file"),
    "closed file": _make_closed_file(),
}
"""One wrong argument of each kind."""


@dataclass(frozen=True)
class Fresh:
    """A right value that is made anew for each call: a file, a logger, a loader."""

    make: Callable[[], Any]


Changed = dict[str, Any]
LEFT_OUT: Final = object()
MORE: Final = "*"
NAMED: Final = "**"


@dataclass(frozen=True)
class Callee:
    """Holds what is called, and with what it is right: values by the names of its parameters."""

    name: str
    function: Callable[..., Any]
    parameters: dict[str, Any]
    varied: tuple[str, ...]

    def call(self, changed: Changed) -> Any:
        """Calls it with other values of parameters; `LEFT_OUT` leaves one out, `MORE` are further arguments."""
        values = {**self.parameters, **changed}
        more, named = values.pop(MORE, ()), values.pop(NAMED, {})
        values = {name: value for name, value in values.items() if value is not LEFT_OUT}
        values = {name: value.make() if isinstance(value, Fresh) else value for name, value in values.items()}
        signature = inspect.signature(self.function)
        args, kwargs = [], {}
        by_place = True
        for name, parameter in signature.parameters.items():
            if name not in values:
                by_place = False
                continue
            if parameter.kind is parameter.VAR_POSITIONAL:
                value = values[name]
                args += list(value) if isinstance(value, tuple) else [value]
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) and by_place:
                args.append(values[name])
            elif parameter.kind is not parameter.VAR_KEYWORD:
                kwargs[name] = values[name]
        return self.function(*args, *more, **kwargs, **named)


def outcome(callee: Callee, changed: Changed) -> tuple[str, Any]:
    """("right", result), ("refused", error), ("binding", error) or ("raw", where it rose)."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            result = callee.call(changed)
            if isinstance(result, Iterator):
                next(result, None)
            return "right", result
        except BurnTorchError as err:
            text = str(err)
            whole = all(part in text for part in ("given:", "expected:", "mend:"))
            return ("refused", err) if whole else ("raw", f"{type(err).__name__} without three parts: {text[:120]}")
        except TypeError as err:
            if any(frame.filename.endswith("usage/examples.py") for frame in traceback.extract_tb(err.__traceback__)):
                return "refused", err
            if all(part in str(err) for part in ("given:", "expected:", "mend:")):
                return "refused", err
            frames = traceback.extract_tb(err.__traceback__)
            if all(frame.filename == __file__ or frame.filename.endswith("core/checking.py") for frame in frames):
                return "binding", err
            return "raw", described(err)
        except Exception as err:  # a raw error is what is looked for
            if any(frame.filename.endswith("usage/examples.py") for frame in traceback.extract_tb(err.__traceback__)):
                return "refused", err  # in the user's own code
            if isinstance(err, AssertionError) and ".assert_" in callee.name:  # what it is there for
                return "refused", err
            if all(part in str(err) for part in ("given:", "expected:", "mend:")):
                return "refused", err
            return "raw", described(err)


def described(err: BaseException) -> str:
    """An error and the innermost line of the library that it passed."""
    frames = traceback.extract_tb(err.__traceback__)
    ours = [f for f in frames if "burn_torch" in f.filename or "burn_kernels" in f.filename] or frames
    last = ours[-1]
    where = f"{last.filename.rpartition('burn_torch/')[2]}:{last.lineno}"
    return f"{type(err).__name__}: {str(err).splitlines()[0][:110] if str(err) else ''} [{where}]"


# -- right values ------------------------------------------------------------------------------------------
X: Final = tensor(2, 3)
HEADS: Final = tensor(1, 2, 3, 4)
_BY_NAME: Final[dict[str, Any]] = {
    **dict.fromkeys(["self", "x", "other", "rhs", "values", "inner", "tensor"], X),
    **dict.fromkeys(["dim", "dim2", "axis", "end_dim", "dst", "shift"], 1),
    **dict.fromkeys(["step", "length", "split_size", "correction_factor", "num_groups", "stacklevel"], 1),
    **dict.fromkeys(["dim1", "src", "start", "diagonal", "offset", "index", "start_dim"], 0),
    "dims": [0, 1],
    "axes": [0],
    "indices": tensor(2, 3, dtype="i8"),
    **dict.fromkeys(["value", "fill_value", "max", "on_value", "number", "beta"], 1.0),
    "mask": tensor(2, 3, dtype="?"),
    "shape": (2, 3),
    "options": CPU,
    "device": CPU,
    "dtype": DType.F32,
    "min": -1.0,
    "rank": 4,
    "padding": (1, 1, 0, 0),
    "mode": "constant",
    **dict.fromkeys(["size", "chunks", "times", "k", "num_samples", "kernel_size"], 2),
    "tensors": [X, X],
    "split_sizes": [1, 2],
    "shifts": [1],
    "ints": [1],
    **dict.fromkeys(["num_classes", "n", "output_size", "num_elements"], 3),
    "off_value": 0.0,
    "distribution": Distribution.Default,
    "data": [[1.0, 2.0]],
    "floats": [1.0],
    "range": range(3),
    "numbers": range(3),
    "end": 5,
    "slices": (slice(0, 1),),
    "slice": slice(0, 1),
    "update": "add",
    "rtol": 1e-5,
    "atol": 1e-8,
    **dict.fromkeys(["gradients", "mean", "variance", "bias"], None),
    "require_grad": True,
    "retain_graph": False,
    "query": HEADS,
    "key": HEADS,
    **dict.fromkeys(["alpha", "lambda_", "prob"], 0.5),
    "negative_slope": 0.1,
    "weight": tensor(3, 4),
    "axes_": (1, 0),
    "sizes": (2, 2),
    "grid": tensor(2, 1, 1, 2),
}


def right(name: str, parameter: inspect.Parameter) -> Any:
    """A value that fits a parameter, by its name; the default where there is no better."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    return None if parameter.default is parameter.empty else parameter.default


def callee(name: str, function: Callable[..., Any], **given: Any) -> Callee | None:
    """A function with right values for its parameters; None where Python cannot say which it has."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    parameters = {}
    for key, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if key in given:
            parameters[key] = given[key]
        elif parameter.kind is parameter.VAR_POSITIONAL or parameter.default is parameter.empty:
            parameters[key] = right(key, parameter)
    varied = tuple(key for key, p in signature.parameters.items() if key != "self" and p.kind is not p.VAR_KEYWORD)
    return Callee(name, function, parameters, varied)


# -- what is called ------------------------------------------------------------------------------------------
def tensor_methods() -> Iterator[Callee | None]:
    """Methods and constructors of Tensor."""
    for name in dir(Tensor):
        if name.startswith("_") or name.endswith("_async"):
            continue
        static = inspect.getattr_static(Tensor, name)
        if isinstance(static, property) or not callable(getattr(Tensor, name)):
            continue
        yield callee(f"Tensor.{name}", getattr(Tensor, name), **_TENSOR.get(name, {}))


_TENSOR: Final[dict[str, dict[str, Any]]] = {
    "reshape": {"shape": (3, 2)},
    "expand": {"shape": (2, 3)},
    "permute": {"axes": (1, 0)},
    "repeat": {"sizes": (2, 1)},
    "arange": {"range": range(3)},
    "cross": {"self": tensor(2, 3), "other": tensor(2, 3)},
    "dot": {"self": tensor(3), "other": tensor(3)},
    "matmul": {"other": tensor(3, 2)},
    "grid_sample_2d": {"self": tensor(2, 1, 3, 3)},
    "from_inner": {"inner": X},
    "one_hot": {"self": tensor(3, dtype="i8")},
    "one_hot_fill": {"self": tensor(3, dtype="i8")},
    "squeeze_dim": {"self": tensor(2, 1)},
    "squeeze_dims": {"self": tensor(1, 1)},
    "select": {"indices": tensor(2, dtype="i8")},
    "take": {"indices": tensor(2, dtype="i8")},
    "select_assign": {"indices": tensor(3, dtype="i8")},
    "gather_nd": {"indices": tensor(2, 1, dtype="i8")},
    "scatter_nd": {"indices": tensor(2, 1, dtype="i8")},
    **{
        f"bitwise_{name}": {"self": tensor(2, 3, dtype="i8"), "other": tensor(2, 3, dtype="i8")}
        for name in ("and", "or", "xor", "not", "left_shift", "right_shift")
    },
    **{
        name: {"self": tensor(2, 3, dtype="?"), "rhs": tensor(2, 3, dtype="?")}
        for name in ("bool_and", "bool_or", "bool_xor", "bool_not")
    },
    "categorical": {"self": tensor(2, 3).abs()},
    "item": {"self": tensor(1)},
    "into_scalar": {"self": tensor(1)},
    "from_torch": {"tensor": torch.ones(2, 3)},
    "new_full": {"number": 1.0},
    "clamp": {"min": 0.0, "max": 1.0},
    "split_with_sizes": {"dim": 1},
    "try_into_scalar": {"self": tensor(1)},
    "cartesian_grid": {"shape": (2, 2)},
    "slice_assign": {"slices": (slice(0, 1),), "values": tensor(1, 3)},
    "slice_fill": {"slices": (slice(0, 1),)},
    "roll": {"dims": [0]},
    "full": {"shape": (2, 3)},
}


def functions_of(module: Any, prefix: str, given: dict[str, dict[str, Any]]) -> Iterator[Callee | None]:
    """The functions that a module exports."""
    for name in module.__all__:
        function = getattr(module, name)
        if inspect.isfunction(function):
            yield callee(f"{prefix}.{name}", function, **given.get(name, {}))


IMAGE: Final = tensor(2, 3, 6, 6)
_FUNCTIONAL: Final[dict[str, dict[str, Any]]] = {
    **{
        f"{kind}{n}d": {"x": tensor(2, 3, *(6,) * n), "weight": tensor(3, 3, *(2,) * n)}
        for n in (1, 2, 3)
        for kind in ("conv", "conv_transpose", "avg_pool", "max_pool", "lp_pool", "adaptive_avg_pool")
    },
    "max_pool1d_with_indices": {"x": tensor(2, 3, 6)},
    "max_pool3d_with_indices": {"x": tensor(2, 3, 6, 6, 6)},
    **{
        f"max_unpool{n}d": {
            "x": tensor(2, 3, *(3,) * n),
            "indices": tensor(2, 3, *(3,) * n, dtype="i8"),
            "output_size": None,
        }
        for n in (1, 2, 3)
    },
    **{
        f"fractional_max_pool{n}d{more}": {"x": tensor(2, 3, *(6,) * n), "samples": tensor(2, 3, n).abs() * 0.1}
        for n in (2, 3)
        for more in ("", "_with_indices")
    },
    "bilinear": {"x1": X, "x2": X, "weight": tensor(4, 3, 3), "bias": tensor(4)},
    "instance_norm": {"x": IMAGE, "gamma": tensor(3), "beta": tensor(3)},
    "local_response_norm": {"x": IMAGE},
    "affine_grid": {"transform": tensor(2, 2, 3), "size": (2, 3, 4, 5)},
    "channel_shuffle": {"x": IMAGE, "groups": 3},
    "pixel_shuffle": {"x": tensor(2, 4, 3, 3), "upscale_factor": 2},
    "pixel_unshuffle": {"x": IMAGE, "downscale_factor": 2},
    "max_pool2d_with_indices": {"x": IMAGE},
    "attention": {"value": HEADS},
    "attention_fallback": {"value": HEADS},
    "interpolate": {"x": IMAGE},
    "deform_conv2d": {
        "x": IMAGE,
        "offset": tensor(2, 8, 5, 5),
        "weight": tensor(3, 3, 2, 2),
        "mask": tensor(2, 4, 5, 5),
    },
    "group_norm": {"gamma": tensor(3), "beta": tensor(3)},
    "unfold4d": {"x": IMAGE},
    "batch_norm": {"gamma": tensor(3), "beta": tensor(3), "mean": tensor(3), "variance": tensor(3).abs()},
    "fold4d": {"x": tensor(1, 4, 4)},
    "cross_entropy_with_logits": {"logits": X, "target_probs": X},
    "conv2d_weight_backward": {"x": IMAGE, "weight": tensor(3, 3, 2, 2), "output_grad": tensor(2, 3, 5, 5)},
    "avg_pool2d_backward": {"x": IMAGE, "grad": tensor(2, 3, 3, 3)},
    "linear": {"x": tensor(2, 3), "weight": tensor(3, 4)},
    "layer_norm": {"gamma": tensor(3), "beta": tensor(3), "epsilon": 1e-5},
    "rms_norm": {"gamma": tensor(3), "epsilon": 1e-5},
    "embedding": {"weights": tensor(5, 3), "indices": tensor(2, 2, dtype="i8")},
}


def configurations() -> Iterator[Callee | None]:
    """The constructors of every configuration of nn and optim."""
    for package in (nn, optim):
        for name in package.__all__:
            kind = getattr(package, name)
            if inspect.isclass(kind) and issubclass(kind, Config) and "Config" in name:
                try:
                    keywords = {**fields_of(kind), **CONFIGS.get(name, {})}
                except BurnTorchError:  # an enum, which is not built itself
                    continue
                yield callee(f"{package.__name__.rpartition('.')[2]}.{name}", kind, **keywords)


CONFIGS: Final[dict[str, dict[str, Any]]] = {
    "AdaptiveLogSoftmaxWithLossConfig": {"n_classes": 6, "cutoffs": [2, 4]},
    "Conv1dConfig": {"kernel_size": 2},
    "FractionalMaxPool2dConfig": {"output_size": (2, 2)},
    "FractionalMaxPool3dConfig": {"output_size": (2, 2, 2)},
    "ConvTranspose1dConfig": {"kernel_size": 2, "channels": (4, 4)},
    "GroupNormConfig": {"num_groups": 2},
    "MultiHeadAttentionConfig": {"n_heads": 2},
}
_FIELDS: Final[dict[str, Any]] = {"IntKind": 4, "FloatKind": 0.5, "BoolKind": True}


def fields_of(kind: type[Config]) -> dict[str, Any]:
    """Right values for the fields that a configuration needs."""
    keywords: dict[str, Any] = {}
    for field in schema_of(kind).required():
        kind_name = type(field.kind).__name__
        if kind_name == "TupleKind":
            keywords[field.name] = (2,) * len(field.kind.items)  # type: ignore[attr-defined]
        else:
            keywords[field.name] = _FIELDS.get(kind_name, 1)
    return keywords


def layers() -> Iterator[Callee | None]:
    """The constructors of the layers, with what their configurations make in their fields."""
    for name in nn.__all__:
        kind = getattr(nn, name)
        if not inspect.isclass(kind) or not issubclass(kind, Module) or not kind.__module_fields__:
            continue
        config = getattr(nn, f"{name}Config", None)
        try:
            layer_config = config(**{**fields_of(config), **CONFIGS.get(f"{name}Config", {})})
            layer = (
                layer_config.init(CPU)
                if "device" in inspect.signature(layer_config.init).parameters
                else layer_config.init()
            )
        except Exception:  # what cannot be made so is left out
            continue
        yield callee(f"nn.{name}", kind, **{field: getattr(layer, field) for field in kind.__module_fields__})


def all_callees() -> list[Callee]:
    """Everything that is called."""
    groups = (
        tensor_methods(),
        functions_of(activation, "activation", {}),
        functions_of(functional, "functional", _FUNCTIONAL),
        configurations(),
        layers(),
    )
    return [callee for group in groups for callee in group if callee is not None]
