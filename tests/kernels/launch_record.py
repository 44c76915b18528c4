"""Records what every launcher would launch on machines that are not here, to compare two versions of the kernels.

    python tests/kernels/launch_record.py write before.jsonl      in the version before (PYTHONPATH says which one)
    python tests/kernels/launch_record.py compare before.jsonl    in the version after: lists what differs, exit code 1

A line is one record: the launches of a registered kernel on one of its problems, forward and backward; the candidates
of a tunable for one problem with what each launches, predicts and supports; or the schema of a torch operator.

A launch is a kernel's name, its grid, options, constants and arguments.  Modules are not named, so a kernel may move to
another file.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from burn_kernels import REGISTRY, KernelError
from burn_kernels.autotune.compiling import launches
from burn_kernels.autotune.tunable import TUNABLES, Tunable
from burn_kernels.launch import A100, H200, MI300X, Launch, Machine, recording
from burn_kernels.spec import Draw, KernelSpec, Problem
from burn_kernels.verification import cast

MACHINES = {"H200": H200, "A100": A100, "MI300X": MI300X}
DTYPES = (torch.float32, torch.bfloat16)
SHAPES = ((8192, 1024), (8192, 49), (300, 5120), (8192, 16_384), (4096, 50_257))
"""(rows, cols) of the problems of tunables, beside those that each lists itself."""
Record = tuple[str, list[str]]


# -- texts ---------------------------------------------------------------------------------------------
def text_of(value: Any) -> str:
    """An argument, a constant or a result, without its address."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{list(value.stride())}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(text_of, value))})"
    return repr(value)


def flat(values: Iterable[Any]) -> Iterator[Any]:
    """The values with those of tuples among them in place: how arguments are grouped is not compared."""
    for value in values:
        if isinstance(value, tuple | list):
            yield from flat(value)
        else:
            yield value


def flat_items(constants: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The constants by name; members of named tuples by their own names."""
    for name, value in constants.items():
        if hasattr(value, "_asdict"):
            yield from flat_items(value._asdict())
        else:
            yield name, value


def line_of(launch: Launch) -> str:
    """One launch on one line."""
    name = getattr(launch.kernel, "fn", launch.kernel).__name__
    flags = [launch.warps, launch.stages, bool(launch.together), int(launch.registers), bool(launch.early)]
    constants = sorted(f"{key}={text_of(value)}" for key, value in flat_items(launch.constants))
    arguments = " ".join(text_of(value) for value in flat(launch.arguments))
    return f"{name}{list(launch.grid)} {flags} {bool(launch.contracts)} {' '.join(constants)} | {arguments}"


# -- records -------------------------------------------------------------------------------------------
def hollow(value: Any) -> Any:
    """Tensors of the meta device with the same strides, in lists and tuples too."""
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, tuple | list):
        return type(value)(hollow(one) for one in value)
    return {name: hollow(one) for name, one in value.items()} if isinstance(value, dict) else value


def call_record(spec: KernelSpec, problem: Problem, dtype: torch.dtype, machine: Machine) -> list[str]:
    """The launches and results of a problem, forward and backward."""
    inputs = hollow(cast(problem.inputs, dtype, torch.device("cpu")))
    options = hollow(cast(problem.options, torch.float32, torch.device("cpu")))
    with recording(machine) as recorded:
        try:
            outputs = spec.forward(*inputs, **options)
            several = outputs if isinstance(outputs, tuple) else (outputs,)
            lines = [f"-> {text_of(several)}"]
            if spec.gradient is not None:
                twins = spec.twin(*cast(problem.inputs, torch.float64, torch.device("cpu")), **problem.options)
                count = len(twins) if isinstance(twins, tuple) else 1
                upstream = tuple(torch.empty_like(one) for one in several[:count])
                grads = spec.gradient(upstream if count > 1 else upstream[0], inputs, several, **options)
                lines.append(f"-> {text_of(grads)}")
        except KernelError as error:
            lines = [f"{type(error).__name__}: {error}"]
    return [*map(line_of, recorded), *lines]


def choice_record(tunable: Tunable, facts: Any, machine: Machine) -> list[str]:
    """The candidates of a problem, what they launch and what the cost model says of them."""
    configs = tunable.candidates(facts, machine)
    lines = [tunable.key(facts)]
    lines += [
        f"{config} {tunable.supports(config, facts)} {tunable.work(config, facts, machine)}" for config in configs
    ]
    for many in launches(tunable, facts, configs[:4], machine):
        lines += map(line_of, many)
    return lines


def records(only: str = "") -> Iterator[Record]:
    """All records whose name begins with `only`, each with its lines."""
    for name, spec in sorted(REGISTRY.items()):
        if not f"call {name}".startswith(only):
            continue
        for number, problem in enumerate(spec.problems(Draw(sum(map(ord, name))))):
            for place, machine in MACHINES.items():
                for dtype in DTYPES:
                    yield f"call {name} {number} {place} {dtype}", call_record(spec, problem, dtype, machine)
    for name, tunable in sorted(TUNABLES.items()):
        if not f"choice {name}".startswith(only):
            continue
        for place, machine in MACHINES.items():
            for dtype in DTYPES:
                for rows, cols in dict.fromkeys((*SHAPES, *tunable.shapes)):
                    for facts in tunable.problems(rows, cols, dtype):
                        key = f"choice {place} {tunable.key(facts)} {facts.free}"
                        yield key, choice_record(tunable, facts, machine)
    if "operator".startswith(only):
        yield from operator_records()


def operator_records() -> Iterator[Record]:
    """The schema of each torch operator."""
    import burn_kernels.torch  # noqa: F401  # registers them

    for schema in sorted(map(str, torch._C._jit_get_all_schemas())):
        if schema.startswith("burn_kernels::"):
            yield f"operator {schema.partition('(')[0]}", [schema]


def digests(only: str = "") -> dict[str, str]:
    """A digest of each record's lines, by the record's name."""
    digest_of: dict[str, str] = {}
    for name, lines in records(only):
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
        assert digest_of.setdefault(name, digest) == digest, f"{name} is recorded in two ways"
    return digest_of


# -- comparing -----------------------------------------------------------------------------------------
def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The names of records that are only in one, or differ."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def main(command: str, path: str, only: str = "") -> int:
    """Writes or compares a file of records; `show` prints the lines of those whose name begins with `only`."""
    if command == "show":
        for name, lines in records(only):
            if path in name:
                print(name, *lines, sep="\n    ")
        return 0
    after = digests(only)
    if command == "write":
        text = "".join(f"{json.dumps([name, digest])}\n" for name, digest in sorted(after.items()))
        Path(path).write_text(text, encoding="utf-8")
        print(f"{len(after)} records")
        return 0
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    before = {name: digest for name, digest in map(json.loads, lines) if name.startswith(only)}
    changed = differences(before, after)
    print(*changed, f"{len(changed)} of {len(before)} records differ", sep="\n")
    return 1 if changed else 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
