"""Settings: from a file, from the environment, from options, in rising priority; wrong ones are refused by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from penstock.server.settings import Settings, SettingsError, described, file_of, is_loopback, read_settings


def wrong(
    file: Path | None = None, environment: dict[str, str] | None = None, options: Mapping[str, object] | None = None
) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        read_settings(file, environment or {}, options)
    return refused.value.problems


def test_each_place_is_over_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('engine = "local"\nhttp = 1\nflight = 2\npostgres = "off"\n[spark]\nspark.executor.memory = "2g"\n')
    found, said = read_settings(file, {"PENSTOCK_HTTP": "11", "PENSTOCK_FLIGHT": "12", "OTHER": "x"}, {"flight": "22"})
    assert (found.engine, found.http, found.flight, found.postgres) == ("local", 11, 22, None)
    assert found.spark == {"spark.executor.memory": "2g"}
    assert {name: each.where for name, each in said.items()} == {
        "engine": f"{file}, engine", "http": "PENSTOCK_HTTP", "flight": "--flight", "postgres": f"{file}, postgres",
        "spark": f"{file}, spark",
    }  # fmt: skip
    lines = described(found, said)
    assert f"engine           local                    {file}, engine" in lines
    assert any(line.startswith("postgres         off ") for line in lines)
    assert "sync             group                    by default" in lines


def test_defaults_are_safe() -> None:
    found, said = read_settings(None, {})
    assert found == Settings()
    assert said == {}
    assert found.loopback
    assert (found.sync, found.functions) == ("group", False)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("http", "70000", "--http: '70000' is not a port; a number up to 65535, 0 for a free one, or off"),
        ("engine", "reference", "--engine: 'reference' is not one of local, spark"),
        ("sync", "sometimes", "--sync: "),
        ("grace", "soon", "--grace: "),
        ("grace", "-1", "--grace: '-1' is not a time"),
        ("results", "16 elephants", "--results: "),
        ("body", "much", "--body: "),
        ("rows", "0", "--rows: '0' is not a number of things; a whole number, at least 1"),
        ("tls_cert", "/no/such/file", "--tls-cert: there is no file /no/such/file"),
        ("zone", "Mars/Olympus", "--zone: "),
        ("log", "loud", "--log: 'loud' is not one of text, json"),
        ("functions", "perhaps", "--functions: 'perhaps' is neither true nor false"),
    ],
)
def test_a_wrong_value_is_refused_with_where_it_stands(name: str, value: str, says: str) -> None:
    problems = wrong(options={name: value})
    assert any(problem.startswith(says) for problem in problems), problems


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('htpp = 7070\nhost = 5\nflight = 7072\n')
    problems = wrong(file, {"PENSTOCK_GRACE": "never", "PENSTOCK_POSTGERS": "1"})
    assert problems[0] == f"{file}, htpp: there is no such setting; did you mean `http`?"
    assert "PENSTOCK_POSTGERS: there is no such setting; did you mean `PENSTOCK_POSTGRES`?" in problems
    assert any(p.startswith(f"{file}, host: 5 is not a text") for p in problems)
    assert any(p.startswith("PENSTOCK_GRACE: ") for p in problems)
    assert "postgres and flight are both port 7072" in problems


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "it cannot be read" in wrong(tmp_path / "none.toml")[0]
    bad = tmp_path / "bad.toml"
    bad.write_text("engine = local")
    assert "it is not TOML" in wrong(bad)[0]


def test_settings_that_do_not_go_together(tmp_path: Path) -> None:
    cert = tmp_path / "c.pem"
    cert.touch()
    alone = wrong(options={"tls_cert": cert})
    assert alone == ["--tls-cert: tls_key is missing; a certificate and its key go together"]
    assert "all off" in wrong(options=dict.fromkeys(("http", "flight", "postgres"), "off"))[0]


def test_which_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert file_of("db", None) is None
    (tmp_path / "penstock.toml").touch()
    assert file_of("db", None) == Path("penstock.toml")
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "penstock.toml").touch()
    assert file_of("db", None) == Path("db/penstock.toml")
    assert file_of("db", Path("other.toml")) == Path("other.toml")
    assert file_of("s3://bucket/db", None) == Path("penstock.toml")


@pytest.mark.parametrize(
    ("host", "near"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("db.example", False)],
)
def test_loopback(host: str, near: bool) -> None:
    assert is_loopback(host) == near


@pytest.mark.parametrize(("given", "seconds"), [(3, 3.0), ("2.5", 2.5), ("5 minutes", 300.0)])
def test_times(given: object, seconds: float) -> None:
    assert read_settings(None, {}, {"grace": given})[0].grace == seconds


PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/server.md").read_text(encoding="utf-8")


def test_the_file_that_the_page_shows(tmp_path: Path) -> None:
    shown = re.search(r"```text\n(engine = .*?)```", PAGE, re.DOTALL)
    assert shown is not None
    (tmp_path / "penstock.toml").write_text(shown[1])
    found, said = read_settings(tmp_path / "penstock.toml", {})
    assert (found.engine, found.postgres, found.grace, found.loopback) == ("local", None, 30.0, False)
    assert found.spark == {"spark.driver.memory": "4g"}
    assert len(said) == 6


def test_the_page_lists_every_setting_with_its_default() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (?:`(.*?)`)? *\|", PAGE, re.MULTILINE)
    wanted = [(f.name, "" if (value := getattr(Settings(), f.name)) is None else str(value)) for f in fields(Settings)]
    assert [(name, value) for name, value in listed if hasattr(Settings(), name)] == wanted
