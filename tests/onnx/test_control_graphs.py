"""Models with If, Loop and Scan whose graphs share names: the values of onnxruntime, loaded, on numpy and as source."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import helper, numpy_helper

from burn_torch import Device, OnnxError, Tensor, TraceError, compile
from burn_torch.onnx import export, load
from burn_torch.onnx.imported import module_of
from burn_torch.onnx.plan import plan_of
from burn_torch.onnx.reader import read_bytes
from burn_torch.onnx.scopes import Scope
from burn_torch.onnx.source import source_of
from tests.onnx.control_graphs import B, ControlModel, F, L, share_names
from tests.onnx.random_models import SEED, references, run_models


def values_of(model, inputs, device):
    outputs = model.forward(*[Tensor.from_data(value, device) for value in inputs.values()])
    return [y.into_data().values for y in (outputs if isinstance(outputs, tuple) else (outputs,))]


def written(data, folder):
    """The model as the written source has it."""
    plan = plan_of(read_bytes(data))
    module = types.ModuleType("written_control")
    sys.modules["written_control"] = module
    exec(source_of(plan), module.__dict__)
    module_of(plan, Device.cpu()).save_file(folder / "control.safetensors")
    return module.Model.init(Device.cpu()).load_file(folder / "control.safetensors")


def disagreements(seed, folder):
    """Returns what differs from onnxruntime for one random model; None where onnxruntime cannot run it."""
    drawn = ControlModel(seed)
    data = share_names(drawn.proto, seed).SerializeToString()
    wanted = references(drawn)
    if wanted is None:
        return None
    ways = {
        "loaded": (load(data), Device.cpu()),
        "numpy": (load(data, Device.ndarray()), Device.ndarray()),
        "source": (written(data, folder), Device.cpu()),
    }
    wrong = []
    for batch, inputs, want in wanted:
        for way, (model, device) in ways.items():
            for i, (got, value) in enumerate(zip(values_of(model, inputs, device), want, strict=True)):
                if got.dtype != value.dtype or not np.array_equal(got, value):
                    wrong.append(f"{way}, batch {batch}, output {i}: {got.tolist()} instead of {value.tolist()}")
    return wrong


def test_random_models_with_shared_names(tmp_path):
    run_models(disagreements, SEED, 40, tmp_path, least=0.9)


@pytest.mark.slow
def test_two_thousand_random_models_with_shared_names(tmp_path):
    run_models(disagreements, SEED, 2000, tmp_path, least=0.9)


def test_random_models_see_names_that_are_not_scoped(tmp_path, monkeypatch):
    def same_names(self, values):
        own = {name: name for name in values if name}
        return Scope(self.names, (own, *self.tables), self.opsets, self.attributes, self.prefix, self.stack, self.depth)

    monkeypatch.setattr(Scope, "of_graph", same_names)
    faults = 0
    for seed in range(1, 13):
        try:
            faults += bool(disagreements(seed, tmp_path))
        except (OnnxError, KeyError):
            faults += 1
    assert faults > 0


def test_a_random_model_compiles_to_the_same_or_says_that_it_reads_data():
    for seed in range(20):
        drawn = ControlModel(seed)
        model = load(share_names(drawn.proto, seed).SerializeToString())
        inputs = drawn.inputs(3)
        compiled = compile(lambda model, *xs: model.forward(*xs))
        tensors = [Tensor.from_data(value, Device.cpu()) for value in inputs.values()]
        try:
            outputs = compiled(model, *tensors)
        except TraceError:
            continue
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        for got, want in zip(outputs, values_of(model, inputs, Device.cpu()), strict=True):
            np.testing.assert_array_equal(got.into_data().values, want)


# -- the forms that were wrong, one by one -------------------------------------------------------------------------
def info(name, dtype=F, shape=()):
    return helper.make_tensor_value_info(name, dtype, shape)


def constant(name, values):
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(values, np.float32)))


def weight(name, values):
    return numpy_helper.from_array(np.array(values, np.float32), name)


def branch(nodes, weights=(), output="o"):
    return helper.make_graph(nodes, "branch", [], [info(output, F, [2])], list(weights))


def model_of(nodes, weights=(), outputs=("y",), **more):
    inputs = [info("x", F, [2]), info("c", B)]
    graph = helper.make_graph(nodes, "main", inputs, [info(name, F, None) for name in outputs], list(weights))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **more).SerializeToString()


def choose(then, other, output="y"):
    return helper.make_node("If", ["c"], [output], then_branch=then, else_branch=other)


def check(data, tmp_path, want_true, want_false):
    for condition, want in ((True, want_true), (False, want_false)):
        inputs = {"x": np.array([1, 2], np.float32), "c": np.array(condition)}
        for model in (load(data), written(data, tmp_path)):
            for got, value in zip(values_of(model, inputs, Device.cpu()), want, strict=True):
                np.testing.assert_array_equal(got, np.array(value, np.float32))


def test_branches_with_a_weight_of_one_name(tmp_path):
    product = [helper.make_node("MatMul", ["x", "w"], ["o"])]
    then = branch(product, [weight("w", [[1, 0], [0, 1]])])
    other = branch(product, [weight("w", [[0, 3], [3, 0]])])
    check(model_of([choose(then, other)]), tmp_path, [[1, 2]], [[6, 3]])
    assert len(list(load(model_of([choose(then, other)])).named_params())) == 2


def test_branches_with_a_constant_of_one_name(tmp_path):
    add = helper.make_node("Add", ["x", "k"], ["o"])
    then, other = branch([constant("k", [5, 6]), add]), branch([constant("k", [7, 8]), add])
    check(model_of([choose(then, other)]), tmp_path, [[6, 8]], [[8, 10]])


def test_a_value_that_is_computed_in_one_branch_and_constant_in_the_other(tmp_path):
    double = helper.make_node("Add", ["k", "k"], ["o"])
    then, other = branch([helper.make_node("Neg", ["x"], ["k"]), double]), branch([constant("k", [7, 8]), double])
    check(model_of([choose(then, other)]), tmp_path, [[-2, -4]], [[14, 16]])


def test_a_constant_of_a_branch_whose_name_a_later_node_has(tmp_path):
    add = helper.make_node("Add", ["x", "k"], ["o"])
    then, other = branch([constant("k", [5, 6]), add]), branch([helper.make_node("Neg", ["x"], ["o"])])
    later = [helper.make_node("Mul", ["x", "x"], ["k"]), helper.make_node("Add", ["k", "t"], ["y"])]
    check(model_of([choose(then, other, "t"), *later]), tmp_path, [[7, 12]], [[0, 2]])


def test_loops_with_a_weight_of_one_name(tmp_path):
    def loop(w, source, result):
        nodes = [helper.make_node("Add", ["s", "W"], ["t"]), helper.make_node("Identity", ["go"], ["on"])]
        inputs = [info("i", L), info("go", B), info("s", F, [2])]
        body = helper.make_graph(nodes, "body", inputs, [info("on", B), info("t", F, [2])], [weight("W", w)])
        return helper.make_node("Loop", ["trips", "", source], [result], body=body)

    trips = numpy_helper.from_array(np.array(3), "trips")
    data = model_of([loop([1, 2], "x", "h"), loop([10, 20], "h", "y")], [trips])
    check(data, tmp_path, [[34, 68]], [[34, 68]])


def test_an_inner_graph_hides_an_outer_value_and_hands_out_what_it_did_not_make(tmp_path):
    """An input and a weight with outer names; branches that give an outer value, a weight of theirs, an input."""
    inner = helper.make_graph(
        [helper.make_node("Add", ["x", "k"], ["t"]), helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [info("i", L), info("go", B), info("x", F, [2])],
        [info("on", B), info("t", F, [2]), info("k", F, [2])],
        [weight("k", [1, 2])],
    )
    nodes = [
        constant("k", [100, 200]),
        helper.make_node("Loop", ["trips", "", "k"], ["h", "stack"], body=inner),
        choose(branch([], output="x"), branch([], [weight("v", [4, 5])], output="v"), "z"),
        helper.make_node("Add", ["h", "x"], ["y"]),
    ]
    data = model_of(nodes, [numpy_helper.from_array(np.array(2), "trips")], ("y", "stack", "z"))
    stack = [[1, 2], [1, 2]]
    check(data, tmp_path, [[103, 206], stack, [1, 2]], [[103, 206], stack, [4, 5]])


def test_reading_an_outer_value_before_making_one_of_its_name_is_refused():
    then = branch(
        [helper.make_node("Neg", ["k"], ["u"]), constant("k", [1, 2]), helper.make_node("Add", ["u", "k"], ["o"])]
    )
    other = branch([helper.make_node("Neg", ["x"], ["o"])])
    data = model_of([constant("k", [5, 5]), choose(then, other)])
    with pytest.raises(OnnxError, match=r"reads the outer value 'k', and makes another[\s\S]*expected[\s\S]*mend"):
        load(data)


def test_calls_of_a_function_by_nodes_of_one_name(tmp_path):
    """Also where an outer value has the name that an inner one would get."""
    body = [constant("two", 2.0), helper.make_node("Mul", ["a", "two"], ["b"])]
    body.append(
        choose(
            branch([constant("k", [1, 1]), helper.make_node("Add", ["b", "k"], ["o"])]),
            branch([constant("k", [2, 2]), helper.make_node("Sub", ["b", "k"], ["o"])]),
            "r",
        )
    )
    function = helper.make_function("mine", "f", ["a", "c"], ["r"], body, [helper.make_opsetid("", 17)])
    calls = [helper.make_node("f", ["x", "c"], ["call/two"], "call", domain="mine")]
    calls.append(helper.make_node("f", ["call/two", "c"], ["y"], "call", domain="mine"))
    check(model_of(calls, functions=[function]), tmp_path, [[7, 11]], [[-2, 2]])


def test_a_loop_that_never_runs_stacks_what_is_declared(tmp_path):
    def data(declared):
        nodes = [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Identity", ["go"], ["on"])]
        body = helper.make_graph(
            nodes,
            "b",
            [info("i", L), info("go", B), info("s", F, [2])],
            [info("on", B), info("t", F, [2]), info("t", F, declared)],
        )
        return model_of([helper.make_node("Loop", ["", "c", "x"], ["last", "y"], body=body)], outputs=("last", "y"))

    never = {"x": np.array([1, 2], np.float32), "c": np.array(False)}
    for model in (load(data([2])), written(data([2]), tmp_path)):
        last, stack = values_of(model, never, Device.cpu())
        assert last.tolist() == [1, 2]
        assert stack.shape == (0, 2)
        assert stack.dtype == np.float32
    with pytest.raises(OnnxError, match=r"never ran[\s\S]*does not declare[\s\S]*expected[\s\S]*mend"):
        values_of(load(data(None)), never, Device.cpu())


def test_branches_on_a_constant_go_out_again(tmp_path):
    add = helper.make_node("Add", ["x", "k"], ["o"])
    then, other = branch([constant("k", [5, 6]), add]), branch([constant("k", [7, 8]), add])
    nodes = [
        helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("If", ["yes"], ["y"], then_branch=then, else_branch=other),
    ]
    model = load(model_of(nodes))
    x = Tensor.from_data(np.array([1, 2], np.float32), Device.cpu())
    path = Path(tmp_path) / "again.onnx"
    export(lambda model, x: model.forward(x, Tensor.from_data(np.array(True), Device.cpu())), (model, x), path)
    assert load(path).forward(x).tolist() == [6, 8]
