"""The native build makes again what changed, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.native_build import included_files, make, out_of_date


def later(path: Path) -> None:
    """Give the file a modification time after everything made so far."""
    moment = path.stat().st_mtime_ns + 10_000_000_000
    os.utime(path, ns=(moment, moment))


def test_target_is_made_once(tmp_path: Path):
    source, target = tmp_path / "a.c", tmp_path / "deep" / "a.o"
    source.write_text("1")
    command = ["cp", str(source), str(target)]
    assert out_of_date(target, command, [source])
    make(target, command)
    assert not out_of_date(target, command, [source])


def test_changed_input_command_or_missing_header_makes_again(tmp_path: Path):
    source, header, target = tmp_path / "a.c", tmp_path / "a.h", tmp_path / "a.o"
    source.write_text("1")
    header.write_text("2")
    command = ["cp", str(source), str(target)]
    make(target, command)
    assert out_of_date(target, ["cp", "-f", str(source), str(target)], [source, header])
    later(header)
    assert out_of_date(target, command, [source, header])
    header.unlink()
    assert out_of_date(target, command, [source, header])


def test_failed_command_is_not_remembered(tmp_path: Path):
    target = tmp_path / "a.o"
    target.write_text("stale")
    with pytest.raises(SystemExit, match="could not be built"):
        make(target, ["false"])
    assert out_of_date(target, ["false"], [])


def test_dependency_file_is_read(tmp_path: Path):
    (tmp_path / "a.d").write_text("a.o: csrc/a.c \\\n  csrc/a.h\n")
    assert [path.name for path in included_files(tmp_path / "a.o")] == ["a.c", "a.h"]
