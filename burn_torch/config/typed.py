"""The types of fields, for readers of other data than configurations: rows of a table, say."""

from burn_torch.config._containers import decode_with, note_duplicates
from burn_torch.config._kinds import Kind
from burn_torch.config._schema import kind_of, note_unknown

__all__ = ["Kind", "decode_with", "kind_of", "note_duplicates", "note_unknown"]
