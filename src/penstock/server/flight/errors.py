"""Our errors as errors of Flight: the text for people, and the same as JSON in the error's ``extra_info``."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from penstock.model.errors import (
    AccessDenied,
    EngineError,
    InputError,
    LimitExceeded,
    LoginFailed,
    PenstockError,
    ResultsGone,
    StateError,
)

_log = logging.getLogger("penstock.server.flight")


def described(error: PenstockError) -> dict[str, Any]:
    """What ``problem+json`` says over HTTP."""
    place = error.position
    kind = next(c for c in type(error).__mro__ if "code" in vars(c))
    more = {"first": error.first} if isinstance(error, ResultsGone) else {}
    return {
        **more,
        "code": kind.__name__,
        "number": error.code,
        "detail": error.message,
        "hint": error.hint,
        "position": None if place is None else {"line": place.line, "column": place.column, "length": place.length},
        "text": None if place is None else error.text,
    }


def as_flight(error: PenstockError) -> flight.FlightError:
    """The error of Flight that a client gets."""
    kinds: list[tuple[type[PenstockError], Callable[..., flight.FlightError]]] = [
        (LoginFailed, flight.FlightUnauthenticatedError),
        (AccessDenied, flight.FlightUnauthorizedError),
        (LimitExceeded, flight.FlightUnavailableError),
    ]
    made = next((kind for sort, kind in kinds if isinstance(error, sort)), flight.FlightServerError)
    return made(str(error), json.dumps(described(error), ensure_ascii=False).encode())


@contextmanager
def told() -> Iterator[None]:
    """Whatever is raised becomes an error of Flight; what nobody has foreseen is logged and not shown."""
    try:
        yield
    except PenstockError as error:
        raise as_flight(error) from None
    except flight.FlightError:
        raise
    except pa.ArrowInvalid as error:
        raise as_flight(InputError(f"the rows cannot be read: {error}")) from None
    except (StopIteration, GeneratorExit):
        raise
    except Exception:
        _log.exception("a call failed")
        raise as_flight(EngineError("the server failed; its log says why")) from None


def ending() -> flight.FlightError:
    """For readers of a server that ends."""
    problem = StateError("the server ends")
    return flight.FlightUnavailableError(str(problem), json.dumps({**described(problem), "ending": True}).encode())
