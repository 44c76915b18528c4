"""Every number in every configuration has its range: what no run could mean is refused where it is written.

The walk goes over all classes, so a new field is in it at once; one that takes any number is listed with its reason.
"""

import importlib
import math
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import burn_torch
from burn_torch import ConfigError
from burn_torch.config import Config, replace
from burn_torch.config._schema import info_of, schema_of

ANY_NUMBER = {
    "Constant.value": "a parameter may begin anywhere",
    "Normal.mean": "a parameter may begin anywhere",
    "Uniform.min": "only below max: tests/module has it",
    "Uniform.max": "only above min: tests/module has it",
    "KaimingUniform.gain": "distributions about 0 have no sign",
    "KaimingNormal.gain": "distributions about 0 have no sign",
    "XavierUniform.gain": "distributions about 0 have no sign",
    "XavierNormal.gain": "distributions about 0 have no sign",
    "Orthogonal.gain": "the negative of an orthogonal matrix is one",
    "HardSigmoidConfig.alpha": "a slope",
    "HardSigmoidConfig.beta": "a shift",
    "HardtanhConfig.min_val": "only below max_val",
    "HardtanhConfig.max_val": "only above min_val",
    "ShrinkConfig.bias": "a shift",
    "ThresholdConfig.threshold": "a place on the axis",
    "ThresholdConfig.value": "a place on the axis",
    "ThresholdedReluConfig.alpha": "a place on the axis",
    "LeakyReluConfig.negative_slope": "a slope",
    "PReluConfig.alpha": "a slope",
    "RReluConfig.lower": "a slope, only below upper",
    "RReluConfig.upper": "a slope, only above lower",
    "EluConfig.alpha": "a factor",
    "CeluConfig.alpha": "a divisor: only 0 is refused",
    "CrossAttentionConfig.min_float": "the score of what is hidden",
    "MultiHeadAttentionConfig.min_float": "the score of what is hidden",
    "CosineSimilarityConfig.dim": "an axis, from behind too",
    "ConstantPad1dConfig.value": "what is put around",
    "ConstantPad2dConfig.value": "what is put around",
    "ConstantPad3dConfig.value": "what is put around",
    "FlattenConfig.end_dim": "an axis, from behind too",
    "FlattenConfig.start_dim": "an axis, from behind too",
    "GramMatrixLossConfig.layer_weights": "factors",
    "LogSoftmaxConfig.dim": "an axis, from behind too",
    "SoftmaxConfig.dim": "an axis, from behind too",
    "SoftminConfig.dim": "an axis, from behind too",
    "UnflattenConfig.dim": "an axis, from behind too",
    "UnflattenConfig.unflattened_size": "-1 is what is left",
    "CrossEntropyLossConfig.pad_tokens": "PyTorch's ignore_index is -100",
    "LinearCrossEntropyLossConfig.pad_tokens": "PyTorch's ignore_index is -100",
    "NLLLossConfig.pad_tokens": "PyTorch's ignore_index is -100",
    "HingeEmbeddingLossConfig.margin": "a place on the axis",
    "CosineEmbeddingLossConfig.margin": "a cosine",
    "LocalResponseNormConfig.alpha": "a factor",
    "LocalResponseNormConfig.beta": "an exponent",
    "LocalResponseNormConfig.k": "a shift",
    "ImageFolderConfig.mean": "a brightness to subtract",
    "OptimizerSettings.lr": "RunConfig looks at it, beside its own fields",
    "Column.mean": "whatever the column's mean is",
}
MAY_BE_0 = {
    "num_workers", "seed", "blank", "padding", "padding_idx", "padding_out", "left", "right", "top", "bottom", "front",
    "back", "n_layers", "n_encoder_layers", "n_decoder_layers", "n_shared", "layers", "length", "max", "limit",
    "LinearConfig.d_input", "LinearConfig.d_output", "SwiGluConfig.d_input", "SwiGluConfig.d_output",
}  # fmt: skip
"""Whole numbers that may be 0: counts of what a model or a padding can do without, and layers of no features."""
AT_MOST_1 = {"prob", "dropout", "momentum", "dampening", "smoothing", "beta_1", "beta_2", "validation", "initial_lr"}
BELOW_1 = {"beta_1", "beta_2", "validation"}


def every_config() -> list[type[Any]]:
    for module in pkgutil.walk_packages(burn_torch.__path__, "burn_torch."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    def below(cls: type[Any]) -> Iterator[type[Any]]:
        for derived in cls.__subclasses__():
            if not info_of(derived).is_enum and derived.__module__.startswith("burn_torch."):
                yield derived
            yield from below(derived)

    return sorted(set(below(Config)), key=lambda cls: (cls.__module__, cls.__qualname__))


EVERY = every_config()


def sample(cls: type[Any]) -> Any:
    """One that is in range."""
    values: dict[str, Any] = {}
    if cls.__name__.startswith("Interpolate"):
        values["output_size"] = 4 if "1d" in cls.__name__ else (4, 4)
    if cls.__name__.startswith("FractionalMaxPool"):
        values["output_size"] = (4, 4) if "2d" in cls.__name__ else (4, 4, 4)
    if cls.__name__ == "GramMatrixLossConfig":
        values["layer_weights"] = [0.5] * 5
    if cls.__name__ == "AdaptiveLogSoftmaxWithLossConfig":
        values["n_classes"] = 9
    for field in schema_of(cls).fields:
        words = field.kind.describe()
        if field.default is not None or field.name in values:
            continue
        if words in ("int", "float", "str"):
            values[field.name] = {"int": 4, "float": 0.1 if field.name == "min" else 0.5, "str": "digits"}[words]
        elif words.startswith("list of "):
            values[field.name] = (4,) * words.count("int") or (0.5,) * words.count("float")
        elif words == "bool":
            values[field.name] = True
        else:
            values[field.name] = sample(next(other for other in EVERY if other.__name__ == words))
    return cls(**values)


def numbers(cls: type[Any]) -> Iterator[tuple[str, str]]:
    """The fields that hold numbers, with their kinds."""
    for field in schema_of(cls).fields:
        words = field.kind.describe()
        if re.match(r"(list of )?(int|float)\b|list of \d \((int|float)", words):
            yield field.name, words


def nonsense(cls: type[Any], name: str, words: str) -> list[Any]:
    path = f"{cls.__name__}.{name}"
    whole = "int" in words
    if path in ANY_NUMBER:
        return []
    bad: list[Any] = [-1] if whole else [-1.0]
    if whole and not {name, path} & MAY_BE_0:
        bad.append(0)
    if whole:
        bad.append(2**70)
    if name in AT_MOST_1:
        bad += [1.5, 1e300]
    if name in BELOW_1:
        bad.append(1.0)
    count = words.count("int" if whole else "float")
    if words.startswith("list of ") and "(" in words:
        return [(value,) * count for value in bad] + [(sound_member(cls, name),) * (count - 1) + (bad[0],)]
    return [[value] for value in bad] if words.startswith("list of ") else bad


def sound_member(cls: type[Any], name: str) -> Any:
    value = getattr(sample(cls), name)
    return 4 if value is None else value[0]


CASES = [(cls, name, words) for cls in EVERY for name, words in numbers(cls)]


@pytest.mark.parametrize(
    ("cls", "name", "words"), CASES, ids=[f"{cls.__module__}.{cls.__name__}.{name}" for cls, name, _ in CASES]
)
def test_a_number_that_no_run_could_mean_is_refused(cls, name, words):
    config = sample(cls)
    for bad in nonsense(cls, name, words):
        with pytest.raises(ConfigError, match=rf"(?s){name}.*given: .*expected: .*mend: |given: .*{name}"):
            replace(config, **{name: bad})


def test_the_walk_sees_them_all_and_its_list_has_nothing_that_is_gone():
    paths = {f"{cls.__name__}.{name}" for cls, name, _ in CASES}
    assert len(paths) > 200
    assert set(ANY_NUMBER) <= paths
    assert {"AdamConfig.beta_1", "DropoutConfig.prob", "RunConfig.num_epochs", "Conv2dConfig.stride"} <= paths


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused_by_every_field(bad):
    for cls, name, words in CASES:
        if words == "float":
            with pytest.raises(ConfigError, match=rf"(?s)given: .*{name}.*expected: .*mend: "):
                replace(sample(cls), **{name: bad})
