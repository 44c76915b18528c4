"""A family that is added, one module and one line: it has a launcher, an operator, problems, a check and a row."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAMILY = '''
"""y = x |x|."""
import torch
from burn_kernels.launch import FLOATS, launch, runs_kernel
from burn_kernels._triton import tl, triton
from burn_kernels.operators import Operator, like
from burn_kernels.spec import KernelSpec, Problem, Row, register


@triton.jit
def _signed_square(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count).to(tl.float32)
    tl.store(y_ptr + at, x * tl.abs(x), mask=at < count)


def forward(x):
    x = x.contiguous()
    if not x.numel() or not runs_kernel("signed_square", x):
        return reference(x)
    y = torch.empty_like(x)
    launch(_signed_square, (-(-x.numel() // 1024),), x, x, y, x.numel(), warps=4, BLOCK=1024)
    return y


def reference(x):
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return (wide * wide.abs()).to(x.dtype)


def gradient(dy, inputs, outputs):
    (x,) = inputs
    return ((2 * x.abs().to(torch.promote_types(x.dtype, torch.float32)) * dy).to(x.dtype),)


SPEC = register(KernelSpec(
    name="signed_square",
    forward=forward,
    reference=reference,
    gradient=gradient,
    reference_gradient=gradient,
    twin=lambda x: x.sign() * x.square(),
    bytes_moved=lambda x, backward=False: (3 if backward else 2) * x.numel() * x.element_size(),
    flops=lambda x, backward=False: 2 * x.numel(),
    problems=lambda draw: [Problem((draw.normal(*shape),)) for shape in ((5, 7), (0, 3), (1300,))],
    large=lambda draw: [Problem((draw.normal(64, 1024),))],
    dtypes=FLOATS,
    limits="none in size; float64 on a GPU",
    draw_call=lambda draw: (draw.rows(draw.width()),),
    operators=(
        Operator(
            schema="signed_square(Tensor x) -> Tensor", inputs="x", fake=like, gradients="x", saved="x", far="x"
        ),
    ),
    rows=(
        Row(
            tag="8192x4096",
            inputs=lambda draw: (draw.random(draw.SIZES.rows, 64),),
            ours=lambda x: lambda: forward(x),
            eager=lambda x: x * x.abs(),
        ),
    ),
))
'''
PROGRAM = """
import argparse, sys
import burn_kernels
from burn_kernels import registry

burn_kernels.__path__.append(sys.argv[1])  # the module lies beside the others
registry.FAMILIES += ("signed_square",)  # the one line

import torch
import burn_kernels.torch as bk
from burn_kernels import REGISTRY, verify
from burn_kernels.launch import H200, recording
from burn_kernels.spec import Draw

spec = REGISTRY["signed_square"]
for many in (spec.problems, spec.large):
    for problem in many(Draw(0)):
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            assert verify(spec, problem, dtype=dtype) == []
with recording(H200) as launches:
    spec.forward(torch.empty(3, 1000, device="meta"))
assert [launch.grid for launch in launches] == [(3,)]

op = torch.ops.burn_kernels.signed_square
x = torch.linspace(-2.0, 2.0, 12, dtype=torch.float64).view(3, 4).requires_grad_()
assert torch.autograd.gradcheck(op, (x,)) and torch.autograd.gradgradcheck(op, (x,))
assert set(torch.library.opcheck(op.default, (x,)).values()) == {"SUCCESS"}
schemas = [schema for schema in map(str, torch._C._jit_get_all_schemas()) if "signed_square" in schema]
assert sorted(schemas) == [
    "burn_kernels::signed_square(Tensor x) -> Tensor",
    "burn_kernels::signed_square_backward(Tensor dy, Tensor x) -> Tensor",
]
report = bk.check(ops=["signed_square"], shapes=4)
assert report.ok and [finding.op for finding in report.findings] == ["signed_square"] * 4

from benchmarks._kernels import own, problems, rivals
from benchmarks._kernels.large import large

assert len(list(large("signed_square", Draw(0)))) == 1
assert rivals.CHOSEN["signed_square 8192x4096"] == ("f",)
problems.SIZES.device, problems.SIZES.rows = "cpu", 4
(case,) = own.OWN["signed_square"](argparse.Namespace(no_compile=True))
assert (case.name, case.passed, set(case.variants)) == ("signed_square 8192x4096", "f", {"ours", "eager"})
torch.testing.assert_close(case.variants["ours"](), case.variants["eager"]())
"""


def test_a_family_is_a_module_and_a_line(tmp_path: Path) -> None:
    (tmp_path / "signed_square.py").write_text(FAMILY)
    paths = [str(ROOT), str(ROOT / "kernels"), *sys.path]
    here = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=here, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
