"""Random and changed messages at both binary protocols of a server process; ``python -m benchmarks.server --only fuzz``
sends 100,000 to each."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from benchmarks.support import fuzz

from tests import budget

SEED = int(os.environ.get("PENSTOCK_SEED", "4"))


@pytest.mark.parametrize("protocol", ["postgres", "flight"])
def test_the_server_refuses_and_forgets_what_nobody_would_send(tmp_path: Path, protocol: str) -> None:
    found = fuzz.run(tmp_path, protocol, budget.examples(1_000), random.Random(SEED), say=lambda text: None)
    assert found.refused > 0
    assert found.unforeseen == 0, (tmp_path / "errors").read_text()[-4000:]
    assert found.sessions == 0
    assert found.threads <= 32, "the pools of the protocols"
    assert found.files <= 32
    assert found.megabytes < 200
