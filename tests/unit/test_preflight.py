"""Reasons that keep Stator from being built are stated in one sentence, with a non-zero exit."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
import setuptools
import torch

from stator.host import installed_torch
from tools import preflight

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, executable: str = sys.executable, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [executable, *arguments],
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


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 15, 0), (2, 7, 18), (4, 0, 0)])
def test_unsupported_python(version: tuple[int, int, int]):
    said = preflight.interpreter_problem(version, False, "linux")
    assert said is not None and f"Python {version[0]}.{version[1]} " in said and "3.11 to 3.14" in said


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 12, 1), (3, 13, 0), (3, 14, 4)])
def test_supported_python(version: tuple[int, int, int]):
    assert preflight.interpreter_problem(version, False, "linux") is None


def test_free_threaded_python():
    assert "free-threaded" in (preflight.interpreter_problem((3, 13, 0), True, "linux") or "")


def test_other_platform():
    assert "Linux only" in (preflight.interpreter_problem((3, 11, 0), False, "darwin") or "")


@pytest.mark.parametrize("version", ["2.10.1", "1.13.1+cpu", "of unknown version"])
def test_unsupported_torch(version: str):
    said = preflight.torch_problem(version)
    assert said is not None and version in said and "2.11 or later" in said


@pytest.mark.parametrize("version", ["2.11.0", "2.12.1+cu130", "2.13.0+cpu", "2.15.0"])
def test_supported_torch(version: str):
    assert preflight.torch_problem(version) is None and preflight.torch_warning(version) is None


@pytest.mark.parametrize("version", ["2.16.0", "2.16.0.dev20261101+cpu", "3.0.0"])
def test_a_newer_torch_is_tried_with_a_warning(version: str):
    assert preflight.torch_problem(version) is None
    said = preflight.torch_warning(version)
    assert said is not None and version in said and "2.15" in said


def test_versions_are_the_same_everywhere():
    assert installed_torch.NEWEST_TESTED_TORCH == preflight.NEWEST_TESTED_TORCH
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert preflight.TORCH_REQUIREMENT in project["dependencies"]
    pythons = range(preflight.OLDEST_PYTHON[1], preflight.FIRST_PYTHON_TOO_NEW[1])
    claimed = [line for line in project["classifiers"] if line.startswith("Programming Language :: Python :: 3.")]
    assert claimed == [f"Programming Language :: Python :: 3.{minor}" for minor in pythons]
    assert project["requires-python"] == f">=3.{pythons[0]},<3.{pythons[-1] + 1}"


@pytest.mark.parametrize(("built_for", "installed", "flags", "words"), [
    ("2.13.0+cpu", "2.13.0+cu130", "", None),
    ("2.13.0+cpu", "2.15.0", "", "built for torch 2.13.0+cpu, and torch 2.15.0 is installed"),
    ("2.12.0", "2.12.1", "", "torch 2.12.1 is installed"),
    (None, "2.15.0", "", None),
    ("2.13.0", None, "", None),
    ("2.13.0", "2.13.0", "t", "free-threaded"),
])
def test_the_core_refuses_another_torch(built_for: str | None, installed: str | None, flags: str, words: str | None):
    said = installed_torch.problem(built_for, installed, flags)
    assert said is None if words is None else said is not None and words in said and said.count(". ") == 0


def test_the_installed_torch_is_known_without_import():
    ask = "import sys; from stator.host import installed_torch; print(installed_torch.installed_torch(), 'torch' in sys.modules)"
    assert run("-c", ask).stdout.split() == [str(torch.__version__), "False"]


def test_import_refuses_another_torch(tmp_path: Path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.99.0'\n")
    finished = run("-c", "import stator", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    last = finished.stderr.strip().splitlines()[-1]
    assert finished.returncode == 1 and last.startswith("ImportError: This Stator was built for torch") and "2.99.0" in last


@pytest.mark.parametrize("path", ["sys.path", "[each for each in sys.path if 'site-packages' not in each]"])
def test_an_isolated_build_takes_the_torch_of_its_environment(path: str):
    ask = f"import sys; sys.path[:] = ['tools', *{path}]; import preflight; print(*preflight.installed_torch())"
    assert run("-c", ask, PYTHONPATH="").stdout.split() == [os.path.dirname(torch.__file__), torch.__version__]


def test_an_isolated_build_asks_for_torch_where_there_is_none(bare_python: str, tmp_path: Path):
    for name in ("setuptools", "_distutils_hack"):
        (tmp_path / name).symlink_to(Path(setuptools.__file__).parents[1] / name)
    ask = "import build_backend as b; print(b.get_requires_for_build_wheel(), b.get_requires_for_build_sdist())"
    path = f"{tmp_path}{os.pathsep}{ROOT / 'tools'}"
    for executable, wanted in ((sys.executable, "[] []"), (bare_python, f"[{preflight.TORCH_REQUIREMENT!r}] []")):
        asked = run("-c", ask, executable=executable, PYTHONPATH=path)
        assert asked.stdout.strip() == wanted, asked.stderr


@pytest.mark.parametrize(("version", "accepted"), [(None, False), ("65.5.0", False), ("77.0.1", True), ("84", True)])
def test_setuptools(version: str | None, accepted: bool):
    assert (preflight.setuptools_problem(version) is None) == accepted


def test_missing_headers(tmp_path: Path):
    assert "Python.h" in (preflight.header_problem(str(tmp_path)) or "")
    (tmp_path / "Python.h").write_text("")
    assert "pycore_frame.h" in (preflight.header_problem(str(tmp_path)) or "")


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment without torch and setuptools."""
    folder = tmp_path_factory.mktemp("bare") / "environment"
    venv.create(folder, with_pip=False)
    return str(folder / "bin" / "python")


@pytest.mark.parametrize("script", ["setup.py", "tools/preflight.py"])
def test_missing_torch_stops_the_build(bare_python: str, script: str):
    finished = run(script, executable=bare_python, PYTHONPATH="")
    assert_one_sentence(finished, "torch", "none", "--no-build-isolation")


@pytest.mark.parametrize(("variable", "language"), [("CC", "C compiler"), ("CXX", "C++ compiler")])
def test_missing_compiler_stops_the_build(variable: str, language: str):
    assert_one_sentence(run("setup.py", "--version", **{variable: "no-such-compiler -O2"}), language, "no-such-compiler")
