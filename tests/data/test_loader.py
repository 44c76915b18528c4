"""`DataLoader`: order, workers, resume, errors, and threads that end."""

import gc
import subprocess
import sys
import threading
import time
import traceback
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burn_torch.core.errors import DataError
from burn_torch.data import (
    AugmentedDataset,
    DataLoader,
    DataLoaderBuilder,
    Dataset,
    MapperDataset,
    Progress,
    permutation,
    split_dataloader,
)


class Tuples:
    def batch(self, items, device):
        return (device, tuple(items))


class Uneven(Dataset[int]):
    """Later items are ready earlier, so that workers finish out of order."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def get(self, index):
        time.sleep(0.002 * (index % 3 == 0))
        return index


def workers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("burn-torch-loader")]


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    if workers():
        gc.collect()  # what a cycle keeps
    assert workers() == []


def items_of(batches):
    return [item for _, batch in batches for item in batch]


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 30),
    batch_size=st.integers(1, 8),
    seed=st.none() | st.integers(0, 3),
    drop_last=st.booleans(),
    epoch=st.integers(0, 3),
    num_workers=st.integers(0, 4),
    data=st.data(),
)
def test_batches_are_the_order_cut_up(n, batch_size, seed, drop_last, epoch, num_workers, data):
    drop_last = drop_last and n >= batch_size
    loader = DataLoader(
        list(range(n)),
        Tuples(),
        batch_size=batch_size,
        shuffle=seed,
        drop_last=drop_last,
        num_workers=num_workers,
        device="d",
    )
    order = list(range(n)) if seed is None else permutation(n, seed, epoch).tolist()
    expected = [("d", tuple(order[i : i + batch_size])) for i in range(0, n, batch_size)]
    if drop_last and n % batch_size:
        expected.pop()
    assert list(loader.epoch(epoch)) == expected
    assert len(loader) == len(expected)
    assert loader.num_items() == sum(len(batch) for _, batch in expected)
    start = data.draw(st.integers(0, len(expected)))
    assert list(loader.iter_epoch(epoch, start_batch=start)) == expected[start:]


def test_workers_change_neither_batches_nor_order():
    dataset = AugmentedDataset(Uneven(60), lambda x, rng: (x, rng.random()), seed=5)
    runs = [
        [list(loader), list(loader)]
        for loader in (DataLoader(dataset, Tuples(), batch_size=4, shuffle=9, num_workers=n) for n in (0, 1, 4))
    ]
    assert runs[0] == runs[1] == runs[2]
    assert runs[0][0] != runs[0][1]


def test_iterating_goes_from_epoch_to_epoch():
    loader = DataLoader(list(range(20)), Tuples(), batch_size=3, shuffle=1)
    assert [items_of(loader) for _ in range(3)] == [items_of(loader.epoch(e)) for e in range(3)]
    assert iter(loader).epoch == 3
    assert iter(loader.to_device("other")).epoch == 4


def test_resume_reads_nothing_before_its_batch():
    reads = []
    dataset = MapperDataset(list(range(100)), lambda x: reads.append(x) or x)
    loader = DataLoader(dataset, Tuples(), batch_size=10, shuffle=4)
    rest = items_of(loader.epoch(2, start_batch=7))
    assert reads == rest == permutation(100, 4, 2).tolist()[70:]


def test_resume_from_next_batch_gives_the_uninterrupted_epoch():
    loader = DataLoader(list(range(23)), Tuples(), batch_size=4, shuffle=8, num_workers=2)
    with loader.epoch(1) as first:
        begun = [next(first) for _ in range(3)]
    assert begun + list(loader.epoch(first.epoch, first.next_batch)) == list(loader.epoch(1))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_progress_counts_items(num_workers):
    loader = DataLoader(list(range(10)), Tuples(), batch_size=4, num_workers=num_workers)
    batches = loader.epoch(0)
    seen = [batches.progress()]
    left = [len(batches)]
    for _ in batches:
        seen.append(batches.progress())
        left.append(len(batches))
    assert seen == [Progress(0, 10), Progress(4, 10), Progress(8, 10), Progress(10, 10)]
    assert left == [3, 2, 1, 0]
    assert loader.epoch(0, start_batch=2).progress() == Progress(8, 10)


def test_workers_stay_within_their_window():
    items = []
    dataset = MapperDataset(list(range(1000)), lambda x: items.append(x) or x)
    with DataLoader(dataset, Tuples(), batch_size=1, num_workers=3).epoch(0) as batches:
        next(batches)
        deadline = time.monotonic() + 5
        while len(items) < 7 and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.05)
        assert len(items) == 1 + 2 * 3


def test_workers_live_as_long_as_their_iterator():
    loader = DataLoader(list(range(1000)), Tuples(), batch_size=1, num_workers=3)
    batches = loader.epoch(0)
    names = {thread.ident for thread in workers()}
    next(batches)
    assert len(names) == 3
    assert {thread.ident for thread in workers()} == names
    batches.close()
    assert workers() == []
    assert list(batches) == []
    batches.close()


def test_a_dropped_iterator_ends_its_threads():
    loader = DataLoader(list(range(1000)), Tuples(), batch_size=1, num_workers=3)
    for batch in loader:
        assert batch == (None, (0,))
        break
    gc.collect()
    assert workers() == []


def test_an_iterator_closed_by_another_thread_ends_the_loop():
    block = threading.Event()

    class Slow(Dataset[int]):
        def __len__(self):
            return 10

        def get(self, index):
            if index >= 2:
                block.wait(5)
            return index

    batches = DataLoader(Slow(), Tuples(), batch_size=1, num_workers=1).epoch(0)
    seen = []
    reader = threading.Thread(target=lambda: seen.extend(batches))
    reader.start()
    while len(seen) < 2:
        time.sleep(0.002)
    closer = threading.Thread(target=batches.close)
    closer.start()
    block.set()
    reader.join(5)
    closer.join(5)
    assert not reader.is_alive()
    assert not closer.is_alive()


def test_a_worker_that_makes_a_batch_does_not_keep_the_one_before():
    begun, go_on = threading.Event(), threading.Event()

    class Box:
        def __init__(self, items):
            self.items = items

    class Boxes:
        def batch(self, items, device):
            if items[0] == 1:
                begun.set()
                go_on.wait(5)
            return Box(items)

    with DataLoader([0, 1], Boxes(), batch_size=1, num_workers=1).epoch(0) as batches:
        gone = weakref.ref(next(batches))
        assert begun.wait(5)
        assert gone() is None
        go_on.set()


def explode(index):
    if index == 13:
        raise ValueError("thirteen")
    return index


@pytest.mark.parametrize("num_workers", [0, 1, 4])
def test_an_error_comes_out_where_its_batch_would_have(num_workers):
    loader = DataLoader(MapperDataset(list(range(40)), explode), Tuples(), batch_size=5, num_workers=num_workers)
    batches = loader.epoch(0)
    assert items_of([next(batches), next(batches)]) == list(range(10))
    with pytest.raises(ValueError, match=r"^thirteen") as caught:
        next(batches)
    assert "in explode" in "".join(traceback.format_tb(caught.value.__traceback__))
    assert caught.value.__notes__ == ["in batch 3 of epoch 1 of the DataLoader: items 10, 11, 12, 13, 14"]
    assert workers() == []
    assert list(batches) == []


@pytest.mark.parametrize("num_workers", [0, 2])
def test_stop_iteration_in_a_dataset_does_not_end_the_epoch(num_workers):
    dataset = MapperDataset(list(range(5)), lambda x: next(iter(())))
    with pytest.raises(
        RuntimeError, match=r"raised StopIteration.*\n  given:    batch 1 of epoch 1\n  expected: .*\n  mend: "
    ):
        list(DataLoader(dataset, Tuples(), batch_size=2, num_workers=num_workers))


def test_system_exit_in_a_worker_reaches_the_reader():
    def leave(item):
        sys.exit(7)

    with pytest.raises(SystemExit, match="7"):
        list(DataLoader(MapperDataset([1], leave), Tuples(), batch_size=1, num_workers=1))


def test_a_program_ends_with_an_iterator_in_use():
    code = (
        "from burn_torch.data import DataLoader\n"
        "class B:\n    def batch(self, items, device): return items\n"
        "batches = iter(DataLoader(range(1000), B(), batch_size=1, num_workers=4)); print(next(batches))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert (process.stdout, process.stderr) == ("[0]\n", "")


def test_many_epochs_leave_no_thread_and_lose_no_item():
    loader = DataLoader(list(range(17)), Tuples(), batch_size=2, shuffle=0, num_workers=4)
    for _ in range(50):
        assert sorted(items_of(loader)) == list(range(17))
    assert workers() == []


def test_slices_and_devices():
    loader = DataLoader(list(range(10)), Tuples(), batch_size=3, shuffle=2, device="a")
    part = loader.slice(2, 8).to_device("b")
    assert sorted(items_of(part)) == list(range(2, 8))
    assert {device for device, _ in part} == {"b"}
    assert loader.device == "a"
    assert loader.num_items() == 10
    parts = split_dataloader(loader, ["x", "y", "z"])
    assert [part.num_items() for part in parts] == [4, 3, 3]
    assert [next(iter(part))[0] for part in parts] == ["x", "y", "z"]
    assert sorted(item for part in parts for item in items_of(part)) == list(range(10))


def test_builder_is_the_constructor_step_by_step():
    base = DataLoaderBuilder(Tuples()).batch_size(4)
    loader = base.shuffle(3).num_workers(2).set_device("d").drop_last().build(list(range(10)))
    same = DataLoader(list(range(10)), Tuples(), batch_size=4, shuffle=3, num_workers=2, device="d", drop_last=True)
    assert list(loader) == list(same)
    plain = base.build(list(range(5)))
    assert (plain.shuffle, plain.num_workers, plain.device, plain.drop_last) == (None, 0, None, False)
    assert len(DataLoaderBuilder(Tuples()).build([1, 2])) == 2


def test_torch_map_style_datasets_fit_both_ways():
    data = pytest.importorskip("torch.utils.data")
    torch = pytest.importorskip("torch")
    theirs = data.TensorDataset(torch.arange(6))
    assert [int(t[0]) for t in items_of(DataLoader(theirs, Tuples(), batch_size=4))] == list(range(6))
    ours = MapperDataset(list(range(6)), lambda x: x * 2)
    assert [b.tolist() for b in data.DataLoader(ours, batch_size=4)] == [[0, 2, 4, 6], [8, 10]]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            {"dataset": []},
            r"^the dataset is empty\n  given:    list with 0 items\n  expected: one item at least\n  mend:     check",
        ),
        ({"batch_size": 0}, r"empty batches\n  given:    batch_size=0\n  expected: batch_size >= 1\n  mend:     give"),
        (
            {"num_workers": -1},
            r"negative number of workers\n  given:    num_workers=-1\n  expected: .*\n  mend:     0 means",
        ),
        (
            {"shuffle": -1},
            r"no seed\n  given:    shuffle=-1\n  expected: None or 0 <= seed < 2\^64\n  mend:     shuffle=42",
        ),
        ({"shuffle": "42"}, "no seed\n  given:    shuffle=42"),
        ({"batch_size": 1.5}, r"no whole number\n  given:    batch_size=1.5\n  expected: batch_size: int\n  mend: "),
        ({"num_workers": None, "batch_size": True}, "2 faults"),
        ({"shuffle": True}, "no seed\n  given:    shuffle=True"),
        (
            {"batcher": list},
            r"no batcher\n  given:    batcher=<class 'list'>\n  expected: an object with batch.*\n  mend:     write",
        ),
        (
            {"batch_size": 9, "drop_last": True},
            r"only batch would be dropped\n  given:    3 items, batch_size=9.*\n.*\n  mend: ",
        ),
        ({"dataset": [], "batch_size": 0, "num_workers": -1, "shuffle": -1}, "4 faults"),
    ],
)
def test_arguments_that_do_not_fit_are_reported_at_once(arguments, complaint):
    fields = {"dataset": [1, 2, 3], "batcher": Tuples(), "batch_size": 1, **arguments}
    with pytest.raises(DataError, match=complaint):
        DataLoader(fields.pop("dataset"), fields.pop("batcher"), **fields)


def test_a_dataset_that_became_empty_is_reported():
    items = [1]
    loader = DataLoader(items, Tuples(), batch_size=1)
    items.clear()
    with pytest.raises(DataError, match="the dataset is empty"):
        iter(loader)


def test_epochs_and_batches_that_are_not_there_are_reported():
    loader = DataLoader([1, 2, 3], Tuples(), batch_size=2, shuffle=1)
    with pytest.raises(
        DataError,
        match=r"no such batch\n  given:    start_batch=3\n  expected: 0 <= start_batch <= 2\n  mend:     resume",
    ):
        loader.epoch(0, start_batch=3)
    with pytest.raises(DataError, match="epoch is out of range"):
        loader.epoch(-1)
    with pytest.raises(DataError, match=r"epoch is out of range\n  given:    epoch=-1\n  expected: .*\n  mend: "):
        DataLoader([1, 2, 3], Tuples(), batch_size=2).epoch(-1)  # in the order of the dataset, which needs no epoch
    with pytest.raises(DataError, match="not inside the dataset"):
        loader.slice(1, 4)
    with pytest.raises(DataError, match="the dataset is empty"):
        loader.slice(1, 1)


@pytest.mark.parametrize("devices", [[], [1, 2, 3, 4]])
def test_splits_over_too_many_devices_are_reported(devices):
    with pytest.raises(
        DataError, match=r"cannot be split.*\n  given:    \d devices, 3 items\n  expected: .*\n  mend:     name"
    ):
        split_dataloader(DataLoader([1, 2, 3], Tuples(), batch_size=1), devices)
