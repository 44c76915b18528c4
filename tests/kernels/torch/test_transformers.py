"""Models of transformers, built small without a download: patched and plain they train alike, eager and compiled."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import burn_kernels.torch as bk

transformers: Any = pytest.importorskip("transformers")

KINDS = ("Llama", "Qwen2", "GPT2")
SMALL = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
REPLACED = {
    "Llama": {"Embedding": 1, "LlamaAttention": 2, "LlamaMLP": 2, "LlamaRMSNorm": 5},
    "Qwen2": {"Embedding": 1, "Qwen2Attention": 2, "Qwen2MLP": 2, "Qwen2RMSNorm": 5},
    "GPT2": {"Embedding": 2, "LayerNorm": 5, "GPT2MLP": 2, "NewGELUActivation": 2},
}
"""How many modules of each class are exchanged; the loss function of the model beside them."""
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def build(kind: str, device: str = "cpu", **options: Any) -> Any:
    torch.manual_seed(0)
    if kind == "GPT2":
        options = {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16} | options
        options |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**options)).to(device)
    config = getattr(transformers, f"{kind}Config")(**{**SMALL, **HEADS, **options})
    return getattr(transformers, f"{kind}ForCausalLM")(config).to(device)


def batch(device: str) -> torch.Tensor:
    return torch.randint(0, 97, (4, 16), generator=torch.Generator().manual_seed(1)).to(device)


def train(net: Any, call: Any, device: str, steps: int) -> list[float]:
    ids, losses = batch(device), []
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = call(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def close(actual: Any, expected: Any) -> None:
    # ten steps multiply float32 roundings, of which a GPU's products make more
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_patched_and_plain_train_alike(kind: str, device: str) -> None:
    plain = build(kind, device)
    patched = copy.deepcopy(plain)
    report = bk.patch(patched)
    assert kinds(report) == REPLACED[kind]
    assert any(entry.kind.endswith("ForCausalLM.loss_function") or "LMHead" in entry.kind for entry in report.replaced)
    close(train(patched, patched, device, 10), train(plain, plain, device, 10))
    checked = bk.check(patched, {"input_ids": batch(device)[:2], "labels": batch(device)[:2]}, offsets=False)
    assert checked.ok, checked
    assert checked.reference_used == (device == "cpu")


def kinds(report: bk.PatchReport) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in report.replaced:
        if not entry.kind.endswith("loss_function"):
            counts[entry.kind] = counts.get(entry.kind, 0) + 1
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_states_interchange_and_unpatch_restores(kind: str) -> None:
    plain, patched = build(kind), build(kind)
    for p in patched.parameters():
        nn.init.normal_(p, std=0.1)
    bk.patch(patched)
    assert list(patched.state_dict()) == list(plain.state_dict())
    plain.load_state_dict(patched.state_dict())
    close(patched(input_ids=batch("cpu")).logits, plain(input_ids=batch("cpu")).logits)
    classes = [type(m) for m in plain.modules()]
    attributes = [sorted(vars(m)) for m in plain.modules()]
    bk.unpatch(patched)
    assert [type(m) for m in patched.modules()] == classes
    assert [sorted(vars(m)) for m in patched.modules()] == attributes
    assert torch.equal(patched(input_ids=batch("cpu")).logits, plain(input_ids=batch("cpu")).logits)
    patched.load_state_dict(plain.state_dict())


def breaks(net: Any, ids: torch.Tensor) -> tuple[int, set[str]]:
    """Breaks of the graph of a loss, and the operators of this library in it."""
    torch._dynamo.reset()
    explained = torch._dynamo.explain(lambda ids: net(input_ids=ids, labels=ids).loss)(ids)
    nodes = [node for graph in explained.graphs for node in graph.graph.nodes]
    return explained.graph_break_count, {
        str(node.target).split(".")[1] for node in nodes if "burn_kernels" in str(node.target)
    }


@pytest.mark.filterwarnings("default")  # of torch.compile about the plain model, whose graph it has to break
@pytest.mark.parametrize("kind", ["Llama", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])])
def test_compiled_without_a_new_break(kind: str) -> None:
    plain = build(kind)
    patched = copy.deepcopy(plain)
    bk.patch(patched)
    before, after = breaks(plain, batch("cpu")), breaks(patched, batch("cpu"))
    assert before[1] == set()
    assert after[0] <= before[0]
    norm = "layer_norm" if kind == "GPT2" else "rms_norm"
    assert after[1] >= {norm, "cross_entropy", "embedding"} | ({"linear"} if kind == "GPT2" else {"rope", "glu"})


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_on_the_same_curve(kind: str, device: str) -> None:
    plain = build(kind, device)
    patched = copy.deepcopy(plain)
    bk.patch(patched)
    expected = train(plain, plain, device, 5)
    torch._dynamo.reset()
    backend = "inductor" if device == "cuda" else "aot_eager"
    close(train(patched, torch.compile(patched, backend=backend), device, 5), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_half_types_on_a_gpu_stay_near(kind: str) -> None:
    plain = build(kind, "cuda").bfloat16()
    patched = copy.deepcopy(plain)
    bk.patch(patched)
    ids = batch("cuda")
    with torch.no_grad():
        one, other = (net(input_ids=ids, labels=ids) for net in (plain, patched))
    torch.testing.assert_close(other.loss.float(), one.loss.float(), rtol=2e-2, atol=2e-2)  # 8 bits
    with torch.autocast("cuda", dtype=torch.bfloat16):
        for net in (build(kind, "cuda"), patched.float()):
            net(input_ids=ids, labels=ids).loss.backward()
            assert all(p.grad is not None for p in net.parameters())


@pytest.mark.parametrize(
    ("kind", "options", "part", "why"),
    [
        ("Gemma", {"head_dim": 8}, "model.norm", "not as known: "),  # it scales by 1 + weight
        ("Llama", {"hidden_act": "tanh"}, "model.layers.0.mlp", "no gated unit with Tanh"),
    ],
)
def test_what_computes_something_else_is_left_alone(kind: str, options: dict[str, Any], part: str, why: str) -> None:
    plain = build(kind, **options)
    patched = copy.deepcopy(plain)
    report = {entry.path: entry for entry in bk.patch(patched).entries}
    assert report[part].replaced_by is None
    assert report[part].why.startswith(why)
    close(patched(input_ids=batch("cpu")).logits, plain(input_ids=batch("cpu")).logits)


def test_attention_without_its_rotary_embedding_is_left_alone() -> None:
    layer = build("Llama").model.layers[0]
    report = {entry.path: entry for entry in bk.patch(layer).entries}
    assert report["self_attn"].why == "no rotary embedding in the model, so what its tables hold is not known"
    assert report["mlp"].replaced_by == "FusedLlamaMLP"


def test_a_model_on_the_meta_device_is_patched_but_for_its_rotation() -> None:
    with torch.device("meta"):
        model = build("Llama", "meta")
    report = bk.patch(model)
    assert kinds(report) == {name: count for name, count in REPLACED["Llama"].items() if name != "LlamaAttention"}
    (why,) = {entry.why for entry in report.kept if entry.kind == "LlamaAttention"}
    assert why == "on the meta device: its rotary embedding holds no angles yet"


@pytest.mark.parametrize("factor", [2.0, 3.5])
def test_scaled_rotary_tables_give_the_same_too(factor: float) -> None:
    scaling: Any = {"rope_type": "linear", "factor": factor, "rope_theta": 1000.0}
    plain = build("Llama")
    name = "rope_parameters" if hasattr(plain.config, "rope_parameters") else "rope_scaling"
    options: dict[str, Any] = {name: scaling}
    plain = build("Llama", **options)
    patched = copy.deepcopy(plain)
    assert "LlamaAttention" in kinds(bk.patch(patched))
    close(patched(input_ids=batch("cpu")).logits, plain(input_ids=batch("cpu")).logits)


def test_generation_with_a_cache_gives_the_same_tokens() -> None:
    plain = build("Llama").eval()
    patched = copy.deepcopy(plain)
    bk.patch(patched)
    ids = batch("cpu")[:1, :5]
    one, other = (net.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0) for net in (plain, patched))
    assert torch.equal(one, other)
