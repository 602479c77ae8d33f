"""``penstock serve`` as a process: it starts, ends when it is told to, comes back, and is the only one."""

from __future__ import annotations

import ipaddress
import os
import shutil
import signal
import ssl
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from penstock import InputError
from penstock.server import life, tls
from penstock.server.settings import Settings
from tests.server.process import ROOT, Process, listening

HERE = ("--http", "off", "--flight", "off", "--postgres", "0")
SETUP = (
    "CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t; CREATE QUERY q AS SELECT v, count(*) AS n FROM s [ROWS 3] "
    "GROUP BY v; INSERT INTO s VALUES (1, 2), (2, 2); CREATE SUBSCRIPTION mine FOR q FROM START"
)
CONFIRM = "CONFIRM mine AT 1"


def local(path: Path, *more: str, **environment: str) -> Process:
    return Process("serve", str(path), "--engine", "local", *HERE, *more, **environment)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda s: s.name)
def test_it_ends_and_comes_back_with_everything(tmp_path: Path, end: signal.Signals) -> None:
    with local(tmp_path / "db") as first:
        token = first.started().token
        assert token is not None
        assert f"database {tmp_path / 'db'} · engine local" in first.banner[0]
        assert first.run(token, f"{SETUP}; {CONFIRM}")["said"][1] == "query q started"
        assert first.run("pst_wrong", "SHOW STREAMS")["error"] == "LoginFailed"
        code, errors = first.end(end)
        assert code == (-9 if end == signal.SIGKILL else 0), errors
        assert token not in errors
    with local(tmp_path / "db") as again:
        assert again.started().token is None, "it is shown once"
        assert again.run(token, "SHOW QUERIES; SHOW SUBSCRIPTIONS; SUBSCRIBE q AS mine")["said"] == [
            "1 query", "1 subscription", "results of q from 1",
        ]  # fmt: skip
        assert again.end()[0] == 0
    with local(tmp_path / "db") as last:
        last.process.send_signal(signal.SIGTERM)  # also while it starts
        assert last.process.wait(240) in (0, -signal.SIGTERM)


def test_a_second_server_is_refused_with_who_holds_the_database(tmp_path: Path) -> None:
    with local(tmp_path / "db") as first:
        held = first.started().process.pid
        with local(tmp_path / "db") as second, local(tmp_path / "db", "--new-token") as third:
            for other in (second, third):
                out, errors = other.process.communicate(timeout=240)
                assert other.process.returncode == 2
                assert f"process {held}" in errors, errors
                assert out == ""
        assert first.run(first.token, "SHOW STREAMS") == {"said": ["0 streams"]}


def test_what_does_not_end_in_time_is_cut_off(tmp_path: Path) -> None:
    with local(tmp_path / "db", "--grace", "0.5", PENSTOCK_TEST_STUCK="1") as server:
        token = server.started().token
        server.run(token, SETUP)
        code, errors = server.end()
        assert code in (0, 1)
        assert "cut off" in errors or code == 0
    with local(tmp_path / "db") as again:
        assert again.started().run(token, "SHOW QUERIES")["said"] == ["1 query"]


def test_a_lost_token(tmp_path: Path) -> None:
    with local(tmp_path / "db") as server:
        lost = server.started().token
        server.end()
    with local(tmp_path / "db", "--new-token") as made:
        out, errors = made.process.communicate(timeout=240)
        assert (made.process.returncode, errors) == (0, "")
        token = out.strip()
    with local(tmp_path / "db") as server:
        assert server.started().run(lost, "SHOW STREAMS")["error"] == "LoginFailed"
        assert server.run(token, "SHOW STREAMS") == {"said": ["0 streams"]}


def near(addresses: set[str]) -> bool:
    found = (ipaddress.ip_address(each.split()[0].removeprefix("::ffff:")) for each in addresses)
    return all(each.is_loopback for each in found)


def test_every_socket_is_on_loopback(tmp_path: Path) -> None:
    with local(tmp_path / "db") as server:
        found = listening(server.started().process.pid)
        assert f"127.0.0.1 {server.address[1]}" in found
        assert near(found)


def check(*arguments: str, **environment: str) -> tuple[int, str, str]:
    clean = {n: v for n, v in os.environ.items() if not n.startswith("PENSTOCK_")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.server.process", "serve", *arguments, "--check"], cwd=ROOT, text=True,
        capture_output=True, env=clean | environment, timeout=240,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_check_says_all_settings_and_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('engine = "local"\n')
    code, out, _ = check(str(tmp_path), *HERE)
    assert code == 0
    assert f"engine           local                    {tmp_path}/penstock.toml, engine" in out
    assert "postgres         0                        --postgres" in out
    code, out, errors = check(str(tmp_path), *HERE, PENSTOCK_SYNC="never", PENSTOCK_ROWS="few")
    assert code == 2
    assert "wrong     PENSTOCK_SYNC: " in out
    assert "wrong     PENSTOCK_ROWS: 'few' is not a number of things" in out
    assert "2 of the settings cannot be" in errors
    assert not (tmp_path / "owner").exists(), "nothing was started"


def test_a_missing_library_is_named_with_what_helps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(life.MODULES, "flight", "no_such_library.listener")
    with pytest.raises(InputError, match="Flight SQL needs the Python package `no_such_library`") as refused:
        life.Server(str(tmp_path / "db"), Settings(engine="local", http=None, postgres=None)).start()
    assert refused.value.hint == "pip install 'penstock[server]'; --flight off starts the server without Flight SQL"
    assert not (tmp_path / "db").exists()


def test_importing_penstock_imports_no_server() -> None:
    code = (
        "import sys, penstock, penstock.cli.main; "
        "print([m for m in sys.modules if m.startswith(('penstock.server', 'penstock.client', 'starlette', 'duckdb'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "[]"


class Sleeper:
    """A listener that fails to start, or is stopped."""

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.stopped = fails, 0

    def start(self, service: object, settings: Settings) -> str:
        if self.fails:
            raise InputError("the port is taken")
        return "127.0.0.1:1"

    def stop(self, deadline: float) -> None:
        self.stopped += 1


def test_a_start_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = {"http": Sleeper(), "postgres": Sleeper(fails=True)}
    monkeypatch.setattr(life, "listener", made.__getitem__)
    settings = Settings(engine="local", flight=None)
    with pytest.raises(InputError, match="the port is taken"):
        life.Server(str(tmp_path / "db"), settings).start()
    assert made["http"].stopped == 1
    made["postgres"].fails = False
    server = life.Server(str(tmp_path / "db"), settings)
    server.start()
    assert server.service is not None
    assert server.service.health().ready
    assert life.banner(server)[-1] == "HTTP      http://127.0.0.1:1/api     PostgreSQL  127.0.0.1:1"
    server.stop()
    assert not server.service.health().ready
    assert made["http"].stopped == 2


def test_the_banner_warns_of_an_open_address(tmp_path: Path) -> None:
    server = life.Server(str(tmp_path), Settings(host="0.0.0.0"))
    assert life.banner(server)[-1].startswith("warning   0.0.0.0 is reached by other machines")
    server.settings = replace(server.settings, tls_cert=tmp_path, tls_key=tmp_path)
    assert "warning" not in life.banner(server)[-1]


def _subject(context: ssl.SSLContext, trusted: Path) -> bytes:
    """The certificate that a server with this context shows."""
    client = ssl.create_default_context(cafile=str(trusted))
    there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(there, here, server_hostname="localhost")
    two = context.wrap_bio(here, there, server_side=True)
    for _ in range(4):
        for side in (one, two):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = one.getpeercert(binary_form=True)
    assert found is not None
    return found


def test_a_certificate_of_its_own_is_made_once_and_read_again(tmp_path: Path) -> None:
    settings = tls.prepared(Settings(tls_self_signed=True), tmp_path)
    assert settings.tls_cert is not None
    assert settings.tls_key is not None
    assert settings.tls_key.stat().st_mode & 0o077 == 0
    assert tls.prepared(Settings(tls_self_signed=True), tmp_path) == settings
    context = tls.context(settings)
    assert context is not None
    assert context is tls.context(settings)
    before = _subject(context, settings.tls_cert)
    other = tmp_path / "other"
    other.mkdir()
    tls.prepared(Settings(tls_self_signed=True), other)
    for name in (tls.CERT, tls.KEY):
        shutil.copy(other / name, tmp_path / name)
    assert _subject(context, _trusting(tmp_path, before)) == before
    tls.reload(settings)
    assert _subject(context, settings.tls_cert) != before
    settings.tls_key.write_text("no key")
    now = _subject(context, settings.tls_cert)
    with pytest.raises(InputError, match="not a certificate and its key"):
        tls.reload(settings)
    assert _subject(context, settings.tls_cert) == now
    assert tls.context(Settings()) is None


def _trusting(path: Path, before: bytes) -> Path:
    """A file that trusts the certificate from before."""
    made = path / "before.crt"
    made.write_text(ssl.DER_cert_to_PEM_cert(before))
    return made
