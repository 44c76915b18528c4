"""Processes that compile ahead: each answers one line of JSON for each line of JSON, several at once.

    with Workers([sys.executable, "-m", "some.worker"], 8) as workers:
        answers = [workers.submit(request) for request in requests]
        concurrent.futures.wait(answers, timeout=30.0)

An answer has `why_not`: why the work was not done, or an empty text.  A process that dies, hangs or fails costs nothing
but its own request; another one begins in its place.  No process is left when the block ends, however it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

__all__ = ["Answer", "Workers"]

PATIENCE_S = 120.0
"""For one request, and for a process to begin."""
MOST_DEATHS = 3
"""The number of processes that may fail in one place before no more are begun there."""


@dataclass(frozen=True)
class Answer:
    """The answer of a process, or the fault of one that gave none; the seconds that the request took."""

    why_not: str
    took_s: float


_Job = tuple[Mapping[str, object], "Future[Answer | None]"]


class Workers:
    """`count` processes of one command, each served by a thread; `quiet` drops what they write to stderr."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        *,
        patience_s: float = PATIENCE_S,
        environment: Mapping[str, str] | None = None,
        quiet: bool = False,
    ) -> None:
        self.left = count
        """Threads that still serve."""
        self._command = list(command)
        self._patience_s = patience_s
        self._environment = environment
        self._stderr = subprocess.DEVNULL if quiet else None
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[bytes]] = []
        self._ending = False
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all processes; requests that no process has begun are given up."""
        with self._lock:
            self._ending = True
            for process in self._running:
                process.kill()  # ends the reading of its thread too
        for _thread in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def submit(self, request: Mapping[str, object]) -> Future[Answer | None]:
        """Has a request answered, after those before it; None is the answer where no process was left for it."""
        answer: Future[Answer | None] = Future()
        with self._lock:
            serving = self.left > 0 and not self._ending
            if serving:
                self._queue.put((request, answer))
        if not serving:
            answer.set_result(None)
        return answer

    # -- serving ---------------------------------------------------------------------------------
    def _serve(self) -> None:
        """The thread of one process: sends it one request after the other, and begins another one where it ended."""
        deaths, process = 0, None
        try:
            while deaths < MOST_DEATHS and (job := self._queue.get()) is not None:
                request, answer = job
                if self._ending:
                    answer.set_result(None)
                    continue
                begun = time.monotonic()
                if process is None:
                    process = self._begin()
                why_not = "no process could be begun" if process is None else self._ask(process, request)
                if process is None or process.poll() is not None:
                    process, deaths = None, deaths + 1
                answer.set_result(Answer(why_not, time.monotonic() - begun))
        finally:
            if process is not None:
                self._end(process)
            with self._lock:
                self.left -= 1
                last = self.left == 0
            while last and not self._queue.empty():
                job = self._queue.get()
                if job is not None:
                    job[1].set_result(None)

    def _begin(self) -> subprocess.Popen[bytes] | None:
        pipe = subprocess.PIPE
        with self._lock:
            if self._ending:
                return None
            try:
                process = subprocess.Popen(
                    self._command, stdin=pipe, stdout=pipe, stderr=self._stderr, env=self._environment
                )
            except OSError:
                return None
            self._running.append(process)
        return process

    def _ask(self, process: subprocess.Popen[bytes], request: Mapping[str, object]) -> str:
        """Has one request answered; returns why the work was not done, or an empty text."""
        assert process.stdin is not None
        try:
            process.stdin.write((json.dumps(request) + "\n").encode())
            process.stdin.flush()
            return str(json.loads(self._line(process))["why_not"])
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            self._end(process)
            return f"the process that compiles ended with {process.returncode} ({type(error).__name__}: {error})"

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        until, text = time.monotonic() + self._patience_s, b""
        with selectors.DefaultSelector() as selector:  # select.select refuses the files from number 1024 on
            selector.register(process.stdout, selectors.EVENT_READ)
            while not text.endswith(b"\n"):
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise TimeoutError(f"no answer within {self._patience_s:.0f} s")
                part = os.read(process.stdout.fileno(), 65_536)
                if not part:
                    raise EOFError("no answer")
                text += part
        return text

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        with self._lock:
            self._running.remove(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
