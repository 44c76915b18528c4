"""MNIST and Fashion-MNIST: from a folder, from the cache, from the network, and the real files."""

import gzip
import hashlib
import http.server
import io
import threading
from functools import partial

import numpy as np
import pytest

from burn_torch.core.errors import DataError
from burn_torch.data import FashionMnistDataset, MnistDataset, MnistItem, cache_dir, write_idx
from burn_torch.data.source import download
from burn_torch.data.source.download import RemoteFile, find_file

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and no proxy between the tests and their server."""
    monkeypatch.setenv("BURN_TORCH_CACHE", str(tmp_path / "cache"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


def write_files(folder, *, suffix="", count=5):
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for name in NAMES:
        shape = (count, 28, 28) if "images" in name else (count,)
        write_idx(folder / f"{name}{suffix}", rng.integers(0, 10, shape).astype(np.uint8))
    return folder


def remote_files(folder):
    """The files of a folder, as a table of what is on the network."""
    unpacked = [(name, gzip.decompress((folder / f"{name}.gz").read_bytes())) for name in NAMES]
    files = [RemoteFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in unpacked]
    return {"train": (files[0], files[1]), "test": (files[2], files[3])}


@pytest.fixture
def site(tmp_path):
    """A folder of packed files, served on this machine."""
    folder = write_files(tmp_path / "site", suffix=".gz")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            requests.append(self.path)

    requests = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.folder, server.requests = folder, requests
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_files_of_a_folder_packed_or_not(tmp_path, suffix):
    folder = write_files(tmp_path / "data", suffix=suffix)
    train, test = MnistDataset.train(folder), MnistDataset.test(str(folder))
    assert (len(train), len(test), MnistDataset.num_classes()) == (5, 5, 10)
    item = train[3]
    assert isinstance(item, MnistItem)
    assert (item.image.dtype, item.image.shape, type(item.label)) == (np.float32, (28, 28), int)
    np.testing.assert_array_equal(item.image, train.images[3])
    assert [item.label for item in train] == train.labels.tolist()
    assert not np.array_equal(train.images, test.images)


def test_a_folder_that_lacks_the_files_is_reported_and_nothing_else_is_searched(tmp_path, site, monkeypatch):
    write_files(tmp_path / "cache", count=2)
    folder = tmp_path / "data"
    with pytest.raises(
        DataError,
        match=r"mnist: train-images-idx3-ubyte is not in the data directory\n  given:    .*data, which does not exist\n"
        r"  expected: train-images-idx3-ubyte or train-images-idx3-ubyte.gz in it\n  mend:     name the folder",
    ):
        MnistDataset.train(folder, mirror=site.url)
    folder.mkdir()
    with pytest.raises(DataError, match="which is empty"):
        MnistDataset.train(folder, mirror=site.url)
    (folder / "other.txt").write_text("x")
    with pytest.raises(DataError, match=r"which has other\.txt"):
        MnistDataset.test(folder, mirror=site.url)
    with pytest.raises(DataError, match="which is a file"):
        MnistDataset.test(folder / "other.txt", mirror=site.url)
    assert site.requests == []


def test_downloads_once_into_the_cache(site, cache, monkeypatch):
    monkeypatch.setattr(MnistDataset, "FILES", remote_files(site.folder))
    seen = []
    train = MnistDataset.train(mirror=site.url, progress=lambda *progress: seen.append(progress))
    assert len(train) == 5
    assert sorted(path.name for path in (cache / "mnist").iterdir()) == [f"{name}.gz" for name in NAMES[:2]]
    size = (site.folder / f"{NAMES[0]}.gz").stat().st_size
    assert seen[0] == (NAMES[0], 0, size)
    assert (NAMES[0], size, size) in seen
    again = MnistDataset.train(mirror="http://127.0.0.1:1")
    np.testing.assert_array_equal(again.images, train.images)
    assert len(site.requests) == 2


def test_fashion_mnist_has_a_cache_of_its_own(site, cache, monkeypatch):
    monkeypatch.setattr(FashionMnistDataset, "FILES", remote_files(site.folder))
    assert len(FashionMnistDataset.test(mirror=site.url)) == 5
    assert [path.name for path in cache.iterdir()] == ["fashion-mnist"]
    assert len(FashionMnistDataset.CLASS_NAMES) == FashionMnistDataset.num_classes()


def test_the_cache_is_in_the_home_folder_unless_named(monkeypatch, tmp_path):
    assert cache_dir("mnist") == tmp_path / "cache" / "mnist"
    monkeypatch.delenv("BURN_TORCH_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir("mnist") == tmp_path / "home" / ".cache" / "burn_torch" / "mnist"


def fetch(site, file):
    return find_file("mnist", file, base_url=site.url)


def test_other_bytes_are_refused_and_nothing_is_kept(site, cache):
    good = remote_files(site.folder)["train"][1]
    with pytest.raises(
        DataError,
        match=r"train-labels-idx1-ubyte: the downloaded file is not the right.*\n  given: .*13 bytes with sha256 \w+\n"
        r"  expected: 13 bytes with sha256 0000, unpacked\n  mend:     try again",
    ):
        fetch(site, RemoteFile(good.name, good.size_bytes, "0000"))
    with pytest.raises(DataError, match="not the right one"):
        fetch(site, RemoteFile(good.name, good.size_bytes - 1, good.sha256))
    packed = site.folder / f"{good.name}.gz"
    whole = packed.read_bytes()
    for damaged in (whole[:-5], b"<html>not found</html>", whole[:12] + bytes([whole[12] ^ 255]) + whole[13:]):
        packed.write_bytes(damaged)
        with pytest.raises(DataError, match=r"not the right one\n  given:    http"):
            fetch(site, good)
    assert list((cache / "mnist").iterdir()) == []
    packed.write_bytes(whole)
    assert fetch(site, good) == cache / "mnist" / packed.name


def test_a_server_that_sends_without_end_is_cut_off(site, cache):
    good = remote_files(site.folder)["train"][1]
    (site.folder / f"{good.name}.gz").write_bytes(b"\0" * (good.size_bytes + (1 << 20) + 1))
    with pytest.raises(DataError, match="sends more than the"):
        fetch(site, good)
    assert list((cache / "mnist").iterdir()) == []


def test_a_bomb_is_not_inflated(site, cache):
    good = remote_files(site.folder)["train"][1]
    (site.folder / f"{good.name}.gz").write_bytes(gzip.compress(b"\0" * 100_000_000, 9))
    with pytest.raises(DataError, match=r"not the right one\n  given:    http\S+ 65536 bytes"):
        fetch(site, good)


def test_no_network_names_the_address_the_folder_and_the_way_out(cache):
    with pytest.raises(
        DataError,
        match=r"mnist: train-images-idx3-ubyte is not here and could not be downloaded\n"
        r"  given:    http://127.0.0.1:1/train-images-idx3-ubyte.gz: .*refused.*; searched .*cache/mnist\n"
        r"  expected: train-images-idx3-ubyte or train-images-idx3-ubyte.gz in that folder, or a network\n"
        r"  mend:     give the folder that has the files \(--data, data_dir=\), or put them.*BURN_TORCH_CACHE",
    ):
        MnistDataset.train(mirror="http://127.0.0.1:1/")
    assert list((cache / "mnist").iterdir()) == []


def test_a_missing_file_on_the_server_and_a_strange_address_are_reported(site, tmp_path):
    with pytest.raises(DataError, match=r"could not be downloaded\n  given:    http.*404"):
        MnistDataset.train(mirror=f"{site.url}/nowhere")
    with pytest.raises(DataError, match="only http and https are spoken"):
        MnistDataset.train(mirror=f"file://{tmp_path}")


def test_a_cache_that_cannot_be_written_is_reported(site, cache, monkeypatch):
    monkeypatch.setattr(MnistDataset, "FILES", remote_files(site.folder))
    cache.write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"could not be downloaded\n  given:    .*(File exists|Not a directory)"):
        MnistDataset.train(mirror=site.url)


def test_a_download_that_is_stopped_leaves_nothing(site, cache, monkeypatch):
    monkeypatch.setattr(MnistDataset, "FILES", remote_files(site.folder))

    def stop(name, done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        MnistDataset.train(mirror=site.url, progress=stop)
    assert list((cache / "mnist").iterdir()) == []


def test_a_bar_is_drawn_on_a_terminal_only(site, monkeypatch):
    monkeypatch.setattr(MnistDataset, "FILES", remote_files(site.folder))
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    MnistDataset.train(mirror=site.url)
    assert stderr.getvalue() == ""
    stderr.isatty = lambda: True
    MnistDataset.test(mirror=site.url)
    assert "\rt10k-images-idx3-ubyte [" in stderr.getvalue()
    assert f"[{'#' * 30}]" in stderr.getvalue()
    assert stderr.getvalue().endswith("\n")
    download._draw_bar("name", 5_000_000, None)
    assert stderr.getvalue().endswith("\rname 5.0 MB")


@pytest.mark.parametrize(
    ("images", "labels", "complaint"),
    [
        (
            np.zeros((3, 28, 28), np.uint8),
            np.zeros(2, np.uint8),
            r"given:    images \(3, 28, 28\) uint8, labels \(2,\) uint8\n",
        ),
        (np.zeros((0, 28, 28), np.uint8), np.zeros(0, np.uint8), r"images \(0, 28, 28\)"),
        (np.zeros((3, 28, 27), np.uint8), np.zeros(3, np.uint8), r"images \(3, 28, 27\)"),
        (np.zeros((3, 28, 28), np.int32), np.zeros(3, np.uint8), "int32"),
        (np.zeros(3, np.uint8), np.zeros((3, 28, 28), np.uint8), r"labels \(3, 28, 28\)"),
        (np.zeros((3, 28, 28), np.uint8), np.full(3, 10, np.uint8), r"labels \(3,\) uint8 up to 10\n"),
    ],
)
def test_files_that_do_not_belong_together_are_reported(tmp_path, images, labels, complaint):
    write_idx(tmp_path / NAMES[0], images)
    write_idx(tmp_path / NAMES[1], labels)
    with pytest.raises(DataError, match=rf"not the images and labels of one data set\n  .*{complaint}.*") as caught:
        MnistDataset.train(tmp_path)
    assert "\n  expected: images (n, 28, 28) uint8" in str(caught.value)
    assert "\n  mend:     use the two files of one split" in str(caught.value)


@pytest.mark.parametrize(
    ("dataset", "folder", "per_class", "mean", "deviation"),
    [(MnistDataset, "mnist", None, 0.1307, 0.3081), (FashionMnistDataset, "fashion-mnist", 6000, 0.2860, 0.3530)],
)
def test_the_real_files(shared_data, dataset, folder, per_class, mean, deviation):
    train, test = dataset.train(shared_data / folder), dataset.test(shared_data / folder)
    assert (len(train), len(test)) == (60_000, 10_000)
    counts = np.bincount(train.labels).tolist()
    assert counts == ([per_class] * 10 if per_class else [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
    assert round(float(train.images.mean()) / 255, 4) == mean
    assert round(float(train.images.std()) / 255, 4) == deviation
    for split, files in dataset.FILES.items():
        for file in files:
            data = gzip.decompress((shared_data / folder / f"{file.name}.gz").read_bytes())
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size_bytes, file.sha256), split
