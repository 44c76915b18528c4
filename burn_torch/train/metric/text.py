"""Metrics of token sequences: perplexity, BLEU, ROUGE-L, error rates.

Sequences are rows of token ids.  With a pad token a row ends before its first one; without, it has all its tokens.
The counts of all batches are added, so that an epoch is one corpus however it was cut into batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, final

import numpy as np

from burn_torch.core.checking import checked
from burn_torch.core.errors import ArgumentError, ConfigError, ShapeError
from burn_torch.tensor import Tensor
from burn_torch.train.metric._tensors import changed, exact, not_padding, on_leaf, require_positive
from burn_torch.train.metric.accumulate import AdditiveMetric, Array, ratio
from burn_torch.train.metric.accuracy import class_column, flat_scores
from burn_torch.train.metric.base import MetricMetadata
from burn_torch.train.metric.edits import common_subsequence, edit_distance, runs
from burn_torch.train.output import CerInput, PerplexityInput, adapt

__all__ = ["BleuScore", "BleuSmoothing", "CharErrorRate", "PerplexityMetric", "RougeLScore", "WordErrorRate"]

Pairs = list[tuple[list[int], list[int]]]


@final
class PerplexityMetric(AdditiveMetric):
    """exp of the mean of -log p over the tokens, where p is the softmax of the logits at the right token.

    A perplexity of v is that of a uniform guess among v tokens.  Targets of the pad token, if one is set, are left out.
    A target that is no class makes it NaN.
    """

    name = "Perplexity"
    higher_is_better = False
    pad_token: int | None = None

    def with_pad_token(self, index: int) -> Self:
        """The same metric, leaving targets of this class out."""
        return changed(self, pad_token=index)

    def measure(self, item: object, metadata: MetricMetadata, /) -> Mapping[str, Tensor | float]:
        """The sum of -log p, and over how many tokens."""
        logits, targets = flat_scores("PerplexityMetric", adapt(item, PerplexityInput, "PerplexityMetric"))
        column, exists = class_column(logits, targets)
        surprise = (logits.logsumexp_dim(1) - logits.gather(1, column)).squeeze_dim(1)
        surprise = surprise.mask_fill(exists.bool_not(), math.nan)
        if self.pad_token is None:
            return {"surprise": exact(surprise).sum(), "items": targets.spec.numel}
        counted = not_padding(targets, self.pad_token)
        kept = surprise.mask_fill(counted.bool_not(), 0.0)
        return {"surprise": exact(kept).sum(), "items": counted.int().sum()}

    def compute(self, sums: Mapping[str, Array], /) -> float:
        """exp of the mean; infinite beyond what a float64 holds."""
        mean = ratio(sums["surprise"], sums["items"])
        return math.exp(mean) if not mean > 709 else math.inf


class _SequenceMetric(AdditiveMetric):
    """A metric that compares predicted and true sequences on the host."""

    unit = "%"
    pad_token: int | None = None

    def with_pad_token(self, index: int) -> Self:
        """The same metric; a sequence ends before its first token of this kind."""
        return changed(self, pad_token=index)

    def measure(self, item: object, metadata: MetricMetadata, /) -> Mapping[str, Tensor | float]:
        """The sequences of the batch."""
        values = adapt(item, CerInput, type(self).__name__)
        outputs, targets = on_leaf(values.outputs), on_leaf(values.targets)
        if outputs.ndim != 2 or targets.ndim != 2 or outputs.shape[0] != targets.shape[0]:
            raise ShapeError(
                f"{type(self).__name__}: the predictions do not fit the targets",
                given=f"predictions {outputs.shape}, targets {targets.shape}",
                expected="both (batch, seq), with one batch; the lengths may differ",
                mend="give token ids, one row a sequence, filled up with a pad token",
            )
        return {"outputs": outputs, "targets": targets}

    def pairs(self, measured: Mapping[str, Array]) -> Pairs:
        """Predicted and true tokens of each row, without padding."""
        rows = zip(measured["outputs"].tolist(), measured["targets"].tolist(), strict=True)
        return [(self._cut(output), self._cut(target)) for output, target in rows]

    def _cut(self, row: list[int]) -> list[int]:
        pad = self.pad_token
        return row if pad is None or pad not in row else row[: row.index(pad)]


@checked(error=ConfigError, but=("update", "measure"))
@final
@dataclass(frozen=True)
class BleuSmoothing:
    """Holds what stands in for a precision of 0: `BleuSmoothing.Off()`, `.AddEpsilon(0.1)` or `.Exponential()`.

    Source: Chen and Cherry 2014, methods 1 and 3.  sacrebleu: "none", "floor" and "exp".
    """

    kind: str
    epsilon: float = 0.1

    @staticmethod
    def Off() -> BleuSmoothing:  # noqa: N802, a member of Burn's enum, where it is None
        """Nothing: the score is 0."""
        return BleuSmoothing("none")

    @staticmethod
    def AddEpsilon(epsilon: float = 0.1) -> BleuSmoothing:  # noqa: N802, a member of Burn's enum
        """epsilon matches in place of none."""
        require_positive("BleuSmoothing.AddEpsilon", epsilon=epsilon)
        return BleuSmoothing("epsilon", epsilon)

    @staticmethod
    def Exponential() -> BleuSmoothing:  # noqa: N802, a member of Burn's enum
        """One half of a match for the first precision of 0, one quarter for the second, and so on."""
        return BleuSmoothing("exp")

    @staticmethod
    def of(value: BleuSmoothing | str | None) -> BleuSmoothing:
        """The smoothing itself, or the one of this name.  Raises: ArgumentError with the names there are."""
        if isinstance(value, BleuSmoothing):
            return value
        kind = "none" if value is None else value
        if kind not in ("none", "epsilon", "exp"):
            raise ArgumentError(
                "there is no such BLEU smoothing",
                given=repr(value),
                expected="'none', 'epsilon' or 'exp'",
                mend="write BleuScore().with_smoothing('exp'), or BleuSmoothing.AddEpsilon(0.1)",
            )
        return BleuSmoothing(kind)


@checked(error=ConfigError, but=("update", "measure"))
@final
class BleuScore(_SequenceMetric):
    """How many runs of 1 to max_n tokens of the predictions are in the targets, of the whole epoch as one corpus.

        BLEU = 100 exp(min(0, 1 - t / o)) (p_1 ... p_N)^(1/N)        p_n = matches / runs of n tokens in the predictions

    A run matches as often as its target has it; o and t are the tokens of all predictions and targets.  One target a
    prediction.  Without any match it is 0 under every smoothing.
    Source: Papineni et al. 2002; sacrebleu.corpus_bleu.
    """

    higher_is_better = True

    def __init__(self, max_n: int = 4) -> None:
        require_positive("BleuScore", max_n=max_n)
        super().__init__()
        self.max_n = max_n
        self.smoothing = BleuSmoothing.Off()
        self.name = f"BLEU-{max_n}"

    @staticmethod
    def with_max_n(max_n: int) -> BleuScore:
        """BLEU of runs of up to so many tokens; `BleuScore()` is BLEU-4."""
        return BleuScore(max_n)

    def with_smoothing(self, smoothing: BleuSmoothing | str | None) -> Self:
        """The same metric with something in place of precisions of 0."""
        return changed(self, smoothing=BleuSmoothing.of(smoothing))

    def summarise(self, measured: Mapping[str, Array], /) -> Mapping[str, Array | float]:
        """Matches and runs by length, tokens on both sides, sentences."""
        matches, total = np.zeros(self.max_n, np.int64), np.zeros(self.max_n, np.int64)
        pairs = self.pairs(measured)
        for output, target in pairs:
            for n in range(1, self.max_n + 1):
                matches[n - 1] += (runs(output, n) & runs(target, n)).total()
                total[n - 1] += max(len(output) - n + 1, 0)
        return {
            "matches": matches,
            "runs": total,
            "output tokens": sum(len(output) for output, _ in pairs),
            "target tokens": sum(len(target) for _, target in pairs),
            "items": len(pairs),
        }

    def compute(self, sums: Mapping[str, Array], /) -> float:
        """BLEU of the corpus; NaN without sentences."""
        if not sums["items"].sum():
            return math.nan
        matches, total = sums["matches"].tolist(), sums["runs"].tolist()
        if not any(matches) or not all(total):
            return 0.0
        logs, halves = [], 1.0
        for matched, of in zip(matches, total, strict=True):
            count = float(matched)
            if not count and self.smoothing.kind == "exp":
                halves *= 2.0
                count = 1.0 / halves
            elif not count and self.smoothing.kind == "epsilon":
                count = self.smoothing.epsilon
            if not count:
                return 0.0
            logs.append(math.log(count / of))
        shortness = min(0.0, 1.0 - ratio(sums["target tokens"], sums["output tokens"]))
        return 100.0 * math.exp(shortness + math.fsum(logs) / self.max_n)


@final
class RougeLScore(_SequenceMetric):
    """The mean over sentences of the F1 of the longest common subsequence, in percent.

        F1 = 2 c / (o + t)        c, o, t: tokens in common, in the prediction, in the target

    Two empty sequences count as equal.  Source: Lin 2004, section 3, with beta 1.
    """

    name = "ROUGE-L"
    higher_is_better = True

    def summarise(self, measured: Mapping[str, Array], /) -> Mapping[str, Array | float]:
        """The sum of the scores, and of how many sentences."""
        pairs = self.pairs(measured)
        scores = [
            2.0 * common_subsequence(output, target) / (len(output) + len(target)) if output or target else 1.0
            for output, target in pairs
        ]
        return {"score": math.fsum(scores), "items": len(pairs)}

    def compute(self, sums: Mapping[str, Array], /) -> float:
        """The mean over the sentences."""
        return ratio(sums["score"], sums["items"], scale=100.0)


class _ErrorRate(_SequenceMetric):
    """Edits over the tokens of the targets, in percent, of the whole epoch as one text.

    It may be above 100; with nothing in any target it is NaN.
    """

    higher_is_better = False

    def summarise(self, measured: Mapping[str, Array], /) -> Mapping[str, Array | float]:
        """Edits, and tokens of the targets."""
        pairs = self.pairs(measured)
        edits = sum(edit_distance(target, output) for output, target in pairs)
        return {"edits": edits, "items": sum(len(target) for _, target in pairs)}

    def compute(self, sums: Mapping[str, Array], /) -> float:
        """Edits over tokens."""
        return ratio(sums["edits"], sums["items"], scale=100.0)


@final
class CharErrorRate(_ErrorRate):
    """Percent of characters to insert, delete or replace; each token is a character."""

    name = "CER"


@final
class WordErrorRate(_ErrorRate):
    """Percent of words to insert, delete or replace; each token is a word."""

    name = "WER"
