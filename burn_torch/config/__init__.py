"""Configurations: frozen, typed, nested values that read and write JSON.  Imports neither torch nor numpy."""

from burn_torch.config._schema import Tag
from burn_torch.config.base import Config, replace
from burn_torch.config.overrides import apply_overrides
from burn_torch.core.checking import check_exports as _check_exports

__all__ = ["Config", "Tag", "apply_overrides", "replace"]

_check_exports(globals())
