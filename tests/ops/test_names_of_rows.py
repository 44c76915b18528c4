"""Each row of the table is an attribute of `burn_torch.ops`, whatever was imported before."""

from __future__ import annotations

from burn_torch import ops


def test_no_module_of_a_family_hides_a_row() -> None:
    rows = {name: row for name, row in ops.REGISTRY.items() if "::" not in name}
    assert len(rows) > 150
    assert [name for name, row in rows.items() if getattr(ops, name) is not row] == []
