"""JaggedTensor: sequences of unlike lengths behind each other, without padding."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

from burn_torch import ops
from burn_torch.core.dtype import INT, DType
from burn_torch.core.errors import ArgumentError, BoundsError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.wording import described
from burn_torch.tensor import segments
from burn_torch.tensor._arguments import integer, truth
from burn_torch.tensor.apply import NUMBERS, apply, apply_one, require_tensor
from burn_torch.tensor.compound import Compound
from burn_torch.tensor.device import Device
from burn_torch.tensor.gradients import Gradients
from burn_torch.tensor.tensor import Tensor

__all__ = ["JaggedTensor"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class JaggedTensor(Compound):
    """A batch of sequences of unlike lengths: the entries of all behind each other, and where each one begins.

        tokens = JaggedTensor.from_list([[5, 2, 9], [], [7, 1]], device)
        x = tokens.embedding(table)                       # (total, d_model) values
        x = x.attention(x, x, causal=True)                # each sequence by itself
        y = x.mean()                                      # (sequences, d_model)
        padded, hidden = x.to_padded(), x.mask_pad()

    values   (total, *features), of any type
    offsets  (sequences + 1,), integers: sequence i has the entries offsets[i] to offsets[i + 1] - 1

    It is one value to `compile`, `grad` and the other transforms, and a field of a module.  What a compiled step needs
    to know beforehand is an argument: `longest`, where sequences are padded or attend.
    Raises: ShapeError, DTypeError where the parts do not fit together; functions of sequences raise BoundsError for
        offsets that fall or leave the values, where the data is on the host.
    PyTorch: torch.nested.nested_tensor(..., layout=torch.jagged).
    """

    values: Tensor
    offsets: Tensor

    def __post_init__(self) -> None:
        require_tensor(self.values, "values")
        require_tensor(self.offsets, "offsets")
        values, offsets = self.values.spec, self.offsets.spec
        if not values.ndim or offsets.ndim != 1 or not offsets.shape[0]:
            raise told(
                ShapeError,
                "values and offsets do not fit together",
                given=f"values {values}, offsets {offsets}",
                expected="values (total, *features), offsets (sequences + 1,)",
                mend="JaggedTensor.from_lengths(values, lengths) makes offsets of lengths",
            )
        if offsets.dtype not in INT:
            raise told(
                DTypeError,
                "offsets are whole numbers",
                given=f"offsets {offsets}",
                expected="integers of any type",
                mend="offsets.int()",
            )

    # -- constructors ----------------------------------------------------------------------------------------
    @staticmethod
    def from_list(sequences: Sequence[Tensor | Sequence[object]], device: Device | None = None) -> JaggedTensor:
        """Takes tensors that differ in their first axis alone, or of lists of numbers that go to a device."""
        tensors = [x for x in sequences if isinstance(x, Tensor)]
        home = device or (tensors[0].device if tensors else None)
        if home is None:
            raise told(
                ArgumentError, "lists lie on no device", given="sequences without tensors, and no device",
                expected="a device for them", mend="JaggedTensor.from_list([[1, 2], [3]], Device.cpu())",
            )  # fmt: skip
        said = [x for x in sequences if isinstance(x, Tensor) or len(x)]  # an empty list has no type and no features
        parts = [x if isinstance(x, Tensor) else Tensor.from_data(x, home) for x in said]
        ends = [0]
        for x in sequences:
            ends.append(ends[-1] + len(x))
        return JaggedTensor(Tensor.cat(parts or [Tensor.zeros((0,), home)], 0), Tensor.from_ints(ends, home))

    @staticmethod
    def from_lengths(values: Tensor, lengths: Tensor) -> JaggedTensor:
        """Takes entries behind each other.  Shapes: values (total, *features), lengths (sequences,)."""
        return JaggedTensor(values, segments.offsets(lengths))

    @staticmethod
    def from_padded(x: Tensor, lengths: Tensor, total: int | None = None) -> JaggedTensor:
        """The first entries of each line.

        total: the sum of the lengths, which is read from the device unless it is said; a compiled step has to.
        Shapes: x (sequences, longest, *features), lengths (sequences,).
        """
        offsets = segments.offsets(lengths)
        if total is None:
            total = int(offsets[-1:].into_scalar())
        return JaggedTensor(apply_one(ops.segment_unpad, (x, offsets), integer(total, "total")), offsets)

    # -- what it is ------------------------------------------------------------------------------------------
    @property
    def dtype(self) -> DType:
        """The element type of the values."""
        return self.values.dtype

    @property
    def device(self) -> Device:
        """The device of the values."""
        return self.values.device

    @property
    def total(self) -> int:
        """How many entries all sequences have."""
        return self.values.shape[0]

    def __len__(self) -> int:
        return self.offsets.shape[0] - 1

    def lengths(self) -> Tensor:
        """The length of each sequence.  Shapes: -> (sequences,)."""
        count = len(self)
        return self.offsets.narrow(0, 1, count) - self.offsets.narrow(0, 0, count)

    def longest(self) -> int:
        """The length of the longest sequence; waits for the device."""
        return int(self.lengths().max().into_scalar()) if len(self) else 0

    def ids(self) -> Tensor:
        """The sequence of each entry.  Shapes: -> (total,)."""
        return segments.ids(self.offsets, self.total)

    def __repr__(self) -> str:
        return f"JaggedTensor({len(self)} sequences, values {self.values.spec})"

    # -- going elsewhere -------------------------------------------------------------------------------------
    def to_list(self) -> list[Tensor]:
        """The sequences one by one; waits for the device."""
        ends = [int(end) for end in self.offsets.into_data().to_vec()]
        if any(a > b for a, b in zip([0, *ends], [*ends, self.total], strict=True)):
            raise told(
                BoundsError, "the offsets are not those of sequences", given=f"offsets {ends}, {self.total} entries",
                expected=f"numbers that never fall, from 0 to {self.total}",
                mend="JaggedTensor.from_lengths makes them",
            )  # fmt: skip
        return [self.values.narrow(0, a, b - a) for a, b in itertools.pairwise(ends)]

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.to_list())

    def to_padded(self, fill: float = 0.0, longest: int | None = None) -> Tensor:
        """Sequences side by side, with `fill` behind each; sequences longer than `longest` are cut.

        longest: the length of the longest one, which is read from the device unless it is said.
        Shapes: -> (sequences, longest, *features).
        """
        size = self._longest(longest)
        y = apply_one(ops.segment_pad, (self.values, self.offsets), size)
        if not fill:
            return y
        mask = self.mask_pad(size).reshape((len(self), size, *(1,) * (self.values.ndim - 1)))
        return y.mask_fill(mask.expand(y.shape), fill)

    def mask_pad(self, longest: int | None = None) -> Tensor:
        """True behind the end of each sequence, as attention masks have it.  Shapes: -> (sequences, longest)."""
        places = Tensor.arange(self._longest(longest), self.device).cast(self.offsets.dtype).unsqueeze_dim(0)
        return places.greater_equal(self.lengths().unsqueeze_dim(1))

    def _longest(self, longest: int | None) -> int:
        return self.longest() if longest is None else integer(longest, "longest")

    # -- entries ---------------------------------------------------------------------------------------------
    def with_values(self, values: Tensor) -> JaggedTensor:
        """Other entries of the same sequences.  Raises: ShapeError for another number of entries."""
        require_tensor(values, "values")
        if not values.ndim or values.shape[0] != self.total:
            raise told(
                ShapeError,
                "the entries are not as many as those of the sequences",
                given=f"values {values.spec}, {self!r}",
                expected=f"values ({self.total}, *features)",
                mend="JaggedTensor(values, offsets) takes other sequences",
            )
        return JaggedTensor(values, self.offsets)

    def map(self, function: Callable[[Tensor], Tensor]) -> JaggedTensor:
        """`function` of the entries, each by itself: an activation, a linear layer.

        x.map(linear)
        """
        return self.with_values(function(self.values))

    def expand(self, x: Tensor) -> JaggedTensor:
        """For each entry, what its sequence has.  Shapes: x (sequences, *features)."""
        return JaggedTensor(segments.expand(x, self.offsets, self.total), self.offsets)

    def embedding(self, weight: Tensor) -> JaggedTensor:
        """The row of a table at each entry.  Shapes: weight (n_embedding, d_model)."""
        return self.with_values(apply_one(ops.embedding, (weight, self.values)))

    def cast(self, dtype: DType) -> JaggedTensor:
        """The same entries in another type."""
        return self.map(lambda values: values.cast(dtype))

    def require_grad(self) -> JaggedTensor:
        """The same with entries that ask for a gradient."""
        return self.map(lambda values: values.require_grad())

    def grad(self, gradients: Gradients) -> JaggedTensor | None:
        """The gradient of the entries; None if none reached them."""
        gradient = self.values.grad(gradients)
        if gradient is None:
            return None
        return JaggedTensor(gradient, self.offsets.inner() if self.device.is_autodiff() else self.offsets)

    def __neg__(self) -> JaggedTensor:
        return self.map(operator.neg)

    def _operate(self, function: Callable[[Tensor, object], Tensor], other: object) -> JaggedTensor:
        if isinstance(other, JaggedTensor):
            if other.offsets.shape != self.offsets.shape or other.total != self.total:
                raise told(
                    ShapeError,
                    "the sequences of the two sides differ",
                    given=f"{self!r} and {other!r}",
                    expected="the same sequences on both sides",
                    mend="x.with_values(values) keeps the sequences of x",
                )
            other = other.values
        if not isinstance(other, (Tensor, *NUMBERS)):
            return NotImplemented  # type: ignore[no-any-return]  # Python's own protocol
        return self.map(lambda values: function(values, other))

    def __add__(self, other: object) -> JaggedTensor:
        return self._operate(operator.add, other)

    def __sub__(self, other: object) -> JaggedTensor:
        return self._operate(operator.sub, other)

    def __mul__(self, other: object) -> JaggedTensor:
        return self._operate(operator.mul, other)

    def __truediv__(self, other: object) -> JaggedTensor:
        return self._operate(operator.truediv, other)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: object) -> JaggedTensor:
        return self._operate(lambda values, x: x - values, other)

    def __rtruediv__(self, other: object) -> JaggedTensor:
        return self._operate(lambda values, x: x / values, other)

    # -- sequences -------------------------------------------------------------------------------------------
    def sum(self) -> Tensor:
        """The sum of each sequence, 0 of an empty one.  Shapes: -> (sequences, *features)."""
        return segments.sum(self.values, self.offsets)

    def mean(self) -> Tensor:
        """The mean of each sequence, 0 of an empty one.  Shapes: -> (sequences, *features)."""
        return segments.mean(self.values, self.offsets)

    def prod(self) -> Tensor:
        """The product of each sequence, 1 of an empty one.  Shapes: -> (sequences, *features)."""
        return segments.prod(self.values, self.offsets)

    def max(self) -> Tensor:
        """The largest entry of each sequence, -inf of an empty one.  Shapes: -> (sequences, *features)."""
        return segments.max(self.values, self.offsets)

    def min(self) -> Tensor:
        """The least entry of each sequence, inf of an empty one.  Shapes: -> (sequences, *features)."""
        return segments.min(self.values, self.offsets)

    def softmax(self) -> JaggedTensor:
        """exp(x) / sum(exp(x)) over each sequence, for each feature."""
        return self.map(lambda values: segments.softmax(values, self.offsets))

    def attention(
        self,
        key: JaggedTensor,
        value: JaggedTensor,
        *,
        causal: bool = False,
        scale: float | None = None,
        softcap: float | None = None,
        longest: int | None = None,
        longest_key: int | None = None,
    ) -> JaggedTensor:
        """Attends in each sequence by itself: the values that each query, an entry of these, reads.

        With `causal`, query i of a sequence sees its keys up to i.  `longest` and `longest_key` bound the lengths of
        sequences; unless they are said they are read from the device, which a compiled step cannot.  On a GPU a longer
        sequence stops the program.
        Shapes: values of the queries (total_q, heads, d_head), of keys (total_k, key_heads, d_head), of values
        (total_k, key_heads, d_value), key_heads a divisor of heads -> (total_q, heads, d_value).
        PyTorch: torch.nn.attention.varlen.varlen_attn.
        """
        for name, x in (("key", key), ("value", value)):
            if not isinstance(x, JaggedTensor):
                raise told(
                    DTypeError, f"{name} has no sequences", given=described(x), expected="a JaggedTensor",
                    mend="JaggedTensor(values, offsets)",
                )  # fmt: skip
        at_most = self._require_longest(longest, "longest")
        key_at_most = (
            at_most if key is self and longest_key is None else key._require_longest(longest_key, "longest_key")
        )
        width = max(self.values.shape[-1], 1)
        inputs = (
            self.values, key.values, value.values, self.offsets, key.offsets,
            1.0 / math.sqrt(width) if scale is None else float(scale), None if softcap is None else float(softcap),
        )  # fmt: skip
        y: Tensor = apply(ops.jagged_attention, inputs, truth(causal, "causal"), at_most, key_at_most)[0]
        return JaggedTensor(y, self.offsets)

    def _require_longest(self, longest: int | None, name: str) -> int:
        """A bound of the lengths; one that is said is compared with them where that waits for nothing."""
        on_host = self.offsets.spec.place == "cpu" and getattr(self.offsets.backend, "session", None) is None
        if longest is not None and not on_host:
            return integer(longest, name)
        most = self.longest()
        if longest is not None and integer(longest, name) < most:
            raise told(
                BoundsError,
                f"a sequence is longer than {name} says",
                given=f"{name} {longest}, a sequence of {most}",
                expected=f"{name} of at least {most}",
                mend=f"leave {name} out, or cut the sequences",
            )
        return most if longest is None else integer(longest, name)
