"""How much better or worse than its reference an image looks: A-FINE, which does not take the reference for perfect."""

from __future__ import annotations

from typing import Final

from burn_torch.config import Config
from burn_torch.module import Content, Module, Param
from burn_torch.module.initializer import Initializer
from burn_torch.nn import (
    Conv2d,
    Conv2dConfig,
    LayerNorm,
    LayerNormConfig,
    Linear,
    LinearConfig,
    MhaInput,
    MultiHeadAttention,
    MultiHeadAttentionConfig,
)
from burn_torch.nn.loss import Reduction
from burn_torch.tensor import Device, InterpolateOptions, Tensor
from burn_torch.tensor.activation import gelu, relu, sigmoid, softplus
from burn_torch.tensor.functional import interpolate
from burn_torch.vision.augmentation import normalize
from burn_torch.vision.perceptual import reduce_distances, require_pair
from burn_torch.vision.pretrained import Weights, load_weights

__all__ = ["Afine", "AfineConfig"]

_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
_STD: Final = (0.26862954, 0.26130258, 0.27577711)
_CUBIC: Final = InterpolateOptions("bicubic", align_corners=False)
_TINY: Final = 1e-10


class ClipBlock(Module):
    """Attention and a network of QuickGELU, x sigmoid(1.702 x), each behind a norm and with a way around it."""

    attn: MultiHeadAttention
    ln_1: LayerNorm
    ln_2: LayerNorm
    inner: Linear
    outer: Linear

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: x (batch, tokens, width) -> the same."""
        x = x + self.attn.context(MhaInput.self_attn(self.ln_1.forward(x)))
        hidden = self.inner.forward(self.ln_2.forward(x))
        return x + self.outer.forward(hidden * sigmoid(hidden * 1.702))


class ClipFeatures(Module):
    """The image transformer of CLIP: the tokens of the patches after each block.

    Its embeddings of places are resized to the number of tokens as one image of tokens x width, as A-FINE was trained.
    Source: Radford et al. 2021, https://arxiv.org/abs/2103.00020.
    """

    patches: Conv2d
    class_embedding: Param
    positional_embedding: Param
    ln_pre: LayerNorm
    blocks: list[ClipBlock]

    def forward(self, x: Tensor) -> list[Tensor]:
        """Shapes: x (batch, 3, height, width) -> maps (batch, patches, features)."""
        tokens = self.patches.forward(x).flatten(2, 3).swap_dims(1, 2)
        batch, _, width = tokens.shape
        first = self.class_embedding.val().reshape((1, 1, width)).expand((batch, 1, width))
        tokens = Tensor.cat([first, tokens], 1)
        places = self.positional_embedding.val().reshape((1, 1, *self.positional_embedding.shape))
        tokens = tokens + interpolate(places, (tokens.shape[1], width), _CUBIC).squeeze_dim(0)
        tokens = self.ln_pre.forward(tokens)
        maps = []
        for block in self.blocks:
            tokens = block.forward(tokens)
            maps.append(tokens.narrow(1, 1, tokens.shape[1] - 1))
        return maps


class AfineConfig(Config):
    """A-FINE with the image transformer of CLIP ViT-B/32, for images from 0 to 1 and of any size.

    normalize_input false takes images as the transformer does.
    """

    normalize_input: bool = True

    def init(self, device: Device) -> Afine:
        """With fresh parameters; their scores mean nothing before weights are loaded."""
        return Afine.new(device, self.normalize_input)

    def init_pretrained(self, device: Device, weights: Weights | None = None) -> Afine:
        """With the published weights, afine.pth, which has all parts with the transformer as it was tuned.

        Raises: RecordError where no file is named, or it lacks a weight.
        """
        return load_weights(self.init(device), weights, Afine.names(), "afine.pth of A-FINE (CVPR 2025)")


class Afine(Module):
    """A score from 0 to 100 of an image beside a reference; the lower, the better the image looks.

        u = exp(softplus(k) (n(reference) - n(input))) n(input) + f(input, reference)
        score = 100 sigmoid((u + 1.9710) / 2.3734)

    The naturalness n comes of the means and variances of the transformer's maps and of the pixels, the fidelity f of
    their similarities in structure and texture; both are brought to -2 to 2 by a logistic function.  A reference that
    looks worse than the image counts less.  The images may not be exchanged.  Sizes that no patches of 32 make are
    resized to the next larger ones.

    Shapes: input, target (batch, 3, height, width) -> (1,), or (batch,) without a reduction.  Dtypes: any float.
    Raises: ShapeError, DTypeError.  Source: Chen et al. 2025, https://arxiv.org/abs/2503.11221.
    """

    clip: ClipFeatures
    proj_feat: Linear
    head_inner: Linear
    head_outer: Linear
    alpha: Param
    beta: Param
    fidelity_center: Param
    fidelity_width: Param
    natural_center: Param
    natural_width: Param
    k: Param
    normalize_input: bool

    @staticmethod
    def new(
        device: Device,
        normalize_input: bool = True,
        *,
        width: int = 768,
        n_heads: int = 12,
        n_layers: int = 12,
        patch: int = 32,
        places: int = 50,
        hidden: int = 128,
    ) -> Afine:
        """With fresh parameters; the sizes are those of ViT-B/32 unless told."""
        norm = LayerNormConfig(width)
        blocks = [
            ClipBlock(
                MultiHeadAttentionConfig(width, n_heads, dropout=0.0).init(device),
                norm.init(device),
                norm.init(device),
                LinearConfig(width, 4 * width).init(device),
                LinearConfig(4 * width, width).init(device),
            )
            for _ in range(n_layers)
        ]
        small = Initializer.Normal(mean=0.0, std=width**-0.5)
        clip = ClipFeatures(
            Conv2dConfig((3, width), (patch, patch), stride=(patch, patch), bias=False).init(device),
            small.init((width,), device),
            small.init((places, width), device),
            norm.init(device),
            blocks,
        )
        channels = Initializer.Normal(mean=0.1, std=0.01)

        def number(value: float) -> Param:
            return Initializer.Constant(value=value).init((), device)

        return Afine(
            clip=clip,
            proj_feat=LinearConfig(2 * width, hidden).init(device),
            head_inner=LinearConfig(6 + hidden * n_layers, 6 * hidden).init(device),
            head_outer=LinearConfig(6 * hidden, 1).init(device),
            alpha=channels.init((1, 1, 3 + width * n_layers), device),
            beta=channels.init((1, 1, 3 + width * n_layers), device),
            fidelity_center=number(0.5),
            fidelity_width=number(0.15),
            natural_center=number(4.9592),
            natural_width=number(21.5968),
            k=number(5.0),
            normalize_input=normalize_input,
        )

    @staticmethod
    def names() -> dict[str, str]:
        """Names of the published file, and the names here."""
        visual, block = r"^finetuned_clip\.visual\.", r"^finetuned_clip\.visual\.transformer\.resblocks\.(\d+)\."
        return {
            rf"{visual}conv1\.": "clip.patches.",
            rf"{visual}(class_embedding|positional_embedding)$": "clip.${1}",
            rf"{visual}ln_pre\.": "clip.ln_pre.",
            rf"{block}(attn|ln_1|ln_2)\.": "clip.blocks.${1}.${2}.",
            rf"{block}mlp\.c_fc\.": "clip.blocks.${1}.inner.",
            rf"{block}mlp\.c_proj\.": "clip.blocks.${1}.outer.",
            r"^natural\.proj_feat\.": "proj_feat.",
            r"^natural\.proj_head\.0\.": "head_inner.",
            r"^natural\.proj_head\.2\.": "head_outer.",
            r"^fidelity\.(alpha|beta)$": "${1}",
            r"^fidelity_scale\.yita3$": "fidelity_center",
            r"^fidelity_scale\.yita4$": "fidelity_width",
            r"^natural_scale\.yita3$": "natural_center",
            r"^natural_scale\.yita4$": "natural_width",
            r"^adapter\.k$": "k",
        }

    def forward(self, input: Tensor, target: Tensor, reduction: Reduction = Reduction.Mean) -> Tensor:
        """The mean of the scores, or their sum."""
        return reduce_distances(self.forward_no_reduction(input, target), reduction)

    def forward_no_reduction(self, input: Tensor, target: Tensor) -> Tensor:
        """The score of each image beside its reference."""
        require_pair(input, target)
        x, y = self._maps(input), self._maps(target)
        own, other = self._naturalness(x), self._naturalness(y)
        u = (softplus(self.k.val()) * (other - own)).exp() * own + self._fidelity(x, y)
        return sigmoid((u + 1.9710) / 2.3734).reshape((input.shape[0],)) * 100.0

    def _maps(self, images: Tensor) -> list[Tensor]:
        """The pixels, from 0 to 1, and the maps of the transformer, (batch, places, features)."""
        x = normalize(images, _MEAN, _STD) if self.normalize_input else images
        patch = self.clip.patches.weight.shape[2]
        size = tuple([-(-n // patch) * patch for n in x.shape[2:]])
        x = x if size == x.shape[2:] else interpolate(x, size, _CUBIC)
        pixels = normalize(x, [-mean / std for mean, std in zip(_MEAN, _STD, strict=True)], [1 / std for std in _STD])
        return [pixels.flatten(2, 3).swap_dims(1, 2), *(relu(tokens) for tokens in self.clip.forward(x))]

    def _naturalness(self, maps: list[Tensor]) -> Tensor:
        """From -2, natural, to 2.  Shapes: -> (batch, 1)."""
        parts = []
        for i, x in enumerate(maps):
            mean = x.mean_dim(1)
            moments = Tensor.cat([mean, (x - mean).square().mean_dim(1)], 2).squeeze_dim(1)
            parts.append(self.proj_feat.forward(moments) if i else moments)
        raw = self.head_outer.forward(gelu(self.head_inner.forward(Tensor.cat(parts, 1))))
        return _squash(raw, self.natural_center.val(), self.natural_width.val().abs())

    def _fidelity(self, xs: list[Tensor], ys: list[Tensor]) -> Tensor:
        """From -2, alike, to 2.  Shapes: -> (batch, 1)."""
        structures, textures = [], []
        for x, y in zip(xs, ys, strict=True):
            means = x.mean_dim(1), y.mean_dim(1)
            parts = x - means[0], y - means[1]
            spread = parts[0].square().mean_dim(1) + parts[1].square().mean_dim(1)
            squares = means[0].square() + means[1].square()
            structures.append((means[0] * means[1] * 2.0 + _TINY) / (squares + _TINY))
            textures.append(((parts[0] * parts[1]).mean_dim(1) * 2.0 + _TINY) / (spread + _TINY))
        alpha, beta = softplus(self.alpha.val()), softplus(self.beta.val())
        alike = (Tensor.cat(structures, 2) * alpha + Tensor.cat(textures, 2) * beta).sum_dim(2).squeeze_dim(2)
        raw = 1.0 - alike / (alpha.sum() + beta.sum() + _TINY)
        center, width = self.fidelity_center.val().clamp(0.05, 0.95), self.fidelity_width.val().clamp(0.01, 0.70)
        return _squash(raw, center, width)

    def custom_content(self, content: Content) -> Content:
        """The range of its images."""
        return content.add("normalize_input", self.normalize_input)


def _squash(x: Tensor, center: Tensor, width: Tensor) -> Tensor:
    return sigmoid((x - center) / (width + _TINY)) * 4.0 - 2.0
