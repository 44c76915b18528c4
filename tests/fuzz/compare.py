"""When two results of a program agree.

Bits first.  Where a door may round otherwise, the reference is computed again with rounding noise: every operation's
float inputs and outputs change by up to one unit in the last place of their type, at random.  How far that moves a
result is what rounding can explain; a door may lie `FACTOR` times as far.  A result that noise moves by a part of its
own size (a cosine of 1e17, an argmax of a tie) says nothing, and is counted as unstable.
"""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, final

import numpy as np
import torch

from burn_torch.backend.base import Backend
from burn_torch.backend.libtorch.leaf import LibTorch
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.graph.decomposition import expanded
from burn_torch.graph.interpreter import interpret
from burn_torch.ops.laws import Copies, Fill, Moves, Regions
from burn_torch.ops.op import Call
from burn_torch.ops.torch_types import FROM_TORCH

__all__ = ["Judge", "Noisy", "Results", "same_bits"]

FACTOR: Final = 24.0
"""Two runs with noise of one unit show about one standard deviation of it; sums in another order stay below 16, sums
of some hundred equal numbers, whose roundings have one sign, below 20."""
RUNS: Final = 3
CONFIRMING_RUNS: Final = 24
EPS: Final = {DType.F64: 2.0**-52, DType.F32: 2.0**-23, DType.F16: 2.0**-10, DType.BF16: 2.0**-7}
TINY: Final = {DType.F64: 2.0**-1022, DType.F32: 2.0**-126, DType.F16: 2.0**-14, DType.BF16: 2.0**-126}
UNSTABLE: Final = {DType.F64: 1e-3, DType.F32: 1e-2, DType.F16: 0.2, DType.BF16: 0.2}
"""Noise that moves a result by this part of its size: there is nothing to compare with."""

Results = Sequence[TensorData | None]
"""Holds what a door gives: values, then gradients; None where there is no gradient."""


@final
class Noisy(Backend):
    """LibTorch, with every operation's float inputs and outputs moved by up to one rounding.

    Comparisons and moves of elements are exact on every leaf, and stay so.
    """

    name = "Noisy"
    _instance: ClassVar[Noisy | None] = None

    def __new__(cls) -> Noisy:
        """Always the same object: what tapes derive for it is kept on Calls."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance.under = LibTorch()
            cls._instance.noise = threading.local()
        return cls._instance

    def seeded(self, seed: int) -> Noisy:
        """Itself, with the noise of a seed on this thread."""
        self.noise.random = random.Random(seed)
        self.noise.generator = torch.Generator().manual_seed(seed)
        self.noise.seed = seed
        return self

    under: LibTorch
    noise: threading.local

    def execute(self, call: Call, inputs: Sequence[Any]) -> Sequence[Any]:
        if _is_exact(call):
            return self.under.execute(call, inputs)
        in_parts = self._in_parts(call, inputs) if self.noise.seed % 2 else None
        if in_parts is not None:
            return in_parts
        # a comparison reads what there is: a label is 1 or not, and what was computed has its noise already
        compares = not any(isinstance(y, TensorSpec) and y.dtype.is_float for y in call.results)
        moved = [self._moved(x) if isinstance(x, torch.Tensor) and not compares else x for x in inputs]
        outputs = [self._moved(y) if isinstance(y, torch.Tensor) else y for y in self.under.execute(call, moved)]
        if call.op.name in _DIFFERENCES and self.noise.seed % 3 == 2:
            outputs = [
                _flush_roundings(y, moved, call.attrs.get("dim")) for y in outputs if y.is_floating_point()
            ] or outputs
        cancelled = _CANCELLED.get(call.op.name)
        if cancelled is not None:
            outputs[0] = outputs[0] + (self._moved(inputs[cancelled]) - inputs[cancelled])
        if call.op.name == "attention":  # its weights are exp(scores - lse), and these may be large numbers
            y, lse = outputs
            outputs[0] = y + y * (self._moved(lse) - lse).unsqueeze(-1).to(y.dtype)
        if call.op.name in _OPEN_AT_INFINITIES and self.noise.seed % 2:
            outputs = [y if y is None else self._other_infinities(y) for y in outputs]
            if call.op.name in _SPREADING and not all(
                x.isfinite().all() for x in inputs if isinstance(x, torch.Tensor) and x.is_floating_point()
            ):
                outputs = [None if y is None else self._spread(y) for y in outputs]
        return outputs

    def _in_parts(self, call: Call, inputs: Sequence[Any]) -> Sequence[Any] | None:
        """Returns what the row is made of, each step with noise of its own; None where it has no parts, or they
        overflow.

        A fused kernel rounds `x * 0.9` in one use, and contracts it into a subtraction in another: `x - mean(x)` of one
        number is no longer 0.
        """
        parts = None if any(x.dtype in _HALVES for x in inputs if isinstance(x, torch.Tensor)) else expanded(call)
        if parts is None:
            return None
        outputs = interpret(parts, self, [x for x in inputs if x is not None])
        floats = [y for y in outputs if isinstance(y, torch.Tensor) and y.is_floating_point()]
        return outputs if all(bool(y.isfinite().all()) for y in floats) else None

    def _moved(self, x: torch.Tensor) -> torch.Tensor:
        dtype = FROM_TORCH[x.dtype]
        if not dtype.is_float:
            return x
        factors, shifts = _noise_of(dtype)
        at, count = self.noise.random.randrange(_NOISES), x.numel()
        factor, shift = factors[at : at + count].view(x.shape), shifts[at : at + count].view(x.shape)
        return torch.addcmul(shift, x if x.dtype is torch.float64 else x.double(), factor).to(x.dtype)

    def _other_infinities(self, y: torch.Tensor) -> torch.Tensor:
        signs = torch.rand(y.shape, generator=self.noise.generator, dtype=torch.float64).sub_(0.5).to(y.dtype)
        return torch.where(y.isfinite(), y, torch.where(y.isnan(), signs * torch.inf, torch.nan))

    def _spread(self, y: torch.Tensor) -> torch.Tensor:
        """NaN everywhere, or nowhere where that is what there is."""
        return torch.full_like(y, torch.nan) if y.isfinite().any() else torch.zeros_like(y)

    def from_data(self, data: TensorData, place: str) -> Any:
        return self.under.from_data(data, place)

    def into_data(self, primitive: Any) -> TensorData:
        return self.under.into_data(primitive)

    def spec(self, primitive: Any) -> TensorSpec:
        return self.under.spec(primitive)

    def sync(self, place: str) -> None:
        pass

    def copy(self, primitive: Any) -> Any:
        return self.under.copy(primitive)

    def version(self, primitive: Any) -> int:
        return self.under.version(primitive)


_NOISES: Final = 1 << 14
_MOST_MOVED: Final = 1 << 18


@functools.cache
def _noise_of(dtype: DType) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns what a value of this type is multiplied by and what is added, at random: drawn once, read from random
    places.
    """
    generator = torch.Generator().manual_seed(3)
    noise = EPS[dtype] * torch.rand(_NOISES + _MOST_MOVED, generator=generator, dtype=torch.float64).mul_(2.0).sub_(1.0)
    return 1.0 + noise, TINY[dtype] * noise


def _flush_roundings(y: torch.Tensor, inputs: Sequence[Any], dim: int | None) -> torch.Tensor:
    """0 where a difference is no more than the rounding of what is subtracted: it may as well be none.

    dim  of a cross product: the axis of which products are subtracted
    """
    sizes = [torch.as_tensor(x, dtype=y.dtype).abs() for x in inputs]
    if dim is not None:
        size = sizes[0].amax(dim, keepdim=True) * sizes[1].amax(dim, keepdim=True)
    else:
        size = torch.maximum(*sizes)
    return torch.where(y.abs() <= 2 * EPS[FROM_TORCH[y.dtype]] * size, 0.0, y)


_DIFFERENCES: Final = frozenset(("add", "sub", "cross"))
_HALVES: Final = (torch.float16, torch.bfloat16)
_CANCELLED: Final = {"gelu": 0, "gelu_approximate": 0, "gelu_backward": 0, "gelu_approximate_backward": 0}
"""Rows that add 1 to a value near -1, and the operand that the sum is multiplied by: so large is the error of it."""


_SPREADING: Final = frozenset((
    "attention", "attention_backward", "interpolate_backward", "grid_sample_2d_backward", "conv", "conv_transpose",
    "conv_weight_gradient", "conv_input_gradient", "cross_entropy_backward", "adam_update",
))  # fmt: skip
"""Rows that may spread an infinity among their inputs over all results, as 0 times it is NaN."""
_OPEN_AT_INFINITIES: Final = _SPREADING | {
    "var_mean", "layer_norm", "layer_norm_backward", "group_norm", "group_norm_backward", "batch_norm", "rms_norm",
    "batch_norm_inference", "gelu", "linear_gelu", "matmul_gelu_backward", "linear_scan",
}  # fmt: skip
"""Rows of several steps, whose results at infinities are NaN or infinite by the order of the steps.

A mean that is taken along with squares, by updates, is NaN; one by a sum is an infinity.
"""


def _is_exact(call: Call) -> bool:
    exact: bool | None = call.memo.get(Noisy)
    if exact is None:
        row = call.op
        exact = call.aliases or any(row.law(kind) is not None for kind in (Moves, Copies, Fill, Regions))
        call.memo[Noisy] = exact
    return exact


# -- judging ---------------------------------------------------------------------------------------------------
def same_bits(a: TensorData | None, b: TensorData | None) -> bool:
    """Returns whether two tensors hold the same numbers; NaN is NaN, and -0.0 is not 0.0."""
    if a is None or b is None:
        return a is b
    if a.shape != b.shape or a.dtype is not b.dtype:
        return False
    if a.array.tobytes() == b.array.tobytes():
        return True
    if not a.dtype.is_float:
        return False
    y, z = a.values, b.values
    equal = (y == z) & (np.signbit(y) == np.signbit(z))
    return bool((equal | (np.isnan(y) & np.isnan(z))).all())


class Judge:
    """The reference of one program, and how far rounding moves it.

    reference  what eager gives
    noisy      `noisy(seed)`: the same with rounding noise, see `Noisy`
    names      what each result is called
    factor     how many times as far as noise moves a result a door may lie
    wide       the same in float64, for a reference that overflows on the way; None where it would be another program
    """

    def __init__(
        self,
        reference: Results,
        noisy: Callable[[int], Results],
        names: Sequence[str],
        factor: float = FACTOR,
        wide: Callable[[], Results] | None = None,
    ) -> None:
        self.factor = factor
        self._wide = wide
        self._wide_results: Results | None = None
        self.reference = list(reference)
        self.names = names
        self.unstable = 0
        self._noisy = noisy
        self._runs: list[Results] = []

    def differences(self, results: Results, *, bits: bool = False) -> list[str]:
        """Returns what of a door's results disagrees, in words; nothing where all is well."""
        if len(results) != len(self.reference):
            return [f"{len(results)} results, expected {len(self.reference)}"]
        apart = [i for i, (y, z) in enumerate(zip(results, self.reference, strict=True)) if not same_bits(y, z)]
        if bits or not apart:
            return [self._describe_difference(i, results[i], None) for i in apart]
        for runs in (1, RUNS, CONFIRMING_RUNS):  # more noise explains no less
            apart = [i for i in apart if not self._is_explained(i, results[i], runs)]
            if not apart:
                return []
        return [self._describe_difference(i, results[i], self._compute_bound(i)) for i in apart]

    def noisy_runs(self) -> Sequence[Results]:
        """The reference with noise, a few times."""
        self._run(RUNS)
        return self._runs

    def _is_explained(self, i: int, y: TensorData | None, runs: int) -> bool:
        z = self.reference[i]
        if y is None or z is None:  # no gradient is a gradient of zeros
            x = z if y is None else y
            return not np.any(x.values) or self._moves(i, runs)
        if y.shape != z.shape or y.dtype is not z.dtype:
            return False
        if not z.dtype.is_float:
            return np.array_equal(y.array, z.array) or self._moves(i, runs)
        if _near(y, z, self._compute_bound(i)):  # often before any noise is known
            return True
        self._run(runs)
        if _near(y, z, self._compute_bound(i), self._find_overflow(i)):
            return True
        if runs > 1 and self._moves(i, runs):
            self.unstable += 1
            return True
        return False

    def _run(self, runs: int) -> None:
        while len(self._runs) < runs:
            self._runs.append(self._noisy(len(self._runs)))

    def _compute_bound(self, i: int) -> float:
        z = self.reference[i]
        if z is None or not z.dtype.is_float or not z.array.size:
            return 0.0
        wide = _wide(z)
        moved = max((_largest(_apart(_wide(run[i]), wide)) for run in self._runs if run[i] is not None), default=0.0)
        return self.factor * moved + 4 * EPS[z.dtype] * _largest(wide) + TINY[z.dtype]

    def _find_overflow(self, i: int) -> Any:
        """Returns where the reference is infinite or NaN and float64 is not: a narrow type overflowed on the way."""
        z = self.reference[i]
        if self._wide is None or z is None or z.dtype is DType.F64 or np.isfinite(z.values).all():
            return False
        if self._wide_results is None:
            self._wide_results = self._wide()
        wide = self._wide_results[i]
        return False if wide is None or wide.shape != z.shape else ~np.isfinite(z.values) & np.isfinite(wide.values)

    def _moves(self, i: int, runs: int) -> bool:
        """Returns whether noise alone changes this result beyond comparison."""
        self._run(runs)
        z = self.reference[i]
        for run in self._runs:
            y = run[i]
            if (y is None) != (z is None):
                return True
            if z is None or y is None:
                continue
            if y.shape != z.shape:
                return True
            if not z.dtype.is_float:
                if not np.array_equal(y.array, z.array):
                    return True
                continue
            a, b = _wide(y), _wide(z)
            if not np.array_equal(np.isfinite(a), np.isfinite(b)):
                return True
            if _largest(_apart(a, b)) > UNSTABLE[z.dtype] * max(_largest(b), TINY[z.dtype]):
                return True
        return False

    def _describe_difference(self, i: int, y: TensorData | None, bound: float | None) -> str:
        z = self.reference[i]
        what = self.names[i]
        if y is None or z is None:
            return f"{what}: {_show_start(y)}, expected {_show_start(z)}"
        if y.shape != z.shape or y.dtype is not z.dtype:
            return f"{what}: {y.dtype} {y.shape}, expected {z.dtype} {z.shape}"
        a, b = _wide(y), _wide(z)
        with np.errstate(all="ignore"):
            distance = np.asarray(np.nan_to_num(np.abs(a - b), nan=np.inf))
        distance[np.isnan(a) & np.isnan(b)] = 0
        distance[a == b] = 0
        worst = np.unravel_index(int(np.argmax(distance)), a.shape)
        allowed = "the same bits are expected" if bound is None else f"{bound:.3g} allowed"
        place = tuple(map(int, worst))
        return f"{what}: at {place} {a[worst]!r}, expected {b[worst]!r}; off by {distance[worst]:.3g}, {allowed}"


_LARGE_F16: Final = 2.0**12
"""A sixteenth of the largest half."""


def _near(y: TensorData, z: TensorData, bound: float, unknown: Any = False) -> bool:
    a, b = _wide(y), _wide(z)
    with np.errstate(all="ignore"):
        near = (np.abs(a - b) <= bound) | (a == b)
    near |= ~np.isfinite(a) & ~np.isfinite(b)  # of infinities a mean is NaN or infinite, by the way it is summed
    if z.dtype is DType.F16:  # a kernel computes in float32: what is infinite on the way here may fit there
        near |= np.isinf(b) & np.isfinite(a) & (np.abs(a) >= _LARGE_F16) & (np.sign(a) == np.sign(b))
    return bool((near | unknown).all())


def _show_start(x: TensorData | None) -> str:
    return "no gradient" if x is None else f"{x.values.ravel()[:4].tolist()}..."


def _wide(x: TensorData) -> Any:
    return np.asarray(x.values, np.float64)


def _apart(y: Any, z: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.abs(y - z)


def _largest(x: Any) -> float:
    """The largest finite absolute value; 0 where there is none."""
    with np.errstate(all="ignore"):
        x = np.abs(x)
        x = x[np.isfinite(x)]
    return float(x.max()) if x.size else 0.0
