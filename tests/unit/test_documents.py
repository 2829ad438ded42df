"""The pages for newcomers do as they say: the Python blocks of each page run in order, in one namespace, in a fresh process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "docs/start.md")


def blocks(text: str) -> list[tuple[int, str]]:
    """Each Python block with the line it begins on."""
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)) + 1, match.group(1)) for match in found]


def run(page: str, text: str) -> subprocess.CompletedProcess[str]:
    """Rows, rules and codes that a page adds must not stay in this process."""
    program = "".join(f"exec(compile({chr(10) * (line - 1) + source!r}, {page!r}, 'exec'))\n" for line, source in blocks(text))
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run(page: str) -> None:
    text = (ROOT / page).read_text()
    assert len(blocks(text)) == text.count("```python") >= 1
    done = run(page, text)
    assert done.returncode == 0, done.stderr


def test_a_wrong_block_is_noticed() -> None:
    done = run("page.md", "```python\nx = 1\n```\n```python\nassert x == 2\n```\n")
    assert done.returncode == 1
    assert 'page.md", line 5' in done.stderr
