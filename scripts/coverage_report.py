"""What the last run of the tests did not reach: the files with most such lines, the total, and whether it is enough.

    python scripts/coverage_report.py

Reads what ``pytest --cov`` left in ``.coverage``; the least share is ``fail_under`` in pyproject.toml. Compiled kernels
count as Python (tests/kernels/test_as_python.py). What only Spark's own Python workers run is not seen; most tests of
the engine ``spark`` run the same code in their own process. Not every test is followed to its end (tests/following.py),
so a line that is named here may have been run all the same.
"""

from __future__ import annotations

import json
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from coverage import Coverage
from coverage.exceptions import NoDataError

SHOWN = 20
"""Files that are named."""
WIDTH = 60
"""Characters for the lines of one of them."""


def spans(lines: list[int]) -> str:
    """``[3, 4, 5, 9]`` as ``3-5, 9``; cut off where it gets long."""
    starts = [n for before, n in pairwise([-1, *lines]) if n != before + 1]
    ends = [n for n, after in pairwise([*lines, -1]) if after != n + 1]
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
    return text if len(text) <= WIDTH else text[: text.rindex(",", 0, WIDTH)] + ", …"


def main() -> int:
    coverage = Coverage()
    coverage.load()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "coverage.json"
        try:
            coverage.json_report(outfile=str(file))
        except NoDataError:
            print("there is no coverage here: run `make coverage`, or pytest with --cov", file=sys.stderr)
            return 2
        found = json.loads(file.read_text())
    missed = {name: f["missing_lines"] for name, f in found["files"].items() if f["missing_lines"]}
    print(f"lines that no test ran, in the {min(SHOWN, len(missed))} files of {len(found['files'])} that have most:\n")
    for name, lines in sorted(missed.items(), key=lambda item: -len(item[1]))[:SHOWN]:
        share = found["files"][name]["summary"]["percent_covered"]
        print(f"{len(lines):6}  {share:3.0f} %  {name}: {spans(lines)}")
    total, least = found["totals"]["percent_covered"], float(coverage.get_option("report:fail_under") or 0)  # type: ignore[arg-type]
    print(f"\ncoverage: {total:.2f} % of {found['totals']['num_statements']:,} lines; at least {least:g} %", end="")
    print(" (all lines that were not run: coverage report -m)")
    if total < least:
        print(f"error: tests run too little of the package: {total:.2f} % is less than {least:g} %", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
