"""``penstock bench`` of a clone; also ``python -m benchmarks``."""

from __future__ import annotations

import sys

from benchmarks.support.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
