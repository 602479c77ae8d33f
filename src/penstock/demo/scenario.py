"""Generates the scenario: five minutes in a house, the same on every machine.

``python -m penstock.demo.scenario FOLDER`` writes the files that the package ships in ``demo/data``.
"""

from __future__ import annotations

import math
import random
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa

from penstock.io.writers import format_for, open_writer

START = datetime(2024, 3, 1, 18, 0, 0)
SECONDS = 300
FILES = {
    "climate": "climate.csv",
    "motion": "motion.jsonl",
    "power": "power.parquet",
    "rooms": "rooms.csv",
}
_ROOMS = [
    ("kitchen", 0, 20.5, 21.5),
    ("living room", 0, 21.0, 21.0),
    ("bathroom", 1, 22.5, 22.5),
    ("bedroom", 1, 18.0, 18.5),
    ("office", 1, 20.0, 20.5),
]


def generate(seed: int = 7) -> dict[str, pa.Table]:
    """The tables of the scenario by the names of their streams and relation."""
    chance = random.Random(seed)
    return {
        "climate": _climate(chance),
        "motion": _motion(chance),
        "power": _power(chance),
        "rooms": pa.table(
            {
                "room": [room for room, _, _, _ in _ROOMS],
                "floor": pa.array([floor for _, floor, _, _ in _ROOMS], pa.int32()),
                "target": [target for _, _, target, _ in _ROOMS],
            }
        ),
    }


def write(folder: Path) -> None:
    """Write every table into its file."""
    for name, table in generate().items():
        path = folder / FILES[name]
        format = format_for(path)
        assert format is not None
        with open_writer(path, format, table.schema) as writer:
            writer.write(table)


def _climate(chance: random.Random) -> pa.Table:
    """Each room every five seconds. The kitchen warms up while somebody cooks; radio delays shuffle rows."""
    rows = []
    for second in range(0, SECONDS, 5):
        for number, (room, _, _, usual) in enumerate(_ROOMS):
            stove = room == "kitchen" and 80 < second < 280
            cooking = 4.5 * math.sin(math.pi * (second - 80) / 200) if stove else 0
            measured = second + number * 0.4 + chance.uniform(0, 0.3)
            delay = chance.choice([0, 0, 0, 0.8, 1.6])
            temperature = usual + cooking + chance.gauss(0, 0.15)
            humidity = 45 + 3 * cooking + chance.gauss(0, 1)
            rows.append((measured + delay, room, round(temperature, 2), round(humidity, 1), _at(measured)))
    # One sensor lost its connection for a while: its reading comes far too late.
    late = rows[120]
    rows[120] = (late[0] + 20, *late[1:])
    rows.sort(key=lambda row: row[0])
    return pa.table(
        {
            "room": [row[1] for row in rows],
            "temperature": [row[2] for row in rows],
            "humidity": [row[3] for row in rows],
            "at": pa.array([row[4] for row in rows], pa.timestamp("us")),
        }
    )


def _motion(chance: random.Random) -> pa.Table:
    """Somebody walks through the house, and stays in the kitchen for the middle of the evening."""
    rows = []
    second = 3.0
    while second < SECONDS:
        cooking = 90 < second < 230 and chance.random() < 0.8
        rows.append(("kitchen" if cooking else chance.choice(_ROOMS)[0], _at(second)))
        second += chance.uniform(4, 14)
    return pa.table(
        {"room": [row[0] for row in rows], "at": pa.array([row[1] for row in rows], pa.timestamp("us"))}
    )


def _power(chance: random.Random) -> pa.Table:
    """Both meters every two seconds: the stove switches on and off, the turbine turns with the water."""
    rows = []
    for second in range(0, SECONDS, 2):
        stove = 2800 if 100 < second < 240 and second // 20 % 2 else 0
        turbine = 900 + 150 * math.sin(second / 40) + chance.gauss(0, 20)
        grid = 450 + stove + chance.gauss(0, 40)
        rows.append(("grid", round(grid, 1), _at(second + 0.5)))
        rows.append(("turbine", round(turbine, 1), _at(second + 0.5)))
    return pa.table(
        {
            "meter": [row[0] for row in rows],
            "watts": [row[1] for row in rows],
            "at": pa.array([row[2] for row in rows], pa.timestamp("us")),
        }
    )


def _at(second: float) -> datetime:
    return START + timedelta(milliseconds=round(second * 1000))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
