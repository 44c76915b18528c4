"""Tests what signatures do not tell of right calls: examples of classes, right values, and what is not called, with
why.
"""

from __future__ import annotations

import inspect
import io
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from burn_kernels import torch as kernels_torch
from burn_torch import (
    Autodiff,
    Config,
    Device,
    Distribution,
    DType,
    Fusion,
    Gradients,
    LibTorch,
    Module,
    Param,
    Tensor,
    TensorData,
    nn,
    train,
)
from burn_torch import data as bd
from burn_torch.backend.base import Backend, Executor
from burn_torch.config import Tag
from burn_torch.distributed import World
from burn_torch.module import (
    Content,
    DisplaySettings,
    GradientsParams,
    ModuleMapper,
    ModuleRecord,
    ModuleVisitor,
    ParamId,
    RunningState,
    StepScope,
)
from burn_torch.monitor import EventLog, Notice, Split
from burn_torch.monitor.control import Stoppable
from burn_torch.optim import (
    AdamConfig,
    ConstantLr,
    GradientClipping,
    GradientClippingConfig,
    GradientsAccumulator,
    GroupedLrScheduler,
    GroupedOptimizer,
    LrScheduler,
    Optimizer,
    OptimizerRecord,
    ParamGroup,
    SgdConfig,
)
from burn_torch.record import BurnpackFormat, FileRecorder, NamedMpkFileRecorder, PrecisionSettings, Recorder
from burn_torch.record.file_format import FileFormat
from burn_torch.record.stores import (
    BurnpackStore,
    IdentityAdapter,
    ModuleAdapter,
    ModuleStore,
    PytorchStore,
    SafetensorsStore,
    WritableStore,
)
from burn_torch.transform import Compiled, compile
from tests.usage.fuzzing import CONFIGS, CPU, Fresh, fields_of, tensor

AD: Final = CPU.autodiff()


class Net(Module):
    """A model with both steps."""

    linear: nn.Linear

    def forward(self, x: Tensor) -> Tensor:
        return self.linear.forward(x)

    def train_step(self, batch: Any) -> Any:
        x, y = (Tensor.from_inner(one) if not one.device.is_autodiff() else one for one in batch)
        out = self.forward(x)
        loss = nn.MseLoss().forward(out, y, nn.Reduction.Mean)
        return train.TrainOutput.new(self, loss.backward(), train.RegressionOutput(loss, out, y))

    def valid_step(self, batch: Any) -> Any:
        x, y = batch
        out = self.forward(x)
        return train.RegressionOutput(nn.MseLoss().forward(out, y, nn.Reduction.Mean), out, y)


def net() -> Net:
    return Net(nn.LinearConfig(3, 2).init(AD))


def gradients() -> GradientsParams:
    model = net()
    x = Tensor.from_data(np.ones((2, 3), "f4"), AD)
    return GradientsParams.from_grads(model.forward(x).sum().backward(), model)


class Pairs:
    """A batcher."""

    def batch(self, items: list[Any], device: Any) -> tuple[Tensor, Tensor]:
        place = CPU if device is None else device
        return Tensor.ones((len(items), 3), place), Tensor.ones((len(items), 2), place)


ITEMS: Final = [1, 2, 3, 4]


class Counted(bd.Dataset[int]):
    """A dataset of a user."""

    def get(self, index: int) -> int:
        return ITEMS[index]

    def __len__(self) -> int:
        return len(ITEMS)


class Falling(LrScheduler):
    """A schedule of a user."""

    def lr_at(self, step: int) -> float:
        return 0.1


class Heard:
    """A renderer, a reader of events, a logger, an interrupter."""

    handle = staticmethod(lambda event: None)
    close = staticmethod(lambda: None)
    stop = staticmethod(lambda reason="": None)


class Settings(Config):
    """A configuration of a user."""

    size: int
    rate: float = 0.5


def loader() -> bd.DataLoader[Any, Any]:
    return bd.DataLoader(ITEMS, Pairs(), batch_size=2)


def learner() -> train.Learner[Any]:
    return train.Learner(net(), AdamConfig().init(), 1e-3)


def training() -> train.SupervisedTraining:
    return train.SupervisedTraining(Path(tempfile.mkdtemp(dir=".")), loader(), loader()).renderer(
        train.SilentRenderer()
    )


def optimizer() -> Any:
    """One that has stepped."""
    return SgdConfig().init().step(0.1, net(), gradients())[1]


def saved(suffix: str, model: Module | None = None) -> Path:
    path = Path(tempfile.mkdtemp(dir=".")) / f"model{suffix}"
    (model or net()).save_file(path)
    return path


def saved_record() -> Path:
    path = Path(tempfile.mkdtemp(dir=".")) / "optim"
    optimizer().to_record().save(path)
    return path


def torch_file() -> Path:
    path = Path(tempfile.mkdtemp(dir=".")) / "model.pt"
    torch.save({"linear.weight": torch.ones(2, 3), "linear.bias": torch.ones(2)}, path)
    return path


def written(name: str, text: str) -> Path:
    path = Path(tempfile.mkdtemp(dir=".")) / name
    path.write_text(text, encoding="utf-8")
    return path


def events_file() -> Path:
    path = Path(tempfile.mkdtemp(dir=".")) / "events.jsonl"
    log = EventLog(path)
    log.append(Notice("begins"))
    log.close()
    return path


def idx_file() -> Path:
    path = Path(tempfile.mkdtemp(dir=".")) / "file.idx"
    bd.write_idx(path, np.ones((2, 2), "u1"))
    return path


def graph_file() -> Path:
    from burn_torch.onnx import export

    path = Path(tempfile.mkdtemp(dir=".")) / "model.onnx"
    export(net().valid(), [Tensor.ones((2, 3), CPU)], path)
    return path


def metadata() -> train.MetricMetadata:
    return train.MetricMetadata(Split.VALID, 1, 1, 2, 0.1, time.monotonic())


LOSS: Final = tensor(1)
SCORES: Final = tensor(4, 3)
CLASSES: Final = Tensor.from_data(np.array([0, 1, 2, 1]), CPU)
TOKENS: Final = Tensor.from_data(np.array([[0, 1, 2], [1, 1, 2]]), CPU)
IMAGES: Final = tensor(2, 1, 24, 24).abs().clamp(0.0, 1.0)
MASKS: Final = tensor(2, 2, 4, 4, dtype="i8")
LABELS: Final = tensor(4, 3, dtype="i8")


class Everything:
    """An item that answers every metric."""

    def adapt(self, kind: type[Any]) -> Any:
        return {
            train.LossInput: train.LossInput(LOSS, 4),
            train.AccuracyInput: train.AccuracyInput(SCORES, CLASSES),
            train.ConfusionStatsInput: train.ConfusionStatsInput(SCORES, LABELS.equal(1), LABELS),
            train.HammingScoreInput: train.HammingScoreInput(SCORES, LABELS),
            train.CerInput: train.CerInput(TOKENS, TOKENS),
            train.PsnrInput: train.PsnrInput(IMAGES, IMAGES * 0.5),
            train.RegressionInput: train.RegressionInput(SCORES, SCORES),
            train.DiceInput: train.DiceInput(MASKS, MASKS),
        }.get(kind)


RIGHT_OF_LAYERS: Final[dict[str, dict[str, Any]]] = {}
EXAMPLES: Final[dict[Any, Callable[[], Any]]] = {
    # the core
    Module: net,
    Tensor: lambda: tensor(2, 3),
    TensorData: lambda: TensorData.of([1.0]),
    Device: lambda: CPU,
    Backend: LibTorch,
    Executor: LibTorch,
    Autodiff: lambda: Autodiff(LibTorch()),
    Fusion: lambda: Fusion(LibTorch()),
    DType: lambda: DType.F32,
    Distribution: lambda: Distribution.Default,
    Gradients: lambda: net().forward(Tensor.from_data(np.ones((2, 3), "f4"), AD)).sum().backward(),
    Param: lambda: Param.from_tensor(tensor(2, 3)),
    ParamId: ParamId,
    RunningState: lambda: RunningState(tensor(2)),
    ModuleRecord: lambda: net().into_record(),
    ModuleMapper: ModuleMapper,
    ModuleVisitor: ModuleVisitor,
    StepScope: lambda: StepScope(1),
    GradientsParams: gradients,
    Content: lambda: Content(DisplaySettings(), "Net"),
    Config: lambda: Settings(3),
    Tag: lambda: Tag("kind"),
    type(None): lambda: None,
    Mapping: dict,
    np.ndarray: lambda: np.ones((2, 2), "u1"),
    Callable: lambda: lambda *args, **kwargs: args[0] if args else None,
    # data
    bd.MapStyle: lambda: ITEMS,
    bd.Dataset: Counted,
    bd.Batcher: Pairs,
    bd.DataLoader: loader,
    bd.DataLoaderBuilder: lambda: bd.DataLoaderBuilder(Pairs()),
    bd.BatchIterator: lambda: iter(loader()),
    bd.Mapper: lambda: lambda item: item,
    bd.DigitsDataset: lambda: bd.DigitsDataset(np.zeros((3, 8, 8), "u1"), np.zeros(3, "u1")),
    bd.MnistDataset: lambda: bd.MnistDataset(np.zeros((3, 28, 28), "u1"), np.zeros(3, "u1")),
    bd.FashionMnistDataset: lambda: bd.FashionMnistDataset(np.zeros((3, 28, 28), "u1"), np.zeros(3, "u1")),
    bd.InMemDataset: lambda: bd.InMemDataset(ITEMS),
    # optim
    Optimizer: optimizer,
    GroupedOptimizer: lambda: GroupedOptimizer.of(net(), {"all": (ParamGroup.all(), SgdConfig().init())}),
    GradientClippingConfig: lambda: GradientClippingConfig.Norm(1.0),
    GradientClipping: lambda: GradientClipping(GradientClippingConfig.Norm(1.0)),
    GradientsAccumulator: GradientsAccumulator,
    LrScheduler: lambda: ConstantLr(0.1),
    GroupedLrScheduler: lambda: GroupedLrScheduler({"all": 0.1}),
    OptimizerRecord: lambda: optimizer().to_record(),
    ParamGroup: ParamGroup.all,
    # records
    FileFormat: BurnpackFormat,
    Recorder: NamedMpkFileRecorder,
    FileRecorder: NamedMpkFileRecorder,
    PrecisionSettings: PrecisionSettings,
    ModuleAdapter: IdentityAdapter,
    ModuleStore: lambda: SafetensorsStore.from_file(saved(".safetensors")),
    WritableStore: lambda: SafetensorsStore.from_file(saved(".safetensors")),
    SafetensorsStore: lambda: SafetensorsStore.from_file(saved(".safetensors")),
    BurnpackStore: lambda: BurnpackStore.from_file(saved(".bpk")),
    PytorchStore: lambda: PytorchStore.from_file(torch_file()),
    # transforms
    Compiled: lambda: compile(lambda x: x * 2.0),
    # train
    train.SupervisedTraining: training,
    train.Learner: learner,
    train.LearnerBuilder: lambda: train.LearnerBuilder(tempfile.mkdtemp(dir=".")),
    train.BookLearner: lambda: (
        train.LearnerBuilder(tempfile.mkdtemp(dir="."))
        .renderer(train.SilentRenderer())
        .build(net(), AdamConfig().init(), 1e-3)
    ),
    train.EvaluatorBuilder: lambda: train.EvaluatorBuilder(tempfile.mkdtemp(dir=".")).metrics(train.LossMetric()),
    train.Evaluator: lambda: train.EvaluatorBuilder(tempfile.mkdtemp(dir=".")).metrics(train.LossMetric()).build(net()),
    train.Metric: train.LossMetric,
    train.NumericMetric: train.LossMetric,
    train.AdditiveMetric: train.PerplexityMetric,
    train.CollectingMetric: train.AurocMetric,
    train.MergeableMetric: train.LossMetric,
    train.MetricMetadata: metadata,
    train.Reading: lambda: train.LossMetric().measure(Everything(), metadata()),
    train.MetricsRenderer: train.SilentRenderer,
    train.EventReader: Heard,
    Stoppable: Heard,
    train.ApplicationLogger: lambda: train.FileApplicationLogger(Path(tempfile.mkdtemp(dir=".")) / "log"),
    train.MetricLogger: train.InMemoryMetricLogger,
    train.CheckpointingStrategy: train.KeepLastNCheckpoints,
    train.EarlyStoppingStrategy: lambda: EXAMPLES[train.MetricEarlyStoppingStrategy](),
    train.MetricEarlyStoppingStrategy: lambda: train.MetricEarlyStoppingStrategy(
        "Loss", "lowest", "valid", train.NoImprovementSince(2)
    ),
    train.ExecutionStrategy: train.SingleDevice,
    train.CheckpointEvery: lambda: train.CheckpointEvery(steps=2),
    train.FileCheckpointer: lambda: train.FileCheckpointer(Path(tempfile.mkdtemp(dir="."))),
    train.TorchModel: lambda: train.TorchModel(torch.nn.Linear(3, 2)),
    train.PsnrMetricConfig: lambda: train.PsnrMetricConfig(1.0),
    train.SsimMetricConfig: lambda: train.SsimMetricConfig(1.0),
    train.MsSsimMetricConfig: lambda: train.MsSsimMetricConfig(1.0, kernel_size=3, betas=[0.5, 0.5]),
    train.DecisionRule: lambda: train.DecisionRule.Threshold(0.5),
    World: World,
    # kernels
    torch.Tensor: lambda: torch.ones(2, 3),
    torch.nn.Module: lambda: torch.nn.Linear(3, 2),
    torch.dtype: lambda: torch.float32,
    kernels_torch.RMSNorm: lambda: kernels_torch.RMSNorm(3),
    **{
        kind: lambda kind=kind: kind([torch.nn.Parameter(torch.ones(2, 3))])
        for kind in (kernels_torch.Adam, kernels_torch.AdamW, kernels_torch.Lion, kernels_torch.SGD)
    },
    io.TextIOBase: io.StringIO,
}

BY_NAME: Final[dict[str, Any]] = {
    "device": CPU,
    "seed": 0,
    "model": Fresh(net),
    "module": Fresh(net),
    "optim": Fresh(lambda: AdamConfig().init()),
    "lr": 0.1,
    "lr_scheduler": 0.1,
    "grads": Fresh(gradients),
    "batch": Fresh(lambda: (Tensor.ones((2, 3), AD), Tensor.ones((2, 2), AD))),
    "item": Fresh(Everything),
    "train_loader": Fresh(loader),
    "valid_loader": Fresh(loader),
    "stop": lambda: True,
    "index": 0,
    "indices": [0, 1],
}
"""Right values by the names of parameters, whatever they are annotated with."""


def _layers() -> dict[Any, Callable[[], Any]]:
    """Layers as their configurations make them."""
    makers: dict[Any, Callable[[], Any]] = {}
    for name in nn.__all__:
        config = getattr(nn, f"{name}Config", None)
        if config is None or not issubclass(config, Config):
            continue

        def make(config: type[Config] = config) -> Any:
            own = config(**{**fields_of(config), **CONFIGS.get(config.__name__, {})})
            return own.init(CPU) if "device" in inspect.signature(own.init).parameters else own.init()

        makers[getattr(nn, name)] = make
    return makers


EXAMPLES.update(_layers())
EXAMPLES[nn.Initializer] = lambda: nn.Initializer.Ones
EXAMPLES[nn.NormalizationConfig] = lambda: nn.NormalizationConfig.Layer(nn.LayerNormConfig(3))
EXAMPLES[nn.ActivationConfig] = lambda: nn.ActivationConfig.Relu
EXAMPLES[nn.PaddingConfig1d] = lambda: nn.PaddingConfig1d.Valid
EXAMPLES[nn.PaddingConfig2d] = lambda: nn.PaddingConfig2d.Valid
EXAMPLES[nn.PaddingConfig3d] = lambda: nn.PaddingConfig3d.Valid
EXAMPLES[nn.SeqLengthOption] = lambda: nn.SeqLengthOption.NoMax


def _inputs() -> dict[str, dict[str, Any]]:
    """Returns what `forward` of each layer takes."""
    line, image, solid = tensor(2, 4, 8), tensor(2, 4, 8, 8), tensor(2, 4, 4, 4, 4)
    rows, words = tensor(2, 4), tensor(2, 3, 4)
    vectors, signs = tensor(3, 2), tensor(3, dtype="i8") * 2 - 1
    right: dict[str, dict[str, Any]] = {}
    for n, x in ((1, line), (2, image), (3, solid)):
        for name in ("Conv", "ConvTranspose", "AvgPool", "MaxPool", "LpPool", "AdaptiveAvgPool", "Interpolate"):
            right[f"{name}{n}d"] = {"x": x, "input": x}
        right[f"MaxUnpool{n}d"] = {"x": x, "indices": x.int() * 0, "output_size": None}
        right[f"FractionalMaxPool{n}d"] = {"x": x, "samples": None}
    for name in (
        "BatchNorm",
        "SyncBatchNorm",
        "GroupNorm",
        "InstanceNorm",
        "LocalResponseNorm",
        "PixelUnshuffle",
        "Unfold4d",
    ):
        right[name] = {"x": image}
    for name in ("LayerNorm", "RmsNorm", "Linear", "SwiGlu", "PositionWiseFeedForward", "PRelu", "GLU"):
        right[name] = {"x": rows}
    recurrent = [f"{way}{kind}" for way in ("", "Bi", "Stacked") for kind in ("Lstm", "Gru", "Rnn")]
    for name in (*recurrent, "PositionalEncoding"):
        right[name] = {"x": words, "batched_input": words, "state": None, "lengths": None}
    for name in ("LstmCell", "GruCell", "RnnCell"):
        right[name] = {"x": rows, "state": None}
    right["Bilinear"] = {"x1": rows, "x2": rows}
    right["Embedding"] = {"x": tensor(2, 3, dtype="i8"), "indices": tensor(2, 3, dtype="i8")}
    right["EmbeddingBag"] = {"indices": tensor(2, 3, dtype="i8"), "offsets": None, "per_sample_weights": None}
    right["MixtureOfExperts"] = {"x": words}
    right["PixelShuffle"] = {"x": tensor(2, 16, 3, 3)}
    for name in ("TransformerEncoderLayer", "TransformerDecoderLayer", "RotaryEncoding"):
        right[name] = {"x": words, "input": words}
    right["GLU"] = {"x": tensor(2, 2, 4), "input": tensor(2, 2, 4)}
    right["MultiHeadAttention"] = {"input": nn.MhaInput.self_attn(words)}
    right["Transformer"] = {"input": nn.TransformerInput(words, words)}
    right["TransformerEncoder"] = {"input": nn.TransformerEncoderInput(words)}
    right["TransformerDecoder"] = {"input": nn.TransformerDecoderInput(words, words)}
    right["CrossAttention"] = {"query": words, "context": words, "mask": None}
    right["DeformConv2d"] = {"x": image, "offset": tensor(2, 8, 7, 7), "mask": None}
    right["Fold4d"] = {"x": tensor(1, 4, 1)}
    right["CosineEmbeddingLoss"] = {"input1": vectors, "input2": vectors, "target": signs}
    right["CosineSimilarity"] = {"x1": vectors, "x2": vectors}
    right["CrossEntropyLoss"] = {"logits": SCORES, "targets": CLASSES}
    right["BinaryCrossEntropyLoss"] = {"logits": LABELS.float(), "targets": LABELS}
    right["PoissonNllLoss"] = {"predictions": SCORES, "targets": LABELS.float()}
    lengths = tensor(2, dtype="i8") * 0 + 2
    right["CTCLoss"] = {"log_probs": words, "targets": tensor(3, 2, dtype="i8") * 0 + 1}
    right["RNNTLoss"] = {"logits": tensor(2, 2, 3, 4), "targets": tensor(2, 2, dtype="i8") * 0 + 1}
    for name in ("CTCLoss", "RNNTLoss"):
        right[name] |= {"input_lengths": lengths, "logit_lengths": lengths, "target_lengths": lengths}
    right["AdaptiveLogSoftmaxWithLoss"] = {"x": rows, "targets": tensor(2, dtype="i8") * 0}
    right["LinearCrossEntropyLoss"] = {"x": rows, "targets": tensor(2, dtype="i8") * 0}
    right["MultiLabelMarginLoss"] = {"input": SCORES, "target": LABELS}
    right["MultiLabelSoftMarginLoss"] = {"input": SCORES, "target": LABELS}
    right["NLLLoss"] = {"log_probs": SCORES, "targets": CLASSES}
    right["MultiMarginLoss"] = {"input": SCORES, "target": CLASSES, "logits": SCORES, "targets": CLASSES}
    return right


def _metrics() -> dict[str, dict[str, Any]]:
    """Returns what methods of metrics take: the state of one that measured a batch, and its sums."""

    def state_of(kind: Any) -> Any:
        from tests.usage.public import example_of

        metric = example_of(kind)
        metric.update(Everything(), metadata())
        return metric.state()

    right: dict[str, dict[str, Any]] = {}
    for name in train.__all__:
        kind = getattr(train, name)
        if inspect.isclass(kind) and all(hasattr(kind, method) for method in ("measure", "load_state", "merge")):
            state = Fresh(lambda kind=kind: state_of(kind))
            for method, key in (("load_state", "state"), ("merge", "state"), ("compute", "sums"), ("compute", "rows")):
                right.setdefault(f"burn_torch.train.{name}.{method}", {})[key] = state
    return right


_REDUCTION: Final = {"reduction": nn.Reduction.Mean}
for _layer, _values in _inputs().items():
    for _method in ("forward", "forward_no_reduction", "forward_with_indices", "log_prob", "predict"):
        RIGHT_OF_LAYERS[f"burn_torch.nn.{_layer}.{_method}"] = {**_REDUCTION, **_values}
RIGHT: Final[dict[str, dict[str, Any]]] = {
    **RIGHT_OF_LAYERS,
    **_metrics(),
    "burn_torch.config.apply_overrides": {"config": Fresh(lambda: Settings(3)), "overrides": ["size=4"]},
    "burn_torch.config.replace": {"config": Fresh(lambda: Settings(3))},
    "burn_torch.data.DataLoader.slice": {"start": 0, "end": 2},
    "burn_torch.data.PartialDataset": {"start": 0, "end": 2},
    "burn_torch.data.InMemDataset.from_csv": {"path": Fresh(lambda: written("a.csv", "x,y\n1,2\n"))},
    "burn_torch.data.InMemDataset.from_json_rows": {"path": Fresh(lambda: written("a.jsonl", '{"x": 1}\n'))},
    "burn_torch.data.read_idx": {"path": Fresh(idx_file)},
    **{f"burn_torch.optim.{name}": {"groups": ()} for name in ("Adam", "AdamW", "Lion", "Sgd", "SgdWithMomentum")},
    "burn_torch.compile": {"function": lambda x: x * 2.0},
    "burn_torch.optim.GroupedLrScheduler": {"schedules": {"all": 0.1}},
    "burn_torch.optim.LearningRates": {"groups": {"all": 0.1}},
    "burn_torch.optim.GroupedOptimizer.of": {"groups": {"all": (ParamGroup.all(), SgdConfig().init())}},
    "burn_torch.optim.LrScheduler.load_record": {"record": Fresh(lambda: ConstantLr(0.1).to_record())},
    "burn_torch.optim.OptimizerRecord.load": {"path": Fresh(lambda: saved_record())},
    "burn_torch.Module.load_file": {"path": Fresh(lambda: saved(".bpk"))},
    "burn_torch.Module.load_record": {"record": Fresh(lambda: net().into_record())},
    "burn_torch.Module.load_from": {"store": Fresh(lambda: SafetensorsStore.from_file(saved(".safetensors")))},
    "burn_torch.Module.save_into": {
        "store": Fresh(lambda: SafetensorsStore.from_file("new.safetensors").overwrite(True))
    },
    "burn_torch.Module.map": {"mapper": ModuleMapper()},
    "burn_torch.Module.visit": {"visitor": ModuleVisitor()},
    "burn_torch.Module.map_params": {"f": lambda p: p, "function": lambda p: p},
    "burn_torch.Config.from_dict": {"cls": Settings},
    "burn_torch.Autodiff": {"inner": LibTorch()},
    **{f"burn_torch.{kind}": {"inner": LibTorch()} for kind in ("Autodiff.above", "Autodiff.onto", "Fusion.onto")},
    "burn_torch.Fusion": {"inner": LibTorch()},
    "burn_torch.DType.of": {"dtype": "f32", "name": "f32"},
    "burn_torch.Device.parse": {"name": "cpu", "text": "cpu"},
    "burn_torch.Gradients.get": {"tensor": tensor(2, 3), "x": tensor(2, 3)},
    "burn_torch.hvp": {"fn": lambda x: (x * x).sum(), "primals": (tensor(3),), "tangents": (tensor(3),)},
    "burn_torch.jvp": {"fn": lambda x: (x * x).sum(), "primals": (tensor(3),), "tangents": (tensor(3),)},
    "burn_torch.vjp": {"fn": lambda x: (x * x).sum(), "primals": (tensor(3),)},
    "burn_torch.explain": {"function": lambda x: x * 2.0, "args": (tensor(3),)},
    "burn_torch.TensorData": {"array": np.ones(2, "f4"), "dtype": DType.F32},
    "burn_torch.TensorData.of": {"data": [1.0]},
    "burn_torch.TensorData.new": {"value": [1.0], "values": [1.0], "data": [1.0], "shape": (1,)},
    "burn_torch.TensorData.from_bytes": {"data": b"1234", "shape": (1,), "dtype": DType.F32},
    "burn_torch.Param.from_data": {"data": [1.0]},
    "burn_torch.monitor.RunView.of": {"directory": Fresh(lambda: events_file().parent)},
    "burn_torch.monitor.RunView.outline": {"directory": Fresh(lambda: events_file().parent)},
    "burn_torch.monitor.EventFile": {"path": Fresh(events_file)},
    "burn_torch.monitor.read_events": {"path": Fresh(events_file)},
    "burn_torch.monitor.follow": {"path": Fresh(events_file)},
    "burn_torch.onnx.export": {
        "function": Fresh(lambda: net().valid()),
        "example_inputs": Fresh(lambda: [Tensor.ones((2, 3), CPU)]),
        "path": "out.onnx",
    },
    "burn_torch.onnx.load": {"path": Fresh(graph_file)},
    "burn_torch.onnx.read_model": {"path": Fresh(graph_file)},
    "burn_torch.train.CheckpointEvery": {"steps": 2},
    "burn_torch.train.TorchModel": {"module": Fresh(lambda: torch.nn.Linear(3, 2))},
    "burn_kernels.torch.patch": {"model": Fresh(lambda: torch.nn.Linear(3, 2))},
    "burn_kernels.torch.unpatch": {"model": Fresh(lambda: torch.nn.Linear(3, 2))},
    "burn_kernels.autotune.set_level": {"name": "off"},
    "burn_torch.train.SupervisedTraining.checkpoint_every": {"steps": 2},
    "burn_torch.train.Evaluator.eval": {"loader": Fresh(loader)},
    "burn_torch.train.Evaluator.eval_all": {"splits": Fresh(lambda: {"word": loader()})},
    "burn_torch.train.Learner.load_optim": {"record": Fresh(lambda: AdamConfig().init().to_record())},
    "burn_torch.train.Learner.load_scheduler": {"record": Fresh(lambda: ConstantLr(0.1).to_record())},
    "burn_torch.train.Learner.optimizer_step_multi": {"grads": Fresh(lambda: [gradients()])},
    "burn_torch.train.TorchModel.load_record": {
        "record": Fresh(lambda: train.TorchModel(torch.nn.Linear(3, 2)).into_record())
    },
    "burn_torch.train.CpuMemory.format": {"value": 0.5},
}
"""Right values of single callables."""

HOOKS: Final = (
    r"burn_torch\.train\.(\w+Logger|\w+Strategy|\w+Checkpoints|SilentRenderer|SingleDevice|Interrupter)\.",
    r"burn_torch\.record\.stores\.\w+Adapter\.(twins|stored)",
    r"burn_torch\.data\.\w+\.at_epoch",
    r"burn_torch\.train\.\w+\.(update|measure|read)$",
    r"burn_torch\.(Module|nn\.\w+)\.custom_content",
)
"""Methods (patterns) that the library calls, of which some do nothing with an argument: what they take is no fault."""

OPEN: Final[dict[str, str]] = {
    r"burn_torch\.(LibTorch|NdArray|Autodiff|Fusion)\.": "called by the dispatch of tensors, in every operation",
    r"burn_torch\.data\.\w+\.get(_many)?$": "an IndexError ends Python's loop over a sequence",
    r"burn_torch\.ModuleRecord$": "its numbers may be truth values",
    r"burn_torch\.train\.TrainOutput": "made in every step, of modules or of any item",
    r"burn_torch\.(optim\.StateGroup|module\.GradientsParams\.\w+)$": "made or asked for each parameter of a step",
    r"burn_torch\.(Param|nn\.\w+\.(forward|shift)|monitor\.Series\.add)$": "in every step: looked at late",
    r"burn_kernels\.(autotune\.(Tunable|Selector)\.|torch\.\w+Norm\dd\.forward)": "in every launch",
}
"""Faults that are not mended (patterns of callables), with the reason.  What is mended leaves this list."""
