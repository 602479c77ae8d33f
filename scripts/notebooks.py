"""The notebooks of examples/: run them, and store what they show.

    python scripts/notebooks.py            run all; store the outputs of those that show something else than before
    python scripts/notebooks.py --check    run all, change nothing, fail where a notebook shows something else

What is compared is what can be read: texts, and the plain form of values; not pictures. A notebook is stored without
what changes from run to run (times, identifiers of runs, versions of Python), so that a change of it can be read.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


def read(path: Path) -> Any:
    """The notebook as it is stored."""
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def execute(path: Path) -> Any:
    """The notebook with what its cells show now. The kernel is this Python, with the sources of this project."""
    notebook = read(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    manager = AsyncKernelManager()
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"]
    manager._kernel_spec = KernelSpec(argv=command, display_name="Python 3", language="python")
    sources = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": sources, "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    environment.pop("PENSTOCK_ENGINE", None)
    NotebookClient(notebook, km=manager, timeout=120).execute(env=environment, cwd=str(path.parent))
    return normal(notebook)


def normal(notebook: Any) -> Any:
    """The notebook without what changes from run to run."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for i, cell in enumerate(notebook.cells):
        cell.id = f"cell-{i:02}"
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.metadata = {"tags": cell.metadata["tags"]} if "tags" in cell.metadata else {}
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = None
        else:
            cell.metadata = {}
    return notebook


def readable(notebook: Any) -> list[list[str]]:
    """For each cell the texts that it shows."""
    return [[_text(o) for o in cell.get("outputs", [])] for cell in notebook.cells]


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output.traceback))
    if "penstock-graph" in output.data.get("text/html", ""):
        return "a picture of the graph"  # its costs are measured
    return str(output.data.get("text/plain", ""))


def differences(before: Any, now: Any) -> list[str]:
    """What is shown otherwise than before, cell by cell."""
    found = []
    for i, (old, new) in enumerate(zip(readable(before), readable(now), strict=True), 1):
        if old != new:
            found.append(f"cell {i} shows\n{chr(10).join(new)}\nand not\n{chr(10).join(old)}")
    return found


def main(arguments: list[str]) -> int:
    """Run all notebooks; the exit code."""
    changed = False
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        before = read(path)
        now = execute(path)
        found = differences(before, now)
        changed = changed or bool(found)
        for difference in found:
            print(f"{path.name}, {difference}")
        if found and "--check" not in arguments:
            nbformat.write(now, path)  # type: ignore[no-untyped-call]
            print(f"{path.name} written")
    return 1 if changed and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
