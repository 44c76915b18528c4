"""Adapters in PEFT's layout: a folder with `adapter_config.json` and `adapter_model.safetensors`.

    base_model.model.<module>.lora_A.weight         (rank, d_input): the adapter's a, turned
    base_model.model.<module>.lora_B.weight         (d_output, rank): its b, turned
    base_model.model.<module>.lora_embedding_A, _B  the same of an embedding
    base_model.model.<module>.<name>                other values that are trained, as torch.nn lays them

Source: the files that peft 0.21 writes, https://huggingface.co/docs/peft/developer_guides/checkpoint.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, final

from burn_torch.core import strict_json
from burn_torch.core.checking import checked
from burn_torch.core.errors import ArtifactError
from burn_torch.core.files import make_folder, write_atomic
from burn_torch.core.reading import MAX_CONFIG_BYTES, read_bounded
from burn_torch.module import Lora, LoraAdapter, Module, Param, RunningState
from burn_torch.module.record import RecordEntry
from burn_torch.module.reparameterized import adapted_params, apply_to, remove_adapters
from burn_torch.module.twins import Place, Twin, places
from burn_torch.record.faults import cannot_load, cannot_save, shortened
from burn_torch.record.stores.adapter import ModuleAdapter
from burn_torch.record.stores.files import SafetensorsStore
from burn_torch.record.stores.filter import PathFilter
from burn_torch.record.stores.remap import KeyRemapper
from burn_torch.record.stores.result import ApplyResult

__all__ = ["PeftStore"]

M = TypeVar("M", bound=Module)

_KIND: Final = "folder of PEFT"
_CONFIG: Final = "adapter_config.json"
_TENSORS: Final = "adapter_model.safetensors"
_PREFIX: Final = "base_model.model."
_OTHER_METHODS: Final = (
    "use_dora", "use_qalora", "use_bdlora", "lora_bias", "layer_replication", "alora_invocation_tokens", "kasa_config",
    "monteclora_config", "velora_config",
)  # fmt: skip
"""Settings that make an adapter compute otherwise."""
_FACTOR: Final = re.compile(r"(?:(?P<module>.*)\.)?weight\.lora\.(?P<which>[ab])")


@final
class _PeftNames(ModuleAdapter):
    """Finds factors under PEFT's names, and other values under those of torch.nn."""

    def twins(self, place: Place) -> list[Twin]:
        twins = []
        for twin in place.torch:
            factor = _FACTOR.fullmatch(twin.key)
            if factor is None:
                twins.append(twin)
            elif twin.count == 1:
                twins += [Twin(key, turned=True) for key in _keys(factor["module"], factor["which"], place)]
        return twins


def _keys(module: str | None, which: str, place: Place) -> list[str]:
    """The names of a factor; first the one for the layer that it is of."""
    prefix = f"{module}." if module else ""
    keys = [f"{prefix}lora_{which.upper()}.weight", f"{prefix}lora_embedding_{which.upper()}"]
    return keys[::-1] if "Struct:Embedding" in place.container_path.split(".")[-2:] else keys


@checked
@final
@dataclass(frozen=True)
class PeftStore:
    """A folder of LoRA adapters as PEFT writes and reads them, without the model that they are for.

        model, result = model.load_from(PeftStore.from_file("adapter"))     adapters are made where the model has none
        model.save_into(PeftStore.from_file("adapter"))

    Layers are found under their own paths and under those of torch.nn; `with_key_remapping` gives them other names:
    of PEFT's modules when it is read, `model.layers.0.self_attn.q_proj`, and for them when it is written.
    Parameters that are trained beside the adapters, such as a head, are in the folder too: PEFT's modules_to_save.
    """

    folder: Path
    remapper: KeyRemapper = dataclasses.field(default_factory=KeyRemapper)
    partial: bool = False
    overwriting: bool = False
    base_model: str | None = None

    @classmethod
    def from_file(cls, folder: str | Path) -> PeftStore:
        """The store of a folder."""
        return cls(Path(folder))

    def with_key_remapping(self, pattern: str, to: str) -> PeftStore:
        """One more pattern: `with_key_remapping(r"self_attn\\.q_proj", "mha.query")`."""
        return dataclasses.replace(self, remapper=self.remapper.add_pattern(pattern, to))

    def allow_partial(self, allow: bool) -> PeftStore:
        """Returns whether the folder may lack adapters of the model, and have some that the model has no place for."""
        return dataclasses.replace(self, partial=allow)

    def overwrite(self, overwrite: bool) -> PeftStore:
        """Returns whether files that are there may be replaced."""
        return dataclasses.replace(self, overwriting=overwrite)

    def with_base_model(self, name: str) -> PeftStore:
        """The name or path of the model that PEFT puts the adapters into."""
        return dataclasses.replace(self, base_model=name)

    # -- reading ------------------------------------------------------------------------------------------
    def apply_to(self, module: M) -> tuple[M, ApplyResult]:
        """The module, frozen, with the adapters of the folder in the place of its own, and what became of each key.

        Raises: RecordError for a damaged folder, settings that are not those of LoRA, and keys without a place in the
        module or the other way round; nothing is loaded then.
        """
        settings = self._read_settings()
        renaming = KeyRemapper().add_pattern(f"^{re.escape(_PREFIX)}", "")
        renaming = KeyRemapper((*renaming.patterns, *self.remapper.patterns))
        names = _PeftNames()
        store = SafetensorsStore.from_file(self.folder / _TENSORS).remap(renaming).with_from_adapter(names)
        entries = store.get_all_snapshots()
        bare = remove_adapters(module)
        attach = _Attach({}, settings.dropout)
        for place in places(bare):
            for twin in place.torch if isinstance(place.leaf, Param) and len(place.leaf.shape) == 2 else ():
                name = "" if twin.key == "weight" else twin.key.removesuffix(".weight")
                if twin.key.rpartition(".")[2] != "weight" or twin.count > 1:
                    continue
                key = next((key for key in _keys(name, "a", place) if key in entries), None)
                if key is not None:
                    attach.wanted.setdefault(id(place.leaf), settings.adapter_of(name, entries[key]))
        adapted = apply_to(bare, attach) if attach.wanted else bare
        factors = [f"{path}.{LoraAdapter.NAME}.{which}" for path in adapted_params(adapted) for which in "ab"]
        chosen = {place.path for place in places(adapted) if any(t.key in entries for t in names.twins(place))}
        unused = sorted(entries.keys() - {twin.key for place in places(adapted) for twin in names.twins(place)})
        lost = [f"{path} has an adapter" for path in adapted_params(module) if path not in adapted_params(adapted)]
        faults = [f"{key} has no place in the module" for key in unused] + [f"{line}, the folder none" for line in lost]
        if not attach.wanted or (faults and not self.partial):
            raise cannot_load(
                str(self.folder), shortened(faults) or "it has no adapters", _KIND,
                "rename modules: with_key_remapping(r'self_attn\\.q_proj', 'mha.query'); or allow_partial(True)",
            )  # fmt: skip
        loaded, result = store.filter(PathFilter.from_paths([*chosen, *factors])).apply_to(adapted)
        trained = {id(param) for path, param in loaded.named_params() if path in chosen}
        return loaded.map_params(lambda p: p.set_require_grad(True) if id(p) in trained else p), result

    def _read_settings(self) -> _Settings:
        try:
            settings = strict_json.parse(read_bounded(self.folder / _CONFIG, MAX_CONFIG_BYTES))
            return _Settings.of(settings)
        except (OSError, ValueError, OverflowError, RecursionError) as err:
            mend = "name the folder that PEFT's save_pretrained wrote, of a LoRA without these settings"
            raise cannot_load(str(self.folder / _CONFIG), str(err) or type(err).__name__, _KIND, mend) from None

    # -- writing ------------------------------------------------------------------------------------------
    def collect_from(self, module: Module) -> Path:
        """Writes the adapters, and what is trained beside them; returns the folder.

        Raises: RecordError for a module without adapters, and for adapters that PEFT has no name for; ArtifactError
        for files that are there and may not be replaced.
        """
        adapted = adapted_params(module)
        odd = [path for path in adapted if path.rpartition(".")[2] != "weight"]
        if not adapted or odd:
            raise cannot_save(
                f"adapters of {', '.join(shortened(odd))}" if odd else f"a {type(module).__name__} without adapters",
                expected="adapters of weights: PEFT names them by the layer",
                mend="leave others out: lora.set_param_group(ParamGroup.from_regex(r'weight$'))"
                if odd
                else "model.apply_lora(Lora(rank=8, alpha=16.0)) gives it some",
            )
        there = [name for name in (_CONFIG, _TENSORS) if (self.folder / name).exists()]
        if there and not self.overwriting:
            raise ArtifactError(
                "the output file exists already",
                given=str(self.folder / there[0]),
                expected="a new folder",
                mend="overwrite(True) replaces it",
            )
        make_folder(self.folder)
        names = _PeftNames()
        paths = _trained_paths(module)
        renaming = KeyRemapper((*self.remapper.patterns, *KeyRemapper().add_pattern("^", _PREFIX).patterns))
        store = SafetensorsStore.from_file(self.folder / _TENSORS).with_to_adapter(names).remap(renaming)
        record = store.filter(PathFilter.from_paths(paths)).collect(module)
        record.save(self.folder / _TENSORS)
        named: dict[str, LoraAdapter] = {}
        for place in places(module):
            key = names.twins(place)[0].key
            path = place.path.removesuffix(f".{LoraAdapter.NAME}.a")
            if path != place.path and path in adapted and (adapter := adapted[path].adapter()) is not None:
                written = renaming.remap([key])[key].removeprefix(_PREFIX)
                named[re.sub(r"\.?lora_(embedding_A|A\.weight)$", "", written)] = adapter
        others = {key.removeprefix(_PREFIX).rpartition(".")[0] for key in record.entries if ".lora_" not in f".{key}"}
        text = json.dumps(_settings_of(named, sorted(others), self.base_model), indent=2)
        write_atomic(self.folder / _CONFIG, text.encode())
        return self.folder


# -- settings ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Settings:
    """Holds what `adapter_config.json` says of the adapters."""

    alpha: float
    alphas: Mapping[str, float]
    rank_stabilized: bool
    dropout: float

    @staticmethod
    def of(settings: object) -> _Settings:
        """Checks the settings.  Raises: ValueError for those of another method, or that mean nothing."""
        if not isinstance(settings, dict) or settings.get("peft_type") != "LORA":
            kind = settings.get("peft_type") if isinstance(settings, dict) else settings
            raise ValueError(f"peft_type is {kind!r}, not 'LORA'")
        changed = [name for name in _OTHER_METHODS if settings.get(name)]
        if changed:
            raise ValueError(f"{', '.join(changed)}: adapters that compute otherwise")
        alphas = settings.get("alpha_pattern") or {}
        values = [settings.get("lora_alpha", 8), *(alphas.values() if isinstance(alphas, dict) else [None])]
        dropout = settings.get("lora_dropout") or 0.0
        named = alphas.items() if isinstance(alphas, dict) else ()
        names = {name.replace("\\", "").removeprefix("^"): alpha for name, alpha in named}
        if not all(_is_number(value) for value in (*values, dropout)) or not 0 <= dropout < 1:
            raise ValueError(f"lora_alpha {values[0]!r}, alpha_pattern {alphas!r:.80}, lora_dropout {dropout!r}")
        if not all(re.fullmatch(r"[\w.-]*", name) for name in names):  # a stranger's expression may never end
            raise ValueError(f"alpha_pattern {alphas!r:.80}: expressions, where names of layers are taken")
        return _Settings(float(values[0]), names, bool(settings.get("use_rslora")), float(dropout))

    def adapter_of(self, module: str, a: RecordEntry) -> tuple[int, float, RecordEntry]:
        """The rank and the scale of a module's adapter, whose a the file has."""
        rank = a.shape[0] if len(a.shape) == 2 else 0
        own = (alpha for name, alpha in self.alphas.items() if f".{module}".endswith(f".{name}"))
        alpha = next(own, self.alpha)
        return rank, alpha / (math.sqrt(rank) if self.rank_stabilized else rank) if rank else 0.0, a


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _settings_of(named: Mapping[str, LoraAdapter], others: list[str], base_model: str | None) -> dict[str, object]:
    """The settings of adapters by the names of their modules; the commonest rank and scale are those of all others."""
    ranks = {name: adapter.rank for name, adapter in named.items()}
    alphas = {name: _plain(adapter.scale * adapter.rank) for name, adapter in named.items()}
    rank, alpha = (Counter(values.values()).most_common(1)[0][0] for values in (ranks, alphas))
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": base_model,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": max(adapter.dropout for adapter in named.values()),
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "init_lora_weights": True,
        "target_modules": sorted(named),
        "modules_to_save": others or None,
        "rank_pattern": {re.escape(name): own for name, own in ranks.items() if own != rank},
        "alpha_pattern": {re.escape(name): own for name, own in alphas.items() if own != alpha},
    }


def _plain(alpha: float) -> float:
    """The number without the rounding of a division: 16 for 16 / 3 * 3."""
    near = round(alpha, 9)
    return int(near) if near == int(near) else near


@dataclass(frozen=True)
class _Attach:
    """A Reparameterizer that makes the adapters which a file has."""

    wanted: dict[int, tuple[int, float, RecordEntry]]
    """Rank, scale and factor a by the identity of the parameter."""
    dropout: float

    def reparameterize(self, path: str, param: Param) -> tuple[Param, LoraAdapter | None]:
        """The parameter, frozen, and the adapter that the file has for it."""
        frozen = param.set_require_grad(False)
        rank, scale, a = self.wanted.get(id(param), (0, 0.0, None))
        if a is None:
            return frozen, None
        if rank < 1 or not a.dtype.is_float:
            raise cannot_load(path, f"its factor a has shape {a.shape} and type {a.dtype}", _KIND)
        base = param.spec().dtype
        lora = Lora(rank, 1.0, dtype=base if base.itemsize >= a.dtype.itemsize else a.dtype, dropout=self.dropout)
        return frozen, dataclasses.replace(lora.init_adapter(param), scale=scale)


def _trained_paths(module: Module) -> list[str]:
    """The paths of factors and of trained parameters, and of running states beside these."""
    adapters = tuple(f"{path}.{LoraAdapter.NAME}." for path in adapted_params(module))
    there = places(module)
    params = [
        place.path
        for place in there
        if isinstance(place.leaf, Param) and (place.leaf.require_grad or place.path.startswith(adapters))
    ]
    homes = {path.rpartition(".")[0] for path in params if not path.startswith(adapters)}
    states = [p.path for p in there if isinstance(p.leaf, RunningState) and p.path.rpartition(".")[0] in homes]
    return params + states
