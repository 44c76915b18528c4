"""`burn-torch train csv-table --data FILE.csv --set target=COLUMN`: any table, its column a class or a number."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from burn_torch.cli.tabular import TableConfig, TableRecipe
from burn_torch.core.errors import DataError


class CsvTableConfig(TableConfig):
    """See `TableConfig`."""

    recipe: Literal["csv-table"] = "csv-table"


class CsvTableRecipe(TableRecipe):
    """See the module."""

    name = "csv-table"
    help = "any CSV file with a header; the target is a class or a number"
    config = CsvTableConfig

    def path(self, config: TableConfig) -> Path:
        """The file that --data names."""
        if config.data_dir is not None and Path(config.data_dir).is_file():
            return Path(config.data_dir)
        words = "no --data" if config.data_dir is None else f"{config.data_dir}, which is no file"
        raise DataError(
            "csv-table: there is no table",
            given=words,
            expected="a CSV file whose first line names the columns",
            mend="burn-torch train csv-table --data FILE.csv --set target=COLUMN",
        )


RECIPE = CsvTableRecipe()
