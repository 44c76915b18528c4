"""Problems of every operation that are large enough for errors to average: what the rule of errors is tried on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from burn_kernels import activation, reduce, rope
from burn_kernels.spec import REGISTRY, Draw, Problem

__all__ = ["large"]


def large(name: str, draw: Draw) -> Iterator[Problem]:
    """Problems large enough that errors average, at widths that are powers of two and at others."""
    if (problems := REGISTRY[name].large) is not None:
        yield from problems(draw)
        return
    for cols in (49, 1024, 5120, 16384, 20000):
        x = draw.normal(64, cols, std=2.0)
        if name in ("softmax", "log_softmax"):
            yield Problem((x,))
        elif name == "layer_norm":
            yield Problem((x, draw.normal(cols, mean=1.0), draw.normal(cols)))
        elif name == "rms_norm":
            yield Problem((x, draw.normal(cols, mean=1.0)))
        elif name == "cross_entropy":
            yield Problem((x, draw.integers(0, cols, 64)), {"smoothing": 0.1})
        elif name in ("swiglu", "geglu", "geglu_tanh", "reglu"):
            yield Problem((x, draw.normal(64, cols)))
        elif name in activation.KINDS:
            yield Problem((x,))
        elif name in reduce.KINDS:
            # torch's own variance of a million float64 is off by more than a reference may be
            dims = (0, 1) if name == "var" else (0, 1, None)
            yield from (Problem((x,), {"dim": dim}) for dim in dims)
        elif name in ("residual_layer_norm", "residual_rms_norm"):
            scales = (draw.normal(cols, mean=1.0), draw.normal(cols))[: 2 if name == "residual_layer_norm" else 1]
            for options in ({}, {"prob": 0.1, "key": 5, "stream": 6}):
                yield Problem((x, draw.normal(64, cols), *scales), options)
        elif name == "embedding_backward":
            yield Problem((x, draw.integers(0, 40, 64)), {"rows": 50})
        elif name == "linear":
            w = draw.normal(300, cols, std=cols**-0.5)
            for kind, residual in (("none", None), ("gelu", None), ("silu", draw.normal(64, 300))):
                yield Problem((x, w, draw.normal(300), residual), {"kind": kind})
    if name in ("batch_norm", "batch_norm_eval", "group_norm", "convolution"):
        yield from _images(name, draw)
    if name == "rope_computed":
        for interleaved in (False, True):
            heads = draw.normal(2, 100, 8, 128), draw.normal(2, 100, 2, 128)
            yield Problem(heads, {"turns": rope.turns(128), "interleaved": interleaved, "offset": 100_000})
    if name == "attention":
        q, k, v = (draw.normal(2, heads, seq, 64) for heads, seq in ((4, 300), (2, 200), (2, 200)))
        rules: list[dict[str, Any]] = [{"causal": True}, {"causal": True, "align": "bottom_right", "window": 70}]
        rules += [{"softcap": 20.0}, {"prob": 0.1, "key": 5, "stream": 6}]
        yield from (Problem((q, k, v, None, None), rule) for rule in rules)
        yield Problem((q, k, v, draw.integers(0, 4, 2, 1, 1, 200) > 0, draw.normal(1, 4, 300, 200)))
        for dim in (40, 96, 128, 256):
            same = (draw.normal(1, 2, 200, dim) for _ in "qkv")
            yield Problem((*same, None, None), {"causal": True})
        # as a joint projection leaves them, and of an odd length; one query; heads whose columns lie apart
        joint = draw.normal(2, 131, 3, 4, 64).unbind(2)
        yield Problem((*(x.transpose(1, 2) for x in joint), None, None), {"causal": True})
        yield Problem((draw.normal(2, 4, 1, 64), k, v, None, None), {"causal": True, "align": "bottom_right"})
        apart = (draw.normal(1, 2, 77, 128)[..., ::2] for _ in "qkv")
        yield Problem((*apart, None, None))
    if name == "attention_packed":
        starts = torch.tensor([0, 100, 133, 133, 300], dtype=torch.int32)
        operands = draw.normal(300, 4, 64), draw.normal(300, 2, 64), draw.normal(300, 2, 64)
        yield Problem((*operands, starts, starts), {"longest_q": 167, "longest_k": 167, "causal": True})
    if name == "lion":
        yield Problem(([draw.normal(100, 331)], [draw.normal(100, 331)], [draw.normal(100, 331)]), {"lr": 1e-2})
    if name in ("adam", "adamw"):
        group = [draw.normal(100, 331) for _ in range(4)]
        yield Problem(([group[0]], [group[1]], [group[2]], [group[3] ** 2]), {"lr": 1e-2, "step": 7})
    if name == "sgd":
        group = [draw.normal(100, 331) for _ in range(3)]
        yield Problem(([group[0]], [group[1]], [group[2]]), {"lr": 1e-2, "momentum": 0.9})
    if name == "dropout":
        yield Problem((draw.normal(64, 5120), 0.1, 5, 6))


def _images(name: str, draw: Draw) -> Iterator[Problem]:
    """Images in both layouts, of sides that are powers of two and others."""
    for shape in ((32, 24, 28, 28), (64, 8, 26, 26), (8, 96, 7, 7), (60, 160, 7, 7), (4096, 32, 1, 1)):
        if name == "convolution":
            break
        for last in (False, True):
            x = draw.normal(*shape, mean=0.3)
            x = x.contiguous(memory_format=torch.channels_last) if last else x
            w, b = draw.normal(shape[1], mean=1.0), draw.normal(shape[1])
            running = draw.normal(shape[1]), draw.normal(shape[1]).square() + 0.1
            if name == "batch_norm":
                yield Problem((x, w, b), {"running_mean": running[0], "running_var": running[1], "activation": "silu"})
            elif name == "batch_norm_eval":
                yield Problem((x, w, b), {"mean": running[0], "var": running[1], "activation": "silu"})
            else:
                yield Problem((x, w, b, 8), {"activation": "silu"})
    if name == "convolution":
        cases: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
            ((64, 1, 28, 28), (8, 1, 3, 3), {}),
            ((64, 8, 26, 26), (16, 8, 3, 3), {"prob": 0.1, "key": 5, "stream": 6}),
            ((4, 3, 64, 65), (24, 3, 7, 7), {"stride": 2, "padding": 3}),
            ((8, 32, 33, 30), (32, 1, 3, 3), {"groups": 32, "padding": 1}),
            ((8, 48, 56, 56), (48, 1, 3, 3), {"groups": 48, "padding": 1}),
            ((4, 24, 15, 13), (24, 1, 7, 7), {"groups": 24, "padding": 3}),
        )
        for size, weights, options in cases:
            inputs = (draw.normal(*size), draw.normal(*weights, std=0.2), draw.normal(weights[0]))
            yield Problem(inputs, options)
        x = draw.normal(4, 17, 24, 21)[:, 1:, ::2].transpose(2, 3)  # depthwise, and nothing lies in order
        yield Problem((x, draw.normal(16, 1, 3, 3, std=0.2), None), {"groups": 16, "padding": 1})
