"""Starts commands of `burn-torch` as processes of their own, forked off one that has imported everything.

The import of torch is nearly all that a short command costs; here it is paid once.  Reads one JSON object a line:
argv, cwd, the files for stdout and stderr, and modules that shall seem absent; answers with the exit code.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import sys
import threading
import traceback
import weakref
from typing import Any

from burn_torch.cli.main import main, make_parser

WHAT_COMMANDS_IMPORT = (
    "cli.artifacts",
    "cli.dry_run",
    "cli.examination",
    "cli.following",
    "cli.measuring",
    "cli.recipes.csv_table",
    "cli.recipes.digits",
    "cli.recipes.image_folder",
    "cli.recipes.mnist",
    "cli.recipes.regression",
    "cli.recipes.text_classification",
    "cli.recipes.text_generation",
    "monitor.dashboard.terminal",
    "onnx.exporting",
    "onnx.operators",
    "onnx.rows",
    "record",
    "train",
)


def child(request: dict[str, Any]) -> None:
    os.chdir(request["cwd"])
    os.environ.update(request["environment"])
    for number, name in ((0, os.devnull), (1, request["stdout"]), (2, request["stderr"])):
        os.dup2(os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.modules.update(dict.fromkeys(request["absent"]))
    sys.argv = ["burn-torch", *request["argv"]]
    try:
        code: Any = main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    end_process(code)


def end_process(code: Any) -> None:
    """Ends as an interpreter does, but clears no modules of torch: that would be most of a short command."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the end of an interpreter does
    atexit._run_exitfuncs()
    gc.collect()  # files that were not closed are told of now
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def serve() -> None:
    for name in WHAT_COMMANDS_IMPORT:
        importlib.import_module(f"burn_torch.{name}")
    make_parser()  # imports the commands
    for torch_library in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        torch_library.atexit = False  # taking torch's operators out of its tables is half of a short command
    gc.freeze()  # else each child goes through all objects of torch when it ends
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            child(json.loads(line))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
