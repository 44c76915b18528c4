"""Files that are damaged or made to harm: one clear error, nothing executed, nothing read outside, memory bounded."""

from __future__ import annotations

import ast
import contextlib
import os
import sys
import time
import tracemalloc
import types

import numpy as np
import pytest

pytest.importorskip("onnx")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from burn_torch import BurnTorchError, DataError, Device, OnnxError, Tensor
from burn_torch.onnx import ModelGen, load, read_model, report_on
from burn_torch.onnx.names import MAX_LENGTH, Names
from burn_torch.onnx.plan import plan_of
from burn_torch.onnx.reader import read_bytes
from burn_torch.onnx.source import source_of
from tests.onnx.small_models import MODELS, F, cnn, info, mlp

THREE_PARTS = r"\n  given:    [\s\S]*\n  expected: [\s\S]*\n  mend:     "


def raw(nodes, inputs=(), outputs=(), weights=(), *, opset=18, functions=()):
    """A model that onnx.checker need not like."""
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(weights))
    domains = sorted({function.domain for function in functions})
    opsets = [helper.make_opsetid("", opset), *[helper.make_opsetid(domain, 1) for domain in domains]]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions)).SerializeToString()


def refused(data, match):
    with pytest.raises(OnnxError, match=match) as caught:
        load(data)
    assert isinstance(caught.value, DataError)
    with pytest.raises(OnnxError, match=THREE_PARTS):
        raise caught.value
    return str(caught.value)


# -- the file ---------------------------------------------------------------------------------------------
def test_a_missing_file(tmp_path):
    with pytest.raises(OnnxError, match="there is no such ONNX file" + THREE_PARTS):
        load(tmp_path / "none.onnx")
    with pytest.raises(OnnxError, match="there is no such ONNX file"):
        load(tmp_path)


@pytest.mark.parametrize("data", [b"", b"not a protobuf at all", b"\x00" * 64, b"PK\x03\x04", b"\x80\x04\x95N."])
def test_what_is_no_onnx_file(data):
    refused(data, "this is not an ONNX")


def test_truncations_give_one_kind_of_error():
    data = mlp()[0].SerializeToString()
    for end in range(0, len(data), 7):
        try:
            load(data[:end])
        except OnnxError:
            continue
        pytest.fail(f"{end} bytes of {len(data)} were taken for a model")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(["mlp", "loop", "function", "lstm"]), data=st.data())
def test_flipped_bits_load_or_give_an_error_of_ours(name, data):
    content = bytearray(MODELS[name]()[0].SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        model = load(bytes(content), memory_limit_bytes=1 << 24)
    except OnnxError:
        return
    inputs = [Tensor.from_data(array, Device.cpu()) for array in MODELS[name]()[1]]
    try:
        model.forward(*inputs)
    except BurnTorchError:
        return


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_give_an_error_of_ours(data):
    with pytest.raises(OnnxError, match=THREE_PARTS):
        load(data)


# -- the graph --------------------------------------------------------------------------------------------------
def test_every_unsupported_node_is_named_at_once():
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["a"], "first"),
        helper.make_node("Relu", ["x"], ["b"], "fine"),
        helper.make_node("Mystery", ["b"], ["c"], "second", domain="elsewhere"),
        helper.make_node("Elu", ["b"], ["d"], "third", shape="round"),
        helper.make_node("Conv", ["b"], ["e"], "fourth"),
        helper.make_node("Concat", ["b", "b"], ["f"], "fifth"),
    ]
    data = raw(nodes, [info("x", [2])], [info(name, [2]) for name in "abcdef"])
    text = refused(data, "5 nodes of a model in memory cannot be imported")
    assert "StringNormalizer (opset 18) 'first': not supported" in text
    assert "elsewhere.Mystery (opset 1) 'second': not supported" in text
    assert "'third': attributes that are not supported: shape" in text
    assert "'fourth': 1 inputs where 2 to 3 are taken" in text
    assert "'fifth': attributes that are missing: axis" in text
    assert "fine" not in text


def test_graphs_that_are_numbers_are_named():
    nodes = [helper.make_node("Loop", ["n", ""], ["y"], "l", body=3)]
    nodes.append(helper.make_node("If", ["c"], ["z"], "i", then_branch="a", else_branch=2.5))
    inputs = [helper.make_tensor_value_info("n", TensorProto.INT64, []), info("c", [])]
    text = refused(raw(nodes, inputs, [info("y", None), info("z", None)]), "2 nodes")
    assert "'l': attributes that are no graphs: body" in text
    assert "'i': attributes that are no graphs: then_branch, else_branch" in text


@pytest.mark.parametrize("name", ["strides", "dilations", "pads"])
def test_source_of_a_number_in_the_place_of_several_is_written(name):
    node = helper.make_node("Conv", ["x", "w"], ["y"], "c", **{name: 2})
    weight = numpy_helper.from_array(np.ones((1, 1, 1, 1), np.float32), "w")
    data = raw([node], [info("x", [1, 1, 3, 3])], [info("y", None)], [weight])
    assert f"{name}=2" in source_of(plan_of(read_bytes(data)))
    with pytest.raises(OnnxError, match=r"'c' cannot compute with these inputs[\s\S]*mend"):
        load(data).forward(Tensor.ones((1, 1, 3, 3), Device.cpu()))


def test_an_operator_of_another_opset_says_which_are_known():
    data = raw([helper.make_node("Trilu", ["x"], ["y"], "t")], [info("x", [2, 2])], [info("y", [2, 2])], opset=12)
    refused(data, "'t': known for opset 14 and newer only")


def test_an_opset_that_is_not_known():
    refused(raw([], [info("x", [1])], [info("x", [1])], opset=999), "this opset is not known" + THREE_PARTS)


def test_a_circle_is_named():
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], "one"), helper.make_node("Relu", ["a"], ["b"], "two")]
    refused(
        raw(nodes, [info("x", [1])], [info("b", [1])]), r"the graph is malformed[\s\S]*a circle through Add .*'one'"
    )


def test_all_faults_of_a_graph_are_reported_together():
    nodes = [helper.make_node("Relu", ["nowhere"], ["a"], "one"), helper.make_node("Relu", ["x"], ["a"], "two")]
    text = refused(raw(nodes, [info("x", [1])], [info("z", [1])]), "3 faults")
    assert "reads 'nowhere', which nothing makes" in text
    assert "value 'a' is made twice" in text
    assert "output 'z' of graph 'g' is never made" in text


def test_nodes_out_of_order_are_brought_into_order():
    nodes = [helper.make_node("Neg", ["a"], ["y"], "later"), helper.make_node("Relu", ["x"], ["a"], "sooner")]
    y = load(raw(nodes, [info("x", [2])], [info("y", [2])])).forward(Tensor.from_data([-1.0, 2.0], Device.cpu()))
    assert y.tolist() == [0.0, -2.0]


def test_functions_that_double_thirty_times():
    functions = []
    for i in range(30):
        inner = "leaf" if i == 0 else f"f{i - 1}"
        kind = {} if i == 0 else {"domain": "mine"}
        op = "Relu" if i == 0 else inner
        body = [helper.make_node(op, ["a"], ["b"], **kind), helper.make_node(op, ["b"], ["c"], **kind)]
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
        functions.append(helper.make_function("mine", f"f{i}", ["a"], ["c"], body, opsets))
    node = helper.make_node("f29", ["x"], ["y"], domain="mine")
    start = time.monotonic()
    refused(raw([node], [info("x", [1])], [info("y", [1])], functions=functions), "too large once its functions")
    assert time.monotonic() - start < 20


def test_functions_that_multiply_what_they_hold():
    """A constant, and a list of inputs, that every call of a function copies."""
    held = numpy_helper.from_array(np.zeros(100_000, np.float32))
    bodies = {
        "constant": ([helper.make_node("Constant", [], ["k"], value=held), helper.make_node("Relu", ["a"], ["b"])], 1),
        "inputs": ([helper.make_node("Relu", ["a"], ["b"])], 100_000),
    }
    for name, (body, inputs) in bodies.items():
        names = ["a", *(f"unused_input{i}" for i in range(inputs - 1))]
        function = helper.make_function("mine", name, names, ["b"], body, [helper.make_opsetid("", 18)])
        nodes = [helper.make_node(name, [f"v{i}"], [f"v{i + 1}"], domain="mine") for i in range(3000)]
        data = raw(nodes, [info("v0", [1])], [info("v3000", [1])], functions=[function])
        start = time.monotonic()
        refused(data, "too large once its functions are written out" + THREE_PARTS)
        assert time.monotonic() - start < 10


def many_nodes(count):
    return [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)], [], f"v{count}"


def many_weights(count):
    weights = [numpy_helper.from_array(np.array([1, i], np.float32), f"w{i}") for i in range(count)]
    return [helper.make_node("Sum", ["v0", *(f"w{i}" for i in range(count))], ["y"])], weights, "y"


def one_weight_twice(count):
    weights = [numpy_helper.from_array(np.array([1, 2], np.float32), f"w{min(i, count - 2)}") for i in range(count)]
    return [helper.make_node("Relu", ["v0"], ["y"])], weights, "y"


def many_branches(count):
    def branch(name):
        return helper.make_graph([helper.make_node("Neg", ["v0"], [name])], name, [], [info(name, [2])])

    nodes = [
        helper.make_node("If", ["c"], [f"y{i}"], then_branch=branch("a"), else_branch=branch("b"))
        for i in range(count // 4)
    ]
    return [*nodes, helper.make_node("Sum", [f"y{i}" for i in range(count // 4)], ["y"])], [], "y"


@pytest.mark.slow
@pytest.mark.parametrize("make", [many_nodes, many_weights, one_weight_twice, many_branches])
def test_time_grows_with_the_size_of_a_file(make):
    seconds = []
    for count in (15_000, 60_000):
        nodes, weights, last = make(count)
        inputs = [info("v0", [2]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
        data = raw(nodes, inputs, [info(last, [2])], weights)
        start = time.process_time()
        with contextlib.suppress(OnnxError):  # of the weight that is there twice
            load(data)
            source_of(plan_of(read_bytes(data)))
        seconds.append(time.process_time() - start)
    assert seconds[1] < 8 * seconds[0] + 0.5, seconds


def test_a_function_that_calls_itself():
    body = [helper.make_node("f", ["a"], ["b"], domain="mine")]
    function = helper.make_function("mine", "f", ["a"], ["b"], body, [helper.make_opsetid("mine", 1)])
    node = helper.make_node("f", ["x"], ["y"], domain="mine")
    refused(raw([node], [info("x", [1])], [info("y", [1])], functions=[function]), "nested too deep")


def test_a_small_file_that_asks_for_terabytes():
    shape = numpy_helper.from_array(np.array([1 << 20, 1 << 20], np.int64), "shape")
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["big"], "fill"),
        helper.make_node("Add", ["x", "big"], ["y"]),
    ]
    data = raw(nodes, [info("x", [1])], [info("y", None)], [shape])
    tracemalloc.start()
    try:
        text = refused(data, "would take too much memory" + THREE_PARTS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "4398046511104 bytes" in text
    assert peak < 64 << 20


def test_constants_that_grow_by_doubling():
    one = numpy_helper.from_array(np.zeros(1024, np.float32), "v0")
    nodes = [helper.make_node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], f"n{i}", axis=0) for i in range(40)]
    data = raw(nodes, [], [info("v40", None)], [one])
    with pytest.raises(OnnxError, match="would take too much memory") as caught:
        load(data, memory_limit_bytes=1 << 24)
    assert any("in Concat (opset 18) 'n" in note for note in caught.value.__notes__)


def test_weights_whose_size_is_a_lie():
    def weight(dims, **fields):
        tensor = TensorProto(name="w", dims=dims, data_type=fields.pop("data_type", F))
        for key, value in fields.items():
            setattr(tensor, key, value) if key == "raw_data" else getattr(tensor, key).extend(value)
        return raw([helper.make_node("Add", ["x", "w"], ["y"])], [info("x", [1])], [info("y", None)], [tensor])

    refused(weight([1 << 40], raw_data=b"1234"), "the tensor 'w' of the model is malformed" + THREE_PARTS)
    refused(weight([2], raw_data=b"1234"), "4 bytes for")
    refused(weight([-3], raw_data=b""), "a negative size")
    refused(weight([3], float_data=[1.0]), "1 values for 3 elements")
    refused(weight([1], int32_data=[300], data_type=TensorProto.UINT8), "values outside u8")
    refused(weight([1], raw_data=b"1", data_type=TensorProto.FLOAT8E4M3FN), "FLOAT8E4M3FN")
    refused(weight([1], raw_data=b"1", data_type=99), "data type 99")


def test_constants_that_do_not_fit_their_operator():
    weights = [numpy_helper.from_array(np.zeros((2, 3), np.float32), "a")]
    data = raw([helper.make_node("MatMul", ["a", "a"], ["y"], "bad")], [], [info("y", None)], weights)
    refused(data, r"MatMul \(opset 18\) 'bad' cannot be worked out" + THREE_PARTS)


# -- external data -----------------------------------------------------------------------------------------------
def external(location, *, offset=0, length=8, dims=(2,)):
    tensor = TensorProto(name="w", dims=list(dims), data_type=F, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return raw([helper.make_node("Add", ["x", "w"], ["y"])], [info("x", [2])], [info("y", [2])], [tensor])


def test_external_data_beside_the_model(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"12345678" + np.array([1, 2], np.float32).tobytes())
    (tmp_path / "m.onnx").write_bytes(external("weights.bin", offset=8))
    y = load(tmp_path / "m.onnx").forward(Tensor.from_data([1.0, 1.0], Device.cpu()))
    assert y.tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    "location",
    ["../secret.bin", "/etc/passwd", "sub/../../secret.bin", "", ".", "link.bin", "folder/inner.bin", "a\\b"],
)
def test_external_data_stays_in_the_folder(tmp_path, location):
    inside = tmp_path / "model"
    inside.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"12345678")
    (inside / "link.bin").symlink_to(tmp_path / "secret.bin")
    (inside / "folder").symlink_to(tmp_path)
    (inside / "m.onnx").write_bytes(external(location))
    with pytest.raises(OnnxError, match="the tensor 'w' of the model is malformed" + THREE_PARTS):
        load(inside / "m.onnx")


def test_external_data_that_is_no_plain_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.bin")
    (tmp_path / "m.onnx").write_bytes(external("pipe.bin"))
    with pytest.raises(OnnxError, match="malformed"):
        load(tmp_path / "m.onnx")
    (tmp_path / "one.bin").write_bytes(b"12345678")
    os.link(tmp_path / "one.bin", tmp_path / "two.bin")
    (tmp_path / "m.onnx").write_bytes(external("one.bin"))
    with pytest.raises(OnnxError, match="a plain file with one name"):
        load(tmp_path / "m.onnx")


@pytest.mark.parametrize(("offset", "length"), [(4, 8), (-4, 8), (0, 1 << 60), (1 << 62, 8)])
def test_external_data_within_the_file(tmp_path, offset, length):
    (tmp_path / "w.bin").write_bytes(b"12345678")
    (tmp_path / "m.onnx").write_bytes(external("w.bin", offset=offset, length=length))
    with pytest.raises(OnnxError, match="within the file"):
        load(tmp_path / "m.onnx")


def test_external_data_is_not_read_again_and_again(tmp_path):
    """Many weights of one region of a file: 64 MB became 256 GB."""
    (tmp_path / "w.bin").write_bytes(bytes(800))
    tensors = []
    for i in range(40):
        tensor = TensorProto(name=f"w{i}", dims=[200], data_type=F, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="./" * (i % 3) + "w.bin")
        tensors.append(tensor)

    def write(count):
        nodes = [helper.make_node("Sum", ["x", *(f"w{i}" for i in range(count))], ["y"])]
        (tmp_path / "m.onnx").write_bytes(raw(nodes, [info("x", [200])], [info("y", [200])], tensors[:count]))

    write(2)  # tied weights
    load(tmp_path / "m.onnx")
    write(40)
    with pytest.raises(OnnxError, match=r"'w2'[\s\S]*take 2400 bytes in all[\s\S]*at most 2 times the 800[\s\S]*mend"):
        load(tmp_path / "m.onnx")


def test_a_hard_link_is_refused_before_it_is_opened(tmp_path, monkeypatch):
    (tmp_path / "one.bin").write_bytes(b"12345678")
    os.link(tmp_path / "one.bin", tmp_path / "two.bin")
    (tmp_path / "m.onnx").write_bytes(external("one.bin"))
    monkeypatch.setattr(os, "open", lambda *words: pytest.fail(f"opened {words}"))
    with pytest.raises(OnnxError, match="a plain file with one name"):
        load(tmp_path / "m.onnx")


def test_external_data_of_a_model_in_memory():
    refused(external("w.bin"), "it was not read from a folder")


# -- names ---------------------------------------------------------------------------------------------------------
HOSTILE = [
    'x"""; import os; os.system("touch HACKED"); """',
    "a\nimport os\nos.system('touch HACKED')",
    "__import__('os').system('touch HACKED')",
    "self", "class", "print", "None", "forward", "named_params", "", "1", "é", "a b", "a.b", "a-b", "a_b", "A_B",
    "\\", "#", "{x}", "%s", "\x00", "\u202e", "x" * 5_000, "op", "np", "Model", "found", "plan",
]  # fmt: skip


def test_hostile_names_become_plain_identifiers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [name for name in HOSTILE if name]
    nodes, last, weights = [], "x", []
    for i, name in enumerate(names):
        weights.append(numpy_helper.from_array(np.array([1, 2], np.float32), f"w{name}"))
        nodes.append(helper.make_node("Add", [last, f"w{name}"], [name], name, doc_string=name))
        last = name
        assert i >= 0
    proto = helper.make_model(
        helper.make_graph(nodes, names[0], [info("x", [2])], [info(last, [2])], weights),
        opset_imports=[helper.make_opsetid("", 18)],
        producer_name=names[0],
        producer_version=names[1],
    )
    file = tmp_path / "a'\"b;c.onnx"
    file.write_bytes(proto.SerializeToString())
    path = ModelGen().input(file).out_dir(tmp_path / "out").run()
    text = path.read_text()
    assert text.isascii()
    tree = ast.parse(text)
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert calls <= {
        "op.add",
        "cls",
        "parameter",
        "cls.init(device).load_file",
        "cls.init",
        "Path",
        "Path(__file__).with_name",
    } | {name for name in calls if name.startswith("self.") and name.endswith(".val")}
    imports = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imports == {"__future__", "pathlib", "burn_torch", "burn_torch.onnx"}
    namespace = {"__name__": "hostile", "__file__": str(path)}
    monkeypatch.setitem(sys.modules, "hostile", types.ModuleType("hostile"))
    exec(compile(tree, str(path), "exec"), namespace)
    model = namespace["Model"].from_record(Device.cpu())
    y = model.forward(Tensor.from_data([0.0, 0.0], Device.cpu()))
    assert y.tolist() == [float(len(names)), 2.0 * len(names)]
    assert not list(tmp_path.rglob("HACKED"))


@settings(max_examples=300)
@given(st.lists(st.text(max_size=80), min_size=1, max_size=20))
def test_names_are_identifiers_and_unique(wishes):
    names = Names(["taken"])
    unique_names = [names.unique(wish) for wish in wishes]
    assert len(set(unique_names)) == len(unique_names)
    assert all(name.isidentifier() and name.isascii() and len(name) <= MAX_LENGTH + 12 for name in unique_names)
    assert not {"taken", "self", "op", "np"} & set(unique_names)
    for name in unique_names:
        compile(f"{name} = 1", "name", "exec")


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_texts_of_attributes_stay_texts(equation, mode):
    nodes = [
        helper.make_node("Einsum", ["x"], ["a"], "e", equation=equation),
        helper.make_node("Resize", ["x", "", "s"], ["b"], "r", mode=mode),
    ]
    scales = numpy_helper.from_array(np.array([2.0], np.float32), "s")
    data = raw(nodes, [info("x", [2])], [info("a", None), info("b", None)], [scales])
    tree = ast.parse(source_of(plan_of(read_bytes(data))))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert equation in texts
    assert mode in texts or mode == "nearest"


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path):
    evil = "Ev\x1b[2J\r\u202eil\nnext"
    nodes = [helper.make_node(evil, [evil], ["y"], evil, domain=evil)]
    weight = numpy_helper.from_array(np.zeros(2, np.float32), evil + "w")
    weight.data_type = 99
    good = helper.make_node("Relu", [evil], ["y"], evil)
    for data in (
        raw(nodes, [info(evil, [evil])], [info("y", [2])]),
        raw([good, good], [info(evil, [2])], [info("y", [2])]),
        raw([good], [info(evil, [2])], [info(evil + "out", [2])]),
        raw([good], [info(evil, [2])], [info("y", [2])], [weight]),
        helper.make_model(
            helper.make_graph([good], evil, [info(evil, [2])], [info("y", [2])]),
            producer_name=evil,
            opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(evil, 1)],
        ).SerializeToString(),
    ):
        texts = []
        try:
            texts.append(str(report_on(read_bytes(data))))
            model = load(data)
            model.forward(Tensor.zeros((3, 3), Device.cpu()))
        except BurnTorchError as error:
            texts += [str(error), *getattr(error, "__notes__", ())]
        assert texts
        for text in texts:
            assert text.replace("\n", "").isprintable(), ascii(text)
            assert "\nnext" not in text


# -- the report ------------------------------------------------------------------------------------------------------
def test_the_report_counts(tmp_path):
    file = tmp_path / "cnn.onnx"
    file.write_bytes(cnn()[0].SerializeToString())
    report = report_on(read_model(file))
    assert report.ok
    assert report.operators == {
        "BatchNormalization": 1, "Conv": 1, "LeakyRelu": 1, "MatMul": 1, "MaxPool": 1, "Reshape": 1,
    }  # fmt: skip
    assert report.inputs == ("x (n, 3, 7, 7) f32",)
    assert report.tensors == 8
    text = str(report)
    assert "opset ai.onnx 18" in text
    assert "all of them can be imported" in text


def test_a_graph_without_outputs_is_refused_before_source_is_written(tmp_path):
    (tmp_path / "m.onnx").write_bytes(raw([helper.make_node("Relu", ["x"], ["y"])], [info("x", [1])], []))
    with pytest.raises(
        OnnxError, match=r"the graph is malformed.*\n  given: .*graph 'g' has no outputs\n  expected: .*\n  mend: "
    ):
        ModelGen().input(tmp_path / "m.onnx").out_dir(tmp_path / "out").run()
    assert not (tmp_path / "out").exists()


def test_inputs_of_other_sizes_than_the_file_fixes():
    data = raw([helper.make_node("Relu", ["x"], ["y"])], [info("x", ["n", 5])], [info("y", None)])
    assert load(data).forward(Tensor.zeros((3, 5), Device.cpu())).shape == (3, 5)
    for shape in ((3, 1), (3, 5, 1), (5,)):
        with pytest.raises(
            OnnxError, match=r"other sizes than the file fixes[\s\S]*given: .*x \([\s\S]*x \(n, 5\)[\s\S]*mend"
        ):
            load(data).forward(Tensor.zeros(shape, Device.cpu()))


@pytest.mark.parametrize("op", ["Tile", "Pad", "Expand"])
def test_results_of_terabytes_are_errors_of_ours(op):
    sizes = {"Tile": [1 << 20] * 2, "Pad": [1 << 20] * 4, "Expand": [1 << 20] * 2}[op]
    nodes = [helper.make_node(op, ["x", "sizes"], ["h"], "large"), helper.make_node("Exp", ["h"], ["y"])]
    data = raw(nodes, [info("x", [1, 1])], [info("y", None)], [numpy_helper.from_array(np.array(sizes), "sizes")])
    with pytest.raises(BurnTorchError, match="no memory for the result") as caught:
        load(data).forward(Tensor.zeros((1, 1), Device.cpu()))
    assert any("(opset 18)" in note for note in caught.value.__notes__)


def test_indices_beyond_the_data_are_errors_of_ours():
    weights = [numpy_helper.from_array(np.array([7], np.int64), "i")]
    data = raw([helper.make_node("Gather", ["x", "i"], ["y"], "far")], [info("x", [2])], [info("y", [1])], weights)
    with pytest.raises(BurnTorchError, match="given") as caught:
        load(data).forward(Tensor.zeros((2,), Device.cpu()))
    assert "in Gather (opset 18) 'far'" in caught.value.__notes__


def test_models_without_onnx_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(OnnxError, match=r"needs the package onnx[\s\S]*mend:     pip install 'burn-torch\[onnx\]'"):
        load(b"abc")


def test_a_small_file_may_not_fill_the_memory_unless_it_is_told_to(tmp_path):
    """Constants of 128 MiB worked out from one number."""
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [1 << 25])
    nodes = [helper.make_node("ConstantOfShape", ["shape"], ["big"]), helper.make_node("Add", ["x", "big"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1 << 25]) for name in "xy")
    graph = helper.make_graph(nodes, "large", [x], [y], [shape])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()
    with pytest.raises(OnnxError, match="a constant of the model would take too much memory"):
        load(data)
    load(data, memory_limit_bytes=1 << 28)
