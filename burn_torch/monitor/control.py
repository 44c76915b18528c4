"""Commands to a run from another process: a local socket that only its user may open, one JSON line each way.

    {"v": 1, "command": "stop"}          ->  {"v": 1, "ok": true, "text": "the run stops after this step"}

`control.json` in the artifact directory says which process trains there, and where its socket is: `control.sock` beside
it or, where that path is too long for a socket, one in a temporary folder.  On a platform without such sockets, a
command is a file that the run looks for twice a second.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import secrets
import shutil
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, final

from burn_torch.core.belonging import carried
from burn_torch.core.checking import checked
from burn_torch.core.errors import ArtifactError
from burn_torch.core.files import write_atomic
from burn_torch.core.reading import read_bounded

__all__ = ["COMMANDS", "ControlClient", "ControlServer", "Reply", "Stoppable", "is_alive"]

VERSION: Final = 1
COMMANDS: Final = ("ping", "stop", "checkpoint", "kill")
KILLED: Final = 137
"""The exit code of a run that was told to end at once: that of SIGKILL."""

ASKED: Final = "a viewer's command"
"""The reason of a stop that came in here."""

_PLACE: Final = "control.json"
_SOCKET: Final = "control.sock"
_COMMAND_FILE: Final = "control.command"
_REPLY_FILE: Final = "control.reply"
_FOLDER: Final = "burn-torch-"
"""Holds what the name of a temporary folder with a socket begins with."""
_MAX_PATH: Final = 100
"""Bytes of a socket's path: Linux takes 107, macOS 103."""
_MAX_LINE: Final = 4096
_POLL_S: Final = 0.5

Reply = Mapping[str, Any]
"""ok: whether it was done; text: in words; ping adds pid."""


class Stoppable(Protocol):
    """Holds what a run is stopped by: an Interrupter.  With a method `request_checkpoint()` it can also save and go
    on.
    """

    def stop(self, reason: str = ..., *, status: str = ...) -> None:
        """Asks for the stop after the step that runs."""
        ...


# -- in the run -------------------------------------------------------------------------------------------
@final
class ControlServer:
    """Listens for commands until it is closed; `start` returns at once.

    `on_command(how, reason)` hears of a stop or a kill before it is done.  A server that cannot listen says why to
    `notice`, and the run goes on without it.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        interrupter: Stoppable,
        *,
        on_command: Callable[[str, str], None] = lambda how, reason: None,
        notice: Callable[[str], None] = lambda text: None,
        kill: Callable[[], None] | None = None,
        sockets: bool = hasattr(socket, "AF_UNIX"),
    ) -> None:
        self.directory = Path(directory)
        self._interrupter = interrupter
        self._on_command = on_command
        self._notice = notice
        self._kill = _end_process if kill is None else kill
        self._sockets = sockets
        self._closed = threading.Event()
        self._socket: socket.socket | None = None
        self._socket_path: Path | None = None
        self._folder: Path | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to listen."""
        try:
            if self._sockets:
                self._listen()
            else:
                self._remove(self.directory / _COMMAND_FILE, self.directory / _REPLY_FILE)
            write_atomic(self.directory / _PLACE, (json.dumps(self._place()) + "\n").encode(), durable=False)
        except OSError as err:
            self._notice(f"no commands reach this run: {err.strerror or err}")
            self.close()
            return
        work = self._accept if self._sockets else self._poll
        self._thread = threading.Thread(target=carried(work), name="burn-torch-control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening and removes what it has put into the directory."""
        self._closed.set()
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._socket.close()
            self._socket = None
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=2.0)
        if self._socket_path is not None:
            self._remove(self._socket_path)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._remove(self.directory / _PLACE, self.directory / _COMMAND_FILE, self.directory / _REPLY_FILE)

    def _remove(self, *paths: Path) -> None:
        for path in paths:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _listen(self) -> None:
        path = self.directory.absolute() / _SOCKET
        if len(os.fsencode(path)) <= _MAX_PATH:
            try:
                path.unlink(missing_ok=True)  # of a run that was killed; this one holds the directory
                self._bind(path)
                return
            except OSError:  # not every file system has sockets
                self._remove(path)
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER))  # 0700
        self._bind(self._folder / _SOCKET)

    def _bind(self, path: Path) -> None:
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with suppress(OSError):
                os.fchmod(bound.fileno(), 0o600)  # on Linux the name gets these rights at once
            bound.bind(str(path))
            path.chmod(0o600)
            bound.listen(8)
        except OSError:
            bound.close()
            raise
        self._socket, self._socket_path = bound, path

    def _place(self) -> dict[str, object]:
        place = {"v": VERSION, "host": platform.node(), **_process(os.getpid())}
        if self._folder is not None:
            place["socket"] = str(self._socket_path)
        elif self._sockets:
            place["socket"] = _SOCKET
        return place

    def _accept(self) -> None:
        while not self._closed.is_set():
            listening = self._socket
            if listening is None:
                return
            try:
                connection, _ = listening.accept()
            except OSError:
                if self._closed.wait(0.1):  # closed, or out of file descriptors for a while
                    return
                continue
            after = None
            with connection:
                connection.settimeout(2.0)
                with suppress(OSError):  # who asks has gone
                    reply, after = self._answer(_receive(connection))
                    connection.sendall(json.dumps(reply).encode() + b"\n")
            if after is not None:
                after()

    def _poll(self) -> None:
        while not self._closed.wait(_POLL_S):
            self.answer_file()

    def answer_file(self) -> None:
        """Does what the file with a command says, if there is one, and takes it away."""
        path = self.directory / _COMMAND_FILE
        try:
            line = read_bounded(path, _MAX_LINE)
        except FileNotFoundError:
            return
        except OSError:  # a pipe, a folder, or longer than any command
            line = b""
        try:
            path.unlink()
        except OSError:
            return
        reply, after = self._answer(line)
        with suppress(OSError, ValueError):
            answer = json.dumps({**reply, "nonce": _nonce(line)}).encode()
            write_atomic(self.directory / _REPLY_FILE, answer, durable=False)
        if after is not None:
            after()

    def _answer(self, line: bytes) -> tuple[dict[str, object], Callable[[], None] | None]:
        """The reply, and what is done once it is sent."""
        try:
            message = json.loads(line)
            version, command = message["v"], message["command"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return _no("that is no command"), None
        if version != VERSION:
            return _no(f"commands of version {version!r}, and this run knows {VERSION}"), None
        if command == "ping":
            return {**_yes("the run is here"), "pid": os.getpid()}, None
        if command == "stop":
            self._on_command("stop", ASKED)
            self._interrupter.stop(ASKED)
            return _yes("the run stops after this step"), None
        if command == "checkpoint":
            request = getattr(self._interrupter, "request_checkpoint", None)
            if request is None:
                return _no("this run saves at the end of its epochs only"), None
            request()
            return _yes("the run saves after this step"), None
        if command == "kill":
            self._on_command("kill", "ended at once by its viewer")
            return _yes("the run ends now"), self._kill
        return _no(f"there is no command {str(command)[:40]!r}; there are {', '.join(COMMANDS)}"), None


def _nonce(line: bytes) -> object:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message.get("nonce") if isinstance(message, dict) else None


def _end_process() -> None:
    """Ends this process as SIGKILL does, without a chance for a step that hangs to hold it."""
    os._exit(KILLED)


def _yes(text: str) -> dict[str, object]:
    return {"v": VERSION, "ok": True, "text": text}


def _no(text: str) -> dict[str, object]:
    return {"v": VERSION, "ok": False, "text": text}


# -- in the viewer ----------------------------------------------------------------------------------------
@final
class ControlClient:
    """Sends commands to the run in an artifact directory."""

    def __init__(self, directory: str | os.PathLike[str], *, timeout_s: float = 5.0) -> None:
        self.directory = Path(directory)
        self.timeout_s = timeout_s

    def send(self, command: str) -> Reply:
        """One command: "ping", "stop", "checkpoint" or "kill".

        Raises: ArtifactError if no run hears it, or it does not answer in time.
        """
        place = _read_place(self.directory)
        message: dict[str, object] = {"v": VERSION, "command": command}
        try:
            if place is None:
                raise FileNotFoundError("no run says that it is here")
            name = place.get("socket")
            if isinstance(name, str):
                return self._through_socket(_socket_path(self.directory, name), message)
            return self._through_file(message)
        except (OSError, ValueError) as err:
            raise ArtifactError(
                f"no run took the command {command!r}",
                given=f"{self.directory}: {getattr(err, 'strerror', None) or err}",
                expected="a run that goes on in this directory, on this machine and of this user",
                mend="check the directory; a run that is over takes no commands",
            ) from err

    def _through_socket(self, path: Path, message: Mapping[str, object]) -> Reply:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(self.timeout_s)
            if len(os.fsencode(path)) <= _MAX_PATH:
                connection.connect(str(path))
            else:  # the directory is seen under a longer name than the run has for it
                with _short_way(path) as short:
                    connection.connect(short)
            connection.sendall(json.dumps(message).encode() + b"\n")
            return _check_reply(_receive(connection))

    def _through_file(self, message: Mapping[str, object]) -> Reply:
        nonce = secrets.token_hex(8)
        write_atomic(self.directory / _COMMAND_FILE, json.dumps({**message, "nonce": nonce}).encode(), durable=False)
        end = time.monotonic() + self.timeout_s
        while time.monotonic() < end:
            with suppress(OSError, ValueError):
                reply = _check_reply(read_bounded(self.directory / _REPLY_FILE, _MAX_LINE))
                if reply.get("nonce") == nonce:
                    return reply
            time.sleep(_POLL_S / 10)
        raise TimeoutError("it does not answer")


@final
class _short_way:  # noqa: N801  # a context manager
    """A short name for a socket whose path is too long."""

    def __init__(self, path: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
        self._link = self._folder / "s"
        self._link.symlink_to(path)

    def __enter__(self) -> str:
        return str(self._link)

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


@checked
def is_alive(directory: str | os.PathLike[str]) -> bool:
    """Returns whether a process trains in this artifact directory, as far as can be seen from here."""
    place = _read_place(Path(directory))
    if place is None:
        return False
    name = place.get("socket")
    here = place.get("host") == platform.node() and place.get("namespace") == _namespace()
    if here:
        return _process(place["pid"]).get("started") == place.get("started") and _lives(place["pid"])
    if not isinstance(name, str):
        return False
    try:  # from another container: its processes have other numbers, its socket still answers
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(1.0)
            connection.connect(str(_socket_path(Path(directory), name)))
    except (OSError, ValueError):
        return False
    return True


def _socket_path(directory: Path, name: str) -> Path:
    """Returns where a run listens, as its `control.json` says.

    Raises: OSError for a socket that no run of this user has made: what a stranger's file names hears nothing of us.
    """
    path = directory.absolute() / name
    own = path.parent == directory.absolute() or path.parent.name.startswith(_FOLDER)
    if path.name != _SOCKET or not own:
        raise OSError(errno.EINVAL, "its control.json names a socket that is no run's", str(path))
    status = path.lstat()  # a link could lead to the socket of another program
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid():
        raise OSError(errno.EACCES, "its control.json names what is no socket of this user", str(path))
    return path


def _read_place(directory: Path) -> dict[str, Any] | None:
    try:
        place = json.loads(read_bounded(directory / _PLACE, _MAX_LINE))
    except (OSError, ValueError, RecursionError):
        return None
    pid = place.get("pid") if isinstance(place, dict) else None
    return place if type(pid) is int and 0 < pid < 2**31 else None


def _process(pid: int) -> dict[str, Any]:
    """A process, so that another one that gets its number later is told apart."""
    started = None
    with suppress(OSError, IndexError):
        started = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    return {"pid": pid, "started": started, "namespace": _namespace()}


def _namespace() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _lives(pid: int) -> bool:
    if os.name == "nt":  # there a signal 0 would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    with suppress(OSError, IndexError):  # a zombie is dead; its parent has not looked yet
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return True


def _receive(connection: socket.socket) -> bytes:
    """One line, of at most _MAX_LINE bytes."""
    data = b""
    while b"\n" not in data and len(data) < _MAX_LINE:
        chunk = connection.recv(_MAX_LINE - len(data))
        if not chunk:
            break
        data += chunk
    return data.partition(b"\n")[0]


def _check_reply(line: bytes) -> Reply:
    try:
        reply = json.loads(line)
    except RecursionError:
        reply = None
    if not isinstance(reply, dict) or not (isinstance(reply.get("ok"), bool) and isinstance(reply.get("text"), str)):
        raise ValueError("it answers with something else")
    return reply
