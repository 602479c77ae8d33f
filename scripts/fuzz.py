"""Run generated tests with new random cases, again and again, until one fails, time is over or Ctrl-C.

    python scripts/fuzz.py [--minutes 60] [--processes 2] TESTS…

It says at the end how many cases ran. A failure prints its case and the line that repeats it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description="run generated tests with new random cases, again and again")
    parser.add_argument("--minutes", type=float, help="begin no new round after this time (default: go on for ever)")
    parser.add_argument("--processes", type=int, default=2, help="pytest's -n (default: 2)")
    parser.add_argument("tests", nargs="+", help="files or folders, as pytest takes them")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder)
        environment = os.environ | {
            "PENSTOCK_HYPOTHESIS": "explore",
            "PENSTOCK_EXAMPLES": os.environ.get("PENSTOCK_EXAMPLES", "1"),
            "PENSTOCK_COUNT_CASES": folder,
        }
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", str(chosen.processes), "--dist", "worksteal"]
        command += ["--timeout", "3600", "-o", "faulthandler_timeout=7200"]  # with all examples a test takes long
        started, rounds, code = time.monotonic(), 0, 0
        try:
            while not code and (chosen.minutes is None or time.monotonic() - started < 60 * chosen.minutes):
                code = subprocess.run([*command, *chosen.tests], env=environment).returncode
                rounds += 1
                print(summary(counts, rounds, started), flush=True)
        except KeyboardInterrupt:
            print(summary(counts, rounds, started))
        return code


def summary(counts: Path, rounds: int, started: float) -> str:
    cases = sum(int(file.read_text()) for file in counts.iterdir())
    minutes = (time.monotonic() - started) / 60
    return f"fuzz: {cases:,} generated cases in {rounds} rounds, {minutes:.0f} minutes"


if __name__ == "__main__":
    sys.exit(main())
