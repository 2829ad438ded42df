"""Documents hold: Python blocks run, named files and functions exist, every page is listed, prose keeps to the rules."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from stator.interp.machine import DEPTH_LIMIT
from stator.settings.process_config import SETTINGS

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


# ---------------------------------------------------------------------- names

DOCS = ROOT / "docs"
WRITTEN = sorted(path for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")] if path.name != "native.md")
SOURCES = [path for folder in ("stator", "csrc", "tests", "tools", "benchmarks") for path in (ROOT / folder).rglob("*")]
NAMED_FILE = re.compile(r"`([\w./-]+\.(?:py|cpp|c|h))(?::([\w.]+?)(?:\(\))?)?`")
DISCOURAGED = re.compile(r"of the program's|of the user's|of Stator's| (?:is|are) (?:told|asked)\b|that only the graph knows|^What ", re.M)


def found_file(name: str) -> Path | None:
    """A path from the root, from stator/ or from csrc/; a bare name may be that of any file."""
    candidates = [root / name for root in (ROOT, ROOT / "stator", ROOT / "csrc")]
    named = [path for path in SOURCES if path.name == name] if "/" not in name else []
    return next((path for path in [*candidates, *named] if path.is_file()), None)


def missing_names(text: str) -> list[str]:
    """Files that do not exist, and functions that their file does not define."""
    missing = []
    for name, function in NAMED_FILE.findall(text):
        path = found_file(name)
        if path is None:
            missing.append(name)
        elif not all(re.search(rf"\b(?:def|class) {part}\b|^\S.*\b{part}\(|^{part} = ", path.read_text(), re.M)
                     for part in function.split(".") if part):
            missing.append(f"{name}:{function}")
    return missing


@pytest.mark.parametrize("page", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_named_files_and_functions_exist(page: Path) -> None:
    assert missing_names(page.read_text()) == []


def test_a_missing_file_or_function_is_noticed() -> None:
    text = ("`stator/gone.py`, `interp/machine.py:gone`, `interp/machine.py:Machine.gone`, `gone.cpp`, "
            "`interp/suspend.py:plan_stop`, `interp/machine.py:Machine.place_node`")
    assert missing_names(text) == ["stator/gone.py", "interp/machine.py:gone", "interp/machine.py:Machine.gone", "gone.cpp"]


def test_layout_puts_files_in_their_rooms() -> None:
    table = (DOCS / "layout.md").read_text().partition("## Inside the large rooms")[2].partition("\n## ")[0]
    room, missing = "", []
    for line in table.splitlines()[4:]:
        first, files = line.split("|")[1:3] if line.startswith("|") else ("", "")
        room = first.strip(" `") or room
        missing += [f"{room}{name}" for name, _ in NAMED_FILE.findall(files) if not (ROOT / "stator" / room / name).is_file()]
    assert room == "cache/" and missing == []


def test_layout_answers_where_mechanisms_are() -> None:
    """Each answer names at most two files."""
    table = (DOCS / "layout.md").read_text().partition("## Where is ...?")[2]
    rows = [line for line in table.splitlines() if line.startswith("|") and "?" in line]
    assert len(rows) >= 20
    for row in rows:
        assert 1 <= len({name for name, _ in NAMED_FILE.findall(row)}) <= 2, row


def test_index_lists_every_page_and_decision() -> None:
    listed = set(re.findall(r"\]\(([^)]+)\)", (DOCS / "index.md").read_text()))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert {page for page in pages - listed if not page.startswith("breaks/SB")} == {"index.md"}


@pytest.mark.parametrize("page", [path for path in WRITTEN if path.name != "trust.md" and path.parent.name != "decisions"],
                         ids=lambda path: path.relative_to(ROOT).as_posix())
def test_prose_keeps_to_the_rules(page: Path) -> None:
    assert DISCOURAGED.findall(page.read_text()) == []


def test_docstrings_open_with_a_subject_or_a_verb() -> None:
    opening = re.compile(r'^\s*r?"""What\b', re.M)
    folders = [ROOT / name for name in ("stator", "benchmarks", "tools", "tests")]
    assert [path.name for folder in folders for path in folder.rglob("*.py") if opening.search(path.read_text())] == []


def test_settings_have_their_defaults() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    given = {name: value.replace(",", "").strip('`"') for name, value in rows if name in SETTINGS}
    assert given == {name: str(default) for name, (default, _) in SETTINGS.items()}


@pytest.mark.parametrize("page", ["docs/breaks/SB011.md", "docs/trust.md"])
def test_the_limits_of_a_capture_are_those_of_the_code(page: str) -> None:
    text = (ROOT / page).read_text()
    limit = f"{SETTINGS['capture_iteration_limit'][0]:,}"
    assert {number for line in text.splitlines() if "capture_iteration_limit" in line
            for number in re.findall(r"([\d,]+) (?:loop )?iterations", line)} == {limit}
    assert all(int(number) == DEPTH_LIMIT for number in re.findall(r"(\d+) nested calls", text))
