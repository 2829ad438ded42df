"""Every program of the knowledge base breaks with its code; with the remedy it is one graph with an equal result."""

from __future__ import annotations

import linecache
import warnings

import pytest
import torch

import stator
from tools.break_remedies import REMEDIES

CASES = [(code, remedy) for code, remedies in REMEDIES.items() for remedy in remedies]


def program_of(source: str, name: str):
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, object] = {"__name__": "knowledge"}
    exec(compile(source, name, "exec"), namespace)
    return namespace["program"]


@pytest.mark.parametrize(("code", "remedy"), CASES, ids=[f"{code}: {each.cause}" for code, each in CASES])
def test_the_program_breaks_and_the_remedy_mends_it(code: str, remedy) -> None:
    x = torch.tensor([[0.5, 2.0, 1.0], [0.25, -1.0, 3.0], [1.0, 1.5, -2.0]])
    broken, mended = program_of(remedy.broken, f"<{code} broken>"), program_of(remedy.mended, f"<{code} mended>")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before, after = stator.explain(broken)(x), stator.explain(mended, fullgraph=True)(x)
    assert code in {reason.code for reason in before.break_reasons}
    assert after.graph_break_count == 0 and after.graph_count == 1 and not after.eager
    torch.testing.assert_close(after.value, broken(x))
    torch.testing.assert_close(after.value, mended(x))
