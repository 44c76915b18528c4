"""A kernel with a loop runs for users under TRITON_INTERPRET=1, whose interpreter these tests have not mended."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import triton

from burn_kernels.interpreting import is_known

PROGRAM = """
import sys, warnings
import numpy as np, torch
before = np.geterr()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import burn_kernels
    from triton.runtime import interpreter
    untouched = interpreter._patch_lang_tensor
    from burn_kernels import reduce
    assert interpreter._patch_lang_tensor is untouched  # an import changes nothing
    for x in (torch.randn(70, 300, generator=torch.Generator().manual_seed(1)), torch.full((4, 300), torch.inf)):
        torch.testing.assert_close(reduce.sum(x, 0), x.sum(0), rtol=1e-5, atol=1e-5)
        np.seterr(all="raise")
notices = [w for w in caught if "Triton's interpreter" in str(w.message)]
print(len(notices), *(w.lineno for w in notices), *(w.filename for w in notices))
"""


def test_a_loop_runs_in_the_interpreter_of_a_user_and_what_is_changed_is_said_once() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    expected = "1 13 <string>" if is_known(triton.__version__, np.__version__) else "0"
    assert run.stdout.split("\n")[-2] == expected, run.stdout


@pytest.mark.parametrize("versions", [("3.6.0", "2.3.9"), ("3.5.1", "2.4.0"), ("3.7.0", "2.4.0")])
def test_versions_that_were_not_read_are_left_as_they_are(versions: tuple[str, str]) -> None:
    assert not is_known(*versions)
