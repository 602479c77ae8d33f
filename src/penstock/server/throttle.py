"""Wrong passwords are slowed down: for each user and address a few, then one after the other with pauses.

A token is 256 random bits, which nobody guesses: a right one is let in whatever came before it.
"""

from __future__ import annotations

import ipaddress
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from penstock.model.errors import LimitExceeded

FREE = 10
"""Wrong passwords in a row that have to wait for nothing."""
EVERY = 10_000_000
"""Microseconds after which one more may be tried."""
_MOST = 10_000
"""Users and addresses that are remembered; the ones whose last wrong password is oldest make room."""
_NAME = 63
"""Characters of a user's name; no user has a longer one."""


class Throttled(LimitExceeded):
    """Too many wrong passwords came for this user from this address; ``seconds`` until the next one is looked at."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        super().__init__(
            "too many wrong passwords came from this address",
            hint=f"try again in {seconds} s; a token and other addresses are not concerned",
        )


@dataclass
class _Wrong:
    """``full``: when as many may be tried as at the beginning."""

    full: int
    refused: int = 0
    """Attempts that were refused unseen since the last one that was looked at."""


class Throttle:
    """See above. Bounded by ``_MOST`` pairs of a user and an address; one is forgotten when it may try ``FREE`` times
    again. ``clock``: microseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._wrong: OrderedDict[tuple[str, str], _Wrong] = OrderedDict()

    def check(self, user: str, remote: str) -> None:
        """Refuse (Throttled) a password before it is looked at."""
        key, now = _key(user, remote), self._clock()
        with self._lock:
            found = self._wrong.get(key)
            # Each wrong one takes a place for EVERY; FREE places are there.
            if found is not None and (wait := found.full - (FREE - 1) * EVERY - now) > 0:
                found.refused += 1
                raise Throttled(math.ceil(wait / 1_000_000))

    def failed(self, user: str, remote: str) -> int:
        """A password was wrong; gives how many were refused unseen before it."""
        key, now = _key(user, remote), self._clock()
        with self._lock:
            found = self._wrong.pop(key, None) or _Wrong(now)
            found.full = max(found.full, now) + EVERY
            refused, found.refused = found.refused, 0
            self._wrong[key] = found
            while len(self._wrong) > _MOST or next(iter(self._wrong.values())).full <= now:
                self._wrong.popitem(last=False)
            return refused

    def __len__(self) -> int:
        return len(self._wrong)


def _key(user: str, remote: str) -> tuple[str, str]:
    return user[:_NAME], address_of(remote)


def address_of(remote: str) -> str:
    """The address in what a protocol says of its client: without a port; of IPv6 the network, which one client has."""
    text = unquote(remote).removeprefix("ipv4:").removeprefix("ipv6:")
    for each in (text, text.rpartition(":")[0]):
        try:
            found = ipaddress.ip_address(each.strip("[]").partition("%")[0])
        except ValueError:
            continue
        if isinstance(found, ipaddress.IPv6Address):
            if found.ipv4_mapped is not None:
                return str(found.ipv4_mapped)
            return str(ipaddress.ip_network((found, 64), strict=False))
        return str(found)
    return text
