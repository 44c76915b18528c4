"""Names of modules, layers and their functions in PyTorch, and what to write here."""

from __future__ import annotations

from typing import Final

from burn_torch.core.spellings.tensors import ACTIVATIONS

__all__ = ["FUNCTIONAL", "MODULE", "NN"]


def _layer(name: str) -> str:
    return f"nn.{name}Config(...).init(device)"


_CHAIN: Final = (
    "class Net(Module) with a field for each layer, or `layers: list[nn.Linear]`; forward calls one after the other"
)
_OWN: Final = "no counterpart; a Module of your own holds its layers in fields and computes it in forward"

_WITHOUT_TWIN: Final = (
    "AdaptiveLogSoftmaxWithLoss AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d ChannelShuffle CircularPad1d"
    " CircularPad2d CircularPad3d CTCLoss FractionalMaxPool2d FractionalMaxPool3d LPPool1d LPPool2d LPPool3d"
    " MaxUnpool1d MaxUnpool2d MaxUnpool3d MultiLabelMarginLoss"
)


NN: Final[dict[str, str]] = {
    "Module": "burn_torch.Module",
    "Parameter": "burn_torch.Param.from_tensor(tensor)",
    "Buffer": "a Tensor in a field for a constant, a RunningState for what a step hands on",
    "Sequential": _CHAIN,
    "ModuleList": "a field `layers: list[...]`: lists of modules are part of the tree",
    "ModuleDict": "a field `layers: dict[str, ...]`: dicts of modules are part of the tree",
    "ParameterList": "a field `params: list[Param]`",
    "ParameterDict": "a field `params: dict[str, Param]`",
    "functional": "burn_torch.tensor.functional and burn_torch.tensor.activation",
    "init": "nn.Initializer.XavierUniform(...), .KaimingNormal(...), ... in the `initializer` of a configuration",
    "utils": "optim.GradientClippingConfig clips gradients; module.num_params(), module.map_params(...)",
    "parallel": "burn_torch.train.strategies",
    "DataParallel": "burn_torch.train.strategies.MultiDevice(...)",
    "SyncBatchNorm": _layer("BatchNorm"),
    "BatchNorm1d": _layer("BatchNorm"),
    "BatchNorm2d": _layer("BatchNorm"),
    "BatchNorm3d": _layer("BatchNorm"),
    "InstanceNorm1d": _layer("InstanceNorm"),
    "InstanceNorm2d": _layer("InstanceNorm"),
    "InstanceNorm3d": _layer("InstanceNorm"),
    "RMSNorm": _layer("RmsNorm"),
    "CrossMapLRN2d": _layer("LocalResponseNorm"),
    "MultiheadAttention": _layer("MultiHeadAttention"),
    "Transformer": f"{_layer('TransformerEncoder')} and {_layer('TransformerDecoder')}",
    "LSTM": _layer("Lstm"),
    "GRU": _layer("Gru"),
    "RNN": _layer("Rnn"),
    "LSTMCell": f"{_layer('Lstm')} over one step",
    "GRUCell": f"{_layer('Gru')} over one step",
    "RNNCell": f"{_layer('Rnn')} over one step",
    "RNNBase": _layer("Rnn"),
    "RNNCellBase": _layer("Rnn"),
    "EmbeddingBag": f"{_layer('Embedding')}, then x.mean_dim(1)",
    "Bilinear": "(x1.unsqueeze_dim(-2) @ weight).mul(x2...) with a Param of your own",
    "Flatten": "x.flatten(1) in forward",
    "Unflatten": "x.reshape(...) in forward",
    "Fold": _layer("Fold4d"),
    "Unfold": _layer("Unfold4d"),
    "Upsample": _layer("Interpolate2d"),
    "UpsamplingBilinear2d": _layer("Interpolate2d"),
    "UpsamplingNearest2d": _layer("Interpolate2d"),
    "MaxPool3d": "burn_torch.tensor.functional.max_pool3d(x, ...)",
    "AvgPool3d": "burn_torch.tensor.functional.avg_pool3d(x, ...)",
    "Dropout1d": _layer("Dropout"),
    "Dropout2d": _layer("Dropout"),
    "Dropout3d": _layer("Dropout"),
    "AlphaDropout": _layer("Dropout"),
    "FeatureAlphaDropout": _layer("Dropout"),
    "ReLU": "nn.Relu()",
    "ReLU6": "nn.Relu6()",
    "ELU": _layer("Elu"),
    "CELU": _layer("Celu"),
    "SELU": "nn.Selu()",
    "GELU": "nn.Gelu()",
    "PReLU": _layer("PRelu"),
    "RReLU": _layer("RRelu"),
    "LeakyReLU": _layer("LeakyRelu"),
    "Hardshrink": _layer("HardShrink"),
    "Hardsigmoid": _layer("HardSigmoid"),
    "Hardswish": "nn.HardSwish()",
    "Softshrink": _layer("SoftShrink"),
    "Silu": "nn.SiLU()",
    "Swish": "nn.SiLU()",
    "Softmax": "activation.softmax(x, dim), of burn_torch.tensor",
    "Softmax2d": "activation.softmax(x, 1), of burn_torch.tensor",
    "Softmin": "activation.softmin(x, dim), of burn_torch.tensor",
    "LogSoftmax": "activation.log_softmax(x, dim), of burn_torch.tensor",
    "MSELoss": "nn.MseLoss()",
    "L1Loss": "nn.LpLossConfig(1.0).init()",
    "NLLLoss": "nn.CrossEntropyLossConfig(logits=False).init(device), over probabilities",
    "BCELoss": "nn.BinaryCrossEntropyLossConfig().init(device)",
    "BCEWithLogitsLoss": "nn.BinaryCrossEntropyLossConfig(logits=True).init(device)",
    "PoissonNLLLoss": "nn.PoissonNllLossConfig().init()",
    "MultiLabelSoftMarginLoss": "nn.BinaryCrossEntropyLossConfig(logits=True).init(device)",
    "TripletMarginWithDistanceLoss": "nn.TripletMarginLossConfig().init()",
    "LazyLinear": _layer("Linear"),
    **{
        f"Lazy{name}{n}d": _layer(config)
        for n in (1, 2, 3)
        for name, config in (
            ("Conv", f"Conv{n}d"),
            ("ConvTranspose", f"ConvTranspose{n}d"),
            ("BatchNorm", "BatchNorm"),
            ("InstanceNorm", "InstanceNorm"),
        )
    },
    **{
        f"{kind}Pad{n}d": f"x.pad(pairs, {mode!r}) in forward"
        for n in (1, 2, 3)
        for kind, mode in (("Constant", 0.0), ("Zero", "constant"), ("Reflection", "reflect"), ("Replication", "edge"))
    },
    **dict.fromkeys(_WITHOUT_TWIN.split(), _OWN),
}


MODULE: Final[dict[str, str]] = {
    "cpu": "to_device(Device.cpu())",
    "cuda": "to_device(Device.cuda())",
    "eval": "valid(), a model on the device without gradients",
    "load_state_dict": "load_record(record)",
    "named_parameters": "named_params()",
    "parameters": "named_params()",
    "requires_grad_": "no_grad() or requires_grad(), which give another model",
    "state_dict": "into_record() of a module, to_record() of an optimizer",
    "to": "to_device(device)",
    "zero_grad": "nothing, backward returns new gradients",
    "apply": "map_params(function)",
    "add_module": "a field, declared by annotation",
    "register_module": "a field, declared by annotation",
    "register_parameter": "a field `name: Param`",
    "register_buffer": "a field `name: Tensor` for a constant, `name: RunningState` for what a step hands on",
    "buffers": "named_states()",
    "named_buffers": "named_states()",
    "modules": "visit(visitor)",
    "named_modules": "visit(visitor)",
    "children": "its fields: module.__module_fields__",
    "named_children": "its fields: module.__module_fields__",
    "get_parameter": "dict(module.named_params())[path]",
    "get_submodule": "module.layer.part",
    "set_submodule": "dataclasses.replace(module, layer=other)",
    "float": "map_params(lambda p: p.map(lambda x: x.cast(DType.F32)))",
    "double": "map_params(lambda p: p.map(lambda x: x.cast(DType.F64)))",
    "half": "map_params(lambda p: p.map(lambda x: x.cast(DType.F16)))",
    "bfloat16": "map_params(lambda p: p.map(lambda x: x.cast(DType.BF16)))",
    "extra_repr": "custom_content(content)",
    "compile": "burn_torch.compile(lambda model, x: model.forward(x))",
    "forward": "a method `def forward(self, x)` in the class",
    "training": "x.device.is_autodiff(): layers train on a device with gradients",
    "share_memory": "nothing: fork(device) gives a worker's copy",
    "get_buffer": "dict(module.named_states())[path]",
    "to_empty": "to_device(device)",
    "type": "map_params(...)",
    "add_param_group": "optim.GroupedOptimizer",
    "param_groups": "optim.GroupedOptimizer",
    "state": "to_record()",
    "clone": "nothing: a module never changes",
    "new": "the class itself, or its configuration: Config(...).init(device)",
    "init": "its configuration: Config(...).init(device)",
    "num_parameters": "num_params()",
    "save": "save_file(path)",
    "load": "load_file(path)",
    "grad": "GradientsParams.from_grads(loss.backward(), model)",
    "into_parts": "its fields",
}


_ACTIVATION: Final = "burn_torch.tensor.activation.{0}(x, ...)"


FUNCTIONAL: Final[dict[str, str]] = {
    **{name: _ACTIVATION.format(name) for name in [*ACTIVATIONS.split(), "hardtanh", "relu", "tanh"]},
    "logsigmoid": _ACTIVATION.format("log_sigmoid"),
    "hardshrink": _ACTIVATION.format("hard_shrink"),
    "hardsigmoid": _ACTIVATION.format("hard_sigmoid"),
    "hardswish": _ACTIVATION.format("hard_swish"),
    "softshrink": _ACTIVATION.format("soft_shrink"),
    "cross_entropy": "cross_entropy_with_logits(logits, targets), or nn.CrossEntropyLoss",
    "mse_loss": "nn.MseLoss().forward(x, targets, nn.Reduction.Mean)",
    "l1_loss": "nn.LpLossConfig(1.0).init()",
    "smooth_l1_loss": "nn.SmoothL1LossConfig().init()",
    "huber_loss": "nn.HuberLossConfig(delta).init()",
    "nll_loss": "nn.CrossEntropyLossConfig(logits=False).init(device), over probabilities",
    "binary_cross_entropy": "nn.BinaryCrossEntropyLossConfig().init(device)",
    "binary_cross_entropy_with_logits": "nn.BinaryCrossEntropyLossConfig(logits=True).init(device)",
    "kl_div": "nn.KLDivLossConfig().init()",
    "dropout": "nn.DropoutConfig(prob).init()",
    "scaled_dot_product_attention": "attention(query, key, value, ...)",
    "pad": "x.pad(pairs, mode)",
    "one_hot": "x.one_hot(num_classes)",
    "normalize": "x / x.square().sum_dim(dim).sqrt()",
    "grid_sample": "x.grid_sample_2d(grid)",
    "unfold": "unfold4d(x, ...)",
    "fold": "fold4d(x, ...)",
    "upsample": "interpolate(x, ...)",
    "cosine_similarity": "nn.CosineSimilarityConfig().init()",
    "instance_norm": "nn.InstanceNormConfig(channels).init(device)",
    "pixel_shuffle": "nn.PixelShuffleConfig(factor).init()",
}
