"""Kernels are Python that numba compiles: uncompiled they answer the same.

It is also the only run in which coverage sees their lines. A few examples of the generated tests do.
Numbers that wrap around, as hashes do, are a warning of numpy there.
"""

from __future__ import annotations

import os
import subprocess
import sys

from coverage import Coverage
from tests.conftest import ROOT

TESTS = (
    "tests/graph/test_masters.py::test_naive_and_smart_are_the_reference",
    "tests/operators/test_fast_aggregate.py::test_same_as_compute_however_cut",
    "tests/operators/test_fast_aggregate.py::test_sliding_sums_of_doubles_are_exactly_rounded",
    "tests/operators/test_fast_join.py::test_a_row_that_matches_more_than_there_is_room_for",
    "tests/operators/test_fast_join.py::test_changes_as_in_the_reference",
    "tests/operators/test_fast_join.py::test_ends_as_in_the_reference",
    "tests/operators/test_fast_join.py::test_ends_in_any_order",
    "tests/operators/test_filter_group.py::test_every_member_gives_what_it_gives_by_itself",
    "tests/operators/test_intern.py::test_codes_stand_for_keys",
    "tests/operators/test_intern.py::test_many_keys_come_and_go",
    "tests/operators/test_smart.py",
    "tests/operators/test_windows.py::test_same_as_reference_however_cut",
    "tests/state/test_long_runs.py::test_a_long_run_with_restarts_is_the_same",
)
RUNS = ("join", "inequality", "least", "empty", "slides", "keys", "three")
"""Of the long runs; others have no kernels that these do not have."""
SHARE = "0.06"
"""Of the examples of each test."""


def test_uncompiled_they_do_the_same() -> None:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PENSTOCK_EXAMPLES": SHARE}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
    options = ["-k", " or ".join(["not long_run", *RUNS]), "-q", "-W", "ignore::RuntimeWarning"]
    options += ["-p", "no:cacheprovider", "-p", "no:xdist"]
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
