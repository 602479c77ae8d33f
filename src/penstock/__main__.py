"""``python -m penstock``: the command ``penstock``.

Owns: nothing. Must not know: any command. Enter at: ``penstock.cli.main``.
"""

import sys

from penstock.cli.main import main

sys.exit(main())
