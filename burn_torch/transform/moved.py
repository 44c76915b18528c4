"""Defines what stands in the place of a value that a compiled step has taken over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn, final

from burn_torch.core.errors import MovedError
from burn_torch.transform.structure import Argument

__all__ = ["Moved"]


@final
class Moved:
    """In the place of a primitive, or of a tree's fields: any use of it is a MovedError."""

    __slots__ = ("by",)

    def __init__(self, by: str) -> None:
        self.by: Final = by

    def refuse(self, what: str = "a tensor") -> NoReturn:
        """Raises the error."""
        raise MovedError(
            f"{what} was used after a compiled function had taken it over",
            given=f"a value that was donated to {self.by}",
            expected="the values that the function returned: their memory is the old one's",
            mend="go on with what the function returned, as in model, optim, loss = step(model, optim, batch, lr),"
            " or leave it out of donate=",
        )

    def fields(self, tree: Argument) -> Mapping[str, Any]:
        """The fields of a moved tree: there are none."""
        self.refuse(f"this {type(tree).__name__}")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        next((x for x in args if isinstance(x, Moved)), cls("a compiled function")).refuse()

    def __array__(self, *args: object, **kwargs: object) -> object:
        self.refuse()

    def _operate(self, *others: object) -> NoReturn:
        self.refuse()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _operate
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _operate
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __neg__ = __abs__ = __invert__ = _operate
    __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = __iter__ = _operate

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.refuse()
