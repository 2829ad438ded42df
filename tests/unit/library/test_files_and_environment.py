"""Files that a call writes and reads, and variables of the environment that it sets."""

from __future__ import annotations

import io
import os

import torch

import stator


def test_environment_is_set() -> None:
    def program(x, value):
        os.environ["STATOR_TEST_NAME"] = value
        return x + len(os.environ["STATOR_TEST_NAME"])
    try:
        compiled = stator.compile(program, backend="eager", fullgraph=True)
        for value in ("a", "bcd"):
            assert torch.equal(compiled(torch.ones(2), value), torch.ones(2) + len(value))
            with os.popen("echo $STATOR_TEST_NAME") as pipe:
                assert pipe.read().strip() == value  # a process sees it
    finally:
        del os.environ["STATOR_TEST_NAME"]


def written_and_read(x, path):
    with open(path, "w", encoding="utf-8") as file:
        count = file.write("one\r\ntwo\n")
        file.writelines(f"{n}\n" for n in range(x.shape[0]))
    assert file.closed
    file = open(path, encoding="utf-8")
    lines = list(file)
    file.seek(0)
    first, rest = file.readline(), file.read()
    file.close()
    try:
        file.read()
    except ValueError as error:
        return x + len(lines), count, lines, first, rest, str(error)


def refused_uses(x, path):
    found = []
    with open(path, "wb") as file:
        file.write(b"abc")
        for wrong in (file.read, lambda: open(path, "q")):  # noqa: SIM115
            try:
                wrong()
            except (OSError, ValueError) as error:
                found.append(type(error).__name__)
    with open(path, "rb") as file:
        data = file.read()
    os.unlink(path)
    return x + len(found), found, data, isinstance(file, io.BufferedReader)


def test_files_written_inside(tmp_path) -> None:
    for program, full in ((written_and_read, True), (refused_uses, False)):
        paths = [str(tmp_path / name) for name in ("eager", "compiled")]
        compiled = stator.compile(program, backend="eager", fullgraph=full)
        for x in (torch.ones(2), torch.zeros(3), torch.ones(3)):
            assert str(program(x, paths[0])) == str(compiled(x, paths[1]))
            assert os.path.exists(paths[0]) == os.path.exists(paths[1])
            if os.path.exists(paths[0]):
                with open(paths[0], "rb") as one, open(paths[1], "rb") as other:
                    assert one.read() == other.read()


def test_file_that_cannot_be_written(tmp_path) -> None:
    def program(x, path):
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write("text")
        except OSError as error:
            return x + 1, type(error).__name__
        return x
    compiled = stator.compile(program, backend="eager")
    path = tmp_path / "name"
    assert torch.equal(compiled(torch.ones(2), str(path)), torch.ones(2))
    path.unlink()
    path.mkdir()  # a folder from now on
    assert str(compiled(torch.ones(2), str(path))) == str(program(torch.ones(2), str(path)))
    missing = str(tmp_path / "missing" / "name")
    assert str(compiled(torch.ones(2), missing)) == str(program(torch.ones(2), missing))


def test_open_file_that_leaves_the_call(tmp_path) -> None:
    def program(x, path):
        file = open(path, "w", encoding="utf-8")  # noqa: SIM115
        file.write("text")
        return x + 1, file
    y, file = stator.compile(program, backend="eager")(torch.ones(2), str(tmp_path / "name"))
    assert type(file) is io.TextIOWrapper
    file.close()
    assert (tmp_path / "name").read_text() == "text"
