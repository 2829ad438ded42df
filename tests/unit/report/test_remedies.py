"""Every program of the knowledge base breaks with its code; with the remedy nothing breaks, and the result is equal."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch

import stator
from stator import events, report
from stator.breaks import REGISTRY
from stator.cli import code as code_command
from stator.report.break_remedies import REMEDIES
from stator.report.recompile_remedies import RECOMPILES

CASES = [(code, remedy) for code, remedies in REMEDIES.items() for remedy in remedies]
X = torch.tensor([[0.5, 2.0, 1.0], [0.25, -1.0, 3.0], [1.0, 1.5, -2.0]])


class Program(NamedTuple):
    function: Callable
    run: Callable
    settings: dict


def program_of(source: str, name: str) -> Program:
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict = {"__name__": "knowledge"}
    exec(compile(source, name, "exec"), namespace)
    return Program(namespace["program"], namespace.get("run", lambda program, x: program(x)), namespace.get("SETTINGS", {}))


def outcome(program: Program, **settings: object) -> tuple[object, list[str], int]:
    """The value of the compiled calls, the codes of their breaks and errors, and the number of eager calls."""
    compiled = stator.compile(program.function, backend="eager", **{**program.settings, **settings})
    codes, value = [], None
    with events.record() as log, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = program.run(compiled, X)
        except stator.Unsupported as error:
            codes.append(error.code)
    codes += [event.code for event in log if isinstance(event, events.GraphBreak)]
    return value, codes, sum(isinstance(event, events.EagerFallback) for event in log)


def test_every_code_has_a_program() -> None:
    assert REMEDIES.keys() == REGISTRY.keys()


@pytest.mark.parametrize(("code", "remedy"), CASES, ids=[f"{code}: {each.cause}" for code, each in CASES])
def test_the_program_breaks_and_the_remedy_mends_it(code: str, remedy) -> None:
    broken, mended = program_of(remedy.broken, f"<{code} broken>"), program_of(remedy.mended, f"<{code} mended>")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = broken.run(broken.function, X)
    value, codes, _ = outcome(broken)
    assert code in codes
    if "fullgraph" not in broken.settings:
        torch.testing.assert_close(value, expected)
    value, codes, eager = outcome(mended, fullgraph=True)
    assert not codes and not eager
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(value, mended.run(mended.function, X))


def recompiles(program: Program) -> tuple[object, list[str]]:
    compiled = stator.compile(program.function, backend="eager", isolate_recompiles=True)
    with events.record() as log:
        value = program.run(compiled, X)
    return value, [report.render(event) for event in log if isinstance(event, events.Recompile)]


@pytest.mark.parametrize("remedy", RECOMPILES, ids=[each.cause.rpartition(": ")[2] for each in RECOMPILES])
def test_the_program_recompiles_and_the_remedy_mends_it(remedy) -> None:
    broken, mended = program_of(remedy.broken, "<recompiles>"), program_of(remedy.mended, "<compiled once>")
    expected = broken.run(broken.function, X)
    value, causes = recompiles(program_of(remedy.broken, "<recompiles>"))
    torch.testing.assert_close(value, expected)
    assert f": {remedy.cause.rpartition(': ')[0]}" in causes[0].partition("\n")[0]
    assert "  more: python -m stator code recompiles" in causes[0].splitlines()
    value, causes = recompiles(mended)
    assert not causes
    torch.testing.assert_close(value, expected)


def test_messages_link_to_the_page_that_a_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(stator.Unsupported) as caught:
        stator.compile(lambda x: (stator.graph_break(), x + 1)[1], backend="eager", fullgraph=True)(X)
    assert str(caught.value).splitlines()[-1] == "  more: python -m stator code SB009"
    code_command.main(["sb002"])
    page = capsys.readouterr().out
    assert page.startswith("# SB002: ") and "torch.where(" in page and "With the remedy nothing breaks" in page
    code_command.main(["recompiles"])
    assert capsys.readouterr().out.startswith("# Recompiles")
    code_command.main(["outside", "iterator"])
    assert "SB014  outside iterator" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        code_command.main(["no such words"])
    assert ended.value.code == 2
