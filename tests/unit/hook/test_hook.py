"""The PEP 523 hook: every check on this interpreter, and standalone.py on the others that are found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hook_build import compile_command, compile_hook, load_hook
from standalone import all_checks, leak_lines, run_check, unseen_faults

FOLDER = Path(__file__).resolve().parent
FRAMES = 100_000


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("hook")
    return {
        "hook": compile_hook(folder / "hook"),
        "other": compile_hook(folder / "other"),
        "leaky": compile_hook(folder / "leaky", "STATOR_HOOK_TEST_LEAK"),
    }


@pytest.fixture(scope="module")
def hooks(libraries: dict[str, Path]) -> tuple[ModuleType, ModuleType]:
    return load_hook(libraries["hook"]), load_hook(libraries["other"])


@pytest.mark.parametrize("name", sorted(all_checks()))
def test_promise(name: str, hooks: tuple[ModuleType, ModuleType]) -> None:
    run_check(name, all_checks()[name], *hooks)


def test_nothing_leaks(libraries: dict[str, Path]) -> None:
    count, *found = leak_lines(libraries["hook"], FRAMES)
    assert int(count) >= FRAMES
    assert [line for line in found if line] == []


def test_a_planted_leak_is_seen_by_every_witness(libraries: dict[str, Path]) -> None:
    _, *found = leak_lines(libraries["leaky"], FRAMES)
    assert unseen_faults(found) == []


def interpreter(version: str) -> str | None:
    """python3.x on PATH or under pyenv, if it starts and is that version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python{version}")]
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, candidates):
        answer = subprocess.run([str(candidate), "-c", ask], capture_output=True, text=True)
        if answer.stdout.strip() == version:
            return str(candidate)
    return None


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_every_supported_interpreter(version: str) -> None:
    if version == "%d.%d" % sys.version_info[:2]:
        pytest.skip("the tests above are this interpreter's")
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no CPython {version} here")
    command = [python, str(FOLDER / "standalone.py"), "--frames", str(FRAMES)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("macro", "sentence"),
    [
        ("PY_VERSION_HEX 0x030a0000", "supports CPython 3.11 to 3.14 only"),
        ("PY_VERSION_HEX 0x030f0000", "supports CPython 3.11 to 3.14 only"),
        ("Py_GIL_DISABLED 1", "does not support free-threaded builds"),
    ],
)
def test_unsupported_pythons_get_one_sentence(macro: str, sentence: str, tmp_path: Path) -> None:
    version = "" if "VERSION" in macro else "#define PY_VERSION_HEX 0x030d0000\n"
    (tmp_path / "Python.h").write_text(f"{version}#define {macro}\n")
    command = compile_command(tmp_path / "out.so")
    command[1:1] = ["-fsyntax-only", "-Wfatal-errors", f"-I{tmp_path}"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode != 0
    assert sentence in result.stderr
