"""The fuzzer itself: what it draws, that it sees faults, that it makes them small, and the corpus of what it found."""

from __future__ import annotations

import collections
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burn_torch import Device, DType, Tensor
from burn_torch.core.errors import BurnTorchError
from burn_torch.ops.op import REGISTRY
from tests.fuzz.case import Case
from tests.fuzz.corpus import kept, load
from tests.fuzz.doors import DOORS
from tests.fuzz.draw import Drawer, draw_program
from tests.fuzz.layers import LAYERS, layer_function, operands_of
from tests.fuzz.opened import opened
from tests.fuzz.phases import PHASES
from tests.fuzz.program import Program
from tests.fuzz.rows import drawable, why_not_drawn
from tests.fuzz.training import Training
from tests.fuzz.worker import check_program

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")

EAGER = [replace(door, share=1.0) for door in DOORS["eager"]]

NOT_DRAWN = {
    "all_gather": "needs other processes",
    "all_reduce": "needs other processes",
    "broadcast": "needs other processes",
    "mean_start": "needs other processes",
    "mean_wait": "needs other processes",
    "reduce_scatter": "needs other processes",
    "reduce_to": "needs other processes",
    "mask_select": "its shape depends on data, so no program of it can be compiled",
    "nonzero": "its shape depends on data, so no program of it can be compiled",
    "fold_key": "computes host numbers, no tensor",
}


def test_rows_that_are_not_drawn_are_listed_with_the_reason() -> None:
    reasons = {name: why_not_drawn(row) for name, row in REGISTRY.items() if "::" not in name}
    assert {name: why for name, why in reasons.items() if why is not None} == NOT_DRAWN


def test_every_other_row_is_drawn() -> None:
    never = []
    for name in drawable():
        for attempt in range(12):
            drawer = Drawer(attempt)
            drawer.wild = False
            drawer.fresh("f", (3, 4))
            if drawer.sampled(name):
                break
        else:
            never.append(name)
    assert not never


def test_every_layer_is_drawn() -> None:
    never = []
    for name in LAYERS:
        drawer = Drawer(3)
        drawer.wild = False
        drawer.float = DType.F64
        drawer.fresh("f", (3, 4))
        if not any(drawer.layer(name) for _ in range(4)):
            never.append(name)
    assert not never


def test_layers_that_are_drawn_compute_the_same_on_a_device_with_gradients() -> None:
    plain, tape = Device.cpu(fused=False), Device.cpu(fused=False).autodiff()
    others = []
    for name in LAYERS:
        arrays = [x for part in operands_of(name, np.random.default_rng(5)) for x in part]
        operands = [Tensor.from_data(x, plain, "f64" if x.dtype.kind == "f" else None) for x in arrays]
        results = [layer_function(name)(*(x.to_device(device) for x in operands)) for device in (plain, tape)]
        tensors = [result if isinstance(result, tuple) else (result,) for result in results]
        if any(y.tolist() != z.tolist() for y, z in zip(*tensors, strict=True)):
            others.append(name)
    assert others == [], "their results depend on chance or on the device: leave them out"


def test_a_seed_draws_one_program_and_json_keeps_it() -> None:
    for seed in range(40):
        program = draw_program(seed)
        text = program.to_json()
        assert draw_program(seed).to_json() == text
        assert Program.from_json(text).to_json() == text
        assert program.pruned().to_json() == text, "nothing is drawn that no result reads"


@pytest.mark.parametrize("name", ["split", "sgd_update"])
def test_a_row_that_gives_a_tuple_of_one_is_a_step_of_one_result(name: str) -> None:
    drawer = Drawer(0)
    x = drawer.fresh("f", (3, 4))
    outputs = drawer.emit(name, x, sizes=(3,), dim=0) if name == "split" else drawer.emit(name, 0.1, 0.0, x, x)
    assert outputs is not None
    assert drawer.one("neg", outputs[0]) is not None
    assert Case(drawer.finished()).values


def test_a_program_as_python_computes_the_same() -> None:
    for seed in range(12):
        program = draw_program(seed)
        names: dict[str, object] = {}
        header = "import numpy as np\nfrom burn_torch import Device, DType, Tensor, ops\n"
        exec(header + program.source(), names)
        xs = names["arguments"](names["Device"].cpu(fused=False))  # type: ignore[operator, attr-defined]
        results = [y.into_data() for y in names["f"](xs, names["ns"])]  # type: ignore[operator]
        for y, z in zip(results, Case(program).values, strict=True):
            assert y.array.tobytes() == z.array.tobytes()


@pytest.mark.parametrize("second", [False, True])
def test_a_few_programs_agree_on_every_door(second: bool) -> None:
    counts: collections.Counter[str] = collections.Counter()
    for seed in random.Random(int(second)).sample(range(10_000), 10):
        case = Case(draw_program(seed), second, seed, trains=second)
        disagreements = check_program(case, EAGER, counts)
        assert not disagreements, (
            f"program {seed}: {[(door.name, words) for door, words in disagreements]}\n{case.program.source()}"
        )
    assert all(counts[f"{door.name}|run"] for door in EAGER if second or not door.name.startswith(("se", "st"))), counts


def test_a_training_that_loses_its_optimizer_states_disagrees() -> None:
    training = next(one for one in map(Training, range(99)) if one.plan["optimizer"] == "momentum")

    def forgets(step: Any) -> Any:
        def step_with_fresh_states(net: Any, optimizer: Any, *others: Any) -> Any:
            stepped, moved, losses = step(net, training._optimizer(net), *others)
            return stepped, moved, losses

        return step_with_fresh_states

    device = Device.cpu(fused=False)
    assert not training.judge.differences(training.run(device))
    assert training.judge.differences(training.run(device, forgets))


def test_each_part_of_training_is_drawn() -> None:
    plans = [Training(seed).plan for seed in range(200)]
    layers = {name for plan in plans for name, _ in plan["layers"]}
    assert {"BatchNorm", "Dropout", "GaussianNoise", "Embedding", "LayerNorm"} <= layers
    assert {plan["optimizer"] for plan in plans} == {
        "Sgd", "momentum", "nesterov", "Adam", "amsgrad", "AdamW", "cautious",
    }  # fmt: skip


@pytest.mark.parametrize("path", kept(), ids=lambda path: path.stem)
def test_what_disagreed_once_agrees(path: Path) -> None:
    _, case = load(path)
    disagreements = check_program(case, EAGER, collections.Counter())
    assert not disagreements, [(door.name, words) for door, words in disagreements]


@pytest.mark.skipif(PHASES["c"].missing() is not None, reason="there is no C compiler with OpenMP")
def test_what_disagreed_once_in_c_agrees() -> None:
    cases = {path.stem: case for path in kept() for phase, case in [load(path)] if phase == "c"}
    assert cases
    doors = [replace(door, share=1.0) for door in DOORS["c"]]
    disagreements: dict[str, list[str]] = {}

    def check(name: str) -> None:
        disagreements[name] = [words for _, words in check_program(cases[name], doors, collections.Counter())]

    with opened("c") as (_, run_all):
        run_all(check, list(cases))
    assert disagreements == {name: [] for name in cases}


def test_what_eager_refuses_is_no_program() -> None:
    drawer = Drawer(0)
    x = drawer.fresh("f", (3, 4))
    with pytest.raises(BurnTorchError, match="dim 5 is out of range"):
        REGISTRY["sum"](x.tensor, dims=(5,))
    assert drawer.emit("sum", x, dims=(5,)) is None
    assert not drawer.steps
