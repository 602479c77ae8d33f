#!/usr/bin/env bash
# peers.sh DIR: other stream processors for `penstock bench compare`, each in a virtual environment of its own in DIR,
# since their dependencies do not go together. One that cannot be installed is named and left out.
# It takes Python 3.11, as not all of them have packages for later ones; PYTHON names one where there is no 3.11.
set -uo pipefail
folder=${1:?usage: peers.sh DIR}
mkdir -p "$folder"

say() { printf 'peers: %s\n' "$*"; }

python=
for candidate in python3.11 "${PYTHON:-}" python3; do
  if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || { say "error: needs Python 3.11 or newer; name one with: make peers PYTHON=/path/to/python3.11" >&2; exit 1; }

missing=0
# NAME MODULE PACKAGE…: an environment NAME, which is whole if MODULE can be imported
peer() {
  local name=$1 module=$2 log="$folder/$1.log"
  shift 2
  if "$folder/$name/bin/python" -c "import $module" >/dev/null 2>&1; then
    say "$name is there"
    return
  fi
  say "installing $*"
  if "$python" -m venv --clear "$folder/$name" >"$log" 2>&1 &&
     "$folder/$name/bin/python" -m pip install -q --disable-pip-version-check "$@" >>"$log" 2>&1 &&
     "$folder/$name/bin/python" -c "import $module" >>"$log" 2>&1; then
    say "$name is there"
  else
    say "$name could not be installed: $(grep -v '^WARNING' "$log" | tail -n 1); all of it is in $log" >&2
    rm -rf "${folder:?}/$name"
    missing=$((missing + 1))
  fi
}

peer bytewax bytewax bytewax==0.21.1 pyarrow==26.0.1
peer streamz streamz streamz==0.6.6 pyarrow==26.0.1 pandas==2.3.3
peer pathway pathway pathway==0.33.0
peer apache-flink pyflink.table apache-flink==2.3.0

if [ "$missing" -gt 0 ]; then
  say "$missing of 4 are missing; penstock bench compare runs those that are there"
else
  say "all are there: penstock bench compare runs them too"
fi
