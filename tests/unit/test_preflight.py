"""What keeps Stator from being built is said in one sentence, with a non-zero exit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import preflight

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def assert_one_sentence(finished: subprocess.CompletedProcess[str], *words: str) -> None:
    lines = finished.stderr.strip().splitlines()
    assert finished.returncode == 1
    assert finished.stdout == ""
    assert len(lines) == 1 and lines[0].endswith("."), finished.stderr
    for word in words:
        assert word in lines[0]


def test_this_machine_can_build():
    assert preflight.problem() is None
    assert run("tools/preflight.py").returncode == 0


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 14, 0), (2, 7, 18), (4, 0, 0)])
def test_unsupported_python(version: tuple[int, int, int]):
    said = preflight.interpreter_problem(version, False, "linux")
    assert said is not None and f"Python {version[0]}.{version[1]} " in said and "3.11 to 3.13" in said


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 12, 1), (3, 13, 0)])
def test_supported_python(version: tuple[int, int, int]):
    assert preflight.interpreter_problem(version, False, "linux") is None


def test_free_threaded_python():
    assert "free-threaded" in (preflight.interpreter_problem((3, 13, 0), True, "linux") or "")


def test_other_platform():
    assert "Linux only" in (preflight.interpreter_problem((3, 11, 0), False, "darwin") or "")


@pytest.mark.parametrize("version", ["2.10.1", "2.14.0", "1.13.1+cpu", "of unknown version"])
def test_unsupported_torch(version: str):
    said = preflight.torch_problem(version)
    assert said is not None and version in said and "2.11 to 2.13" in said


@pytest.mark.parametrize("version", ["2.11.0", "2.12.1+cu130", "2.13.0+cpu"])
def test_supported_torch(version: str):
    assert preflight.torch_problem(version) is None


@pytest.mark.parametrize(("version", "accepted"), [(None, False), ("65.5.0", False), ("77.0.1", True), ("84", True)])
def test_setuptools(version: str | None, accepted: bool):
    assert (preflight.setuptools_problem(version) is None) == accepted


def test_missing_headers(tmp_path: Path):
    assert "Python.h" in (preflight.header_problem(str(tmp_path)) or "")
    (tmp_path / "Python.h").write_text("")
    assert "pycore_frame.h" in (preflight.header_problem(str(tmp_path)) or "")


@pytest.mark.parametrize("script", ["setup.py", "tools/preflight.py", "tools/build_backend.py"])
def test_missing_torch_stops_the_build(script: str):
    # -S: no site-packages, hence no torch and no setuptools either.
    assert_one_sentence(run("-S", script), "torch", "none", "--no-build-isolation")


@pytest.mark.parametrize(("variable", "language"), [("CC", "C compiler"), ("CXX", "C++ compiler")])
def test_missing_compiler_stops_the_build(variable: str, language: str):
    assert_one_sentence(run("setup.py", "--version", **{variable: "no-such-compiler -O2"}), language, "no-such-compiler")
