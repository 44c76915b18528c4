"""Commands to a run: over a socket, over files, and what is refused."""

import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from burn_torch import ArtifactError
from burn_torch.monitor import ControlClient, ControlServer, is_alive


class Interrupter:
    def __init__(self):
        self.stopped = []

    def stop(self, reason="", *, status="stopped"):
        self.stopped.append((reason, status))


class SavingInterrupter(Interrupter):
    saved = 0

    def request_checkpoint(self):
        self.saved += 1


@pytest.fixture(params=[True, False], ids=["socket", "file"])
def run(request, tmp_path):
    if request.param and not hasattr(socket, "AF_UNIX"):
        pytest.skip("no such sockets on this platform")
    interrupter, requests, killed = SavingInterrupter(), [], threading.Event()
    server = ControlServer(
        tmp_path,
        interrupter,
        on_command=lambda how, reason: requests.append(how),
        kill=killed.set,
        sockets=request.param,
    )
    server.start()
    yield tmp_path, interrupter, requests, killed
    server.close()
    assert list(tmp_path.iterdir()) == []


def test_every_command_is_done_and_answered(run):
    directory, interrupter, requests, killed = run
    client = ControlClient(directory)
    assert client.send("ping")["pid"] == os.getpid()
    assert client.send("checkpoint")["ok"]
    assert interrupter.saved == 1
    reply = client.send("stop")
    assert (reply["ok"], reply["text"]) == (True, "the run stops after this step")
    assert interrupter.stopped[0] == ("a viewer's command", "stopped")
    assert not killed.is_set()
    assert client.send("kill")["ok"]
    assert killed.wait(5.0)
    assert requests == ["stop", "kill"]


def test_an_unknown_command_is_refused(run):
    reply = ControlClient(run[0]).send("rm -rf")
    assert not reply["ok"]
    assert "there are ping, stop, checkpoint, kill" in reply["text"]
    assert run[1].stopped == []


def test_the_run_is_alive_while_its_server_is(run):
    assert is_alive(run[0])


def test_a_run_that_cannot_save_says_so(tmp_path):
    server = ControlServer(tmp_path, Interrupter())
    server.start()
    reply = ControlClient(tmp_path).send("checkpoint")
    server.close()
    assert not reply["ok"]
    assert "end of its epochs" in reply["text"]


needs_sockets = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no such sockets on this platform")


@needs_sockets
def test_only_its_user_may_open_the_socket(tmp_path):
    server = ControlServer(tmp_path, Interrupter())
    server.start()
    assert stat.S_IMODE((tmp_path / "control.sock").stat().st_mode) == 0o600
    server.close()


@needs_sockets
@pytest.mark.parametrize(
    "nonsense",
    [b"", b"\n", b"stop\n", b"[]\n", b'{"v":2,"command":"stop"}\n', b'{"command":"stop"}\n', b"x" * 10_000, b"\xff\n"],
)
def test_nonsense_is_refused_and_the_server_goes_on(tmp_path, nonsense):
    interrupter = Interrupter()
    server = ControlServer(tmp_path, interrupter)
    server.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(tmp_path / "control.sock"))
        connection.sendall(nonsense)
        connection.shutdown(socket.SHUT_WR)
        try:
            answer = connection.recv(4096)
        except ConnectionResetError:  # it was sent more than anybody reads
            answer = b""
    assert not answer or json.loads(answer)["ok"] is False
    assert interrupter.stopped == []
    assert ControlClient(tmp_path).send("ping")["ok"]
    server.close()


@needs_sockets
def test_a_long_path_has_its_socket_elsewhere(tmp_path):
    directory = tmp_path / ("long" * 40)
    directory.mkdir()
    interrupter = Interrupter()
    server = ControlServer(directory, interrupter)
    server.start()
    place = json.loads((directory / "control.json").read_text())
    assert len(place["socket"]) < 100
    assert ControlClient(directory).send("stop")["ok"]
    assert interrupter.stopped
    server.close()
    assert list(directory.iterdir()) == []
    assert not Path(place["socket"]).parent.exists()


@needs_sockets
def test_a_directory_seen_under_a_longer_name_is_reached(tmp_path):
    real = tmp_path / "run"
    real.mkdir()
    server = ControlServer(real, Interrupter())
    server.start()
    longer = tmp_path / ("link" * 40)
    longer.symlink_to(real)
    assert ControlClient(longer).send("ping")["ok"]
    server.close()


@needs_sockets
def test_where_the_directory_takes_no_socket_it_is_elsewhere(tmp_path, monkeypatch):
    bind = socket.socket.bind

    class Refusing(socket.socket):
        def bind(self, path):
            if path.startswith(str(tmp_path)):
                raise PermissionError(1, "no sockets here")
            bind(self, path)

    monkeypatch.setattr(socket, "socket", Refusing)
    server = ControlServer(tmp_path, Interrupter())
    server.start()
    assert ControlClient(tmp_path).send("ping")["ok"]
    assert [path.name for path in tmp_path.iterdir()] == ["control.json"]
    server.close()
    assert list(tmp_path.iterdir()) == []


@needs_sockets
def test_who_asks_and_goes_does_no_harm(tmp_path):
    killed = threading.Event()
    server = ControlServer(tmp_path, Interrupter(), kill=killed.set)
    server.start()
    for _ in range(3):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(tmp_path / "control.sock"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(tmp_path / "control.sock"))
        connection.sendall(b'{"v":1,"command":"kill"}\n')
    assert killed.wait(5.0)
    assert ControlClient(tmp_path).send("ping")["ok"]
    server.close()


def test_without_a_run_a_command_is_refused(tmp_path):
    with pytest.raises(
        ArtifactError, match=r"no run took the command 'stop'\n  given: .*\n  expected: .*\n  mend: .*over"
    ):
        ControlClient(tmp_path).send("stop")
    assert not is_alive(tmp_path)
    assert not is_alive(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "place", ["", "{", "[]", '{"pid": "x"}', '{"pid": -1}', '{"v": 1, "pid": 1, "socket": "gone"}']
)
def test_a_damaged_place_is_no_run(tmp_path, place):
    (tmp_path / "control.json").write_text(place)
    assert not is_alive(tmp_path)
    with pytest.raises(ArtifactError, match="no run took the command"):
        ControlClient(tmp_path, timeout_s=0.2).send("ping")


def test_a_killed_process_is_dead_and_leaves_room_for_the_next(tmp_path):
    code = (
        "import sys, time\nfrom burn_torch.monitor import ControlServer\n"
        "from types import SimpleNamespace\n"
        "ControlServer(sys.argv[1], SimpleNamespace(stop=print)).start()\nprint('up', flush=True)\ntime.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "up\n"
    assert is_alive(tmp_path)
    process.kill()
    end = time.monotonic() + 5.0
    while is_alive(tmp_path) and time.monotonic() < end:  # a zombie until somebody waits for it is dead, too
        time.sleep(0.01)
    assert not is_alive(tmp_path)
    process.wait()
    process.stdout.close()
    assert not is_alive(tmp_path)
    server = ControlServer(tmp_path, Interrupter())
    server.start()
    assert is_alive(tmp_path)
    assert ControlClient(tmp_path).send("ping")["pid"] == os.getpid()
    server.close()


def test_the_kill_of_a_run_ends_its_process_at_once(tmp_path):
    code = (
        "import sys, time\nfrom burn_torch.monitor import ControlServer\n"
        "from types import SimpleNamespace\n"
        "ControlServer(sys.argv[1], SimpleNamespace(stop=print)).start()\nprint('up', flush=True)\ntime.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "up\n"
    assert ControlClient(tmp_path).send("kill")["ok"]
    assert process.wait(timeout=10) == 137
    process.stdout.close()


def test_a_server_that_cannot_listen_says_why(tmp_path):
    notices = []
    server = ControlServer(tmp_path / "none", Interrupter(), notice=notices.append)
    server.start()
    server.close()
    assert len(notices) == 1
    assert notices[0].startswith("no commands reach this run: ")


def test_a_place_that_names_a_foreign_socket_is_not_connected_to(tmp_path):
    """A stranger's control.json may not send our commands to any socket of this machine."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as foreign:
        folder = tmp_path / "f"
        folder.mkdir()
        foreign.bind(str(folder / "agent.sock"))
        foreign.listen(1)
        foreign.settimeout(0.3)
        run = tmp_path / "run"
        run.mkdir()
        (run / "control.sock").symlink_to(folder / "agent.sock")
        for name in ("../f/agent.sock", str(folder / "agent.sock"), "agent.sock", "control.sock", "/dev/null"):
            place = {"v": 1, "host": "other", "pid": 1, "started": "1", "namespace": None, "socket": name}
            (run / "control.json").write_text(json.dumps(place))
            with pytest.raises(ArtifactError, match="no run took the command 'ping'"):
                ControlClient(run, timeout_s=0.2).send("ping")
            assert not is_alive(run)
        with pytest.raises(TimeoutError):
            foreign.accept()


@pytest.mark.parametrize("content", [b"[1]", b"[" * 4000, b'{"ok": true}', b"x" * 5000, b"\xff"])
def test_a_file_with_nonsense_is_answered_and_taken_away(tmp_path, content):
    """Without sockets commands come in a file; a list in it was an AttributeError that ended the thread."""
    server = ControlServer(tmp_path, Stops(), sockets=False)
    (tmp_path / "control.command").write_bytes(content)
    server.answer_file()
    assert not (tmp_path / "control.command").exists()
    assert json.loads((tmp_path / "control.reply").read_text())["ok"] is False
    (tmp_path / "control.reply").write_bytes(content)
    (tmp_path / "control.json").write_text(json.dumps({"pid": os.getpid()}))
    with pytest.raises(ArtifactError, match="no run took the command"):
        ControlClient(tmp_path, timeout_s=0.05).send("ping")


def test_a_pipe_as_command_does_not_hold_the_run_up(tmp_path):
    os.mkfifo(tmp_path / "control.command")
    ControlServer(tmp_path, Stops(), sockets=False).answer_file()
    assert not (tmp_path / "control.command").exists()


class Stops:
    def stop(self, reason="", *, status=""):
        raise AssertionError("nobody asked for it")
