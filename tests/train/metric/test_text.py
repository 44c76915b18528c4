"""Perplexity, BLEU, ROUGE-L and error rates beside sacrebleu, scipy and slow definitions."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from scipy.special import log_softmax

from burn_torch import ArgumentError, Device, ShapeError
from burn_torch.train import (
    BleuScore,
    BleuSmoothing,
    CerInput,
    CharErrorRate,
    ClassificationOutput,
    PerplexityMetric,
    RougeLScore,
    SequenceOutput,
    WordErrorRate,
)
from burn_torch.train.metric.edits import common_subsequence, edit_distance, runs

PAD = 0
SIZES = (3, 1, 0, 5)


def slow_distance(x, y):
    """By the definition, cell by cell."""

    @cache
    def cell(i, j):
        if not i or not j:
            return i + j
        return min(cell(i - 1, j) + 1, cell(i, j - 1) + 1, cell(i - 1, j - 1) + (x[i - 1] != y[j - 1]))

    return cell(len(x), len(y))


def slow_common(x, y):
    """The longest subsequence of x that is one of y, by trying all."""

    def inside(part):
        rest = iter(y)
        return all(token in rest for token in part)

    lengths = range(len(x), -1, -1)
    return next(n for n in lengths if any(inside(part) for part in itertools.combinations(x, n)))


@pytest.fixture
def batches(seed, tensor):
    """Batches of predictions that resemble their targets, padded on the right; and the sequences themselves."""
    items, pairs = [], []
    for size in SIZES:
        outputs, targets = np.full((size, 9), PAD), np.full((size, 8), PAD)
        for row in range(size):
            target = seed.integers(1, 6, seed.integers(0 if row else 4, 9))
            output = np.where(seed.random(len(target)) < 0.7, target, seed.integers(1, 6, len(target)))
            output = np.concatenate([output, seed.integers(1, 6, seed.integers(0, 2))])
            outputs[row, : len(output)], targets[row, : len(target)] = output, target
            pairs.append((output.tolist(), target.tolist()))
        items.append(CerInput(tensor(outputs, np.int64), tensor(targets, np.int32)))
    return items, pairs


def split(pairs):
    ends = np.cumsum(SIZES)
    return [pairs[end - size : end] for size, end in zip(SIZES, ends, strict=True)]


def test_distances_of_all_short_sequences():
    short = [word for n in range(5) for word in itertools.product("ab", repeat=n)] + [("a", "b", "c", "a", "d")]
    for x, y in itertools.product(short, repeat=2):
        assert edit_distance(x, y) == slow_distance(x, y)
        assert common_subsequence(x, y) == slow_common(x, y)


def test_distances_of_long_sequences(seed):
    for n, m in ((200, 150), (64, 65), (63, 64), (1, 130)):
        x, y = seed.integers(0, 4, n).tolist(), seed.integers(0, 4, m).tolist()
        assert edit_distance(x, y) == edit_distance(y, x) == slow_distance(tuple(x), tuple(y))
        table = np.zeros((n + 1, m + 1), int)
        for i, j in itertools.product(range(n), range(m)):
            best = max(table[i, j + 1], table[i + 1, j])
            table[i + 1, j + 1] = table[i, j] + 1 if x[i] == y[j] else best
        assert common_subsequence(x, y) == table[n, m]


def test_runs():
    assert runs([1, 2, 1, 2, 1], 2) == {(1, 2): 2, (2, 1): 2}
    assert runs([1, 2], 3) == {}


@pytest.mark.parametrize("make", [CharErrorRate, WordErrorRate])
def test_error_rates(make, batches, check):
    items, pairs = batches

    def expected(some):
        tokens = sum(len(target) for _, target in some)
        return 100 * sum(slow_distance(tuple(t), tuple(o)) for o, t in some) / tokens if tokens else math.nan

    check(lambda: make().with_pad_token(PAD), items, [expected(some) for some in split(pairs)], expected(pairs))
    assert make().name == {CharErrorRate: "CER", WordErrorRate: "WER"}[make]


def test_error_rate_without_padding_and_of_nothing(tensor, feed):
    metric = CharErrorRate()
    assert feed(metric, [CerInput(tensor([[1, 2], [3, 4]], np.int64), tensor([[1, 3], [3, 5]], np.int64))]) == [50.0]
    nothing = CerInput(tensor([[7, 0]], np.int64), tensor([[0, 0]], np.int64))
    metric = WordErrorRate().with_pad_token(0)
    assert math.isnan(feed(metric, [nothing])[0])
    feed(metric, [CerInput(tensor([[7, 0]], np.int64), tensor([[7, 8]], np.int64))])
    assert metric.value() == 100.0  # two edits, one of them in the sentence without tokens, over two tokens


def test_rouge_l(batches, check):
    items, pairs = batches

    def expected(some):
        scores = [2 * slow_common(t, o) / (len(o) + len(t)) if o or t else 1.0 for o, t in some]
        return 100 * sum(scores) / len(scores) if scores else math.nan

    check(lambda: RougeLScore().with_pad_token(PAD), items, [expected(some) for some in split(pairs)], expected(pairs))


def test_rouge_l_by_hand(tensor, feed):
    def of(output, target):
        return CerInput(tensor([output], np.int64), tensor([target], np.int64))

    metric = RougeLScore().with_pad_token(99)
    items = [
        of([1, 2, 3, 99, 99], [1, 2, 3, 4, 5]),
        of([1, 3, 5, 7, 9], [1, 2, 3, 4, 5]),
        of([99], [99]),
        of([99], [1]),
    ]
    assert feed(metric, items) == pytest.approx([75.0, 60.0, 100.0, 0.0])
    assert metric.value() == pytest.approx((75 + 60 + 100 + 0) / 4)


@pytest.mark.parametrize("max_n", [1, 2, 4])
@pytest.mark.parametrize("smoothing", ["none", "epsilon", "exp"])
def test_bleu(max_n, smoothing, batches, check):
    bleu = pytest.importorskip("sacrebleu.metrics").BLEU(
        tokenize="none",
        max_ngram_order=max_n,
        smooth_method={"none": "none", "epsilon": "floor", "exp": "exp"}[smoothing],
        smooth_value=0.2 if smoothing == "epsilon" else None,
        effective_order=False,
        force=True,
    )

    def text(tokens):
        return " ".join(map(str, tokens))

    def expected(some):
        return bleu.corpus_score([text(o) for o, _ in some], [[text(t) for _, t in some]]).score if some else math.nan

    items, pairs = batches
    chosen = BleuSmoothing.AddEpsilon(0.2) if smoothing == "epsilon" else smoothing
    check(
        lambda: BleuScore(max_n).with_pad_token(PAD).with_smoothing(chosen),
        items,
        [expected(some) for some in split(pairs)],
        expected(pairs),
    )


def test_bleu_of_the_epoch_is_no_mean_of_batches(tensor, feed):
    metric = BleuScore.with_max_n(1)
    same = CerInput(tensor([[1, 2, 3, 4]], np.int64), tensor([[1, 2, 3, 4]], np.int64))
    other = CerInput(tensor([[1], [2]], np.int64), tensor([[9], [9]], np.int64))
    assert feed(metric, [same, other]) == [pytest.approx(100), 0.0]
    assert metric.value() == pytest.approx(100 * 4 / 6)


def test_bleu_of_nothing_and_of_no_match(tensor, feed):
    empty = CerInput(tensor([[0]], np.int64), tensor([[5]], np.int64))
    none = CerInput(tensor([[1, 2]], np.int64), tensor([[3, 4]], np.int64))
    for smoothing in (None, "none", "epsilon", BleuSmoothing.Exponential()):
        metric = BleuScore(2).with_pad_token(0).with_smoothing(smoothing)
        assert feed(metric, [empty, none]) == [0.0, 0.0]
    assert BleuScore().name == "BLEU-4"
    assert BleuScore().smoothing == BleuSmoothing.Off()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("data", ["random", "single class", "padded"])
def test_perplexity(data, dtype, seed, check, tensor):
    vocab, items, logs = 11, [], []
    for size in SIZES:
        logits = seed.normal(0, 3, (size, 6, vocab)).astype(dtype)
        targets = np.full((size, 6), 4) if data == "single class" else seed.integers(0, vocab, (size, 6))
        kept = np.ones_like(targets, bool)
        if data == "padded":
            kept = np.arange(6) < seed.integers(0, 7, (size, 1)) * (size > 1)  # the batch of one is all padding
        right = np.take_along_axis(log_softmax(logits.astype(np.float64), -1), targets[..., None], -1)[..., 0]
        logs.append(right[kept])
        shown = np.where(kept, targets, -1)
        items.append(SequenceOutput(tensor(0.0), tensor(logits, dtype), tensor(shown, np.int64)))

    def expected(values):
        return math.exp(-values.mean()) if values.size else math.nan

    check(
        lambda: PerplexityMetric().with_pad_token(-1) if data == "padded" else PerplexityMetric(),
        items,
        [expected(values) for values in logs],
        expected(np.concatenate(logs)),
    )


def test_perplexity_of_a_uniform_guess_of_a_sure_error_and_of_no_class(tensor, feed):
    def of(logits, targets):
        return ClassificationOutput(tensor(0.0), tensor(logits), tensor(targets, np.int64))

    uniform, wrong, none = of(np.zeros((2, 5)), [0, 4]), of([[0.0, 2000.0]], [0]), of(np.zeros((1, 5)), [5])
    perplexities = feed(PerplexityMetric(), [uniform, wrong, none])
    assert perplexities[:2] == [pytest.approx(5), math.inf]
    assert math.isnan(perplexities[2])


def test_predictions_come_from_the_logits_unless_given(tensor, feed, seed):
    logits = seed.normal(0, 1, (2, 4, 5))
    best, other = logits.argmax(-1), (logits.argmax(-1) + 1) % 5
    shown = SequenceOutput(tensor(0.0), tensor(logits), tensor(best, np.int64))
    assert feed(CharErrorRate(), [shown]) == [0.0]
    output = SequenceOutput(tensor(0.0), tensor(logits), tensor(best, np.int64), predictions=tensor(other, np.int64))
    assert feed(CharErrorRate(), [output])[0] > 0
    device = Device.cpu().autodiff()
    tracked = SequenceOutput(tensor(0.0, device=device), tensor(logits, device=device), tensor(best, np.int64, device))
    assert feed(BleuScore(2), [tracked]) == [pytest.approx(100.0)]


def test_faults(tensor, feed):
    item = CerInput(tensor([[1, 2]], np.int64), tensor([[1], [2]], np.int64))
    with pytest.raises(ShapeError, match=r"WordErrorRate: .*\n  given:    predictions \(1, 2\), targets \(2, 1\)"):
        feed(WordErrorRate(), [item])
    with pytest.raises(ShapeError, match=r"PerplexityMetric: .*\n  given:    scores \(2, 3\), targets \(2, 3\)"):
        feed(
            PerplexityMetric(), [ClassificationOutput(tensor(0.0), tensor(np.zeros((2, 3))), tensor(np.zeros((2, 3))))]
        )
    with pytest.raises(ArgumentError, match=r"no such BLEU smoothing\n  given:    'more'\n  expected: 'none', 'ep"):
        BleuScore().with_smoothing("more")
    with pytest.raises(ArgumentError, match=r"BleuScore: not above 0\n  given:    max_n=0"):
        BleuScore(0)
    with pytest.raises(ArgumentError, match=r"AddEpsilon: not above 0\n  given:    epsilon=0.0"):
        BleuSmoothing.AddEpsilon(0.0)
