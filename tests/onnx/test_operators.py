"""Operators where the node cases do not look: unsigned numbers, values on the host, what is malformed."""

from __future__ import annotations

import numpy as np
import pytest

from burn_torch import Device, DType, OnnxError, ShapeError, Tensor, TensorData, compile
from burn_torch.onnx import operators as op
from burn_torch.onnx.operators.registry import find, known
from burn_torch.onnx.operators.windows import windows

THREE_PARTS = r"\n  given:    [\s\S]*\n  expected: [\s\S]*\n  mend:     "
BIG = np.array([2**63 + 5, 7, 2**64 - 1, 0], np.uint64)
SMALL = np.array([3, 2, 2**63 + 1, 9], np.uint64)


def tensor(values, dtype=None):
    return Tensor.from_data(np.asarray(values) if dtype is None else np.array(values, dtype), Device.cpu())


def listed(x):
    return [int(v) for v in x.into_data().values.reshape(-1)]


# -- u64, which torch can hardly compute on --------------------------------------------------------------------
@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (op.add, lambda a, b: (a + b) % 2**64),
        (op.subtract, lambda a, b: (a - b) % 2**64),
        (op.multiply, lambda a, b: a * b % 2**64),
        (op.divide, lambda a, b: a // b),
        (op.modulo, lambda a, b: a % b),
        (op.maximum, max),
        (op.minimum, min),
        (op.greater, lambda a, b: a > b),
        (op.less_equal, lambda a, b: a <= b),
        (op.equal, lambda a, b: a == b),
        (op.bitwise_xor, lambda a, b: a ^ b),
    ],
)
def test_u64_beyond_i64(function, exact):
    want = [exact(int(a), int(b)) for a, b in zip(BIG, SMALL, strict=True)]
    assert listed(function(tensor(BIG), tensor(SMALL))) == want
    assert [int(v) for v in function(BIG, SMALL)] == want  # on the host


def test_u64_in_order():
    assert listed(op.argmax(tensor(BIG), axis=0)) == [2]
    assert listed(op.argmin(tensor(BIG), axis=0)) == [3]
    assert listed(op.topk(tensor(BIG), [2])[0]) == [2**64 - 1, 2**63 + 5]
    assert listed(op.reduce_max(tensor(BIG))) == [2**64 - 1]
    assert listed(op.clip(tensor(BIG), 5, 2**63 + 6)) == [2**63 + 5, 7, 2**63 + 6, 5]
    assert listed(op.sign(tensor(BIG))) == [1, 1, 1, 0]
    assert listed(op.bit_shift(tensor(BIG), tensor([1, 0, 63, 3], np.uint64), direction="RIGHT")) == [
        2**62 + 2,
        7,
        1,
        0,
    ]


def test_written_source_can_call_every_operator():
    ours = [
        entry for entries in known().values() for entry in entries if entry.function.__module__.startswith(op.__name__)
    ]
    assert len(ours) > 200, "the table of operators is not loaded"
    assert [entry.name for entry in ours if getattr(op, entry.name, None) is not entry] == []


# -- values that the host knows -----------------------------------------------------------------------------------
def test_shapes_stay_on_the_host():
    shape = op.shape(Tensor.zeros((2, 3, 5), Device.cpu()))
    assert isinstance(shape, np.ndarray)
    rows = op.gather(shape, np.array(-1))
    assert isinstance(rows, np.ndarray)
    assert rows.shape == ()
    wide = op.concat(op.unsqueeze(rows, [0]), np.array([-1]), axis=0)
    assert wide.tolist() == [5, -1]
    assert op.reshape(Tensor.zeros((2, 3, 5), Device.cpu()), wide).shape == (5, 6)


def test_shapes_stay_on_the_host_while_a_function_is_traced():
    def flat(x):
        sizes = op.shape(x)
        return op.reshape(x, op.concat(op.slice_of(sizes, [0], [1]), np.array([-1]), axis=0)) * 2.0

    x = tensor(np.arange(12, dtype=np.float32).reshape(2, 3, 2))
    y = compile(flat)(x)
    assert y.shape == (2, 6)
    np.testing.assert_array_equal(y.into_data().values, 2 * np.arange(12).reshape(2, 6))


def test_arrays_beside_tensors_are_moved_to_them():
    y = op.add(tensor([1.0, 2.0], np.float32), np.array([10.0, 20.0], np.float32))
    assert y.tolist() == [11.0, 22.0]


def test_bfloat16_on_the_host():
    values = op.bfloat16([1.5, -2.0])
    assert isinstance(values, TensorData)
    twice = op.add(values, values)
    assert isinstance(twice, TensorData)
    assert twice.dtype is DType.BF16
    assert twice.values.tolist() == [3.0, -4.0]
    x = Tensor.from_data(values, Device.cpu())
    assert op.multiply(x, twice).into_data().values.tolist() == [4.5, 8.0]


def test_range_of_integers_is_exact():
    numbers = op.range_of(np.array(2**62), np.array(2**62 + 5), np.array(2))
    assert numbers.tolist() == [2**62, 2**62 + 2, 2**62 + 4]
    assert op.range_of(np.array(10), np.array(1), np.array(-3)).tolist() == [10, 7, 4]


# -- what is malformed ------------------------------------------------------------------------------------------------
X = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("there is no such axis", lambda: op.softmax(tensor(X), axis=2)),
        ("an axis is named twice", lambda: op.unsqueeze(tensor(X), [0, 0])),
        ("this element type is not supported", lambda: op.cast(tensor(X), to=8)),
        ("Reshape: the elements do not fit", lambda: op.reshape(tensor(X), [4, -1])),
        ("Squeeze: an axis that is to go", lambda: op.squeeze(tensor(X), [0])),
        ("Expand: the shapes do not broadcast", lambda: op.expand(tensor(X), [4, 3])),
        ("Split: the parts do not make", lambda: op.split(tensor(X), [1, 1, 1], outputs=3)),
        ("Split: the parts do not make", lambda: op.split_to_sequence(tensor(X), np.zeros(0, np.int64), axis=1)),
        ("Slice: the ranges are malformed", lambda: op.slice_of(tensor(X), [0], [1], [0], [0])),
        ("Pad: not as many amounts as axes", lambda: op.pad(tensor(X), [1, 1])),
        ("Pad: no such mode", lambda: op.pad(tensor(X), [1, 1, 1, 1], mode="mirror")),
        ("Range: the step is 0", lambda: op.range_of(np.array(0), np.array(1), np.array(0))),
        ("BitCast: these element types", lambda: op.bit_cast(tensor(X), to=11)),
        ("BitShift: no such direction", lambda: op.bit_shift(tensor([1]), tensor([1]), direction="UP")),
        ("Gelu: no such approximation", lambda: op.gelu(tensor(X), approximate="erf")),
        ("no such reduction", lambda: op.scatter_nd(tensor(X), tensor([[0]]), tensor(X[:1]), reduction="avg")),
        ("TopK: there are not that many", lambda: op.topk(tensor(X), [4])),
        ("Einsum: the equation does not fit", lambda: op.einsum(tensor(X), equation="ijk->i")),
        ("Resize: no such mode", lambda: op.resize(tensor(X), None, None, [2, 3], mode="sinc")),
        ("Resize: neither scales nor sizes", lambda: op.resize(tensor(X))),
        ("Resize: the sizes do not fit", lambda: op.resize(tensor(X), None, np.ones(3, np.float32), axes=(0, 1))),
        ("Resize: a size is negative", lambda: op.resize(tensor(X), None, None, [-2, 3])),
        (
            "Resize: no such coordinate",
            lambda: op.resize(tensor(X), None, None, [4, 3], coordinate_transformation_mode="round"),
        ),
        ("Resize: no such nearest mode", lambda: op.resize(tensor(X), None, None, [4, 3], nearest_mode="up")),
        ("the windows do not fit", lambda: windows((4, 4), (2,), None, None, None, "NOTSET")),
        ("a window of no size", lambda: windows((4,), (2,), (0,), None, None, "NOTSET")),
        ("no such auto_pad", lambda: windows((4,), (2,), None, None, None, "SAME")),
        ("there is no such place in the sequence", lambda: op.sequence_at([tensor(X)], np.array(1))),
        ("a loop that never ran", lambda: op.concat_from_sequence([], axis=0, new_axis=1)),
        ("OptionalGetElement: there is no value", lambda: op.optional_get_element(None)),
        ("Attention: inputs of three axes", lambda: op.attention(*[Tensor.zeros((1, 2, 4), Device.cpu())] * 3)),
        ("no quantised type of ours", lambda: op.quantize_linear(tensor(X), tensor(1.0, np.float32), output_dtype=1)),
    ],
)
def test_messages(what, call):
    with pytest.raises(OnnxError, match=what + r"[^\n]*" + THREE_PARTS):
        call()


def test_recurrent_layers_say_what_does_not_fit():
    x, w = Tensor.zeros((2, 1, 3), Device.cpu()), Tensor.zeros((1, 4, 3), Device.cpu())
    r = Tensor.zeros((1, 4, 4), Device.cpu())
    with pytest.raises(OnnxError, match="the weights do not fit the direction" + THREE_PARTS):
        op.rnn(x, w, r, direction="bidirectional")
    with pytest.raises(OnnxError, match="the weights do not fit the direction" + THREE_PARTS):
        op.rnn(x, w, r, direction="bidirectional", activations=("Tanh", "Tanh"))
    with pytest.raises(OnnxError, match="no such activation" + THREE_PARTS):
        op.rnn(x, w, r, activations=("Swish",))
    with pytest.raises(OnnxError, match="not as many activations as there are gates" + THREE_PARTS):
        op.rnn(x, w, r, activations=("Tanh", "Tanh"))


def test_a_bias_of_another_width_is_not_broadcast_over_the_gates():
    x, w, r = (Tensor.zeros(shape, Device.cpu()) for shape in ((2, 1, 3), (1, 16, 3), (1, 16, 4)))
    with pytest.raises(ShapeError, match="the range leaves the axis" + THREE_PARTS):
        op.lstm(x, w, r, Tensor.zeros((1, 2), Device.cpu()))
    wider = op.lstm(x, w, r, Tensor.ones((1, 36), Device.cpu()))
    assert listed(wider.equal(op.lstm(x, w, r, Tensor.ones((1, 32), Device.cpu())))) == [1] * 8


def test_modes_of_another_opset_are_refused_for_volumes():
    x, grid = Tensor.zeros((1, 1, 3, 3, 3), Device.cpu()), Tensor.zeros((1, 2, 2, 2, 3), Device.cpu())
    assert op.grid_sample_16(x, grid, mode="bilinear").shape == (1, 1, 2, 2, 2)
    for mode in ("bilinear", "bicubic"):
        with pytest.raises(OnnxError, match=rf"mode '{mode}'[\s\S]*linear or nearest"):
            op.grid_sample(x, grid, mode=mode)


# -- the registry ------------------------------------------------------------------------------------------------------
def test_no_two_entries_claim_one_opset():
    for name, entries in known().items():
        for opset in range(1, 40):
            fitting = [e for e in entries if e.since <= opset and (e.until is None or opset <= e.until)]
            assert len(fitting) <= 1, (name, opset)
    assert len(known()) >= 170


@pytest.mark.parametrize(
    ("older", "newer", "later"),
    [
        (op.scatter, op.scatter_elements, "joined"),
        (op.topk_1, op.topk, "smallest"),
        (op.topk_10, op.topk, "smallest"),
        (op.slice_1, op.slice_of, "step"),
        (op.max_pool_1, op.max_pool, "second output"),
        (op.average_pool_1, op.average_pool, "with or without"),
    ],
)
def test_an_earlier_operator_does_not_promise_what_came_later(older, newer, later):
    assert later in newer.__doc__
    assert later not in older.__doc__


OF_ONNXRUNTIME = {"SimplifiedLayerNormalization"}
"""Operators that onnxruntime writes among ONNX's own; LayerNormalization is one before opset 17."""


def test_entries_begin_where_onnx_changed_the_operator():
    onnx = pytest.importorskip("onnx")
    newest = onnx.defs.onnx_opset_version()
    for name, entries in known().items():
        for entry in entries:
            if name in OF_ONNXRUNTIME:
                continue
            opset = min(entry.until or newest, newest)
            assert onnx.defs.get_schema(name, opset, "").since_version <= opset, (name, entry)


def test_attributes_of_the_newest_schemas_are_known():
    """Attributes of the standard that an entry refuses are refused on purpose."""
    onnx = pytest.importorskip("onnx")
    opset = onnx.defs.onnx_opset_version()
    refused = {}
    for name in known():
        entry = find("", name, opset)
        if entry is None or name in OF_ONNXRUNTIME:
            continue
        schema = onnx.defs.get_schema(name, opset, "")
        missing = sorted(set(schema.attributes) - set(entry.attributes))
        if missing:
            refused[name] = missing
    assert refused == {}


def test_a_backward_slice_from_before_the_first_element_begins_at_the_first():
    """As the standard and onnxruntime have it; Python's own slice has no element there."""
    x = np.arange(5)
    for start, end, step, want in (
        (-9, -9, -1, [0]),
        (-6, -20, -2, [0]),
        (-5, -9, -1, [0]),
        (9, -9, -3, [4, 1]),
        (-9, 1, -1, []),
    ):
        got = op.slice_of(tensor(x), np.array([start]), np.array([end]), np.array([0]), np.array([step]))
        assert listed(got) == want, (start, end, step)
    assert op.slice_of(tensor(np.zeros(0)), np.array([-9]), np.array([-9]), np.array([0]), np.array([-1])).shape == (0,)


def test_a_backward_slice_is_that_of_onnxruntime(seed):
    runtime = pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper

    kinds = [helper.make_tensor_value_info(name, TensorProto.INT64, ["n"]) for name in "xabcd"]
    node = helper.make_node("Slice", ["x", "a", "b", "c", "d"], ["y"])
    graph = helper.make_graph([node], "g", kinds, [helper.make_tensor_value_info("y", TensorProto.INT64, ["m"])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(200):
        x = np.arange(seed.integers(1, 6))
        start, end = (np.array([value]) for value in seed.integers(-9, 10, 2))
        step = np.array([seed.choice([-3, -2, -1, 1, 2])])
        want = session.run(None, {"x": x, "a": start, "b": end, "c": np.array([0]), "d": step})[0]
        assert listed(op.slice_of(tensor(x), start, end, np.array([0]), step)) == want.tolist(), (x, start, end, step)
