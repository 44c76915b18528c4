"""burn_torch refuses tensors of torch's own transforms, whose derivatives it would cut off without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from burn_torch import ArgumentError, BurnTorchError, Device, Distribution, Tensor, compile, nn

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.")  # torch.func.jvp itself makes use of it
CPU: Final = Device.cpu()
X: Final = Tensor.from_data([1.0, 2.0, 3.0], CPU)
T: Final = torch.arange(3.0) + 1
THREE_PARTS: Final = r"[\s\S]*given: [\s\S]*expected: [\s\S]*mend: [\s\S]*"


def through_ours(t: torch.Tensor) -> torch.Tensor:
    x = Tensor.from_torch(t)
    return (x * x + 1.0).sum().into_torch()


def with_tangent(t: torch.Tensor) -> torch.Tensor:
    with forward_ad.dual_level():
        return through_ours(forward_ad.make_dual(t, torch.ones(3)))


def data_with_tangent(t: torch.Tensor) -> Tensor:
    with forward_ad.dual_level():
        return Tensor.from_data(forward_ad.make_dual(t, torch.ones(3)), CPU)


class Net(torch.nn.Module):
    def forward(self, t: torch.Tensor) -> torch.Tensor:
        return through_ours(t)


@pytest.mark.parametrize(
    "run",
    [
        lambda: torch.func.jvp(through_ours, (T,), (torch.ones(3),)),
        lambda: torch.func.grad(through_ours)(T),
        lambda: torch.func.vjp(through_ours, T),
        lambda: torch.func.jacrev(through_ours)(T),
        lambda: torch.func.jacfwd(through_ours)(T),
        lambda: torch.func.hessian(through_ours)(T),
        lambda: torch.func.vmap(through_ours)(torch.ones(2, 3)),
        lambda: torch.func.functionalize(through_ours)(T),
        lambda: torch.func.jvp(lambda t: Tensor.from_data(t, CPU).into_torch(), (T,), (T,)),
        lambda: torch.func.vmap(lambda t: Tensor.from_dlpack(t).into_torch())(torch.ones(2, 3)),
        lambda: with_tangent(T),
        lambda: data_with_tangent(T),
        lambda: torch.jit.trace(through_ours, (T,)),
        lambda: make_fx(through_ours)(T),
        lambda: make_fx(through_ours, tracing_mode="fake")(T),
        lambda: torch.export.export(Net(), (T,), strict=False),
        lambda: torch.fx.symbolic_trace(Net()),
    ],
)
def test_a_tensor_that_torch_follows_is_refused_in_words(run: Callable[[], Any]) -> None:
    with pytest.raises(BurnTorchError, match=THREE_PARTS):
        run()


def test_a_tensor_without_a_tangent_enters_within_a_dual_level() -> None:
    with forward_ad.dual_level():
        assert Tensor.from_torch(T).tolist() == [1.0, 2.0, 3.0]


CALLS: Final[dict[str, Callable[[], Any]]] = {
    "an operation": lambda: X + X,
    "a product": lambda: X.reshape(1, 3) @ X.reshape(3, 1),
    "on a fused device": lambda: (X.to_device(CPU.fused()) * 2.0 + 1.0).into_data(),
    "backward": lambda: (X.to_device(CPU.autodiff()).require_grad() * 2.0).sum().backward(),
    "a compiled function, traced": lambda: compile(lambda x: x * x + 1.0)(X),
    "a compiled function": lambda: SQUARE(X),
    "a layer": lambda: nn.LinearConfig(3, 2).init(CPU).forward(X.reshape(1, 3)),
    "into_data": X.into_data,
    "item": lambda: X.narrow(0, 0, 1).item(),
    "into_torch": X.into_torch,
    "numpy": lambda: np.asarray(X),
    "dlpack": lambda: torch.from_dlpack(X),
    "printing": lambda: repr(X),
    "from_data": lambda: Tensor.from_data([1.0], CPU),
    "from_torch": lambda: Tensor.from_torch(T),
}
SQUARE: Final = compile(lambda x: x * x + 1.0)


@pytest.mark.parametrize("name", CALLS)
def test_calls_inside_of_fake_tensor_mode_say_so(name: str) -> None:
    SQUARE(X)
    with FakeTensorMode(), pytest.raises(ArgumentError, match=f"FakeTensorMode{THREE_PARTS}"):
        CALLS[name]()
    CALLS[name]()  # and nothing stays of it


@pytest.mark.parametrize("name", ["into_data", "item", "numpy", "dlpack", "printing", "from_data", "from_torch"])
def test_values_do_not_cross_the_border_inside_of_a_transform_of_torch(name: str) -> None:
    def inside(t: torch.Tensor) -> torch.Tensor:
        with pytest.raises(ArgumentError, match=f"a transform of torch.func{THREE_PARTS}"):
            CALLS[name]() if name != "item" else (X + X).sum().item()
        return t * 2.0

    assert torch.func.jvp(inside, (T,), (T,))[1].tolist() == [2.0, 4.0, 6.0]
    CALLS[name]()


def test_what_was_made_inside_of_a_mode_of_torch_is_reported_outside() -> None:
    with FakeTensorMode():
        ghost = Tensor.random((3,), Distribution.Default, CPU)
    for call in (ghost.into_data, lambda: X + ghost, lambda: repr(ghost)):
        with pytest.raises(ArgumentError, match=f"holds no numbers{THREE_PARTS}"):
            call()


def test_constants_inside_of_a_transform_of_torch_are_right() -> None:
    kept: list[Tensor] = []

    def inside(t: torch.Tensor) -> torch.Tensor:
        kept.append(X * 2.0 + 1.0)
        return t * kept[-1].into_torch()

    value, tangent = torch.func.jvp(inside, (T,), (torch.ones(3),))
    assert (value.tolist(), tangent.tolist()) == ([3.0, 10.0, 21.0], [3.0, 5.0, 7.0])
    assert (kept[0] + 1.0).tolist() == [4.0, 6.0, 8.0]  # it outlives the transform
    assert SQUARE(kept[0]).tolist() == [10.0, 26.0, 50.0]


@pytest.mark.parametrize(
    "call", [through_ours, lambda t: t + (X * 2.0).into_torch(), lambda t: t + X.exp().into_torch()]
)
def test_torch_compile_of_a_whole_graph_says_that_ours_is_not_traced(call: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match=rf"do not trace burn_torch{THREE_PARTS}burn_torch\.compile"):
        torch.compile(call, backend="eager", fullgraph=True)(T)
    torch._dynamo.reset()
    np.testing.assert_array_equal(torch.compile(call, backend="eager")(T), call(T))
    torch._dynamo.reset()


class Named(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.detach or function is torch.Tensor.mul:
            raise AssertionError("torch's functions are not asked")
        return super().__torch_function__(function, types, args, kwargs or {})


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: T.as_subclass(Named), [1.0, 2.0, 3.0]),
        (lambda: torch.nn.Buffer(T), [1.0, 2.0, 3.0]),
        (lambda: torch.nn.Parameter(T, requires_grad=False), [1.0, 2.0, 3.0]),
        (lambda: torch._efficientzerotensor((3,)), [0.0, 0.0, 0.0]),
        (lambda: torch.view_as_complex(torch.arange(6.0).reshape(3, 2)).conj().imag, [-1.0, -3.0, -5.0]),
        (lambda: torch._neg_view(T), [-1.0, -2.0, -3.0]),
        (lambda: T[:1].expand(3), [1.0, 1.0, 1.0]),
        (lambda: T.flip(0)[::2], [3.0, 1.0]),
    ],
)
def test_tensors_of_other_forms_give_their_numbers(make: Callable[[], torch.Tensor], expected: list[float]) -> None:
    x = Tensor.from_torch(make())
    assert type(x.into_torch()) is torch.Tensor
    assert x.tolist() == expected
    assert (x * 2.0).tolist() == [2.0 * value for value in expected]


def given_back() -> torch.Tensor:
    t = torch.ones(3)
    t.untyped_storage().resize_(0)
    return t


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:.*MaskedTensors", "ignore:Sparse")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.nested.nested_tensor([T, T]),
        lambda: torch.nested.nested_tensor([T, T], layout=torch.jagged),
        lambda: torch.eye(3).to_sparse_csr(),
        lambda: torch.eye(3).to_mkldnn(),
        lambda: torch.masked.masked_tensor(T, T > 1),
        lambda: torch.nn.UninitializedParameter(),
        lambda: torch.nn.UninitializedBuffer(),
        lambda: torch.ones(2).to(torch.float8_e4m3fnuz),
        lambda: torch._to_functional_tensor(torch.ones(3, device="meta")),
        given_back,
    ],
)
def test_tensors_without_plain_memory_are_refused_in_words(make: Callable[[], torch.Tensor]) -> None:
    with pytest.raises(BurnTorchError, match=THREE_PARTS):
        Tensor.from_torch(make())
