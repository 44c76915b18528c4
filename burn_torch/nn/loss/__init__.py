"""Losses: how wrong a model is, as one number."""

from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.nn.loss._reduction import Reduction as Reduction
from burn_torch.nn.loss.alignment import *
from burn_torch.nn.loss.classification import *
from burn_torch.nn.loss.focal import *
from burn_torch.nn.loss.likelihood import *
from burn_torch.nn.loss.margins import *
from burn_torch.nn.loss.regression import *
from burn_torch.nn.loss.similarity import *
from burn_torch.nn.loss.vocabulary import *

_list_exports(globals())
