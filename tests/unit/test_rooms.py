"""tests/unit mirrors stator/: each folder is a room, and each test file names a module or a mechanism of its room."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT, PACKAGE = ROOT / "tests" / "unit", ROOT / "stator"

# Folders whose room is not a folder or a module of stator/ with their name.
OTHER_ROOMS = {
    "entry": "csrc/entry",  # the entry object of stator._core: binding and dispatch of calls
    "hook": "csrc/hook",  # stator._hook
}
# Files of tests/unit/ itself that test neither a module of stator/, tools/ or stator/cli/ nor a document.
OF_THE_PROJECT = {"test_project", "test_rooms", "test_smoke", "test_instructions", "test_documents", "test_benchmarks", "test_layers"}
# Files that name neither a module nor a definition of their room: the reason they stand there.
OTHER_NAMES = {
    "code/test_code_roundtrip": "decode, then encode, the standard library",
    "entry/test_error_paths": "references after calls into the core that fail",
    "entry/test_facts_that_change": "certificates of entries whose facts change",
    "entry/test_leaks": "memory and references of many calls through the entry",
    "guards/test_provenance": "hashes of sources",
    "interp/test_cpython_findings": "findings of CPython's own tests, of many mechanisms",
    "interp/test_loggers": "rules of the logging module",
    "shapes/test_at_the_limit": "unbacked numbers at the recompile limit",
    "shapes/test_decoder": "a model whose positions are unbacked symbols",
    "shapes/test_divisions": "arithmetic of unbacked symbols",
    "shapes/test_slice_bounds": "unbacked symbols as bounds of slices",
}
TOO_COMMON = {"test", "code", "what", "that", "with", "from", "are", "the", "and", "tensor", "value", "other", "name"}


def sources_of(room: str) -> list[Path]:
    if room == "api":  # all that a user calls: the modules of stator/ itself, and the rooms behind compile()
        surface = [PACKAGE / name for name in ("capture", "settings", "host")]
        return sorted([*PACKAGE.glob("*.py"), *(path for place in surface for path in place.rglob("*.py"))])
    if room in OTHER_ROOMS:
        return sorted((ROOT / OTHER_ROOMS[room]).glob("*.[ch]*"))
    return sorted((PACKAGE / room).rglob("*.py"))


def stems(name: str) -> set[str]:
    """The words of a name, without endings: test_rebuilt_objects -> rebuil, object."""
    words = re.findall(r"[A-Z]?[a-z0-9]+", name)
    return {re.sub(r"(s|ed|ing|ion|er|t|e|y|ies)$", "", word.lower())[:7] for word in words if len(word) > 2 and word not in TOO_COMMON}


@functools.cache
def mechanisms(room: str) -> frozenset[str]:
    """Words of the modules, their docstrings and the definitions of a room."""
    found: set[str] = set()
    for path in sources_of(room):
        found |= stems(path.stem)
        text = path.read_text()
        if path.suffix == ".py":
            tree = ast.parse(text)
            names = [node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
            names.append(ast.get_docstring(tree) or "")
        else:
            names = re.findall(r"\b(\w+)\(", text)
        for name in names:
            found |= stems(name)
    return frozenset(found)


def imports_from(path: Path, room: str) -> bool:
    modules = {node.module or "" for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)}
    return any(f"{module}.".startswith(f"stator.{room}.") for module in modules)


def unnamed(room: str, path: Path) -> bool:
    return not imports_from(path, room) and not stems(path.stem) & mechanisms(room)


ROOMS = sorted(path.name for path in UNIT.iterdir() if path.is_dir() and path.name != "__pycache__")


@pytest.mark.parametrize("room", ROOMS)
def test_a_folder_is_a_room(room: str) -> None:
    assert sources_of(room), f"tests/unit/{room}: stator/{room} does not exist"
    files = sorted((UNIT / room).glob("test_*.py"))
    assert files
    wrong = [path.stem for path in files if unnamed(room, path) and f"{room}/{path.stem}" not in OTHER_NAMES]
    assert not wrong, f"tests/unit/{room}: name no module or mechanism of stator/{room}"


def test_files_of_the_project_have_a_subject() -> None:
    folders = (PACKAGE, PACKAGE / "cli", ROOT / "tools", ROOT / "docs")
    subjects = {f"test_{path.stem}" for folder in folders for path in folder.iterdir()} | OF_THE_PROJECT
    subjects |= {f"test_{path.stem}" for path in PACKAGE.rglob("*.py")}
    assert {path.stem for path in UNIT.glob("test_*.py")} - subjects == set()


def test_exceptions_are_needed() -> None:
    assert all((UNIT / f"{name}.py").exists() and unnamed(name.split("/")[0], UNIT / f"{name}.py") for name in OTHER_NAMES)
    assert all((UNIT / room).is_dir() and not (PACKAGE / room).exists() for room in OTHER_ROOMS)
    assert {path.stem for path in UNIT.glob("test_*.py")} >= OF_THE_PROJECT


def test_a_stray_file_is_found(tmp_path: Path) -> None:
    stray = tmp_path / "test_zebra_crossings.py"
    stray.write_text("from stator.heap.heap import Heap\n")
    assert unnamed("shapes", stray)
    assert not unnamed("heap", stray)
    assert not sources_of("no_such_room")
