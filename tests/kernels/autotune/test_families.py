"""Every launcher asks its tunable, and says of the call what is so: the key of each is checked word for word."""

from __future__ import annotations

import functools
from collections.abc import Callable
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
from burn_kernels.autotune.cost import Work, predict
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.tunable import TUNABLES, Tunable, tunable
from burn_kernels.errors import KernelArgumentError
from burn_kernels.launch import A100, H200, MI300X, recording
from burn_kernels.spec import Draw
from burn_kernels.verification import cast
from tests.kernels import launch_record

Asked = Callable[[Callable[[], Any]], list[str]]
TARGETS = torch.zeros(6, dtype=torch.int64)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Runs launchers without launching; gives the keys of the choices that they made."""
    keys = list[str]()
    original = Tunable.run

    def run(
        self: Tunable, like: torch.Tensor, config: Any, call: tuple[Any, ...], launch: Callable[[Any], object]
    ) -> object:
        keys.append(self.key(self.facts(*call)))
        hash(call)
        return original(self, like, config, call, launch)

    monkeypatch.setattr(Tunable, "run", run)

    def through(work: Callable[[], Any]) -> list[str]:
        with recording(H200) as launches:
            work()
        assert launches
        return keys

    return through


def x(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def group(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [x(10_000, dtype=dtype), x(3, 4, dtype=dtype)]


S = torch.zeros(6, 1)
V = torch.zeros(3)
CONVOLUTION = (
    "channels=1 height=9 width=9 outs=8 kernel_h=3 kernel_w=3 stride_h=1 stride_w=1 pad_h=0 pad_w=0 dilation_h=1 "
    "dilation_w=1 groups=1"
)
DEPTHWISE = (
    "channels=3 height=9 width=8 outs=3 kernel_h=3 kernel_w=3 stride_h=1 stride_w=1 pad_h=1 pad_w=1 dilation_h=1 "
    "dilation_w=1 groups=3"
)
ANGLES = torch.zeros(3, 4)
STARTS, LSE = torch.tensor([0, 2, 6]), torch.zeros(2, 4, 40)
ONE, RATE = torch.zeros((), dtype=torch.int64), torch.zeros(())
BF = "bfloat16 packed align=16"
CASES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "softmax": (lambda: softmax.forward(x(5, 64)), [f"softmax rows<=8 cols=64 {BF}"]),
    "more axes": (lambda: softmax.forward(x(2, 3, 64)), [f"softmax rows<=8 cols=64 {BF}"]),
    "log": (lambda: softmax.log_forward(x(5, 64)), [f"log_softmax rows<=8 cols=64 {BF}"]),
    "back": (lambda: softmax.backward(x(5, 64), x(5, 64)), [f"softmax backward rows<=8 cols=64 {BF}"]),
    "log back": (lambda: softmax.log_backward(x(5, 64), x(5, 64)), [f"log_softmax backward rows<=8 cols=64 {BF}"]),
    "odd cols": (lambda: softmax.forward(x(5, 49)), ["softmax rows<=8 cols=49 bfloat16 packed align=2"]),
    "gaps": (
        lambda: softmax.forward(x(5, 80)[:, :64]),
        ["softmax rows<=8 cols=64 bfloat16 strided align=16"],
    ),
    "begins anywhere": (
        lambda: softmax.forward(x(6 * 64)[2 : 2 + 5 * 64].view(5, 64)),
        ["softmax rows<=8 cols=64 bfloat16 packed align=4"],
    ),
    "layer_norm": (
        lambda: norm.layer_norm(x(6, 64), x(64), x(64)),
        [f"layer_norm rows<=8 cols=64 {BF} w b"],
    ),
    "no weights": (lambda: norm.layer_norm(x(6, 64), None, None), [f"layer_norm rows<=8 cols=64 {BF}"]),
    "rms_norm": (lambda: norm.rms_norm(x(6, 64), x(64)), [f"rms_norm rows<=8 cols=64 {BF} w"]),
    "layer_norm back": (
        lambda: norm.layer_norm_backward(x(6, 64), x(6, 64), x(64), S, S),
        [f"layer_norm backward rows<=8 cols=64 {BF} w b"],
    ),
    "without bias": (
        lambda: norm.layer_norm_backward(x(6, 64), x(6, 64), None, S, S, bias=False),
        [f"layer_norm backward rows<=8 cols=64 {BF}"],
    ),
    "rms_norm back": (
        lambda: norm.rms_norm_backward(x(6, 64), x(6, 64), x(64), S),
        [f"rms_norm backward rows<=8 cols=64 {BF} w"],
    ),
    "cross_entropy": (
        lambda: cross_entropy.forward(x(6, 64), TARGETS),
        [f"cross_entropy rows<=8 cols=64 {BF} loss"],
    ),
    "smoothing": (
        lambda: cross_entropy.forward(x(6, 64), TARGETS, smoothing=0.1),
        [f"cross_entropy rows<=8 cols=64 {BF} loss smooth"],
    ),
    "with gradient": (
        lambda: cross_entropy.forward_with_gradient(x(6, 64), TARGETS),
        [f"cross_entropy rows<=8 cols=64 {BF} loss gradient"],
    ),
    "in place": (
        lambda: cross_entropy.forward_with_gradient_(x(6, 64), TARGETS),
        [f"cross_entropy rows<=8 cols=64 {BF} loss gradient over"],
    ),
    "cross_entropy weighted": (
        lambda: cross_entropy.forward(x(6, 64), TARGETS, smoothing=0.1, weight=x(64), z_loss=0.1),
        [f"cross_entropy rows<=8 cols=64 {BF} loss smooth weighted"],
    ),
    "cross_entropy back": (
        lambda: cross_entropy.backward(torch.zeros(()), x(6, 64), TARGETS, S[:, 0]),
        [f"cross_entropy rows<=8 cols=64 {BF} gradient"],
    ),
    "glu": (lambda: glu.forward(x(6, 64), x(6, 64)), [f"glu rows<=1 cols<=512 {BF} silu"]),
    "glu halves": (
        lambda: glu.forward(*x(6, 128).chunk(2, -1), kind="relu"),
        ["glu rows<=8 cols<=64 bfloat16 strided align=16 relu"],
    ),
    "glu back": (
        lambda: glu.backward(x(6, 64), x(6, 64), x(6, 64), kind="gelu"),
        [f"glu backward rows<=1 cols<=512 {BF} gelu"],
    ),
    "dropout": (lambda: dropout.forward(x(6, 64), 0.1, 2, 3), [f"dropout elements<=512 {BF}"]),
    "dropout with numbers on the device": (
        lambda: dropout.forward(x(6, 64), 0.1, ONE, ONE),
        [f"dropout elements<=512 {BF}"],
    ),
    "bits": (
        lambda: random.bits(2, 3, 0, 1000, torch.device("cpu")),
        ["random bits elements<=1024 int64 packed align=16"],
    ),
    "yes": (
        lambda: random.yes((6, 64), 9, 1.0, ONE, 3, torch.bfloat16, torch.device("cpu")),
        [f"random yes elements<=512 {BF}"],
    ),
    "yes or no": (
        lambda: random.yes((6, 64), 9, 1.0, 2, 3, torch.bool, torch.device("cpu")),
        ["random yes elements<=512 bool packed align=16"],
    ),
    "adamw": (
        lambda: optimizer.adamw(group(), group(), group(), group(), lr=0.1, step=1),
        ["adamw chunks<=4 chunk=8192 float32 packed align=16 g=float32 s=float32"],
    ),
    "adamw with numbers on the device": (
        lambda: optimizer.adamw_held(optimizer.table(group(), group(), group(), group()), RATE, RATE, RATE),
        ["adamw chunks<=4 chunk=8192 float32 packed align=16 g=float32 s=float32"],
    ),
    "adamw with copies": (
        lambda: optimizer.adamw_(
            optimizer.table(group(), group(torch.float16), group(), group(), copies=group(torch.bfloat16)),
            lr=0.1,
            step=1,
        ),
        ["adamw chunks<=4 chunk=8192 float32 packed align=16 g=float16 s=float32 copy=bfloat16"],
    ),
    "adamw anywhere": (
        lambda: optimizer.adamw([group()[0][1:]], [group()[0][1:]], [group()[0][1:]], [group()[0][1:]], lr=0.1, step=1),
        ["adamw chunks<=2 chunk=8192 float32 packed align=1 g=float32 s=float32"],
    ),
    "sgd": (
        lambda: optimizer.sgd(group(), group(), lr=0.1),
        ["sgd chunks<=4 chunk=8192 float32 packed align=16 g=float32"],
    ),
    "momentum": (
        lambda: optimizer.sgd(group(), group(), group(), lr=0.1, momentum=0.9),
        ["sgd chunks<=4 chunk=8192 float32 packed align=16 g=float32 s=float32"],
    ),
    "adam": (
        lambda: optimizer.adamw(group(), group(), group(), group(), lr=0.1, step=1, coupled=True),
        ["adamw chunks<=4 chunk=8192 float32 packed align=16 g=float32 s=float32"],
    ),
    "lion": (
        lambda: lion.lion(group(), group(), group(), lr=0.1),
        ["lion chunks<=4 chunk=8192 float32 packed align=16 g=float32 s=float32"],
    ),
    "activation": (lambda: activation.forward(x(6, 64)), [f"activation rows<=1 cols<=512 {BF} gelu"]),
    "activation strided": (
        lambda: activation.forward(x(6, 80)[:, :64], kind="relu"),
        ["activation rows<=8 cols<=64 bfloat16 strided align=16 relu"],
    ),
    "activation back": (
        lambda: activation.backward(x(6, 64), x(6, 64), kind="silu"),
        [f"activation backward rows<=1 cols<=512 {BF} silu"],
    ),
    "residual_layer_norm": (
        lambda: residual_norm.layer_norm(x(6, 64), x(6, 64), x(64), x(64)),
        [f"residual_layer_norm rows<=8 cols=64 {BF} w b"],
    ),
    "residual_rms_norm": (
        lambda: residual_norm.rms_norm(x(6, 64), x(6, 64), x(64), prob=0.1),
        [f"residual_rms_norm rows<=8 cols=64 {BF} w drop"],
    ),
    "residual_layer_norm back": (
        lambda: residual_norm.layer_norm_backward(x(6, 64), x(6, 64), x(6, 64), x(64), S, S, prob=0.1),
        [f"residual_layer_norm backward rows<=8 cols=64 {BF} w b drop"],
    ),
    "residual_rms_norm back": (
        lambda: residual_norm.rms_norm_backward(x(6, 64), None, x(6, 64), x(64), S),
        [f"residual_rms_norm backward rows<=8 cols=64 {BF} w alone"],
    ),
    "rope": (
        lambda: rope.forward(x(2, 3, 4, 8), x(2, 3, 1, 8), ANGLES, ANGLES),
        [f"rope tokens<=8 q_heads=4 k_heads=1 pairs=4 cols=8 {BF}"],
    ),
    "rope without keys": (
        lambda: rope.forward(x(2, 3, 4, 8), None, ANGLES, ANGLES, interleaved=True),
        [f"rope tokens<=8 q_heads=4 k_heads=0 pairs=4 cols=8 {BF} interleaved"],
    ),
    "rope computed": (
        lambda: rope.backward_computed(x(2, 3, 4, 8), x(2, 3, 1, 8), rope.turns(6)),
        [f"rope tokens<=8 q_heads=4 k_heads=1 pairs=3 cols=8 {BF} computed"],
    ),
    "rope by head": (
        lambda: rope.forward(x(2, 4, 3, 8).transpose(1, 2), x(2, 3, 1, 8), ANGLES, ANGLES),
        [f"rope tokens<=8 q_heads=4 k_heads=1 pairs=4 cols=8 {BF} by_head"],
    ),
    "rope of a fused projection": (
        lambda: rope.forward(x(2, 3, 12, 8)[:, :, 1:5], x(2, 3, 1, 8), ANGLES, ANGLES),
        ["rope tokens<=8 q_heads=4 k_heads=1 pairs=4 cols=8 bfloat16 strided align=16"],
    ),
    "linear": (
        lambda: matmul.forward(x(6, 64), x(32, 64), x(32), kind="gelu"),
        ["linear rows<=8 features=32 inner=64 bfloat16 packed align=16 gelu bias"],
    ),
    "linear kept": (
        lambda: matmul.forward_kept(x(2, 3, 64), x(64, 32).T, None, x(2, 3, 32), kind="relu"),
        ["linear rows<=8 features=32 inner=64 bfloat16 packed align=16 relu residual kept w^T"],
    ),
    "linear back": (
        lambda: matmul.backward(x(6, 32), x(6, 64), x(32, 64), x(6, 32), kind="silu"),
        [
            f"linear backward rows<=8 cols=32 {BF} silu bias",
            "reduce outer<=1 inner<=32 length<=1 float32 packed align=16 sum across",
        ],
    ),
    "sum": (lambda: reduce.sum(x(5, 64), 1), [f"reduce outer<=1 inner<=8 length<=64 {BF} sum along"]),
    "sum across": (lambda: reduce.sum(x(5, 64), 0), [f"reduce outer<=1 inner<=64 length<=8 {BF} sum across"]),
    "var": (
        lambda: reduce.var(x(5, 64, 3), 1),
        ["reduce outer<=8 inner<=4 length<=64 bfloat16 packed align=2 var across"],
    ),
    "argmax": (lambda: reduce.argmax(x(5, 64)), [f"reduce outer<=1 inner<=1 length<=512 {BF} argmax along"]),
    "amin of images": (
        lambda: reduce.amin(x(6, 5, 8, 8), (0, 2, 3)),
        [f"reduce outer<=1 inner<=8 length<=512 {BF} amin along"],
    ),
    "logsumexp back": (
        lambda: reduce.logsumexp_backward(x(5), x(5, 64), x(5), 1),
        [f"reduce backward outer<=1 inner<=8 length<=64 {BF} logsumexp along"],
    ),
    "amax back": (
        lambda: reduce.extreme_backward(x(5), x(5, 64), x(5), 1),
        [
            f"reduce outer<=1 inner<=8 length<=64 {BF} sum along",
            f"reduce backward outer<=1 inner<=8 length<=64 {BF} extreme along",
        ],
    ),
    "batch_norm": (
        lambda: batch_norm.forward(x(6, 3, 8, 8), V, V, activation="relu"),
        [f"batch_norm rows<=8 channels=3 cols=64 {BF} planes relu w b"],
    ),
    "batch_norm, channels last": (
        lambda: batch_norm.forward(x(6, 8, 8, 3).movedim(3, 1), None, None),
        ["batch_norm rows<=512 channels=3 cols=1 bfloat16 packed align=2 last"],
    ),
    "batch_norm with statistics": (
        lambda: batch_norm.evaluate(x(6, 3, 8, 8), V, None, V, V),
        [f"batch_norm rows<=8 channels=3 cols=64 {BF} planes w given"],
    ),
    "batch_norm back": (
        lambda: batch_norm.backward(x(6, 3, 7, 7), x(6, 3, 7, 7), V, V, V, V, activation="silu"),
        ["batch_norm backward rows<=8 channels=3 cols=49 bfloat16 packed align=2 planes silu w b"],
    ),
    "attention": (
        lambda: attention.forward(*[x(2, 4, 40, 64)] * 3, causal=True),
        [f"attention batch<=2 seq<=64 heads=4 d_head=64 {BF} self causal"],
    ),
    "attention, shared keys with a mask": (
        lambda: attention.forward(x(2, 4, 9, 64), *[x(2, 2, 40, 64)] * 2, x(9, 40) > 0, x(9, 40), softcap=2.0),
        [f"attention batch<=2 seq<=16 heads=4 d_head=64 {BF} keys<=64 kv_heads=2 mask bias softcap scattered"],
    ),
    "attention, positions first": (
        lambda: attention.forward(*[x(2, 9, 4, 40).transpose(1, 2)] * 3, window=3, prob=0.1, precision="tf32"),
        ["attention batch<=2 seq<=16 heads=4 d_head=40 bfloat16 strided align=16 self window drop tf32"],
    ),
    "attention of packed sequences": (
        lambda: attention.forward_packed(*[x(6, 4, 64)] * 3, *[STARTS] * 2, longest_q=4, longest_k=4, causal=True),
        ["attention batch<=2 seq<=4 heads=4 d_head=64 bfloat16 strided align=16 self causal packed"],
    ),
    "attention back": (
        lambda: attention.backward(*[x(2, 4, 40, 64)] * 4, None, x(40, 40), x(2, 4, 40, 64), LSE),
        [f"attention backward batch<=2 seq<=64 heads=4 d_head=64 {BF} self bias scattered dbias"],
    ),
    "attention back in any order": (
        lambda: attention.backward(*[x(2, 4, 40, 64)] * 4, None, None, x(2, 4, 40, 64), LSE, deterministic=False),
        [f"attention backward batch<=2 seq<=64 heads=4 d_head=64 {BF} self any_order"],
    ),
    "group_norm": (
        lambda: group_norm.forward(x(6, 4, 8, 8), None, None, 2, activation="silu"),
        [f"group_norm batch<=8 channels=4 groups=2 space=64 {BF} planes silu"],
    ),
    "group_norm back": (
        lambda: group_norm.backward(x(6, 3, 8, 8), x(6, 3, 8, 8), V, V, S, S),
        [f"group_norm backward batch<=8 channels=3 groups=1 space=64 {BF} planes w b"],
    ),
    "convolution": (
        lambda: convolution.forward(x(6, 1, 9, 9), x(8, 1, 3, 3), x(8), relu=True, pool="max", prob=0.1),
        [f"convolution batch<=8 {CONVOLUTION} {BF} b drop relu max2"],
    ),
    "convolution back": (
        lambda: convolution.backward(x(6, 8, 7, 7), x(6, 1, 9, 9), x(8, 1, 3, 3), x(8)),
        [
            f"convolution data gradient batch<=8 {CONVOLUTION} {BF}",
            f"convolution weight gradient batch<=8 {CONVOLUTION} {BF} b",
        ],
    ),
    "convolution, depthwise": (
        lambda: convolution.forward(x(6, 3, 9, 8), x(3, 1, 3, 3), x(3), padding=1, groups=3),
        [f"depthwise convolution batch<=8 {DEPTHWISE} {BF} b"],
    ),
    "convolution back, depthwise": (
        lambda: convolution.backward(x(6, 3, 9, 8), x(6, 3, 9, 8), x(3, 1, 3, 3), None, padding=1, groups=3),
        [f"depthwise convolution backward batch<=8 {DEPTHWISE} {BF} x w"],
    ),
    "embedding back": (
        lambda: embedding.backward(x(6, 64), TARGETS, rows=100),
        [f"embedding backward tokens<=8 rows<=128 cols=64 {BF}"],
    ),
    "embedding scaled": (
        lambda: embedding.backward(x(6, 49), TARGETS, rows=100, scale_by_frequency=True),
        ["embedding backward tokens<=8 rows<=128 cols=49 bfloat16 packed align=2 scaled"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_key_of_a_call(asked: Asked, case: str) -> None:
    call, expected = CASES[case]
    assert asked(call) == expected


def test_every_tunable_is_asked_by_some_launcher(asked: Asked) -> None:
    for call, _ in CASES.values():
        keys = asked(call)
    for name in (name for name in TUNABLES if name in REGISTRY):
        if not any(key.startswith(f"{name} ") for key in keys):  # a family that is not in the list above
            problem = next(iter(REGISTRY[name].problems(Draw(0))))
            inputs = cast(problem.inputs, torch.float32, "cpu")
            keys = asked(functools.partial(REGISTRY[name].forward, *inputs, **problem.options))
    assert {name for name in TUNABLES if any(key.startswith(f"{name} ") for key in keys)} == set(TUNABLES)


WITHOUT_CHOICE = {"band_scan", "log_band_scan"}
"""One program a sample, which waits for each step; block and warps follow from the number of states: no tunable."""


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_operation_asks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = next(iter(REGISTRY[name].problems(Draw(0))))
    asked, run = list[str](), Tunable.run
    monkeypatch.setattr(Tunable, "run", lambda self, *call: asked.append(self.name) or run(self, *call))
    lines = launch_record.call_record(REGISTRY[name], problem, torch.bfloat16, H200)
    assert bool(asked) == (name not in WITHOUT_CHOICE)
    assert name not in WITHOUT_CHOICE or len(lines) > 1, "it launched, so that there was something to ask about"


def test_a_config_that_is_given_is_taken(asked: Asked) -> None:
    with recording(H200) as launches:
        softmax.forward(x(5, 64), config=softmax.Config(2, 64, 1))
    assert (launches[0].constants["ROWS"], launches[0].constants["BLOCK"], launches[0].warps) == (2, 64, 1)


PROBLEMS = [
    pytest.param(tunable, facts, id=tunable.key(facts))
    for tunable in TUNABLES.values()
    for rows, cols in (*tunable.shapes, (1, 49), (7, 50_257))
    for facts in tunable.problems(rows, cols, tunable.dtype)
]


@pytest.mark.parametrize(("tunable", "facts"), PROBLEMS)
def test_candidates_are_plain_data_legal_and_priced(tunable: Tunable, facts: Facts) -> None:
    for machine in (H200, A100, MI300X):
        named = tunable.named(facts, machine)
        assert len(named) == len(tunable.candidates(facts, machine))
        assert next(iter(named.values())) == tunable.default(facts, machine)
        for config in named.values():
            assert tunable.supports(config, facts)
            assert tunable.parse(vars(config)) == config
            work = tunable.work(config, facts, machine)
            assert isinstance(work, Work)
            assert 0 < work.useful <= 1
            assert 0 < predict(work, machine) < 1e3


def test_the_work_of_a_config_counts_the_bytes_of_the_spec() -> None:
    cases = {
        "softmax": ("softmax", {"x": x(64, 4096)}),
        "rms_norm": ("rms_norm", {"x": x(64, 4096), "w": x(4096)}),
        "cross_entropy": ("cross_entropy", {"x": x(64, 4096), "targets": TARGETS}),
    }
    for name, (spec, inputs) in cases.items():
        tunable = TUNABLES[name]
        facts = tunable.problems(64, 4096, torch.bfloat16)[0]
        config = tunable.default(facts, H200)
        assert tunable.work(config, facts, H200).bytes_moved == REGISTRY[spec].bytes_moved(*inputs.values())


@pytest.mark.parametrize("numbers", [{}, {"rows": 1}, {"rows": 1, "block": 2, "warps": 4, "x": 1}, {"rows": "1"}])
def test_numbers_that_are_not_a_config(numbers: Any) -> None:
    with pytest.raises(ValueError, match="a config of softmax has the whole numbers block, rows, warps"):
        softmax.FORWARD.parse(numbers)


def test_a_name_is_registered_once() -> None:
    with pytest.raises(
        KernelArgumentError, match=r"'softmax' is registered twice\n  given: .*\n  expected: .*\n  mend: "
    ):
        tunable(softmax.FORWARD)
