#!/usr/bin/env bash
# setup_venv.sh DIR: a virtual environment in DIR with the pinned dependencies and this package (editable).
# PYTHON names the interpreter; when that one is too old, newer ones on the PATH are tried.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:?usage: setup_venv.sh DIR}

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo "$@"
  else return 1; fi
}

python=
for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
  if new_enough "$candidate"; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
  found=$("${PYTHON:-python3}" --version 2>&1 || true)
  die "Penstock needs Python 3.11 or newer; ${PYTHON:-python3} is: ${found:-not there}. Name another one with: make PYTHON=/path/to/python3.11"
fi
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

make_venv() { "$python" -m venv --clear "$venv" >/dev/null 2>&1; }

# Debian's python3 comes without ensurepip, which venv needs: it is in a package of its own.
if ! make_venv; then
  say "$python cannot create virtual environments by itself (no ensurepip)"
  if command -v apt-get >/dev/null && as_root true; then
    say "installing python$version-venv with apt-get"
    as_root apt-get update -qq >/dev/null 2>&1 || true
    as_root apt-get install -y -qq "python$version-venv" >/dev/null 2>&1 ||
      as_root apt-get install -y -qq python3-venv >/dev/null 2>&1 || true
  fi
  if ! make_venv; then
    say "trying virtualenv instead"
    helper=$(mktemp -d)
    trap 'rm -rf "$helper"' EXIT
    "$python" -m pip install -q --target "$helper" virtualenv >/dev/null 2>&1 &&
      PYTHONPATH="$helper" "$python" -m virtualenv -q --clear "$venv" >/dev/null 2>&1 ||
      die "no virtual environment could be made. Run: sudo apt-get install python3-venv    and then make again"
  fi
fi
say "virtual environment $venv with $("$venv/bin/python" --version)"

say "installing the pinned dependencies of requirements.lock (a minute or two, once)"
"$venv/bin/python" -m pip install -q --disable-pip-version-check --no-compile -r requirements.lock
# What pip would do at its end, one file after the other, goes on beside the next steps. What is no Python 3 is left.
"$venv/bin/python" -m compileall -q "$venv"/lib/python*/site-packages >/dev/null 2>&1 &
compiling=$!
say "installing penstock (editable)"
"$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
say "compiling kernels for this machine"
"$venv/bin/python" -m penstock.cli.warm
wait "$compiling" || true
say "done: $venv/bin/penstock"
