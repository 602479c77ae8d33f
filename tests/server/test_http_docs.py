"""docs/reference/http.md: its requests are sent to a server, and it answers what the page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from penstock.server.http.routes import ENDPOINTS
from tests.docs.fences import DOCS, fences
from tests.docs.test_snippets import behind, matches
from tests.server.over_http import served

PAGE = (DOCS / "reference" / "http.md").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not there")
def test_the_requests_of_the_page() -> None:
    found = list(fences(PAGE))
    with served() as server:
        environment = {**os.environ, "URL": server.url, "TOKEN": server.token}
        for i, block in enumerate(found):
            if block.language == "sh":
                command = ["bash", "-c", block.text]
                run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                assert run.returncode == 0, f"line {block.line}: {run.stderr}"
                shown = behind(found, i, "text")
                assert shown is not None
                assert matches(_lines(run.stdout), shown), f"line {block.line} prints\n{run.stdout}"


def _lines(printed: str) -> str:
    """Objects of JSON that follow each other, each on a line of its own."""
    return printed.replace("}{", "}\n{").replace("}ts,", "}\nts,")


def test_every_path_of_the_page_is_there() -> None:
    paths = {each.path for each in ENDPOINTS}
    for named in re.findall(r"(/(?:api|health|ready|metrics)[\w/{}.]*)", PAGE):
        path = re.sub(r"^/api/(streams|queries|subscriptions)/(?!\{)(\w+)", _with_name, named)
        assert path in paths or path == "/api", named


def _with_name(found: re.Match[str]) -> str:
    kind = {"streams": "stream", "queries": "query", "subscriptions": "subscription"}[found[1]]
    return f"/api/{found[1]}/{{{kind}}}"
