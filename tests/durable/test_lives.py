"""A database that is closed, killed or loses its power again and again is as one that never was: every answer, every
position, what came late or did not fit, failures, what is shared, and what is said of wrong statements."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from penstock.storage.store import Sync
from tests.budget import examples
from tests.durable.language import Step, histories, listed
from tests.durable.living import lived
from tests.storage.bucket import Held

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@settings(max_examples=examples(250), suppress_health_check=RELAXED)
@given(steps=histories(["closed", "killed"]))
def test_closed_or_killed_and_opened_again(steps: list[Step]) -> None:
    told(steps)


@pytest.mark.parametrize("sync", ["group", "always"])
@settings(max_examples=examples(150), suppress_health_check=RELAXED)
@given(steps=histories(["power", "power", "power", "killed", "closed"]))
def test_everything_acknowledged_is_there_after_a_loss_of_power(sync: Sync, steps: list[Step]) -> None:
    told(steps, sync)


@settings(max_examples=examples(100), suppress_health_check=RELAXED)
@given(steps=histories(["power", "killed", "killed", "closed"]))
def test_everything_acknowledged_is_in_the_object_store(steps: list[Step]) -> None:
    told(steps, files=Held())


def told(steps: list[Step], sync: Sync = "off", files: Held | None = None) -> None:
    try:
        lived(steps, sync, files=files)
    except BaseException as error:
        error.add_note(listed(steps))
        raise
