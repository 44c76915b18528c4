"""Models whose sizes depend on data, functions and weights in odd forms: the values of onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import AttributeProto, TensorProto, helper, numpy_helper

from burn_torch import Device, OnnxError, Tensor, TraceError, compile
from burn_torch.onnx import load
from burn_torch.onnx.plan import plan_of
from burn_torch.onnx.reader import read_bytes
from burn_torch.onnx.source import source_of
from tests.onnx.control_graphs import share_names
from tests.onnx.flow_graphs import FlowModel
from tests.onnx.random_models import SEED, references, run_models, session_of
from tests.onnx.test_control_graphs import info, written

CPU = Device.cpu()
F, L, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def moved(value, device):
    return [moved(part, device) for part in value] if isinstance(value, list) else Tensor.from_data(value, device)


def values(y):
    return [values(part) for part in y] if isinstance(y, list) else y.into_data().values


def equal(got, want):
    if isinstance(want, list):
        return len(got) == len(want) and all(map(equal, got, want))
    return got.dtype == want.dtype and got.shape == want.shape and np.array_equal(got, want)


def results(model, feeds, device=CPU, run=lambda model, *xs: model.forward(*xs)):
    outputs = run(model, *[moved(x, device) for x in feeds.values()])
    return [values(y) for y in (outputs if isinstance(outputs, tuple) else (outputs,))]


def disagreements(seed, folder):
    """Returns what differs from onnxruntime for one random model; None where onnxruntime cannot run it."""
    drawn = FlowModel(seed)
    data = share_names(drawn.proto, seed).SerializeToString()
    wanted = references(drawn)
    if wanted is None:
        return None
    ways = {
        "loaded": lambda feeds: results(load(data), feeds),
        "numpy": lambda feeds: results(load(data, Device.ndarray()), feeds, Device.ndarray()),
        "source": lambda feeds: results(written(data, folder), feeds),
        "compiled": lambda feeds: results(load(data), feeds, CPU, compile(lambda m, *xs: m.forward(*xs))),
    }
    wrong = []
    for size, feeds, want in wanted:
        for way, run in ways.items():
            try:
                outputs = run(feeds)
            except TraceError:  # what depends on data cannot be compiled
                assert way == "compiled"
                continue
            wrong += [
                f"{way}, size {size}, output {i}: {got} instead of {value}"
                for i, (got, value) in enumerate(zip(outputs, want, strict=True))
                if not equal(got, value)
            ]
    return wrong


def test_random_models_whose_sizes_depend_on_data(tmp_path):
    run_models(disagreements, SEED, 10, tmp_path, least=0.8)


@pytest.mark.slow
def test_two_thousand_random_models_whose_sizes_depend_on_data(tmp_path):
    run_models(disagreements, SEED, 2000, tmp_path, least=0.8)


# -- the forms that were wrong, one by one ------------------------------------------------------------------------
X = np.array([1, 2], np.float32)


def model_of(nodes, inputs=(), weights=(), functions=(), sparse=(), outputs=("y",), ir_version=10):
    declared = [info("x", F, [2]), *inputs]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "main", declared, results, list(weights), sparse_initializer=list(sparse) or None)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=ir_version)


def check(proto, folder, **feeds):
    data, feeds = proto.SerializeToString(), {"x": X, **feeds}
    want = session_of(data).run(None, feeds)
    for model in (load(data), written(data, folder)):
        for got, value in zip(results(model, feeds), want, strict=True):
            assert equal(got, value), f"{got} instead of {value}"
    return want


def function(name, nodes, *, overload="", inputs=("a",), outputs=("b",), attributes=()):
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    proto = helper.make_function("mine", name, list(inputs), list(outputs), nodes, opsets, list(attributes))
    proto.overload = overload
    return proto


def call(name, inputs, outputs, overload="", **attributes):
    node = helper.make_node(name, inputs, outputs, domain="mine", **attributes)
    node.overload = overload
    return node


def test_a_call_of_an_overload_is_a_call_of_that_function(tmp_path):
    functions = [
        function("f", [helper.make_node("Neg", ["a"], ["b"])]),
        function("f", [helper.make_node("Exp", ["a"], ["b"])], overload="exp"),
        function("f", [call("f", ["a"], ["m"], "exp"), call("f", ["m"], ["b"])], overload="both"),
    ]
    for overload, want in (("", -X), ("exp", np.exp(X)), ("both", -np.exp(X))):
        data = model_of([call("f", ["x"], ["y"], overload)], functions=functions).SerializeToString()
        for model in (load(data), written(data, tmp_path)):  # onnxruntime calls the plain one within functions
            np.testing.assert_allclose(results(model, {"x": X})[0], want, rtol=1e-6)
    with pytest.raises(OnnxError, match=r"mine\.f"):
        load(model_of([call("f", ["x"], ["y"], "other")], functions=functions).SerializeToString())


def test_attributes_of_a_call_reach_functions_and_branches_within(tmp_path):
    def read(node, name, of, kind):
        attribute = node.attribute.add()
        attribute.name, attribute.ref_attr_name, attribute.type = name, of, kind
        return node

    leaky = read(helper.make_node("LeakyRelu", ["a"], ["o"]), "alpha", "slope", AttributeProto.FLOAT)
    branches = [
        helper.make_graph([node], "branch", [], [info("o", F, None)])
        for node in (leaky, helper.make_node("Neg", ["a"], ["o"]))
    ]
    choose = helper.make_node("If", ["c"], ["b"], then_branch=branches[0], else_branch=branches[1])
    inner = function("inner", [choose], inputs=("a", "c"), attributes=("slope",))
    passed = read(call("inner", ["a", "c"], ["b"]), "slope", "steep", AttributeProto.FLOAT)
    outer = function("outer", [passed], inputs=("a", "c"), attributes=("steep",))
    for more in ({}, {"steep": 0.5}):
        nodes = [helper.make_node("Neg", ["x"], ["n"]), call("outer", ["n", "c"], ["y"], **more)]
        for truth in (True, False):
            proto = model_of(nodes, [info("c", B)], functions=[inner, outer])
            check(proto, tmp_path, c=np.array(truth))


def test_branches_handed_to_a_function_read_the_values_of_the_caller(tmp_path):
    def branch(op):
        return helper.make_graph([helper.make_node(op, ["x"], ["o"])], op, [], [info("o", F, None)])

    node = helper.make_node("If", ["c"], ["p"])
    twice = helper.make_node("If", ["other"], ["q"])
    for one in (node, twice):
        for name in ("then_branch", "else_branch"):
            attribute = one.attribute.add()
            attribute.name, attribute.ref_attr_name, attribute.type = name, name, AttributeProto.GRAPH
    nodes = [helper.make_node("Not", ["c"], ["other"]), node, twice, helper.make_node("Sub", ["p", "q"], ["x"])]
    taking = function("choose", nodes, inputs=("c",), outputs=("x",), attributes=("then_branch", "else_branch"))
    called = call("choose", ["c"], ["y"], then_branch=branch("Abs"), else_branch=branch("Neg"))
    proto = model_of([called], [info("c", B)], functions=[taking])
    for truth, want in ((True, [2, 4]), (False, [-2, -4])):  # onnxruntime refuses branches that read outer values here
        data = proto.SerializeToString()
        for model in (load(data), written(data, tmp_path)):
            (got,) = results(model, {"x": X, "c": np.array(truth)})
            assert got.tolist() == want


def sparse(name, values, places, shape):
    rows = helper.make_tensor("values", F, [len(values)], values)
    rows.name = name
    at = np.array(places, np.int64)
    return helper.make_sparse_tensor(rows, numpy_helper.from_array(at), list(shape))


@pytest.mark.parametrize("places", [[1, 3], [[0, 1], [1, 1]]])
def test_sparse_weights_have_their_zeros(places, tmp_path):
    stored = sparse("w", [5.0, -2.0], places, (2, 2))
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    check(model_of([product], sparse=[stored]), tmp_path)
    value = helper.make_node("Constant", [], ["w"], sparse_value=stored)
    check(model_of([value, product]), tmp_path)
    assert [name for name, _ in load(model_of([product], sparse=[stored]).SerializeToString()).named_params()] == ["w"]


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (sparse("w", [1.0], [0], (1 << 20, 1 << 20)), "bytes with its zeros"),
        (sparse("w", [1.0], [4], (2, 2)), "a place outside"),
        (sparse("w", [1.0], [-1], (2, 2)), "a place outside"),
        (sparse("w", [1.0], [[0, 1, 0]], (2, 2)), r"places \(1, 3\)"),
        (sparse("w", [1.0], [0], (-2, 2)), "sizes of 0 or more"),
    ],
)
def test_a_sparse_weight_that_is_malformed_is_refused(stored, words):
    proto = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], sparse=[stored])
    with pytest.raises(OnnxError, match=rf"{words}[\s\S]*mend"):
        load(proto.SerializeToString())


@pytest.mark.parametrize("more", [[], ["n"]])
def test_a_row_of_nothing_is_split_into_no_parts(more, tmp_path):
    nodes = [
        helper.make_node("Compress", ["x", "none"], ["empty"]),
        helper.make_node("SplitToSequence", ["empty", *more], ["parts"]),
        helper.make_node("SequenceLength", ["parts"], ["y"]),
    ]
    weights = [numpy_helper.from_array(np.zeros(2, np.bool_), "none"), numpy_helper.from_array(np.array(2), "n")]
    assert check(model_of(nodes, weights=weights), tmp_path)[0] == 0


def test_source_of_a_loop_that_never_ran_gives_tensors(tmp_path):
    """A loop passes a value through: on the host if the host runs the loop, else on a device."""
    nodes = [helper.make_node("Identity", ["x"], ["t"]), helper.make_node("Identity", ["go"], ["on"])]
    body = helper.make_graph(
        nodes, "body", [info("i", L), info("go", B), info("s", F, [2])], [info("on", B), info("t", F, [2])]
    )
    nodes = [
        helper.make_node("Shape", ["r"], ["times"]),
        helper.make_node("Squeeze", ["times"], ["n"]),
        helper.make_node("Loop", ["n", "", "w"], ["y"], body=body),
        helper.make_node("Div", ["y", "two"], ["z"]),
    ]
    weights = [numpy_helper.from_array(X + 3, "w"), numpy_helper.from_array(np.array(2, np.float32), "two")]
    proto = model_of(nodes, [info("r", F, ["n"])], weights, outputs=("y", "z"))
    for n in (0, 1, 2):
        check(proto, tmp_path, r=np.zeros(n, np.float32))
    text = source_of(plan_of(read_bytes(proto.SerializeToString())))
    assert "as_tensor(y, device)" in text
