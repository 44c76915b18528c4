"""Operators of PyTorch as data: a family declares them beside its kernels, and `burn_kernels.torch` defines them."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from burn_kernels.errors import KernelArgumentError, KernelDeviceError
from burn_kernels.launch import describe

__all__ = ["Operator", "leaf", "like", "nothing", "numbers_of", "present", "second"]


@dataclass(frozen=True, kw_only=True)
class Operator:
    """`torch.ops.burn_kernels.<name>` with its fake, its first and its second gradient.

    Arguments and results have names.  Functions take the arguments in `inputs` by position and the others as options
    by their names, `seed` as `key` and `stream`; a function that is None is the one of the family's `KernelSpec`.
    """

    schema: str
    """The forward's, as torch writes it."""
    inputs: str
    """The names of the arguments that functions take by position, in that order."""
    fake: Callable[..., Any]
    """(*arguments) -> results that hold nothing."""
    results: str = "y"
    """The names of the results."""
    carries: Callable[..., int] | int = 1
    """The number of results, the first ones, that carry gradients, or (*arguments) -> that number."""
    gradients: str = ""
    """The names of the inputs that have gradients."""
    saved: str = ""
    """The names of what the backward keeps and takes after dy: arguments and results.

    `needs` stands for a list that tells which of `gradients` are asked for, `x_gradient` for the entry of x alone."""
    spares: Callable[[Mapping[str, Any]], Collection[str]] | None = None
    """(arguments and results by name) -> the names in `saved` that this call does not keep: `rule` finds None there."""
    forward: Callable[..., Any] | None = None
    reference: Callable[..., Any] | None = None
    gradient: Callable[..., Any] | None = None
    """(dy, inputs, results, **options) -> one gradient an input; inputs and results that are not saved are None."""
    reference_gradient: Callable[..., Any] | None = None
    twin: Callable[..., torch.Tensor] | None = None
    """(*inputs, **options) -> the first result, in plain torch, for the second gradient."""
    recall: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda saved: {}
    """(saved by name) -> arguments of `twin` that are not saved and follow from what is."""
    rule: Callable[..., Sequence[object]] | None = None
    """(saved by name, *upstream) -> the gradients, by operators that have gradients: instead of a backward operator."""
    facts: Callable[..., Any] | None = None
    """(*arguments) -> what `rule` finds under the name "facts"."""
    backward: str = ""
    """The name of the backward operator, if it is not the forward's with `_backward` behind it."""
    upstream: str = "dy"
    """The name of the upstream gradient in the backward's schema."""
    by_reference: bool = False
    """True if the second gradient differentiates `reference_gradient`, for results from which no input follows."""
    options: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """(arguments by name) -> the options of the functions; None if those have the same names."""
    room: Callable[[torch.Tensor], torch.Tensor] | None = None
    """(x) -> memory that lies as results of x do: results that carry gradients, and the gradients of `laid`.

    None if all of them are in order."""
    laid: str = ""
    """The names of the inputs whose gradients lie as `room` makes them."""
    absent: torch.dtype | None = None
    """The type of the empty tensor that stands for a result that is absent; None for the type of the first input."""
    images: bool = False
    """True if its first argument is images."""
    drops_unseeded: bool = False
    """It drops without a seed too, by key 0 and stream 0; others drop nothing then."""
    far: str = ""
    """The names of the arguments whose rows may lie anywhere in memory: `check` sets them 2^30 elements apart."""
    autocast: tuple[str, ...] = ()
    """The types of devices on which autocast hands float32 to it."""

    @functools.cached_property
    def name(self) -> str:
        """As `torch.ops.burn_kernels` has it."""
        return self.schema.partition("(")[0]

    @functools.cached_property
    def input_names(self) -> list[str]:
        """The names in `inputs`."""
        return self.inputs.split()

    @functools.cached_property
    def result_names(self) -> list[str]:
        """The names in `results`."""
        return self.results.split()

    def launchers(self, *, backward: bool = False) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """The launcher and its reference."""
        run, plain = (self.gradient, self.reference_gradient) if backward else (self.forward, self.reference)
        assert run is not None
        assert plain is not None
        return run, plain

    def arguments(self) -> dict[str, str]:
        """The types of the arguments by name, in the order of the schema."""
        words = (word.split() for word in re.findall(r"\((.*?)\) ->", self.schema)[0].split(", "))
        return {name: kind for kind, name in words}

    @property
    def backward_name(self) -> str:
        """As `torch.ops.burn_kernels` has the backward."""
        return self.backward or f"{self.name}_backward"

    def kinds(self) -> dict[str, str]:
        """The types of arguments, results and of the flags that the backward takes, by name."""
        flags = {name: "bool[]" if name == "needs" else "bool" for name in self.saved.split()}
        return flags | dict.fromkeys(self.result_names, "Tensor") | self.arguments()

    def carried(self, *arguments: object) -> int:
        """The number of results of a call that carry gradients."""
        return self.carries if isinstance(self.carries, int) else self.carries(*arguments)

    def call_of(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any]]:
        """Inputs, results and options of values by name; an absent one is None, or no option.

        Without a seed nothing is dropped, but for operators that say so.
        """
        # by `map`: a comprehension is one call more, of the calls that a launch costs
        options = dict(values)
        inputs = tuple(map(options.pop, self.input_names, itertools.repeat(None)))
        results = tuple(map(options.pop, self.result_names, itertools.repeat(None)))
        if "seed" in options:
            seed = options.pop("seed")
            if seed is None and "Tensor seed" in self.schema:
                raise KernelArgumentError(
                    f"{self.name}: there is no seed",
                    given="None",
                    expected="two int64 numbers, key and stream, on the CPU",
                    mend="torch.randint(2**63 - 1, (2,))",
                )
            if seed is not None and options["prob"]:
                options["key"], options["stream"] = numbers_of(self.name, seed)
            else:
                options["key"] = options["stream"] = 0
                if not self.drops_unseeded:
                    options["prob"] = 0.0
        return inputs, results, options if self.options is None else self.options(options)


def numbers_of(op: str, seed: torch.Tensor) -> tuple[int, int]:
    """Key and stream of a seed.  Raises: KernelDeviceError where reading them would wait for a device."""
    if seed.device.type != "cpu":
        raise KernelDeviceError(
            f"{op}: the seed lies on a device, and reading it would wait for that",
            given=describe({"seed": seed}),
            expected="two int64 numbers, key and stream, on the CPU",
            mend="seed.cpu(), once, where it is made",
        )
    key, stream = seed.tolist()
    return key, stream


def like(x: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor in order with the shape of x, that holds nothing."""
    return torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)


def nothing(x: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The tensor that stands where one is absent: operators have a fixed number of results."""
    return torch.empty(0, dtype=dtype or x.dtype, device=x.device)


def leaf(x: torch.Tensor) -> torch.Tensor:
    """x as something to take a derivative by, which is then that by x alone.

    Not x itself: an upstream gradient may come from an input, and its derivative would come along.
    """
    return x.view_as(x) if x.requires_grad else x.detach().requires_grad_()


def present(op: str, given: torch.Tensor | None, grad: torch.Tensor | None) -> torch.Tensor | None:
    """The gradient of an input that may be absent; raises RuntimeError if one is missing."""
    if given is not None and grad is None:
        raise RuntimeError(f"{op}: the launcher returned no gradient for an input that has one")
    return None if given is None else grad


def second(
    twin: Callable[..., Any],
    dy: torch.Tensor | Sequence[torch.Tensor | None],
    inputs: Sequence[torch.Tensor | None],
    upstream: Sequence[torch.Tensor | None],
) -> list[torch.Tensor | None]:
    """The gradients of dy and the inputs from those of the inputs' gradients, through plain torch.

    Where `twin` gives several outputs, `dy` holds as many, None for those that have no upstream gradient.
    """
    again = torch.is_grad_enabled()
    upstream_of_outputs = [dy] if isinstance(dy, torch.Tensor) else list(dy)
    with torch.enable_grad():
        dys, leaves = ([None if x is None else leaf(x) for x in group] for group in (upstream_of_outputs, inputs))
        there = [x for x in leaves if x is not None]
        outputs = twin(*leaves)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        asked = [(y, d.to(y.dtype)) for y, d in zip(outputs, dys, strict=True) if d is not None]
        grads = iter(torch.autograd.grad([y for y, _ in asked], there, [d for _, d in asked], create_graph=True))
        firsts = [None if x is None else next(grads) for x in leaves]
        pairs = [(f, u) for f, u in zip(firsts, upstream, strict=True) if f is not None and u is not None]
        pairs = [(f, u) for f, u in pairs if f.requires_grad]
        if not pairs:
            return [None] * (len(dys) + len(leaves))
        every = [x for x in (*dys, *leaves) if x is not None]
        results, weights = zip(*pairs, strict=True)
        answers = iter(torch.autograd.grad(results, every, weights, create_graph=again, allow_unused=True))
        return [None if x is None else next(answers) for x in (*dys, *leaves)]
