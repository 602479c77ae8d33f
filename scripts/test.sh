#!/usr/bin/env bash
# test.sh BIN: everything that must hold before a change is handed in, with the programs of the virtual environment BIN.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:?usage: test.sh BIN}
# The processes that tests start find the package compiled.
unset PYTHONDONTWRITEBYTECODE

said=$(mktemp)
types=
trap 'rm -f "$said"; [ -z "$types" ] || kill "$types" 2>/dev/null || true' EXIT

step() {
  printf '\n== %s\n' "$*"
  local start=$SECONDS
  "$@"
  printf '   (%d s)\n' $((SECONDS - start))
}

step "$bin/ruff" check .
# Types are checked while the tests wait for Java; three processes, since each waits half of its time.
"$bin/mypy" >"$said" 2>&1 &
types=$!
step "$bin/python" -m pytest -q -n 3 --dist loadgroup
wait "$types" && kind=0 || kind=$?
types=
printf '\n== %s\n' "$bin/mypy"
cat "$said"
[ "$kind" -eq 0 ]
printf '\nall of it in %d:%02d minutes\n' $((SECONDS / 60)) $((SECONDS % 60))
