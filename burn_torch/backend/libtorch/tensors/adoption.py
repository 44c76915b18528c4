"""Tensors of torch that may become primitives: those with numbers of their own that nothing of torch follows."""

from __future__ import annotations

from typing import Any

import torch
from torch._C import _functorch
from torch.autograd import forward_ad
from torch.nn.parameter import is_lazy

from burn_torch.backend.libtorch.tensors.modes import outside, refuse_tracers
from burn_torch.core.errors import ArgumentError, BurnTorchError, DeviceError, DTypeError
from burn_torch.ops.torch_types import FROM_TORCH

__all__ = ["adopted"]


_examined: set[int] = set()
"""Sets of dispatch keys, as numbers, that plain tensors with memory have: what they say is examined once a set."""


def adopted(tensor: torch.Tensor) -> torch.Tensor:
    """A plain tensor on the memory of a torch tensor.

    Raises: DTypeError for an element type that burn_torch has not (complex, quantised); DeviceError for tensors without
    strides or memory: sparse, nested, of the meta device, of subclasses that compute in __torch_dispatch__.
    ArgumentError for what torch differentiates, maps or traces, which would end here: by autograd, as a dual number,
    inside of torch.func, torch.jit.trace or make_fx.
    """
    if type(tensor) is not torch.Tensor or _keys(tensor) not in _examined:
        tensor = _plain(tensor)
    if tensor.requires_grad:
        raise _followed_error(tensor)
    refuse_tracers("from_torch")
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
        raise ArgumentError(
            "from_torch: this tensor carries a tangent of torch's forward mode, which would end here",
            given=f"a dual tensor {tuple(tensor.shape)} of torch.autograd.forward_ad",
            expected="a tensor without a tangent: burn_torch hands none on to torch",
            mend="forward_ad.unpack_dual(tensor).primal is the value alone; burn_torch.jvp differentiates functions"
            " of burn_torch forward",
        )
    if tensor.dtype not in FROM_TORCH:
        raise DTypeError(
            "from_torch: this element type is not supported",
            given=f"a torch tensor of {tensor.dtype}",
            expected=", ".join(str(dtype) for dtype in FROM_TORCH),
            mend="convert it in torch first, for example tensor.float()",
        )
    if not tensor.untyped_storage().nbytes() and tensor.numel():
        raise _without_memory(
            "the memory of this tensor was given back",
            f"a tensor {tuple(tensor.shape)} on a storage of 0 bytes",
            "a tensor whose storage holds its elements",
            "take it before its storage is resized to 0, or gather it again",
        )
    return tensor.detach()


def _keys(tensor: torch.Tensor) -> int:
    return torch._C._dispatch_keys(tensor).raw_repr()


def _plain(tensor: Any) -> torch.Tensor:
    """A tensor of torch's own class with strided memory, without wrappers, lazy signs and the like."""
    kind: Any = type(tensor)
    if not isinstance(tensor, torch.Tensor):
        raise DTypeError(
            "from_torch: this is no torch tensor",
            given=f"{kind.__module__}.{kind.__qualname__}",
            expected="a torch.Tensor",
            mend="Tensor.from_data(values, device) takes lists, numbers and arrays",
        )
    if kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        raise _without_memory(
            "this subclass of torch.Tensor has no memory that kernels can read",
            f"a {kind.__module__}.{kind.__qualname__}",
            "a plain torch.Tensor",
            "make it outside of the mode (such as FakeTensorMode) that makes such tensors, or take the tensor that it"
            " wraps (to_local() of a DTensor)",
        )
    if is_lazy(tensor):
        raise _without_memory(
            "this parameter has no shape and no numbers yet",
            f"a {kind.__name__}",
            "a tensor with numbers",
            "call the lazy module of torch once, which makes them",
        )
    if tensor.requires_grad:  # its class is told
        raise _followed_error(tensor)
    if kind is not torch.Tensor:
        with torch._C.DisableTorchFunctionSubclass():  # its __torch_function__ is for torch's functions, not for ours
            tensor = tensor.as_subclass(torch.Tensor)
    if _functorch.is_functorch_wrapped_tensor(tensor) or torch._is_functional_tensor(tensor):
        refuse_tracers("from_torch")
        tensor = _functorch.get_unwrapped(tensor)  # one that a transform has left behind
    if tensor.layout is not torch.strided or tensor.device.type == "meta" or tensor.is_nested:
        raise _without_memory(
            "this tensor has no memory with strides",
            f"layout {'nested' if tensor.is_nested else tensor.layout} on {tensor.device}",
            "a dense tensor on cpu, cuda or mps",
            "tensor.to_dense(), tensor.to('cpu'), or of a nested one tensor.to_padded_tensor(0.0) or tensor.unbind()",
        )
    if tensor._is_zerotensor():  # zeros without memory, which torch's derivatives make
        tensor = tensor.clone()
    if tensor.is_inference():  # has no version counter, so a later write could not be noticed
        tensor = outside(torch.clone, (tensor,))
    if tensor.is_neg() or tensor.is_conj():
        tensor = tensor.resolve_neg().resolve_conj()
    if tensor.dtype in FROM_TORCH:
        _examined.add(_keys(tensor))
    return tensor


def _followed_error(tensor: torch.Tensor) -> ArgumentError:
    maker = "" if tensor.grad_fn is None else f", made by {tensor.grad_fn.name()}"
    return ArgumentError(
        "from_torch: torch's autograd follows this tensor, and its gradients would end here",
        given=f"a {type(tensor).__name__} {tuple(tensor.shape)} that requires grad{maker}",
        expected="a tensor without torch's graph: gradients do not flow from burn_torch into it",
        mend="Tensor.from_torch(tensor.detach()) takes the value alone",
    )


def _without_memory(what: str, given: str, expected: str, mend: str) -> BurnTorchError:
    return DeviceError(f"from_torch: {what}", given=given, expected=expected, mend=mend)
