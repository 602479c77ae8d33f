"""Kernels are Python that numba compiles: uncompiled they answer the same.

It is also the only run in which coverage sees their lines. A few examples of the generated tests do.
"""

from __future__ import annotations

import os
import subprocess
import sys

from coverage import Coverage
from tests.conftest import ROOT

TESTS = (
    "tests/graph/test_masters.py",
    "tests/operators/test_fast_aggregate.py",
    "tests/operators/test_fast_join.py",
    "tests/operators/test_filter_group.py",
    "tests/operators/test_intern.py",
    "tests/operators/test_overlap_join.py",
    "tests/operators/test_smart.py",
    "tests/operators/test_windows.py",
)
SHARE = "0.04"
"""Of the examples of each test."""


def test_uncompiled_they_do_the_same() -> None:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PENSTOCK_EXAMPLES": SHARE}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "hypothesis"]
    if (coverage := Coverage.current()) is not None:
        # A file beside those of the other processes, which are put together in the end.
        environment["COVERAGE_FILE"] = f"{coverage.get_option('run:data_file')}.kernels"
        options += ["--cov", "--cov-report=", "--cov-fail-under=0"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *TESTS],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
