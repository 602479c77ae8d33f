#!/usr/bin/env bash
# test.sh BIN: everything that must hold before a change is handed in, with the programs of the virtual environment BIN.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:?usage: test.sh BIN}
# The processes that tests start find the package compiled.
unset PYTHONDONTWRITEBYTECODE

step() {
  printf '\n== %s\n' "$*"
  local start=$SECONDS
  "$@"
  printf '   (%d s)\n' $((SECONDS - start))
}

step "$bin/ruff" check .
step "$bin/mypy"
step "$bin/python" -m pytest -q -n 2 --dist loadgroup
printf '\nall of it in %d:%02d minutes\n' $((SECONDS / 60)) $((SECONDS % 60))
