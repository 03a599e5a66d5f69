"""Run every benchmark, or those named on the command line, and print its figures."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Run ``bench_*.py`` of this folder in order."""
    wanted = sys.argv[1:]
    for file in sorted(Path(__file__).parent.glob("bench_*.py")):
        name = file.stem.removeprefix("bench_")
        if wanted and name not in wanted:
            continue
        run: Callable[[], None] = import_module(f"tests.bench.{file.stem}").run
        print(f"== {name}", flush=True)
        run()


main()
