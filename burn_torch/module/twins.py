"""Says where a module's values are, in its own words and in PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.core.spec import Shape
from burn_torch.module import tree
from burn_torch.module.param import Param
from burn_torch.module.reparameterized import Reparameterized
from burn_torch.module.running_state import RunningState

__all__ = ["Place", "Twin", "places"]


@final
@dataclass(frozen=True)
class Twin:
    """Holds what a value is in another framework: one of `count` equal blocks of rows of a tensor, perhaps turned."""

    key: str
    block: int = 0
    count: int = 1
    turned: bool = False

    def shape(self, whole: Shape) -> Shape | None:
        """The shape of this block of a tensor; None where it has no such block."""
        if self.count > 1:
            if not whole or whole[0] % self.count:
                return None
            whole = (whole[0] // self.count, *whole[1:])
        if self.turned:
            return whole[::-1] if len(whole) == 2 else None
        return whole


@final
@dataclass(frozen=True)
class Place:
    """One value of a module, under one of its paths."""

    path: str
    leaf: Any
    """A Param or a RunningState."""
    container: str
    """The class of the module that holds it: "Linear"."""
    container_path: str
    """All modules and containers above it: "Struct:Net.Struct:Linear"."""
    torch: tuple[Twin, ...]
    """Its names in PyTorch, the likeliest first; the module's own path is among them."""

    def spec(self, dtype: DType) -> tuple[Shape, DType]:
        """Shape and element type of the value in a record, into which one of type `dtype` is to be loaded."""
        if isinstance(self.leaf, Param):
            saved = self.leaf.record_spec(dtype)
            return saved.shape, saved.dtype
        value = self.leaf.value()
        return value.shape, value.dtype


@checked
def places(module: tree.Tree) -> list[Place]:
    """All parameters and running states in order; a shared one comes once for each path."""
    return list(_places(module, "", (), ("",)))


def _layer(value: object) -> str:
    """The library's class that an object is of: a layer derived from Linear lies as Linear does, and a class of
    somebody else that is called Linear does not."""
    classes = (cls for cls in type(value).__mro__ if cls.__module__.partition(".")[0] == "burn_torch")
    return next((cls.__name__ for cls in classes), "")


def _places(value: object, path: str, above: tuple[str, ...], prefixes: tuple[str, ...]) -> Iterator[Place]:
    name = type(value).__name__
    layer = _layer(value)
    here = (*above, tree.container_name(value))
    for field, child in tree.named_children(value):
        where = tree.join_path(path, field)
        if isinstance(child, Param | RunningState):
            yield Place(where, child, name, ".".join(here), _twins(layer, field, child, prefixes))
        elif isinstance(child, Reparameterized):  # its base lies where the parameter would
            if child.holds_codes:
                yield from _places(child.stored, where, here, _rename_child(value, field, prefixes))
            else:
                yield Place(where, child.stored, name, ".".join(here), _twins(layer, field, child.stored, prefixes))
            names = tuple(tree.join_path(prefix, f"{field}.{child.change.NAME}") for prefix in prefixes)
            yield from _places(child.change, tree.join_path(where, child.change.NAME), here, names)
        elif not isinstance(child, tree.LEAVES):
            blocks = _BLOCKS.get(layer)
            inner = _rename_child(value, field, prefixes)
            for place in _places(child, where, here, inner):
                if blocks is None:
                    yield place
                else:
                    yield Place(
                        place.path, place.leaf, place.container, place.container_path,
                        (*blocks(value, field, place, where, prefixes), *place.torch),
                    )  # fmt: skip


# -- names --------------------------------------------------------------------------------------------------
_NORMS: Final = frozenset(["BatchNorm", "SyncBatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RmsNorm"])
_FIELDS: Final = {**{(norm, "gamma"): "weight" for norm in _NORMS}, **{(norm, "beta"): "bias" for norm in _NORMS},
                  ("PRelu", "alpha"): "weight"}  # fmt: skip
_LAYERS: Final = {"mha": "self_attn", "cross_attn": "multihead_attn", "norm_1": "norm1", "norm_2": "norm2",
                  "norm_3": "norm3", "pwff": ""}  # fmt: skip
_CHILDREN: Final = {
    "MultiHeadAttention": {"output": "out_proj"},
    "CrossAttention": {"output": "out_proj"},
    "PositionWiseFeedForward": {"linear_inner": "linear1", "linear_outer": "linear2"},
    "Transformer": {"encoder_norm": "encoder.norm", "decoder_norm": "decoder.norm"},
    "TransformerEncoderLayer": _LAYERS,
    "TransformerDecoderLayer": _LAYERS,
}
"""Fields that have another name in torch.nn; an empty one adds no level."""
_NORMS_FIRST: Final = {
    "TransformerEncoderLayer": {"norm_2": "norm1", "norm_1": "norm2"},
    "TransformerDecoderLayer": {"norm_3": "norm1", "norm_1": "norm2", "norm_2": "norm3"},
}
"""With `norm_first` torch.nn counts norms in the order of their use, and Burn does not."""


def _rename_child(value: Any, field: str, prefixes: Sequence[str]) -> tuple[str, ...]:
    """The names of a child: under each name of its parent, PyTorch's, then its own."""
    container = _layer(value)
    names = dict.fromkeys((_CHILDREN.get(container, {}).get(field, field), field))
    if container in _NORMS_FIRST and value.norm_first and field in _NORMS_FIRST[container]:
        names = dict.fromkeys((_NORMS_FIRST[container][field], field))
    return tuple(dict.fromkeys(tree.join_path(prefix, name) for prefix in prefixes for name in names))


def _twins(container: str, field: str, leaf: Any, prefixes: Sequence[str]) -> tuple[Twin, ...]:
    turned = container == "Linear" and field == "weight" and leaf.mapper.save is None  # LinearLayout.Col lies as there
    names = dict.fromkeys((_FIELDS.get((container, field), field), field))
    return tuple(Twin(tree.join_path(prefix, name), turned=turned) for prefix in prefixes for name in names)


Blocks: TypeAlias = Callable[[Any, str, Place, str, Sequence[str]], "list[Twin]"]
"""(module, its field, a place below, the field's path, the module's names) -> the tensors that hold that value."""


# -- tensors that hold several values --------------------------------------------------------------------------
def _attention(value: object, field: str, place: Place, where: str, prefixes: Sequence[str]) -> list[Twin]:
    order = ("query", "key", "value")
    name = place.path.removeprefix(f"{where}.")
    if field not in order or "." in name:  # what a weight is computed with is not joined
        return []
    turned = any(twin.turned for twin in place.torch)
    return [Twin(tree.join_path(prefix, f"in_proj_{name}"), order.index(field), 3, turned) for prefix in prefixes]


def _cross(value: Any, field: str, place: Place, where: str, prefixes: Sequence[str]) -> list[Twin]:
    """As torch.nn.MultiheadAttention, where a context of another width (kdim, vdim) has matrices of its own.

    Heads that share keys and values have no twin there.
    """
    joined = _attention(value, field, place, where, prefixes)
    if not joined or value.n_heads != value.n_heads_kv:
        return []
    if not place.path.endswith(".weight") or value.query.weight.shape[0] == value.key.weight.shape[0]:
        return joined
    turned = any(twin.turned for twin in place.torch)
    return [Twin(tree.join_path(prefix, f"{field[0]}_proj_weight"), turned=turned) for prefix in prefixes]


def _recurrent(*gates: str, ending: str = "_l0") -> Blocks:
    """Gates in the order of PyTorch's rows, each with a map of the input and one of the hidden state."""

    def twins(value: object, field: str, place: Place, where: str, prefixes: Sequence[str]) -> list[Twin]:
        transform, _, name = place.path.removeprefix(f"{where}.").partition(".")
        if field not in gates or "." in name:
            return []
        which = {"input_transform": "ih", "hidden_transform": "hh"}[transform]
        turned = any(twin.turned for twin in place.torch)
        return [
            Twin(tree.join_path(prefix, f"{name}_{which}{ending}"), gates.index(field), len(gates), turned)
            for prefix in prefixes
        ]

    return twins


def _both_ways(value: object, field: str, place: Place, where: str, prefixes: Sequence[str]) -> list[Twin]:
    """PyTorch keeps both directions in one module, and puts `_reverse` behind the names of the second."""
    ending = {"forward_layer": "", "reverse_layer": "_reverse"}.get(field)
    if ending is None:
        return []
    twins = []
    for twin in place.torch:
        name = twin.key.rpartition(".")[2]
        if name.endswith("_l0"):
            twins += [
                Twin(tree.join_path(prefix, name + ending), twin.block, twin.count, twin.turned) for prefix in prefixes
            ]
    return list(dict.fromkeys(twins))


def _number_layers(value: object, field: str, place: Place, where: str, prefixes: Sequence[str]) -> list[Twin]:
    """PyTorch keeps all layers in one module, and puts their numbers behind the names."""
    if field != "layers":
        return []
    number = place.path.removeprefix(f"{where}.").partition(".")[0]
    twins = []
    for twin in place.torch:
        name, mark, ending = twin.key.rpartition(".")[2].partition("_l0")
        if mark:
            moved = f"{name}_l{number}{ending}"
            twins += [Twin(tree.join_path(prefix, moved), twin.block, twin.count, twin.turned) for prefix in prefixes]
    return list(dict.fromkeys(twins))


_GATES: Final = {
    "Lstm": ("input_gate", "forget_gate", "cell_gate", "output_gate"),
    "Gru": ("reset_gate", "update_gate", "new_gate"),
    "Rnn": ("gate",),
}
_BLOCKS: Final[dict[str, Blocks]] = {
    "MultiHeadAttention": _attention,
    "CrossAttention": _cross,
    **{name: _recurrent(*gates) for name, gates in _GATES.items()},
    **{f"{name}Cell": _recurrent(*gates, ending="") for name, gates in _GATES.items()},
    **{f"Bi{name}": _both_ways for name in _GATES},
    **{f"Stacked{name}": _number_layers for name in _GATES},
}
