"""The project as a stranger meets it: its commands exist, its files are fit to be published."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LONGEST_FILE = 600

# Paths that exist on one machine only, and hosts that only a package manager's settings should name.
MACHINE_PATH = re.compile(r"(?<![\w.~$}/-])/(root|home|work|opt|Users|mnt)/\w")
REGISTRY_HOST = re.compile(r"pypi\.org|pythonhosted\.org|download\.pytorch\.org|npmjs\.org|anaconda\.org|\bindex-url\b")


def published_files() -> list[Path]:
    """Files that git tracks or would add; a tree without git is walked."""
    if (ROOT / ".git").exists():
        listing = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        paths = [ROOT / name for name in listing.split("\0") if name]
    else:
        skipped = {".venv", "build", "out", "__pycache__"}
        paths = [path for path in ROOT.rglob("*") if not skipped & set(path.relative_to(ROOT).parts)]
    return [path for path in paths if path.is_file() and path.suffix not in {".so", ".pyc", ".png"}]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def found_in(pattern: re.Pattern[str], text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if pattern.search(line)]


def test_makefile_has_the_promised_targets():
    assert {"demo", "test", "check", "bench", "test-models", "clean", "setup"} <= make_targets()


@pytest.mark.parametrize("document", ["README.md", "docs/index.md", "docs/tour.md", "docs/layout.md"])
def test_commands_in_documents_exist(document: str):
    commands = set(re.findall(r"\bmake ([a-z][a-z-]*)\b", (ROOT / document).read_text()))
    in_code = {name for name in commands if re.search(rf"(`|^ +|^)make {name}\b", (ROOT / document).read_text(), re.M)}
    assert in_code <= make_targets()
    if document == "README.md":
        assert {"demo", "test"} <= in_code


@pytest.mark.parametrize("document", sorted(path.relative_to(ROOT).as_posix() for path in published_files() if path.suffix == ".md"))
def test_links_between_documents_lead_somewhere(document: str):
    path = ROOT / document
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text())
    missing = [target for target in targets if "://" not in target and not (path.parent / target).exists()]
    assert missing == []


def test_ci_runs_make_test():
    script = ROOT / ".ci" / "run"
    lines = script.read_text().splitlines()
    assert lines[0].endswith("bash") and "make test" in lines
    assert any(line.startswith("set -e") for line in lines)
    assert script.stat().st_mode & 0o111


def test_changelog_knows_the_version():
    assert re.search(rf"^## {re.escape(PROJECT['version'])}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_make_keeps_the_installed_torch():
    """The core is built for one torch: a library may not install another."""
    recipes = (ROOT / "Makefile").read_text()
    installs = re.findall(r"\$\(PIP\) install (.*)", recipes)
    others = [line for line in installs if "transformers" in line or "-r " in line]
    assert len(others) == 3 and all("-c $(KEEP)" in line for line in others)
    printed = subprocess.run([sys.executable, str(ROOT / "tools" / "requirements.py"), "--keep-torch"],
                             capture_output=True, text=True, check=True).stdout
    assert printed == f"torch=={version('torch')}\n"


def test_every_dependency_has_a_reason():
    reasons = (ROOT / "docs" / "decisions" / "0002-dependencies.md").read_text()
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    names = [re.match(r"[\w-]+", line).group() for requirements in lists for line in requirements]
    assert len(names) > 8
    assert [name for name in names if f"`{name}`" not in reasons] == []


def test_no_machine_paths_or_registry_hosts():
    found = []
    for path in published_files():
        text = path.read_text(encoding="utf-8")
        for pattern in (MACHINE_PATH, REGISTRY_HOST):
            found += [f"{path.relative_to(ROOT)}: {line}" for line in found_in(pattern, text)]
    assert found == []


@pytest.mark.parametrize("folder", ["root", "home", "work", "opt", "Users"])
@pytest.mark.parametrize("line", ["cd /{}/x", "x = '/{}/x'", "links=/{}/x", "(/{}/x)"])
def test_machine_path_is_found(line: str, folder: str):
    assert found_in(MACHINE_PATH, line.format(folder))


@pytest.mark.parametrize("line", ["#!/usr/bin/env bash", "a/work/b", "/path/to/python", "$HOME/home/x", "https://x.org/home/y"])
def test_other_paths_are_accepted(line: str):
    assert not found_in(MACHINE_PATH, line)


def test_files_are_short_enough_to_read():
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines())
        for path in published_files()
        if path.is_relative_to(ROOT / "stator") and path.suffix == ".py"
    }
    assert lengths
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_every_module_says_what_it_is_for():
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in published_files()
        if path.suffix == ".py"
        and path.is_relative_to(ROOT / "stator")
        and path.read_text().strip()
        and not path.read_text().lstrip().startswith(('"""', 'r"""'))
    ]
    assert silent == []
