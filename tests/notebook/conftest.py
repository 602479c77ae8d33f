"""What the tests of notebooks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notebook.shells import Cells, shell


@pytest.fixture
def cells() -> Iterator[Cells]:
    """A shell of IPython that has loaded Penstock."""
    with shell() as found:
        found.run("%load_ext penstock")
        assert found.error is None
        yield found
