"""Layers, activations, losses: modules with Burn's names, parameters and defaults."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.core.spellings import hint_missing as _hint_missing
from burn_torch.core.spellings.layers import NN as _NN
from burn_torch.module.initializer import *
from burn_torch.nn.activation import *
from burn_torch.nn.adaptive_pool import *
from burn_torch.nn.attention_cache import *
from burn_torch.nn.attention_mask import *
from burn_torch.nn.bilinear import *
from burn_torch.nn.conv import *
from burn_torch.nn.conv_transpose import *
from burn_torch.nn.cross_attention import *
from burn_torch.nn.decoding_cache import *
from burn_torch.nn.deform_conv import *
from burn_torch.nn.distances import *
from burn_torch.nn.dropout import *
from burn_torch.nn.embedding import *
from burn_torch.nn.embedding_bag import *
from burn_torch.nn.feed_forward import *
from burn_torch.nn.gate_controller import *
from burn_torch.nn.gru import *
from burn_torch.nn.linear import *
from burn_torch.nn.loss import *
from burn_torch.nn.lstm import *
from burn_torch.nn.lstm_state import *
from burn_torch.nn.mixture_of_experts import *
from burn_torch.nn.multi_head_attention import *
from burn_torch.nn.norm import *
from burn_torch.nn.padding import PaddingConfig1d as PaddingConfig1d
from burn_torch.nn.padding import PaddingConfig2d as PaddingConfig2d
from burn_torch.nn.padding import PaddingConfig3d as PaddingConfig3d
from burn_torch.nn.padding_layers import *
from burn_torch.nn.pool import *
from burn_torch.nn.positional_encoding import *
from burn_torch.nn.rearrange import *
from burn_torch.nn.rnn import *
from burn_torch.nn.rotary_encoding import *
from burn_torch.nn.spatial import *
from burn_torch.nn.stacked import *
from burn_torch.nn.sync_batch_norm import *
from burn_torch.nn.transformer import *
from burn_torch.nn.transformer_decoder import *
from burn_torch.nn.transformer_encoder import *
from burn_torch.nn.unpool import *

_list_exports(globals())
_check_exports(globals(), quick=True, but=("GateController.new",))
_hint_missing(globals(), _NN, torch="nn")
