"""Adapters in PEFT's layout: what its library writes is read, and what is written it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from burn_torch import ArtifactError, Device, Module, RecordError, Tensor, nn
from burn_torch.module import Lora, ParamGroup
from burn_torch.record.stores import PeftStore


class Net(Module):
    """A table, an encoder and a head."""

    table: nn.Embedding
    encoder: nn.TransformerEncoder
    head: nn.Linear

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, seq) -> (batch, seq, 5)."""
        return self.head.forward(self.encoder.forward(nn.TransformerEncoderInput(self.table.forward(tokens))))


DEVICE = Device.cpu().autodiff()
TOKENS = Tensor.from_ints([[1, 4, 10]], DEVICE)
SETTINGS = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "lora_dropout": 0.1, "alpha_pattern": {"head": 3}}


def net() -> Net:
    return Net(
        nn.EmbeddingConfig(11, 8).init(DEVICE),
        nn.TransformerEncoderConfig(8, 16, 2, 1, dropout=0.0).init(DEVICE),
        nn.LinearConfig(8, 5).init(DEVICE),
    )


def values(x: Tensor) -> np.ndarray[Any, Any]:
    return np.asarray(x.detach())


def write(folder: Path, tensors: dict[str, Any], **settings: object) -> PeftStore:
    """Writes a folder as PEFT does, by hand."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({**SETTINGS, **settings}))
    save_file(
        {f"base_model.model.{key}": value for key, value in tensors.items()}, folder / "adapter_model.safetensors"
    )
    return PeftStore.from_file(folder)


def factors(seed: Any, *sizes: tuple[str, int, int, int]) -> dict[str, Any]:
    tensors = {}
    for name, d_input, d_output, rank in sizes:
        ending = ("lora_embedding_A", "lora_embedding_B") if name == "table" else ("lora_A.weight", "lora_B.weight")
        for part, shape in zip(ending, ((rank, d_input), (d_output, rank)), strict=True):
            tensors[f"{name}.{part}"] = seed.standard_normal(shape).astype("f")
    return tensors


@pytest.mark.parametrize("rank_stabilized", [False, True])
def test_a_folder_of_peft_gives_a_model_its_adapters(tmp_path: Path, seed: Any, rank_stabilized: bool) -> None:
    query = "encoder.layers.0.self_attn.out_proj"  # torch's name of the output of attention
    tensors = factors(seed, (query, 8, 8, 2), ("head", 8, 5, 4), ("table", 11, 8, 2))
    plain = net()
    model, result = plain.load_from(write(tmp_path / "a", tensors, use_rslora=rank_stabilized))
    assert result.unused == ()
    paths = {"encoder.layers.0.mha.output": (query, 6), "head": ("head", 3), "table": ("table", 6)}
    weights = dict(plain.named_params())
    for path, (name, alpha) in paths.items():
        owner: Any = (
            model.table if path == "table" else model.head if path == "head" else model.encoder.layers[0].mha.output
        )
        a, b = (
            tensors[f"{name}.{x}"]
            for x in (
                ("lora_embedding_A", "lora_embedding_B") if path == "table" else ("lora_A.weight", "lora_B.weight")
            )
        )
        scale = alpha / (len(a) ** 0.5 if rank_stabilized else len(a))
        expected = values(weights[f"{path}.weight"].val()) + scale * (b.astype("d") @ a.astype("d")).T
        np.testing.assert_allclose(values(owner.weight.val()), expected, rtol=1e-5, atol=1e-5)
        assert owner.weight.adapter().dropout == 0.1
    trained = {path for path, param in model.named_params() if param.require_grad}
    assert trained == {f"{path}.weight.lora.{x}" for path in paths for x in "ab"}
    again, _ = model.load_from(PeftStore.from_file(tmp_path / "a"))  # in the place of its own
    inner = TOKENS.inner()
    np.testing.assert_array_equal(values(again.valid().forward(inner)), values(model.valid().forward(inner)))


def test_what_is_written_has_pefts_names_and_shapes_and_is_read_again(tmp_path: Path) -> None:
    plain = net()
    group = ParamGroup.from_regex(r"(table|output|linear_inner)\.weight")
    model = plain.apply_lora(Lora(3, 16.0).set_param_group(group)).unfreeze_group(ParamGroup.from_path("head"))
    model = model.map_params(lambda p: p.map(lambda x: x.detach() + 0.1) if p.require_grad else p)
    store = PeftStore.from_file(tmp_path / "adapter").with_base_model("base")
    assert model.save_into(store) == tmp_path / "adapter"
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    prefix = "base_model.model."
    assert {key.removeprefix(prefix): value.shape for key, value in tensors.items()} == {
        "table.lora_embedding_A": (3, 11), "table.lora_embedding_B": (8, 3),
        "encoder.layers.0.self_attn.out_proj.lora_A.weight": (3, 8),
        "encoder.layers.0.self_attn.out_proj.lora_B.weight": (8, 3),
        "encoder.layers.0.linear1.lora_A.weight": (3, 8), "encoder.layers.0.linear1.lora_B.weight": (16, 3),
        "head.weight": (5, 8), "head.bias": (5,),
    }  # fmt: skip
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert settings["target_modules"] == ["encoder.layers.0.linear1", "encoder.layers.0.self_attn.out_proj", "table"]
    assert (settings["r"], settings["lora_alpha"], settings["modules_to_save"]) == (3, 16, ["head"])
    assert settings["base_model_name_or_path"] == "base"
    again, _ = plain.load_from(store)
    assert again.forward(TOKENS).into_data() == model.forward(TOKENS).into_data()
    trained = {path for path, param in again.named_params() if param.require_grad}
    assert trained == {path for path, param in model.named_params() if param.require_grad}
    with pytest.raises(ArtifactError, match=r"exists already[\s\S]*overwrite\(True\)"):
        model.save_into(store)
    model.save_into(store.overwrite(True))


def test_modules_have_other_names(tmp_path: Path, seed: Any) -> None:
    tensors = factors(seed, ("model.layers.0.self_attn.q_proj", 8, 8, 2))
    store = write(tmp_path / "a", tensors)
    named = store.with_key_remapping(r"^model\.layers\.(\d+)\.self_attn\.q_proj", "encoder.layers.$1.mha.query")
    model, _ = net().load_from(named)
    assert model.encoder.layers[0].mha.query.weight.adapter() is not None
    back = PeftStore.from_file(tmp_path / "b").with_key_remapping(r"^encoder\.(.*)\.self_attn\.query", "model.$1.q")
    model.save_into(back)
    assert json.loads((tmp_path / "b" / "adapter_config.json").read_text())["target_modules"] == ["model.layers.0.q"]
    with pytest.raises(RecordError, match=r"q_proj\.lora_A\.weight has no place[\s\S]*with_key_remapping"):
        net().load_from(store)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"peft_type": "IA3"}, "peft_type is 'IA3', not 'LORA'"), ({"use_dora": True}, "use_dora: adapters that"),
     ({"lora_alpha": "x"}, "lora_alpha 'x'"), ({"alpha_pattern": [1]}, "alpha_pattern"),
     ({"alpha_pattern": {"(a+)+$": 1}}, "names of layers are taken"),
     ({"lora_dropout": 1.5}, "1.5")],
)  # fmt: skip
def test_settings_that_mean_something_else_are_refused(
    tmp_path: Path, seed: Any, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(RecordError, match=rf"cannot be loaded\n[\s\S]*{message}"):
        net().load_from(write(tmp_path / "a", factors(seed, ("head", 8, 5, 2)), **settings))


def test_folders_that_do_not_fit_are_refused(tmp_path: Path, seed: Any) -> None:
    head = factors(seed, ("head", 8, 5, 2))
    both = write(tmp_path / "both", {**head, **factors(seed, ("tail", 8, 5, 2))})
    with pytest.raises(RecordError, match=r"tail\.lora_A\.weight has no place in the module"):
        net().load_from(both)
    _, result = net().load_from(both.allow_partial(True))
    assert set(result.unused) == {"tail.lora_A.weight", "tail.lora_B.weight"}
    other = net().apply_lora(Lora(2, 4.0))
    with pytest.raises(RecordError, match=r"table\.weight has an adapter, the folder none"):
        other.load_from(write(tmp_path / "head", head))
    with pytest.raises(RecordError, match=r"missing head\.weight\.lora\.b"):
        net().load_from(write(tmp_path / "half", {"head.lora_A.weight": head["head.lora_A.weight"]}))
    with pytest.raises(RecordError, match=r"has shape \(5, 3\)"):
        net().load_from(write(tmp_path / "odd", {**head, "head.lora_B.weight": np.zeros((5, 3), "f")}))
    with pytest.raises(RecordError, match=r"its factor a has shape \(8,\)"):
        net().load_from(write(tmp_path / "flat", {**head, "head.lora_A.weight": np.zeros(8, "f")}))
    with pytest.raises(RecordError, match=r"it has no adapters"):
        net().load_from(write(tmp_path / "none", {}))
    (tmp_path / "head" / "adapter_config.json").write_text("{")
    for folder in ("head", "nowhere"):
        with pytest.raises(RecordError, match=r"adapter_config\.json: [\s\S]*PEFT's save_pretrained"):
            net().load_from(PeftStore.from_file(tmp_path / folder))
    with pytest.raises(RecordError, match=r"a Net without adapters\n[\s\S]*apply_lora"):
        net().save_into(PeftStore.from_file(tmp_path / "new"))
