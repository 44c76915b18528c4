"""Loggers: metrics in files or memory, and the application log."""

from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.train.logger.application import ApplicationLogger as ApplicationLogger
from burn_torch.train.logger.application import FileApplicationLogger as FileApplicationLogger
from burn_torch.train.logger.metric import *

_list_exports(globals())
