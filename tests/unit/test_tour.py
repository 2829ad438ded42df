"""The tour says what the code does: its blocks are run in order, in one namespace."""

from __future__ import annotations

import re
from pathlib import Path

import stator

TOUR = Path(__file__).resolve().parents[2] / "docs" / "tour.md"


def blocks(text: str) -> list[tuple[int, str]]:
    """Each Python block with the line it begins on."""
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)) + 1, match.group(1)) for match in found]


def test_tour_runs():
    text = TOUR.read_text()
    parts = blocks(text)
    assert len(parts) == text.count("```python") >= 6
    stator.reset()
    namespace: dict[str, object] = {"__name__": "tour"}
    for line, source in parts:
        padded = "\n" * (line - 1) + source  # so that a traceback shows the line of the page
        exec(compile(padded, str(TOUR), "exec"), namespace)
