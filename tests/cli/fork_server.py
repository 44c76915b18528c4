"""Starts commands of `burn-torch` as processes of their own, forked off one that has imported everything.

The import of torch is nearly all that a short command costs; here it is paid once.  Reads one JSON object a line:
argv, cwd, the files for stdout and stderr, and modules that shall seem absent; answers with the exit code.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from typing import Any

from burn_torch.cli.main import main

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
    sys.exit(main())


def serve() -> None:
    for name in WHAT_COMMANDS_IMPORT:
        importlib.import_module(f"burn_torch.{name}")
    gc.freeze()  # else each child goes through all objects of torch when it ends
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            child(json.loads(line))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
