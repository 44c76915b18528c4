"""The launches of launchers compile ahead of time for CUDA and ROCm, without a GPU and without register spills."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from burn_kernels import (
    REGISTRY,
    activation,
    attention,
    batch_norm,
    convolution,
    cross_entropy,
    dropout,
    embedding,
    glu,
    group_norm,
    lattice,
    lion,
    matmul,
    norm,
    optimizer,
    random,
    reduce,
    residual_norm,
    rope,
    softmax,
)
from burn_kernels.ahead import compile_launch, resources
from burn_kernels.convolution.configs import tile_candidates, tile_weight_candidates
from burn_kernels.launch import A100, H200, MI300X, Launch, Machine, recorded, recording

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("Triton cannot compile ahead of time in a process of its interpreter", allow_module_level=True)

MACHINES = [H200, A100, MI300X]
WIDTHS = (49, 1024, 5120, 16384, 32768, 50257)
Meta = Callable[..., torch.Tensor]


@pytest.fixture(autouse=True, scope="module")
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of this module's own, so that what is compiled is what the source says now."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("triton")
        patch.setenv("TRITON_CACHE_DIR", str(folder))
        yield folder


def meta(dtype: torch.dtype) -> Meta:
    return lambda *shape, of=dtype: torch.empty(shape, dtype=of, device="meta")


def softmax_calls(new: Meta, cols: int) -> None:
    x = new(8192, cols)
    for forward, backward in ((softmax.forward, softmax.backward), (softmax.log_forward, softmax.log_backward)):
        backward(x, forward(x))


def norm_calls(new: Meta, cols: int) -> None:
    x, w = new(8192, cols), new(cols)
    _, mean, rstd = norm.layer_norm(x, w, w)
    norm.layer_norm_backward(x, x, w, mean, rstd)
    norm.rms_norm_backward(x, x, w, norm.rms_norm(x, w)[1])
    norm.layer_norm(x, None, None)


def residual_norm_calls(new: Meta, cols: int) -> None:
    x, w, s = new(8192, cols), new(cols), new(8192, 1, of=torch.float32)
    for prob in (0.0, 0.1):
        residual_norm.layer_norm(x, x, w, w, prob=prob)
        residual_norm.rms_norm(x, x, w, prob=prob)
        residual_norm.layer_norm_backward(x, x, x, w, s, s, prob=prob)
        residual_norm.rms_norm_backward(x, x, x, w, s, prob=prob)


def cross_entropy_calls(new: Meta, cols: int) -> None:
    x, targets = new(8192, cols), new(8192, of=torch.int64)
    cross_entropy.forward_with_gradient(x, targets)
    loss, lse = cross_entropy.forward(x, targets, smoothing=0.1)
    cross_entropy.backward(loss, x, targets, lse, smoothing=0.1)
    weights, z = new(cols, of=torch.float32), new(of=torch.float32)
    cross_entropy.forward_with_gradient(x, targets, weight=weights, smoothing=0.1, z_loss=z)


def elementwise_calls(new: Meta) -> None:
    x = new(4096, 14336)
    for kind in glu.ACTIVATIONS:
        glu.backward(x, x, glu.forward(x, x, kind=kind), kind=kind)
    for kind in activation.KINDS:
        activation.backward(x, activation.forward(x, kind=kind), kind=kind)
    dropout.forward(x, 0.1, 2**62 + 1, 2**61 + 1)
    key = new(of=torch.int64)
    dropout.forward(x, 0.1, key, 2**61 + 1)
    random.bits(key, 2**61 + 1, 0, 4097, x.device)
    random.yes((4096, 33), 1 << 31, 1.0, key, key, x.dtype, x.device)


def lattice_calls(new: Meta) -> None:
    for moves, states in ((3, 129), (2, 2049)):
        lattice.log_band_scan(new(8, states), new(8, 64, moves, states))
        lattice.band_scan(new(8, 65, states), new(8, 64, moves, states))


def optimizer_calls(new: Meta) -> None:
    group = [new(1000, 768), new(77)]
    copies = [new(1000, 768, of=torch.bfloat16), new(77, of=torch.bfloat16)]
    clip = new(of=torch.float32)
    optimizer.adamw(group, group, group, group, lr=0.1, step=3)
    table = optimizer.table(group, group, group, group, copies=copies, in_place=True)
    optimizer.adamw_(table, lr=0.1, step=3, clip=clip)
    optimizer.adamw(group, group, group, group, lr=0.1, step=3, coupled=True)
    lion.lion_(optimizer.table(group, group, group, copies=copies, in_place=True), lr=0.1, clip=clip)
    for op in (op for spec in REGISTRY.values() for op in spec.complete_operators()):
        first, *others = op.arguments()
        if op.arguments()[first] == "Tensor[]":
            options = {name: {"most": 1.0, "order": float("inf")}[name] for name in others}
            op.launchers()[0](group, **options)
    optimizer.sgd(group, group, lr=0.1)
    optimizer.sgd(group, group, group, lr=0.1, momentum=0.9, nesterov=True, clip=clip)


def rope_calls(new: Meta) -> None:
    q, k, table, steps = (
        new(2, 512, 32, 128),
        new(2, 512, 8, 128),
        new(512, 64, of=torch.float32),
        rope.turns(80, device="meta"),
    )
    for interleaved in (False, True):
        rope.forward(q, k, table, table, interleaved=interleaved)
        rope.backward_computed(q, k, steps, interleaved=interleaved)
    rope.forward(new(2, 32, 512, 128).transpose(1, 2), new(2, 8, 512, 128).transpose(1, 2), table, table)
    rope.forward(new(2, 512, 13 * 71)[..., 71:].view(2, 512, 12, 71), None, table[:, :20], table[:, :20])


DIMS = (0, 1, None)


def reduce_calls(new: Meta) -> None:
    for at, kind in enumerate(reduce.KINDS):  # each kind along one, each of these by two or three kinds
        getattr(reduce, kind)(new(4096, 5120), DIMS[at % len(DIMS)])
    x, y, middle = new(4096, 5120), new(4096), new(4096, of=torch.float32)
    reduce.var_backward(y, x, middle, 1)
    reduce.logsumexp_backward(y, x, reduce.logsumexp(x, 1)[1], 1)
    reduce.extreme_backward(y, x, y, 1)
    images, channels = new(32, 130, 28, 28), new(130)
    reduce.var(images, (0, 2, 3))
    reduce.sum(new(1000, 77, 3), 1)
    reduce.var_backward(channels, images, new(130, of=torch.float32), (0, 2, 3))


def every_reduction(new: Meta) -> None:
    for kind in reduce.KINDS:
        for dim in DIMS:
            getattr(reduce, kind)(new(4096, 5120), dim)


def attention_calls(new: Meta) -> None:
    q, k, lse = new(2, 8, 1024, 64), new(2, 2, 1024, 64), new(2, 8, 1024, of=torch.float32)
    attention.forward(q, k, k, causal=True)
    attention.backward(q, q, k, k, None, None, q, lse, causal=True)
    attention.forward(q, q, q, new(2, 1, 1, 1024, of=torch.bool), new(1, 8, 1024, 1024))


def attention_rule_calls(new: Meta) -> None:
    # heads of 64 columns, padded ones, and in half types wide ones; shared keys; each thing that changes the scores
    wide = (128,) if new().dtype != torch.float32 else ()
    rules: list[dict[str, Any]] = [{"causal": True}, {"window": 256}, {"softcap": 30.0, "causal": True}]
    for dim in (64, *wide):
        q, k, lse = new(2, 8, 1024, dim), new(2, 2, 1024, dim), new(2, 8, 1024, of=torch.float32)
        for rule in rules if dim == 64 else rules[:1]:
            attention.forward(q, k, k, **rule)
            attention.backward(q, q, k, k, None, None, q, lse, **rule)
    # rows of the bias that begin at multiples of 16 elements, and that do not
    for seq, dim in ((1024, 40), (1000, 64)):
        q, mask, bias = new(2, 8, seq, dim), new(2, 1, 1, seq, of=torch.bool), new(1, 8, seq, seq)
        attention.forward(q, q, q, mask, bias)
        attention.backward(q, q, q, q, mask, bias, q, new(2, 8, seq, of=torch.float32))


def packed_attention_calls(new: Meta) -> None:
    q, k, starts = new(5000, 8, 64), new(5000, 2, 64), new(9, of=torch.int32)
    rule: Any = {"longest_q": 1024, "longest_k": 1024, "causal": True, "prob": 0.1, "key": 2**62 + 1, "stream": 3}
    attention.forward_packed(q, k, k, starts, starts, **rule)
    lse = new(8, 5000, of=torch.float32)
    attention.backward_packed(q, q, k, k, starts, starts, q, lse, **rule)


def embedding_calls(new: Meta) -> None:
    indices = new(4, 512, of=torch.int64)
    embedding.backward(new(4, 512, 4096), indices, rows=50_257)
    embedding.backward(new(4, 512, 77), indices, rows=50_257, padding_idx=3, scale_by_frequency=True)


LAYER = {"none": (False, False), "gelu": (True, True), "gelu_tanh": (False, True), "silu": (True, False)}
"""By activation: with a residual, with z kept."""


def matmul_calls(new: Meta) -> None:
    x, w, bias, y = new(2048, 768), new(3072, 768), new(3072), new(2048, 3072)
    matmul.forward_kept(x, w, bias, y, kind="gelu")
    matmul.slope_and_bias(y, y, kind="gelu")
    recorder = recorded()
    assert recorder is not None
    config = matmul.tiles(2048, 3072, x.element_size(), recorder)[0]  # what the tuner may choose instead
    matmul.forward_kept(x, new(768, 3072).T, bias, kind="gelu", config=config)


def every_tile(new: Meta) -> None:
    x, w, bias, y = new(2048, 768), new(3072, 768), new(3072), new(2048, 3072)
    recorder = recorded()
    assert recorder is not None
    for kind, (residual, kept) in LAYER.items():
        flags = f"{kind}{' residual' if residual else ''}{' kept' if kept else ''}"
        for config in matmul.tiles(2048, 3072, x.element_size(), recorder, flags=flags):
            run = matmul.forward_kept if kept else matmul.forward
            run(x, w, bias, y if residual else None, kind=kind, config=config)
        matmul.slope_and_bias(y, None if kind == "none" else y, kind=kind)


def batch_norm_calls(new: Meta) -> None:
    shapes: list[tuple[tuple[int, ...], str]] = [((256, 64, 56, 56), "relu"), ((64, 8, 26, 26), "silu")]
    for shape, kind in shapes:
        x, v = new(*shape), new(shape[1], of=torch.float32)
        for images in (x, x.movedim(1, -1).contiguous().movedim(-1, 1)):
            kept = batch_norm.forward(images, v, v, v, v, activation=kind)[1:3]
            batch_norm.backward(images, images, v, v, *kept, activation=kind)
    batch_norm.evaluate(x, v, v, v, v)
    batch_norm.evaluate_backward(x, x, None, v, v, v)
    x, v = new(256, 512, 7, 7), new(512, of=torch.float32)  # channels that are held
    batch_norm.backward(x, x, v, v, *batch_norm.forward(x, v, v, activation="relu")[1:3], activation="relu")
    x = new(64, 256)  # one launch
    batch_norm.backward(x, x, None, None, *batch_norm.forward(x, None, None)[1:3])


def group_norm_calls(new: Meta) -> None:
    x, v = new(8, 320, 64, 64), new(320, of=torch.float32)
    for images in (x, x.movedim(1, -1).contiguous().movedim(-1, 1)):
        _, *kept = group_norm.forward(images, v, v, 32, activation="silu")
        group_norm.backward(images, images, v, v, *kept, activation="silu")
    group_norm.forward(new(64, 256, 7, 7), None, None, 256)
    group_norm.forward(new(64, 256, 8, 8), new(256), new(256), 32)  # one launch


def convolution_calls(new: Meta, *, tiles: bool = False) -> None:
    def both(x: torch.Tensor, w: torch.Tensor, **options: Any) -> None:
        b = new(w.shape[0])
        y, passed = convolution.forward(x, w, b, **options)
        convolution.backward(y, x, w, b, y, passed, **options)

    if not tiles:
        both(new(64, 1, 28, 28), new(8, 1, 3, 3), prob=0.5, key=2**62 + 1, stream=2**61 + 1)
        both(new(64, 8, 26, 26), new(16, 8, 3, 3), relu=True, pool="mean", window=3, prob=0.5, key=1, stream=2)
        both(new(64, 8, 26, 26), new(16, 8, 3, 3), relu=True, pool="max")
        both(new(32, 32, 56, 56), new(32, 1, 3, 3), groups=32, padding=1)
    both(new(1, 3, 64, 64), new(16, 3, 7, 7), stride=2, padding=3)


ROW_WISE = {
    "softmax": softmax_calls,
    "norm": norm_calls,
    "residual_norm": residual_norm_calls,
    "cross_entropy": cross_entropy_calls,
}
OTHERS = {
    "elementwise": elementwise_calls,
    "optimizer": optimizer_calls,
    "rope": rope_calls,
    "reduce": reduce_calls,
    "batch_norm": batch_norm_calls,
    "convolution": convolution_calls,
    "group_norm": group_norm_calls,
    "embedding": embedding_calls,
    "lattice": lattice_calls,
    "attention": attention_calls,
    "matmul": matmul_calls,
}
CASES: dict[str, Callable[..., None]] = {
    f"{name}-{cols}": functools.partial(call, cols=cols) for name, call in ROW_WISE.items() for cols in WIDTHS
}
CASES |= OTHERS
AS_OTHERS = {"softmax-1024", "softmax-5120", "softmax-32768", "norm-1024", "residual_norm-1024", "residual_norm-5120"}
AS_OTHERS |= {"residual_norm-32768", "cross_entropy-1024", "cross_entropy-5120", "cross_entropy-32768"}
"""The same kernels as other widths run, and no more of a row in registers: among the slow tests."""
SLOW: dict[str, Callable[..., None]] = {
    "attention with all": attention_rule_calls,
    "attention, packed": packed_attention_calls,
    "every reduction": every_reduction,
}
"""Cases that take minutes to compile."""
PARTS: dict[str, Callable[..., None]] = {"convolution of tiles": functools.partial(convolution_calls, tiles=True)}
"""The parts of cases that multiply matrices."""


def launched(call: Callable[..., None], dtype: torch.dtype, machine: Machine) -> list[Launch]:
    with recording(machine) as launches:
        call(meta(dtype))
    assert launches
    return launches


def spilled(call: Callable[..., None], dtype: torch.dtype, machine: Machine) -> dict[str, int]:
    spills = {}
    for launch in launched(call, dtype, machine):
        taken = resources(compile_launch(launch, machine))
        assert taken.registers > 0
        if taken.spills:
            spills[f"{launch.kernel.fn.__name__} {launch.constants}"] = taken.spills
    return spills


@pytest.mark.parametrize("case", [case for case in CASES if case not in AS_OTHERS])
def test_defaults_compile_for_hopper_without_spills(case: str) -> None:
    assert spilled(CASES[case], torch.bfloat16, H200) == {}


@pytest.mark.parametrize(
    ("machine", "case"),
    [
        # what multiplies matrices is other code there, and rows have other limits; all else is among the slow tests
        *((A100, case) for case in ("norm-50257", "attention", "convolution of tiles", "matmul")),
        *((MI300X, case) for case in ("norm-50257", "residual_norm-5120")),  # which holds a norm's row and one more
        *(pytest.param(MI300X, case, marks=pytest.mark.slow) for case in ("cross_entropy-50257", *OTHERS)),
    ],
    ids=lambda value: str(value.arch) if isinstance(value, Machine) else value,
)
def test_defaults_compile_elsewhere_without_spills(case: str, machine: Machine) -> None:
    assert spilled((CASES | PARTS)[case], torch.bfloat16, machine) == {}


@pytest.mark.slow
@pytest.mark.parametrize("case", [*CASES, *SLOW])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: str(machine.arch))
def test_defaults_compile_everywhere_in_every_type(case: str, dtype: torch.dtype, machine: Machine) -> None:
    assert spilled((CASES | SLOW)[case], dtype, machine) == {}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: str(machine.arch))
def test_every_tile_of_a_product_compiles_without_spills(dtype: torch.dtype, machine: Machine) -> None:
    # candidates, none a default: two numbers of the largest tiles may go to memory once, after all products
    assert {kernel: size for kernel, size in spilled(every_tile, dtype, machine).items() if size > 8} == {}


def convolution_tiles(machine: Machine, new: Meta) -> None:
    x, w, dy = new(64, 8, 26, 26), new(16, 8, 3, 3), new(64, 16, 24, 24)
    for config in tile_candidates(8, 16, 9, machine):
        convolution.forward(x, w, new(16), config=config)
        convolution.backward(dy, x, w, new(16), config=config)


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: str(machine.arch))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_planes_of_other_sides_compile_without_spills(machine: Machine, dtype: torch.dtype) -> None:
    def planes(new: Meta) -> None:
        for side, kernel in ((28, 7), (14, 5), (7, 3)):
            x, w, b = new(8, 32, side, side), new(32, 1, kernel, kernel), new(32)
            options: dict[str, Any] = {"padding": kernel // 2, "groups": 32}
            convolution.forward(x, w, b, **options)
            convolution.backward(x, x, w, b, **options)

    assert spilled(planes, dtype, machine) == {}


@pytest.mark.slow
@pytest.mark.parametrize("machine", [H200, A100], ids=lambda machine: str(machine.arch))
def test_tiles_of_a_stem_compile_without_spills(machine: Machine) -> None:
    def stem(new: Meta) -> None:
        x, w, b = new(32, 3, 224, 224), new(64, 3, 7, 7), new(64)
        geometry = convolution.geometry("", x, w, b, 2, 3, 1, 1)
        config = tile_candidates(3, 64, 49, machine)[0]
        y, _ = convolution.forward(x, w, b, stride=2, padding=3, config=config)
        weights = tile_weight_candidates(geometry, machine)[0]
        convolution.backward(y, x, w, b, stride=2, padding=3, needs=(False, True, True), weight_config=weights)

    assert spilled(stem, torch.float32, machine) == {}


@pytest.mark.slow
@pytest.mark.parametrize("machine", [H200, A100], ids=lambda machine: str(machine.arch))
def test_tiles_of_convolutions_in_tf32_compile_without_spills(machine: Machine) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert spilled(functools.partial(convolution_tiles, machine), torch.float32, machine) == {}
    finally:
        torch.set_float32_matmul_precision(before)


def candidates(cols: int, machine: Machine) -> Iterator[tuple[str, Callable[[Any], Any], list[Any]]]:
    new = meta(torch.bfloat16)
    x, w, s, targets = new(8192, cols), new(cols), new(8192, 1, of=torch.float32), new(8192, of=torch.int64)
    yield "softmax", lambda c: softmax.forward(x, config=c), softmax.candidates(cols, 2, machine)
    back = softmax.candidates(cols, 2, machine, backward=True)
    yield "softmax backward", lambda c: softmax.backward(x, x, config=c), back
    yield "layer_norm", lambda c: norm.layer_norm(x, w, w, config=c), norm.candidates(cols, 2, machine)
    for centred in (False, True):
        configs = norm.backward_candidates(cols, 2, machine, centred=centred)
        yield "norm backward", lambda c: norm.layer_norm_backward(x, x, w, s, s, config=c), configs
    yield (
        "residual",
        lambda c: residual_norm.layer_norm(x, x, w, w, config=c),
        residual_norm.candidates(cols, 2, machine),
    )
    found_back = residual_norm.backward_candidates(cols, 2, machine)
    yield "residual back", lambda c: residual_norm.layer_norm_backward(x, x, x, w, s, s, prob=0.1, config=c), found_back
    found_ce = cross_entropy.candidates(cols, 2, machine, gradient=True, once=True)
    yield "cross_entropy", lambda c: cross_entropy.forward_with_gradient(x, targets, config=c), found_ce


@pytest.mark.slow
@pytest.mark.parametrize("cols", WIDTHS)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: str(machine.arch))
def test_every_candidate_compiles(cols: int, machine: Machine) -> None:
    for name, run, configs in candidates(cols, machine):
        assert len(configs) == len(set(configs)), name
        for config in configs:
            with recording(machine) as launches:
                run(config)
            for launch in launches:
                compile_launch(launch, machine)


def test_products_of_float32_gradients_are_summed_apart() -> None:
    # a compiler that took the addition behind a product into it would make one long sum of all blocks again
    recorded = [x for x in launched(CASES["attention"], torch.float32, H200) if x.kernel.fn.__name__ == "keys_backward"]
    code = str(compile_launch(recorded[0], H200).asm["ttgir"])
    products = [line for line in code.splitlines() if "tt.dot " in line]
    assert (
        len(products) == 2 * 4 + 2
    )  # without a window, and unsplit: two over columns in four sums each, two over keys
    for line in products:
        assert re.search(r", %cst\w* : ", line), line
    assert code.count("math.fma") == 2 * 3 + 2


@pytest.mark.parametrize("added", [pytest.param("bias", id="bias"), pytest.param("", marks=pytest.mark.slow)])
def test_products_on_hopper_do_not_wait_for_each_other(added: str, tmp_path: Path) -> None:
    # where a loop's sums may come from beside it too, ptxas waits for every product (C7515): a quarter of the time
    from triton import knobs

    def backward(new: Meta) -> None:
        q, bias = new(2, 8, 1024, 64), new(1, 8, 1024, 1024) if added else None
        for causal in (False, True):
            lse = new(2, 8, 1024, of=torch.float32)
            attention.backward(q, q, q, q, None, bias, q, lse, causal=causal, bias_gradient=False)

    for number, launch in enumerate(launched(backward, torch.bfloat16, H200)):
        code, binary = tmp_path / f"{number}.ptx", tmp_path / f"{number}.cubin"
        code.write_text(compile_launch(launch, H200).asm["ptx"])
        command = [knobs.nvidia.ptxas.path, "-v", "--gpu-name=sm_90a", str(code), "-o", str(binary)]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        assert "Used" in report
        assert "serialized" not in report, launch.kernel.fn.__name__


def text(case: str, kernel: str) -> str:
    dtype = torch.float32 if case == "optimizer" else torch.bfloat16
    # of a loss the first one that writes a gradient
    recorded = (x for x in launched(CASES[case], dtype, H200) if x.kernel.fn.__name__ == kernel)
    launch = next(x for x in recorded if x.constants.get("GRADIENT", True))
    return str(compile_launch(launch, H200).asm["ptx"])


@pytest.mark.parametrize(
    ("case", "kernel"),
    [
        ("softmax-50257", "_forward_wide"),
        ("softmax-50257", "_backward_wide"),
        ("norm-50257", "_forward_wide"),
        ("cross_entropy-50257", "cross_entropy_rows"),
        ("cross_entropy-50257", "cross_entropy_held"),
        ("optimizer", "_adamw"),
        ("elementwise", "_dropout"),
        ("rope", "_rope"),
    ],
)
def test_rows_that_begin_anywhere_move_in_16_byte_accesses(case: str, kernel: str) -> None:
    code = text(case, kernel)
    loads = [line for line in code.splitlines() if re.search(r"ld\.global.*\.v4\.b32|cp\.async\.cg.* 0x10", line)]
    stores = [line for line in code.splitlines() if "st.global" in line and ".v4.b32" in line]
    assert loads
    assert stores


def test_a_spill_is_seen() -> None:
    # a tile of 16384 float32 columns with two running sums a column does not fit 64 registers a thread
    whole = norm.BackwardConfig(1, 16_384, 32, 1, 1)
    new = meta(torch.bfloat16)
    x, w, s = new(64, 16_384), new(16_384), new(64, 1, of=torch.float32)
    with recording(H200) as launches:
        norm.layer_norm_backward(x, x, w, s, s, config=whole)
    assert resources(compile_launch(launches[0], H200)).spills > 0


def test_a_recording_ends() -> None:
    with recording(H200) as launches:
        softmax.forward(torch.ones(2, 3))
    assert len(launches) == 1
    assert torch.equal(softmax.forward(torch.ones(2, 4)), torch.full((2, 4), 0.25))
    assert len(launches) == 1
