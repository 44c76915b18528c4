"""The event log: whole lines, soon on the disk, cut back at a resume; its readers pass over damage."""

import errno
import os
import random
import subprocess
import sys
import threading
import time

import pytest

from burn_torch import ArtifactError, DataError
from burn_torch.monitor import EpochDone, EventLog, Follower, Notice, follow, read_events


def numbers(path):
    return [stamped.number for stamped in read_events(path)]


def epochs(path):
    return [stamped.event.epoch for stamped in read_events(path)]


def test_events_come_back_with_numbers_and_times(tmp_path):
    times = iter([10.0, 11.5, 13.0])
    log = EventLog(tmp_path / "events.jsonl", clock=lambda: next(times))
    for epoch in (1, 2, 3):
        log.append(EpochDone(epoch))
    log.close()
    stamped_events = list(read_events(tmp_path / "events.jsonl"))
    assert [(one.number, one.time, one.event.epoch) for one in stamped_events] == [
        (0, 10.0, 1),
        (1, 11.5, 2),
        (2, 13.0, 3),
    ]


def test_an_event_is_in_the_file_soon_without_a_flush(tmp_path):
    log = EventLog(tmp_path / "e")
    log.append(EpochDone(1))
    end = time.monotonic() + 5.0
    while not numbers(tmp_path / "e") and time.monotonic() < end:
        time.sleep(0.01)
    assert numbers(tmp_path / "e") == [0]
    log.close()


def test_a_new_log_begins_empty(tmp_path):
    path = tmp_path / "e"
    path.write_bytes(b"what a run left that never began\n")
    EventLog(path).close()
    assert path.read_bytes() == b""


def test_many_threads_append_whole_lines_in_the_order_of_their_numbers(tmp_path):
    log = EventLog(tmp_path / "e", flush_every_s=0.001)

    def work():
        for epoch in range(500):
            log.append(EpochDone(epoch))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    stamped_events = read_events(tmp_path / "e")
    assert [stamped.number for stamped in stamped_events] == list(range(4000))
    assert stamped_events.damaged == 0


def test_a_resume_cuts_off_what_came_after_the_checkpoint(tmp_path):
    path = tmp_path / "e"
    log = EventLog(path)
    log.append(EpochDone(1))
    log.append(EpochDone(2))
    position = log.position
    log.append(EpochDone(3))
    log.close()
    assert epochs(path) == [1, 2, 3]
    log = EventLog.resume(path, position)
    assert epochs(path) == [1, 2]
    assert log.missing_bytes == 0
    log.append(EpochDone(30))
    assert log.position[1] == 3
    log.close()
    assert epochs(path) == [1, 2, 30]
    assert numbers(path) == [0, 1, 2]


@pytest.mark.parametrize("kept", [0, 1, 60, 200])
def test_a_resume_takes_a_log_that_is_shorter_than_its_checkpoint_says(tmp_path, kept):
    path = tmp_path / "e"
    log = EventLog(path)
    for epoch in range(10):
        log.append(EpochDone(epoch))
    log.close()
    whole, position = path.read_bytes(), log.position
    path.write_bytes(whole[:kept])
    log = EventLog.resume(path, position)
    log.append(EpochDone(10))
    log.close()
    left = whole[:kept].rpartition(b"\n")[0].count(b"\n") + (b"\n" in whole[:kept])
    assert epochs(path) == [*range(left), 10]
    assert numbers(path)[-1] == 10
    assert log.missing_bytes == len(whole) - (whole[:kept].rfind(b"\n") + 1)


def test_a_resume_begins_a_log_that_is_gone(tmp_path):
    log = EventLog.resume(tmp_path / "e", (500, 7))
    log.append(EpochDone(1))
    log.close()
    assert numbers(tmp_path / "e") == [7]


def test_a_torn_last_line_is_left_out_and_cut_off(tmp_path):
    path = tmp_path / "e"
    log = EventLog(path)
    log.append(EpochDone(1))
    position = log.position
    log.close()
    with path.open("ab") as file:
        file.write(b'{"v":1,"n":1,"t":0.0,"kind":"epo')
    stamped_events = read_events(path)
    assert [stamped.number for stamped in stamped_events] == [0]
    assert stamped_events.damaged == 0
    EventLog.resume(path, position).close()
    assert path.read_bytes().endswith(b"}\n")


def test_a_killed_process_leaves_whole_lines(tmp_path):
    path = tmp_path / "e"
    code = (
        "import sys\nfrom burn_torch.monitor import EventLog, Notice\n"
        "log = EventLog(sys.argv[1], flush_every_s=0.001)\n"
        "for i in range(10**9): log.append(Notice('x' * (i % 300)))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], env=_environment())
    end = time.monotonic() + 20.0
    while (not path.exists() or path.stat().st_size < 100_000) and time.monotonic() < end:
        time.sleep(0.005)
    process.kill()
    process.wait()
    stamped_events = read_events(path)
    got = [stamped.number for stamped in stamped_events]
    assert len(got) > 100
    assert got == list(range(len(got)))
    assert stamped_events.damaged == 0


def _environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_appends_nothing_and_does_not_hang(tmp_path):
    log = EventLog(tmp_path / "e")
    log.append(EpochDone(1))
    with log._lock:  # as if the flusher held it at the moment of the fork
        child = os.fork()
        if child == 0:
            try:
                log.append(EpochDone(2))
                log.flush()
            finally:
                os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    log.close()
    assert epochs(tmp_path / "e") == [1]


def test_a_full_disk_is_tried_again(tmp_path, monkeypatch):
    log = EventLog(tmp_path / "e", flush_every_s=3600.0)
    write, full = os.write, [True]

    def failing(descriptor, data):
        if not full[0]:
            return write(descriptor, data)
        if len(data) > 7:  # some of it still fits
            return write(descriptor, data[: len(data) - 7])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", failing)
    log.append(EpochDone(1))
    log.flush()
    with pytest.raises(
        ArtifactError, match=r"cannot be written\n  given: .*No space.*\n  expected: .*\n  mend: .*resume"
    ):
        log.sync()
    log.append(EpochDone(2))
    full[0] = False
    log.sync()
    log.close()
    assert epochs(tmp_path / "e") == [1, 2]


def test_a_disk_that_does_not_flush_is_reported(tmp_path, monkeypatch):
    log = EventLog(tmp_path / "e")

    def failing(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", failing)
    log.append(EpochDone(1))
    with pytest.raises(ArtifactError, match=r"cannot be written\n  given: .*Input/output error\n  expected: "):
        log.sync()
    log.close()
    assert epochs(tmp_path / "e") == [1]
    log.sync()  # of a closed log everything is there


def test_a_path_that_cannot_be_opened_is_worded(tmp_path):
    with pytest.raises(ArtifactError, match=r"cannot be written\n  given: .*none\n?.*"):
        EventLog(tmp_path / "none" / "e")


# -- readers ---------------------------------------------------------------------------------------------
def make(path, count, start=0):
    log = EventLog(path)
    for epoch in range(start, start + count):
        log.append(EpochDone(epoch))
    log.close()


def test_readers_pass_over_any_damage(tmp_path):
    path = tmp_path / "e"
    make(path, 40)
    whole = path.read_bytes()
    lines = set(whole.split(b"\n"))
    generator = random.Random(3)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(generator.randrange(1, 5)):
            at = generator.randrange(len(data))
            kind = generator.randrange(4)
            if kind == 0:
                data[at] = generator.randrange(256)
            elif kind == 1:
                del data[at : at + generator.randrange(200)]
            elif kind == 2:
                data[at:at] = generator.randbytes(generator.randrange(200))
            else:
                data[at:at] = data[: generator.randrange(300)]
        path.write_bytes(data)
        stamped_events = read_events(path)
        got = list(stamped_events)
        untouched = sum(line in lines for line in bytes(data).split(b"\n")[:-1])
        assert len(got) >= untouched - bytes(data).split(b"\n")[:-1].count(b"")
        assert len(got) + stamped_events.damaged + stamped_events.skipped == bytes(data).count(b"\n")


def test_reading_what_is_no_log(tmp_path):
    with pytest.raises(DataError, match=r"no events of a run\n  given: .*nowhere.*\n  expected: .*\n  mend: "):
        read_events(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"cannot be read\n  given: .*\n  expected: .*events.jsonl.*\n  mend: "):
        Follower(tmp_path).poll()
    (tmp_path / "zeros").write_bytes(bytes(40 << 20))
    assert list(read_events(tmp_path / "zeros")) == []


@pytest.mark.parametrize("lines", [1, 2])
def test_a_log_of_a_newer_version_is_one_clear_error(tmp_path, lines):
    make(tmp_path / "e", lines)
    (tmp_path / "e").write_bytes((tmp_path / "e").read_bytes().replace(b'"v":1', b'"v":2'))
    with pytest.raises(DataError, match=r"newer version(.|\n)*given: (.|\n)*expected: (.|\n)*mend: "):
        list(read_events(tmp_path / "e"))


def test_a_follower_gets_what_is_new(tmp_path):
    path = tmp_path / "e"
    follower = Follower(path)
    assert follower.poll() == []
    log = EventLog(path)
    for epoch in (1, 2):
        log.append(EpochDone(epoch))
        log.flush()
        assert [stamped.event.epoch for stamped in follower.poll()] == [epoch]
        assert follower.poll() == []
    log.close()


@pytest.mark.parametrize("after", [0, 1, 2, 30])
def test_a_follower_begins_again_where_the_log_was_cut_off(tmp_path, after):
    path = tmp_path / "e"
    log = EventLog(path)
    log.append(EpochDone(1))
    position = log.position
    for epoch in range(2, 10):
        log.append(EpochDone(epoch))
    log.close()
    follower = Follower(path)
    assert len(follower.poll()) == 9
    log = EventLog.resume(path, position)
    for epoch in range(100, 100 + after):  # with 30 it is longer than it was, before anybody looks
        log.append(Notice("y" * epoch))
    log.close()
    polled = follower.poll()
    assert [stamped.number for stamped in polled] == list(range(after + 1))
    assert polled[0].event == EpochDone(1)
    assert follower.poll() == []


def test_follow_gives_everything_until_it_is_stopped(tmp_path):
    path = tmp_path / "e"
    log = EventLog(path, flush_every_s=0.01)
    stop = threading.Event()
    stamped_events = []
    thread = threading.Thread(target=lambda: stamped_events.extend(follow(path, stop, every_s=0.01)))
    thread.start()
    for epoch in range(50):
        log.append(EpochDone(epoch))
        time.sleep(0.001)
    log.close()
    stop.set()
    thread.join()
    assert [stamped.number for stamped in stamped_events] == list(range(50))
