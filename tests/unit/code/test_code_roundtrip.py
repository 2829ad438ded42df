"""A slice of the standard library round-trips under every interpreter at hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("roundtrip.py")


def interpreter(version: str) -> str | None:
    """A CPython of that version: this one, one on PATH, or one of pyenv's."""
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [*sorted(pyenv.glob(f"versions/{version}.*/bin/python")), shutil.which(f"python{version}")]
    for candidate in candidates:
        # A pyenv shim is on PATH for versions that are installed but not selected: ask it to run something.
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return str(candidate)
    return None


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_stdlib_slice(version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no CPython {version} on PATH or under the pyenv root")
    done = subprocess.run([python, str(SCRIPT), "--quick"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert f"python {version}" in done.stdout and "different" not in done.stdout
