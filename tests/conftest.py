"""What the whole suite shares."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from penstock.hosts import ENGINES

# Generated tests repeat themselves, so that a change is judged by what it changes; `make fuzz` looks for new cases.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("PENSTOCK_HYPOTHESIS", "repeatable"))


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    """Every engine that can run the behavioural suite."""
    return str(request.param)
