"""What the whole suite shares."""

from __future__ import annotations

import pytest

from penstock.hosts import ENGINES


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    """Every engine that can run the behavioural suite."""
    return str(request.param)
