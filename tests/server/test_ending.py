"""The end of a server with clients of all protocols that would stay for ever, and the unit for systemd."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pyarrow.flight as flight
import pytest
from benchmarks.support.places import python_path
from benchmarks.support.served import Served

from penstock.server.settings import Settings
from tests.server.over_http import Events
from tests.server.over_http import Served as Address

PAGE = (Path(__file__).parents[2] / "docs/reference/server.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_it_ends_in_time_though_clients_wait_for_results(tmp_path: Path, number: signal.Signals) -> None:
    """A server that has not ended within its ``grace`` ends with code 1."""
    served = Served(tmp_path / "db", "local", errors=tmp_path / "errors", postgres=True)
    served.start()
    try:
        served.wait()
        served.sql("CREATE STREAM s (v BIGINT); CREATE QUERY q AS SELECT v FROM s; INSERT INTO s VALUES (1)")
        events = Events(
            Address(None, served.url, served.token, []), "/api/queries/q/answers?from=start"  # type: ignore[arg-type]
        )
        options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {served.token}".encode())], timeout=200)
        client = flight.connect(f"grpc://127.0.0.1:{served.flight}")
        reader = client.do_get(flight.Ticket(b'{"changes": "q", "from": 0}'), options)
        database = psycopg.connect(
            host="127.0.0.1", port=served.postgres, user="admin", password=served.token, dbname="x", autocommit=True
        )
        with database, database.cursor().copy("COPY (SUBSCRIBE q FROM START) TO STDOUT") as copy:
            rows = copy.rows()
            assert events.rows(1)[0][1]["v"] == 1
            assert reader.read_chunk().data.column("v").to_pylist() == [1]
            assert next(rows)[-1] == "1"
            assert served.end(number) == 0, (tmp_path / "errors").read_text()
            assert served.said.strip() == "penstock ends, within 20 seconds"
            assert list(events) == []
            with pytest.raises(flight.FlightUnavailableError):
                reader.read_chunk()
            with pytest.raises(psycopg.OperationalError):
                next(rows)
        client.close()
        served.start()
        served.wait()
        assert served.sql("SELECT v FROM q")[0]["rows"] == [[1]]
    finally:
        served.close()


def takes(thread: Path, number: signal.Signals) -> bool:
    blocked = re.search(r"SigBlk:\s*(\w+)", (thread / "status").read_text())
    assert blocked is not None
    return not int(blocked[1], 16) >> (number - 1) & 1


def test_the_system_may_give_a_signal_to_any_thread(tmp_path: Path) -> None:
    """Python runs handlers in the main thread alone, which sleeps."""
    served = Served(tmp_path / "db", "local", errors=tmp_path / "errors")
    served.start()
    try:
        served.wait()
        threads = [each for each in Path(f"/proc/{served.pid}/task").iterdir() if each.name != str(served.pid)]
        other = next(int(each.name) for each in threads if takes(each, signal.SIGTERM))
        assert ctypes.CDLL(None).tgkill(served.pid, other, signal.SIGTERM) == 0
        assert served.end(0) == 0, (tmp_path / "errors").read_text()
        assert served.said.strip() == "penstock ends, within 20 seconds"
    finally:
        served.close()


ANOTHER = """
import signal, sys
from penstock.server import life
from penstock.server.settings import Settings

signal.signal(signal.SIGUSR1, lambda *_: print("heard", flush=True))
sys.exit(life.serve(sys.argv[1], Settings(engine="local", http=0, flight=None, postgres=None)))
"""


def test_a_signal_that_is_of_somebody_else_ends_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": python_path()}
    command = [sys.executable, "-c", ANOTHER, str(tmp_path / "db")]
    with subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while "HTTP  " not in (line := process.stdout.readline()):
            assert line, "it has ended"
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "heard\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "penstock ends, within 20 seconds\n"
        assert process.wait(120) == 0


def test_the_unit_for_systemd(tmp_path: Path) -> None:
    unit = re.search(r"```text\n(\[Unit\].*?)```", PAGE, re.DOTALL)
    assert unit is not None
    stop = re.search(r"TimeoutStopSec=(\d+)", unit[1])
    assert stop is not None
    assert float(stop[1]) > Settings().grace, "it would be killed before its time is over"
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed here")
    program = tmp_path / "penstock"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    file = tmp_path / "penstock.service"
    file.write_text(unit[1].replace("/opt/penstock/bin/penstock", str(program)))
    done = subprocess.run([verify, "verify", str(file)], text=True, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    file.write_text(file.read_text().replace("KillMode=mixed", "KillMode=x"))
    assert "kill mode" in subprocess.run([verify, "verify", str(file)], text=True, capture_output=True).stderr
