"""A slice of the rewritten curriculum: every third case, each under one rewrite; `python -m tests.rewrites` runs all."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.rewrites.comparing import cases, judge, topics
from tests.rewrites.rewriting import REWRITES

EVERY = 3


@pytest.mark.parametrize("path", topics(), ids=lambda path: path.stem)
def test_rewritten_cases_equal_eager(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    names = list(REWRITES)
    start = topics().index(path)
    wrong = {}
    for number, case in enumerate(cases(path)[::EVERY]):
        for turn in range(len(names)):  # the next rewrite that finds something
            rewrite = names[(start + number + turn) % len(names)]
            found = judge(path, case, rewrite)
            if found is not None:
                break
        if found:
            wrong[f"{case.name} [{rewrite}]"] = found[0]
    assert not wrong


@pytest.mark.parametrize("rewrite", REWRITES)
def test_a_rewrite_keeps_the_meaning(rewrite: str) -> None:
    source = '''
def program(x, y=2):
    """A docstring."""
    z = [i * y for i in x if i > 1]
    total = 0
    for i in x:
        if i > 2:
            total += i
        else:
            x[0] = total
    y = total
    return z, total, x, y
'''
    tree = ast.parse(source)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    assert REWRITES[rewrite](function)
    assert ast.unparse(tree) != ast.unparse(ast.parse(source))
    plain: dict[str, object] = {}
    rewritten: dict[str, object] = {"_contextlib": __import__("contextlib"), "_each": iter}
    exec(source, plain)
    exec(compile(ast.fix_missing_locations(tree), "<rewritten>", "exec"), rewritten)
    for given in ([1, 2, 3, 4], [], [5]):
        assert plain["program"](list(given)) == rewritten["program"](list(given))  # type: ignore[operator]
