"""A trainer without torch: hands over, tells of a run, takes commands, and ends as it is told.

Its words: how to end ("done", "fail", "early", "wait", "deaf"), and the option of `handover.lead`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path

from conftest import story

from burn_torch.cli import handover
from burn_torch.monitor import EVENTS, ControlServer, EventLog, RunEnded

SUMMARY = "======= the summary ======="


class Interrupter:
    def __init__(self) -> None:
        self.asked = threading.Event()

    def stop(self, reason: str = "", *, status: str = "stopped") -> None:
        self.asked.set()


def end(log: EventLog, status: str, code: int) -> int:
    log.append(RunEnded(status, SUMMARY, code))
    log.close()
    print(SUMMARY)
    print(f"{status}: the last line", flush=True)
    return code


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("how")
    parser.add_argument("--hand-over", type=int)
    args = parser.parse_args()
    interrupter = Interrupter()
    signal.signal(signal.SIGTERM, lambda *_: interrupter.stop())
    signal.signal(signal.SIGINT, lambda *_: interrupter.stop())
    print(f"it begins in session {os.getsid(0)}", flush=True)
    if args.how == "early":
        print("error: a mistake", file=sys.stderr)
        return 2
    if args.how == "slow":
        interrupter.asked.wait(20)
        return 130
    folder = Path("run")
    handover.hand_over(args, folder)
    print("printed where nobody looks", flush=True)
    log = EventLog(folder / EVENTS)
    for _, event in story(ended=None, total_epochs=5):
        log.append(event)
    log.flush()
    if args.how == "deaf":
        interrupter.asked.wait(20)
        return end(log, "stopped", 0)
    server = ControlServer(folder, interrupter)
    server.start()
    if args.how == "fail":
        time.sleep(0.5)
        log.append(RunEnded("failed", None, 1, "boom"))
        log.close()
        server.close()
        print("\n".join(f"line {number}" for number in range(40)))
        print("error: boom", file=sys.stderr)
        return 1
    if args.how == "done":
        time.sleep(0.5)
    else:
        assert interrupter.asked.wait(20), "nobody asked"
    code = end(log, "completed" if args.how == "done" else "stopped", 0)
    server.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
