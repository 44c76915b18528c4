"""Datasets, their transforms and sources, and the loader that makes batches of them.  Imports numpy, never torch."""

from typing import TYPE_CHECKING, NoReturn

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.spellings import missing_from_package as _missing
from burn_torch.core.spellings.packages import DATA
from burn_torch.data.dataset import Dataset, InMemDataset, MapStyle, SupportsEpoch
from burn_torch.data.loader import (
    Batcher,
    BatchIterator,
    DataLoader,
    DataLoaderBuilder,
    Progress,
    split_dataloader,
)
from burn_torch.data.order import permutation, sample_generator, sample_seed
from burn_torch.data.sampling import SamplerDataset, SamplerDatasetOptions, SelectionDataset, ShuffledDataset
from burn_torch.data.source.digits import DigitsDataset, DigitsItem
from burn_torch.data.source.download import ProgressCallback, cache_dir
from burn_torch.data.source.idx import read_idx, write_idx
from burn_torch.data.source.mnist import FashionMnistDataset, MnistDataset, MnistItem
from burn_torch.data.transform import (
    AugmentedDataset,
    ComposedDataset,
    Mapper,
    MapperDataset,
    PartialDataset,
    WindowsDataset,
)

__all__ = [
    "AugmentedDataset",
    "BatchIterator",
    "Batcher",
    "ComposedDataset",
    "DataLoader",
    "DataLoaderBuilder",
    "Dataset",
    "DigitsDataset",
    "DigitsItem",
    "FashionMnistDataset",
    "InMemDataset",
    "MapStyle",
    "Mapper",
    "MapperDataset",
    "MnistDataset",
    "MnistItem",
    "PartialDataset",
    "Progress",
    "ProgressCallback",
    "SamplerDataset",
    "SamplerDatasetOptions",
    "SelectionDataset",
    "ShuffledDataset",
    "SupportsEpoch",
    "WindowsDataset",
    "cache_dir",
    "permutation",
    "read_idx",
    "sample_generator",
    "sample_seed",
    "split_dataloader",
    "write_idx",
]

_check_exports(globals(), but=("DigitsDataset.train", "DigitsDataset.test"))


if not TYPE_CHECKING:  # to a type checker it would say that the module has every name

    def __getattr__(name: str) -> NoReturn:
        raise _missing("burn_torch.data", name, DATA, "utils.data")
