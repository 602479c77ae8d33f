#!/usr/bin/env bash
# coverage.sh BIN: the lines of the package that the tests run, with the programs of the virtual environment BIN.
# Fails if a test fails, or if the share is below fail_under in pyproject.toml.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:?usage: coverage.sh BIN}
# The processes that tests start find the package compiled.
unset PYTHONDONTWRITEBYTECODE

# The lines that compiled code stands for are counted too: see tests/kernels/test_as_python.py.
"$bin/python" -m pytest -q -n 2 --dist loadgroup --cov --cov-report= --cov-fail-under=0
"$bin/python" scripts/coverage_report.py
