"""`burn-torch train regression`: the value of houses in California, from the census of 1990.

20,640 districts with nine columns, one of them words, one with empty cells.  See `burn_torch/cli/tabular.py` for the
network; `csv-table` does the same with any table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from burn_torch.cli.data_files import DataFiles
from burn_torch.cli.tabular import TableConfig, TableRecipe

FILES: Final = DataFiles(
    "california-housing",
    {"table": ("housing.csv", "housing.csv.gz")},
    "it is datasets/housing/housing.csv of github.com/ageron/handson-ml",
)


class RegressionConfig(TableConfig):
    """The value of houses in dollars, of which the census gives none above 500,001."""

    recipe: Literal["regression"] = "regression"
    target: str | None = "median_house_value"
    task: Literal["auto", "classification", "regression"] = "regression"


class RegressionRecipe(TableRecipe):
    """See the module."""

    name = "regression"
    help = "the value of houses: California housing"
    config = RegressionConfig

    def data_files(self) -> DataFiles:
        """See `Recipe.data_files`."""
        return FILES

    def path(self, config: TableConfig) -> Path:
        """The table: in a folder, or the file itself."""
        if config.data_dir is not None and Path(config.data_dir).is_file():
            return Path(config.data_dir)
        return FILES.find(config.data_dir)["table"]


RECIPE = RegressionRecipe()
