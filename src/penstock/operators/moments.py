"""Rows with the moments at which they came, as columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.model.delta import Delta, Step
from penstock.model.schema import Schema
from penstock.operators.base import NOTHING, StateSize


class Moments:
    """Adds each row's moment as two columns. Remembers nothing."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        (delta,) = inputs
        return delta.with_columns(
            self._schema, [*delta.columns, pa.array(delta.moment_ts), pa.array(delta.moment_sub)]
        )

    def size(self) -> StateSize:
        return NOTHING
