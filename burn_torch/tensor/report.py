"""How close two tensors are, told in words."""

from __future__ import annotations

import sys

from burn_torch.core.errors import ShapeError
from burn_torch.core.frames import told
from burn_torch.core.misfits import word_functions
from burn_torch.tensor.apply import require_tensor
from burn_torch.tensor.tensor import Tensor

__all__ = ["check_closeness"]

_RULE = "=" * 31


def check_closeness(output: Tensor, expected: Tensor) -> None:
    """Prints, for tolerances from 1e-1 to 1e-8, how many elements of `output` are close to the expected ones.

    An element is close if |output - expected| <= tolerance + tolerance * |expected|; two NaN are not.
    Shapes: both the same.  PyTorch: torch.testing.assert_close reports likewise, and raises.
    """
    require_tensor(output, "output")
    require_tensor(expected, "expected")
    if output.shape != expected.shape:
        raise told(
            ShapeError,
            "the shapes differ",
            given=f"output {output.spec}, expected {expected.spec}",
            expected="one shape",
            mend="compare tensors of equal shape: x.reshape(y.shape)",
        )
    lines = ["Tensor Closeness Check Results:", _RULE]
    count = output.num_elements()
    for exponent in range(1, 9):
        tolerance = 10.0**-exponent
        close = int(output.is_close(expected, tolerance, tolerance).int().sum().item())
        percent = 100.0 * close / count if count else 100.0
        lines += [
            f"Epsilon: 1e-{exponent}",
            f"  Close elements: {close}/{count} ({percent:.2f}%)",
            f"  {_judge(percent)}",
            "",
        ]
    sys.stdout.write("\n".join([*lines, "Closeness check complete.", ""]))


def _judge(percent: float) -> str:
    if percent == 100.0:
        return "[PASS] All elements are within tolerance"
    return "[WARN] Most elements are within tolerance" if percent >= 90.0 else "[FAIL] Significant differences detected"


word_functions(globals())
