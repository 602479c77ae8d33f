"""Signals that stop a command, where it can be stopped.

Python calls handlers between any two steps of the main thread. What a handler raises inside ``threading`` can leave a
lock held for ever: a ``Condition``, and each ``Event`` has one, is entered by a function, which has the lock before its
``with`` knows. Closing the database then waits for threads that wait for that lock. What is raised while Python removes
an object is lost, and the command goes on as if there had been no signal. And rows that are written down while the
stream has not counted them yet would be pushed again by the next run.
"""

from __future__ import annotations

import _thread
import contextlib
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]
_DELICATE = frozenset({
    threading.Event.wait.__code__.co_filename, contextlib.closing.__init__.__code__.co_filename,
    "<frozen importlib._bootstrap>",
})  # fmt: skip
_REMOVING = frozenset({weakref.finalize.__call__.__code__.co_filename, weakref.WeakSet.add.__code__.co_filename})
_WAITS = frozenset({"join", "_wait_for_tstate_lock"})
_SOON = 0.001
"""Seconds after which a signal comes again that came at a delicate place."""


def deferring(handler: Handler, changes: Callable[[], bool] = lambda: False) -> Handler:
    """A handler that is called where the main thread can be stopped: a little later if it is not there yet.

    ``changes``: whether the main thread is changing what has to be whole when it is stopped. A second signal does not
    wait for the end of that.
    """
    deferred = resent = False

    def heard(number: int, frame: FrameType | None) -> None:
        nonlocal deferred, resent
        was_resent, resent = resent, False
        if was_resent and not deferred:
            return  # a second one has come meanwhile
        is_second = deferred and not was_resent
        if frame is not None and (_is_delicate(frame) or (changes() and not is_second)):
            deferred = True
            # No ``Thread``: starting one takes a lock that may be held right here. It ends with the signal.
            _thread.start_new_thread(again, (number,))
        else:
            deferred = False
            handler(number, frame)

    def again(number: int) -> None:
        nonlocal resent
        time.sleep(_SOON)
        if deferred:
            resent = True
            signal.pthread_kill(threading.main_thread().ident or 0, number)

    return heard


@contextmanager
def handling(
    handler: Handler, numbers: Sequence[signal.Signals], changes: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Inside, the handler hears these signals where the main thread can be stopped; see ``deferring``. Signals come to
    the main thread alone: in another one nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, deferring(handler, changes)) for number in numbers}
    try:
        yield
    finally:
        for number, found in before.items():
            signal.signal(number, signal.SIG_DFL if found is None else found)


def _is_delicate(frame: FrameType) -> bool:
    place: FrameType | None = frame
    while place is not None:
        if place.f_code.co_name == "__del__" or place.f_code.co_filename in _REMOVING:
            return True
        place = place.f_back
    code = frame.f_code
    if code.co_filename not in _DELICATE or code.co_name in _WAITS:
        return False
    # ``Condition.wait`` gives back in a ``finally`` what it took, once it has come to that.
    return not (code.co_name == "wait" and ("gotit" in frame.f_locals or "signaled" in frame.f_locals))
