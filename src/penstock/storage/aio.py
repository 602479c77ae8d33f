"""Syncs that the system does while the caller goes on: POSIX asynchronous I/O, as glibc has it.

A thread of Python's that waits for the disk costs the caller the interpreter twice, which takes longer than most syncs.
glibc does the same with a thread of its own, which needs no interpreter. That thread begins with the first sync and
ends by itself when nothing has been asked of it for a second.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from functools import cache

_SIGEV_NONE = 1


class _Event(ctypes.Structure):
    """``struct sigevent``."""

    _fields_ = (
        ("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("notify", ctypes.c_int), ("rest", ctypes.c_char * 48),
    )  # fmt: skip


class _Request(ctypes.Structure):
    """``struct aiocb`` of glibc where a pointer has 8 bytes."""

    _fields_ = (
        ("file", ctypes.c_int), ("operation", ctypes.c_int), ("priority", ctypes.c_int), ("buffer", ctypes.c_void_p),
        ("length", ctypes.c_size_t), ("event", _Event), ("next", ctypes.c_void_p), ("absolute", ctypes.c_int),
        ("policy", ctypes.c_int), ("error", ctypes.c_int), ("returned", ctypes.c_ssize_t), ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_char * 32),
    )  # fmt: skip


class _Calls:
    """The functions of glibc. ``begin`` and ``error`` return at once and keep the interpreter.

    ``process``: the process that may call them. In one that is forked from it, glibc still counts on the thread of its
    parent, and a sync would never end.
    """

    def __init__(self, name: str | None) -> None:
        self.process = os.getpid()
        at_once, waiting = ctypes.PyDLL(name, use_errno=True), ctypes.CDLL(name, use_errno=True)
        self.begin, self.error, self.result = at_once.aio_fsync, at_once.aio_error, at_once.aio_return
        self.suspend = waiting.aio_suspend


@cache
def _calls() -> _Calls | None:
    if platform.libc_ver()[0] != "glibc" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    for name in (None, "librt.so.1"):  # it was a library of its own before glibc 2.34
        try:
            return _Calls(name)
        except (AttributeError, OSError):
            continue
    return None


class FlyingSync:
    """One sync of an open file. The file stays open, and this object stays referenced, until ``wait`` has returned or
    raised OSError. One thread at a time."""

    def __init__(self, file: int) -> None:
        self._request = _Request(file=file)
        self._request.event.notify = _SIGEV_NONE
        self._process = os.getpid()
        self._flies = False
        self._failed = 0
        """The number of the error with which it ended."""

    def begin(self) -> bool:
        """Let the system begin to force the file's content to the disk. False: the system does not take it."""
        calls = _calls()
        if calls is None or calls.process != self._process:
            return False
        self._flies = True  # first: an interrupt may come right behind the call
        if calls.begin(os.O_DSYNC, ctypes.byref(self._request)) != 0:
            self._flies = False
        return self._flies

    def wait(self) -> None:
        """Return when it is done; OSError if it failed. It may be called again, also after an interrupt."""
        calls = _calls()
        if self._flies and calls is not None:
            if os.getpid() != self._process:
                raise OSError(errno.ECHILD, "the sync was begun by the process from which this one was forked")
            request = ctypes.byref(self._request)
            waited = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
            while (state := calls.error(request)) == errno.EINPROGRESS:
                calls.suspend(waited, 1, None)
            self._failed = state
            self._flies = False
            calls.result(request)
        if self._failed:
            raise OSError(self._failed, os.strerror(self._failed))
