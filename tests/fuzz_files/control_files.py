"""Small files in the directory of a run: where it takes commands, how it ended, its metrics, the log that goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.fuzz_files.config_files import config_seeds
from tests.fuzz_files.mutations import json_changed, lines_changed, words_changed
from tests.fuzz_files.reader import Reader, either, read_all
from tests.fuzz_files.run_files import event_logs, inspect_run, show_runs

__all__ = ["READERS"]

_DEAD: Final = {"v": 1, "host": "other", "pid": 4194303, "started": "12345", "namespace": "pid:[1]"}


def _places() -> Sequence[bytes]:
    import platform

    from burn_torch.monitor.control import _namespace

    here = {**_DEAD, "host": platform.node(), "namespace": _namespace()}
    sockets = ({"socket": "control.sock"}, {"socket": "/tmp/burn-torch-x/control.sock"}, {})
    return tuple(json.dumps({**place, **socket}).encode() + b"\n" for place in (_DEAD, here) for socket in sockets)


def ask_run(path: Path) -> None:
    """Asks whether a run is there, and sends it a command; none is, so an error is the answer."""
    from burn_torch.core.errors import ArtifactError
    from burn_torch.monitor import is_alive
    from burn_torch.monitor.control import ControlClient

    (path.parent / "control.reply").write_bytes(b"{}")
    is_alive(path.parent)
    try:
        ControlClient(path.parent, timeout_s=0.001).send("ping")
    except ArtifactError:
        return
    raise AssertionError("a run that is not there has answered")


class _NeverStops:
    """An interrupter of the fuzzer's own."""

    def stop(self, reason: str = "", *, status: str = "") -> None:
        """Nothing runs."""


def answer_command(path: Path) -> None:
    """The run's side: a file with a command, as where there are no sockets."""
    from burn_torch.monitor.control import ControlServer

    server = ControlServer(path.parent, _NeverStops(), kill=lambda: None, sockets=False)
    server.answer_file()
    server.answer_file()


def take_reply(path: Path) -> None:
    """The viewer's side of the same."""
    from burn_torch.core.errors import ArtifactError
    from burn_torch.monitor.control import ControlClient

    (path.parent / "control.json").write_bytes(_places()[2])
    try:
        ControlClient(path.parent, timeout_s=0.001).send("ping")
    except ArtifactError:
        return
    raise AssertionError("a reply to another command was taken")


def show_origins(path: Path) -> None:
    """The origins of settings, as a resume reads them."""
    from burn_torch.cli.commands.train import _origins_before

    assert all(isinstance(text, str) for pair in _origins_before(path.parent).items() for text in pair)


def read_metrics(path: Path) -> None:
    """The values of an epoch, and the file written anew by a resume."""
    from burn_torch.monitor import Split
    from burn_torch.train.history import History
    from burn_torch.train.logger.metric import FileMetricLogger

    folder = path.parent / "valid" / "epoch-1"
    folder.mkdir(parents=True)
    path.rename(folder / "Loss.log")
    logger = FileMetricLogger(path.parent)
    read_all(lambda: logger.read_numeric("Loss", 1, Split.VALID), lambda: _restore(logger, History()))


def _restore(logger: Any, history: Any) -> None:
    from burn_torch.monitor import MetricValue, Split

    history.add(Split.VALID, 1, (MetricValue("Loss", 0.5, 1),))
    logger.restore(history)


def go_on_with_log(path: Path) -> None:
    """The log of a run that is resumed behind its second event, and what it says of checkpoints."""
    from burn_torch.monitor.log import EventLog
    from burn_torch.train.publisher import _checkpoints_told, _run_id

    size = path.stat().st_size
    _checkpoints_told(path, size // 2)
    _run_id(path)
    log = EventLog.resume(path, (size // 2, 2), flush_every_s=1000.0)
    log.close()


def show_live(path: Path) -> None:
    """The dashboard's picture of a run that goes on: a sample at first, then everything."""
    from burn_torch.monitor.dashboard import Source, page

    source = Source(path.parent)
    for budget_s in (0.0, None):
        source.poll(budget_s)
        page(source)


@cache
def _result() -> bytes:
    return b'{"status": "completed", "epochs": 2, "metrics": {"Accuracy": 0.5}, "seconds": 1.5}'


_TREE: Final = either(words_changed, json_changed, json_changed)
_LOG: Final = b"0.5\n1e-08\nnan\n-inf\n" + b"0.25\n" * 20
READERS: Final[dict[str, Reader]] = {
    "control place": Reader("control.json", _places, ask_run, _TREE),
    "control command": Reader(
        "control.command",
        lambda: [b'{"v": 1, "command": "%s", "nonce": "00"}' % word for word in (b"ping", b"stop", b"kill", b"x")],
        answer_command,
        _TREE,
    ),
    "control reply": Reader(
        "control.reply", lambda: [b'{"v": 1, "ok": true, "text": "here", "nonce": "00"}'], take_reply, _TREE
    ),
    "result": Reader(
        "result.json",
        lambda: [_result()],
        lambda path: read_all(lambda: show_runs(path), lambda: inspect_run(path)),
        _TREE,
        beside=lambda: {"events.jsonl": event_logs()[1].rpartition(b'{"')[0], "config.json": config_seeds(False)[0]},
        shown=True,
    ),
    "origins": Reader(
        "config.origins.json",
        lambda: [b'{"origins": {"batch_size": "default", "optimizer.lr": "--optimizer.lr"}}'],
        show_origins,
        _TREE,
    ),
    "metric log": Reader("Loss.log", lambda: [_LOG], read_metrics, words_changed),
    "events, resumed": Reader("events.jsonl", event_logs, go_on_with_log, lines_changed),
    "events, live": Reader("events.jsonl", event_logs, show_live, lines_changed),
}
