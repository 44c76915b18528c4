"""Writes the pictures of the dashboard in docs/_static: `PYTHONPATH=. python docs/screenshots.py`.

Trains the digits for half a minute in a temporary folder, opens the dashboard on that run as it goes on, at the two
sizes of the documentation, and keeps what it shows as SVG.  Not part of `make generate`: no two runs look the same.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from burn_torch.monitor import ControlClient
from burn_torch.monitor.dashboard import Source
from burn_torch.monitor.dashboard.app import Dashboard
from burn_torch.monitor.dashboard.chart import BRAILLE

FOLDER = Path(__file__).parent / "_static"
EPOCHS = 40
AT_EPOCH = 14
SMALL = ["--set", "channels=4", "--set", "hidden=16"]  # learns slowly enough for a plot to show it
SIZES = {"dashboard-80x24": (80, 24, ()), "dashboard-200x50": (200, 50, ("right",))}
"""Width, height and the keys pressed before."""


def main() -> None:
    """Trains, looks, stops."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "digits"
        words = ["train", "digits", "--epochs", EPOCHS, "--seed", 3, "--plain", "--artifact-dir", run, *SMALL]
        command = [sys.executable, "-m", "burn_torch", *map(str, words)]
        trainer = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        source = Source(run, lives=lambda: trainer.poll() is None)
        while source.view.epoch < AT_EPOCH or source.view.progress_split is None or source.view.progress_split < 0.5:
            if trainer.poll() is not None:
                sys.exit("screenshots: the run ended too early")
            time.sleep(0.05)
            source.poll(None)
        for name, (width, height, keys) in SIZES.items():
            picture = asyncio.run(taken(source, width, height, keys))
            (FOLDER / f"{name}.svg").write_text(smaller(picture), encoding="utf-8")
        ControlClient(run).send("stop")
        trainer.wait()


async def taken(source: Source, width: int, height: int, keys: tuple[str, ...]) -> str:
    """Returns what the dashboard shows of a run at one moment."""
    app = Dashboard(source, glyphs=BRAILLE)
    async with app.run_test(size=(width, height)) as pilot:
        await pilot.press(*keys)
        await pilot.pause(0.5)
        return app.export_screenshot(title="burn-torch attach artifacts/digits", simplify=True)


def smaller(svg: str) -> str:
    """The same picture without fonts from elsewhere, and with numbers no longer than they need be."""
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: Fira Code, monospace", "font-family: 'Fira Code', 'DejaVu Sans Mono', monospace", svg)
    svg = re.sub(r'="(\d+\.\d+)"', lambda match: f'="{float(match[1]):.1f}"'.replace('.0"', '"'), svg)
    svg = re.sub(r"terminal-\d+", "terminal", svg)  # a number that would differ in each picture
    return re.sub(r"\n\s*", "\n", svg).strip() + "\n"


if __name__ == "__main__":
    main()
