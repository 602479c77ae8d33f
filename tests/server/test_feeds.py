"""Feeds: any number of readers, each with its own position, get what ``fetch`` gives; who lags is told what is gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import ResultsGone, StateError, connect
from penstock.server.feeds import Feed, Page, SharedFeed
from tests.budget import examples
from tests.server.serving import served

SETUP = "CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t"
QUERIES = (
    "SELECT v, count(*) AS n FROM s [ROWS 3] GROUP BY v",
    "SELECT ISTREAM v FROM s [NOW] WHERE v > 1",
    "SELECT DISTINCT v FROM s [RANGE 3]",
    "SELECT v FROM s [RANGE 5] ORDER BY v LIMIT 2",
)


def feed_of(shared: SharedFeed) -> Feed:
    return Feed(shared, lambda: None)


def read_all(feed: Feed, most: int, *, fresh: bool = False) -> list[dict[str, object]]:
    position, rows = feed.first, list[dict[str, object]]()
    while len(page := feed.read(position, most, fresh=fresh)):
        assert (page.start, page.stop) == (position, position + page.table.num_rows)
        rows += page.table.to_pylist()
        position = page.stop
    return rows


readers = st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.integers(1, 7)), max_size=4)
"""How many results a reader reads at a time, whether it wants all that is there, and after how many pushes it reads."""
pushes = st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=12)


@settings(max_examples=examples(100), deadline=None)
@given(pushes, st.sampled_from(QUERIES), readers)
def test_every_reader_gets_what_fetch_gives(
    pushed: list[list[int]], text: str, readers: list[tuple[int, bool, int]]
) -> None:
    """Readers read pages of their own sizes, at their own times, in between and at the end."""
    with connect(engine="local") as db:
        db.execute(SETUP)
        query = db.query(text)
        shared = SharedFeed(query)
        feed, at, got = feed_of(shared), [0] * len(readers), [list[dict[str, object]]() for _ in readers]
        t = 0

        def read(i: int) -> None:
            most, fresh, _ = readers[i]
            page = feed.read(at[i], most, fresh=fresh)
            assert not fresh or page.stop == min(feed.next, at[i] + most)
            got[i] += page.table.to_pylist()
            at[i] = page.stop

        for n, values in enumerate(pushed):
            db.push("s", [(t := t + 1, v) for v in values])
            for i, (_, _, often) in enumerate(readers):
                if n % often == 0:
                    read(i)
        for i in range(len(readers)):
            while at[i] < feed.next:
                read(i)
        wanted = query.fetch()
        assert all(rows == wanted.to_pylist() for rows in got)
        assert feed.schema == wanted.schema
        assert (feed.first, feed.next) == (wanted.num_rows, wanted.num_rows), "fetch has confirmed all of them"


def test_readers_of_one_position_share_a_page_and_what_is_made_of_it() -> None:
    with connect(engine="local") as db:
        db.execute(SETUP)
        shared = SharedFeed(db.query(QUERIES[0]))
        feeds = [feed_of(shared) for _ in range(10)]
        db.push("s", [(1, 1), (2, 2)])
        made: list[int] = []

        def encode(table: pa.Table, start: int) -> bytes:
            made.append(start)
            return repr((start, table.to_pylist())).encode()

        first = feeds[0].read(0)
        db.push("s", [(3, 3)])
        pages = [feed.read(0) for feed in feeds]
        assert all(page is first for page in pages), "though more is there by now"
        assert len({id(page.encoded("sse", encode)) for page in pages}) == 1
        assert first.encoded("other", lambda table, start: start) == 0
        assert made == [0]
        fresh = feeds[0].read(0, fresh=True)
        assert fresh.stop == feeds[0].next > first.stop


def test_pages_that_are_kept_are_bounded() -> None:
    with connect(engine="local") as db:
        db.execute(SETUP)
        shared = SharedFeed(db.query(QUERIES[1]))
        for i in range(300):
            db.push("s", [(i, 2)])
        feed = feed_of(shared)
        pages = [feed.read(i, 1) for i in range(300)]
        assert feed.read(299, 1) is pages[299]
        assert feed.read(0, 1) is not pages[0]
        assert feed.read(0, 1).table == pages[0].table


def test_a_reader_that_lags_is_told_what_is_gone() -> None:
    with served() as it:
        it.run(f"{SETUP}; CREATE QUERY q AS SELECT v FROM s [NOW] WITH (results = '5 rows')")
        assert it.admin is not None
        feed = it.service.feed(it.admin, "q")
        it.db.push("s", [(0, 0)])
        kept = feed.read(0)
        it.run("CREATE SUBSCRIPTION slow FOR q FROM 0")
        for i in range(1, 40):
            it.db.push("s", [(i, i)])
        assert feed.first > 0
        with pytest.raises(ResultsGone) as gone:
            feed.read(0)
        assert gone.value.first == feed.first
        assert f"positions 0 to {feed.first - 1}" in gone.value.message
        assert kept.table.num_rows > 0, "who has a page keeps it"
        slow = it.service.subscription(it.admin, "slow")
        assert (slow.lag, slow.gone) == (feed.next, feed.first)
        rows = read_all(feed, 3)
        assert len(rows) == feed.next - feed.first
        with pytest.raises(StateError, match="no position"):
            feed.read(feed.next + 1)
        for text in ("SUBSCRIBE q FROM 0", "CREATE SUBSCRIPTION x FOR q FROM 0"):
            with pytest.raises(ResultsGone):
                it.run(text)
        start = it.run("SUBSCRIBE q FROM START")[0].subscribe
        now = it.run("SUBSCRIBE q")[0].subscribe
        assert start is not None
        assert now is not None
        assert (start.position, now.position) == (feed.first, feed.next)


def test_who_waits_is_woken() -> None:
    """Threads, and coroutines of two loops, each wait for the next result until the query has ended."""
    with connect(engine="local") as db:
        db.execute(SETUP)
        query = db.query(QUERIES[1])
        shared = SharedFeed(query)
        got: dict[str, list[int]] = {}
        ready = threading.Barrier(5)

        def blocking(name: str) -> None:
            feed, position = feed_of(shared), 0
            ready.wait()
            while feed.wait_blocking(position, 60):
                page = feed.read(position)
                got.setdefault(name, []).extend(page.table.column("v").to_pylist())
                position = page.stop
                if not len(page):
                    return

        async def waiting(name: str) -> None:
            feed, position = feed_of(shared), 0
            while await feed.wait(position, 60):
                page = feed.read(position)
                got.setdefault(name, []).extend(page.table.column("v").to_pylist())
                position = page.stop
                if not len(page):
                    return

        async def several(name: str) -> None:
            ready.wait()
            await asyncio.gather(*(waiting(f"{name} {i}") for i in range(20)))

        calls: list[Callable[[], object]] = [
            lambda: blocking("a"), lambda: blocking("b"), lambda: asyncio.run(several("c")),
            lambda: asyncio.run(several("d")),
        ]  # fmt: skip
        threads = [threading.Thread(target=call) for call in calls]
        for thread in threads:
            thread.start()
        ready.wait()
        for i in range(100):
            db.push("s", [(i, i)])
        query.stop()
        for thread in threads:
            thread.join(60)
        assert len(got) == 42
        assert all(values == [*range(2, 100)] for values in got.values())
        assert feed_of(shared).ended == "stopped"
        assert not shared.waiting


def test_waiting_ends_when_the_time_is_over() -> None:
    with connect(engine="local") as db:
        db.execute(SETUP)
        shared = SharedFeed(db.query(QUERIES[1]))
        feed = feed_of(shared)
        assert not feed.wait_blocking(0, 0.01)
        assert not asyncio.run(feed.wait(0, 0.01))
        assert not shared.waiting
        db.push("s", [(1, 5)])
        assert feed.wait_blocking(0, 60)
        assert asyncio.run(feed.wait(0, 60))


def test_a_query_that_fails_ends_its_feed_with_why() -> None:
    with connect(engine="local") as db:
        db.execute(SETUP)
        query = db.query("SELECT 1 / v AS x FROM s [NOW]", strict=True)
        feed = feed_of(SharedFeed(query))
        db.push("s", [(1, 1)])
        db.push("s", [(2, 0)])
        assert feed.ended is not None
        assert feed.ended.startswith("failed: ")
        assert [row["x"] for row in read_all(feed, 10) if row["op"] == "+"] == [1]


def test_readers_of_a_stopped_query_read_to_the_end() -> None:
    with served() as it:
        it.run(f"{SETUP}; CREATE QUERY q AS {QUERIES[1]}")
        assert it.admin is not None
        feed = it.service.feed(it.admin, "q")
        it.db.push("s", [(1, 5), (2, 6)])
        it.run("STOP QUERY q; CREATE QUERY q AS SELECT ISTREAM t FROM s [NOW]")
        assert feed.ended == "stopped"
        assert [row["v"] for row in read_all(feed, 1)] == [5, 6]
        assert it.service.feed(it.admin, "q").schema.names == ["ts", "op", "t"]


def test_a_page_knows_its_positions() -> None:
    page = Page(7, pa.table({"x": [1, 2, 3]}))
    assert (page.start, page.stop, len(page)) == (7, 10, 3)
