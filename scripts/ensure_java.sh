#!/usr/bin/env bash
# Looks for Java 17 or newer, which only the Spark engine needs, and installs one where that is possible.
# Never fails: everything else works without Java.
set -uo pipefail
wanted=17

java_major() {
  local java=java
  [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ] && java=$JAVA_HOME/bin/java
  command -v "$java" >/dev/null || return 1
  # 'openjdk version "17.0.15"', and "1.8.0_402" in the days before 9
  "$java" -version 2>&1 | sed -nE 's/.* version "(1\.)?([0-9]+).*/\2/p' | head -n 1
}

good() { local major; major=$(java_major) && [ -n "$major" ] && [ "$major" -ge "$wanted" ]; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo "$@"
  else return 1; fi
}

if good; then
  echo "setup: Java $(java_major) found"
  exit 0
fi

major=$(java_major || true)
echo "setup: ${major:+Java $major is too old; }no Java $wanted or newer found"
if command -v apt-get >/dev/null && as_root true; then
  echo "setup: installing a Java runtime with apt-get"
  as_root apt-get update -qq >/dev/null 2>&1 || true
  as_root apt-get install -y -qq "openjdk-$wanted-jre-headless" >/dev/null 2>&1 ||
    as_root apt-get install -y -qq default-jre-headless >/dev/null 2>&1 || true
  if good; then
    echo "setup: Java $(java_major) installed"
    exit 0
  fi
fi
cat >&2 <<TEXT
setup: warning: the Spark engine needs Java $wanted or newer, and none could be installed here.
  Debian, Ubuntu:  sudo apt-get install openjdk-$wanted-jre-headless
  elsewhere:       any JDK or JRE $wanted+, with java on the PATH or JAVA_HOME set
The reference engine works without it.
TEXT
exit 0
