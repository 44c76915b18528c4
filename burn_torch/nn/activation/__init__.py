"""Activation modules, and the choice of one in a configuration."""

from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.nn.activation.choice import *
from burn_torch.nn.activation.gated import *
from burn_torch.nn.activation.hard import *
from burn_torch.nn.activation.rectifiers import *
from burn_torch.nn.activation.smooth import *

_list_exports(globals())
