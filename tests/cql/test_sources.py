"""``FROM spark (…)`` of a stream, as text."""

from __future__ import annotations

import pytest

from penstock.catalog import Catalog, SparkSource
from penstock.cql.declarations import declared_in
from penstock.model.errors import PenstockError

HEAD = "CREATE STREAM s (t TIMESTAMP, v DOUBLE) TIMESTAMP BY t"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("FROM spark (format = 'rate')", SparkSource("rate")),
        ("FROM SPARK (FORMAT = 'csv', path = '/in', header = TRUE, maxFilesPerTrigger = 2, low = -1)",
         SparkSource("csv", (("path", "/in"), ("header", "true"), ("maxFilesPerTrigger", "2"), ("low", "-1")))),
        ("""FROM spark (format = 'kafka', "kafka.bootstrap.servers" = 'h:1', trigger = '2 s', columns = 'value')""",
         SparkSource("kafka", (("kafka.bootstrap.servers", "h:1"),), "value", 2.0)),
    ],
)  # fmt: skip
def test_what_is_declared_is_declared_again_by_its_text(text: str, source: SparkSource) -> None:
    catalog, again = Catalog(), Catalog()
    declared_in(f"{HEAD} {text} WITH (retain = '1 hour')", catalog)
    assert catalog.stream("s").source == source
    declared_in(catalog.stream("s").text, again)
    assert again.stream("s") == catalog.stream("s")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FROM spark", "expected ( and options"),
        ("FROM spark ()", "expected the name of an option"),
        ("FROM spark (format = 'a', FORMAT = 'b')", "stands twice"),
        ("FROM spark (format = 'a', trigger = 'soon')", "'soon' is not a length of time"),
        ("FROM spark (format = v)", "`format` is v"),
        ("FROM spark (format = 'a') PRIORITY BY v", "unexpected"),
    ],
)
def test_what_cannot_be_read(text: str, said: str) -> None:
    with pytest.raises(PenstockError) as caught:
        declared_in(f"{HEAD} {text}", catalog := Catalog())
    assert said in str(caught.value)
    assert caught.value.position is not None
    assert "s" not in catalog.streams
