"""One case of the curriculum, rewritten, beside the case as it is written.

In: a topic file, a case and the name of a rewrite.  Out: the differences between the case run eagerly and its rewritten self
compiled, or what kept it from being captured whole; None where the rewrite finds nothing, or changes what eager does
(a program that looks at its own frames or code).
"""

from __future__ import annotations

import ast
import functools
import types
from pathlib import Path

from curriculum import Case, cases_of, load_topic, world_in, world_of_case
from tests.comparison import EXACT, Report, Snapshot, World, differences, identity, outcomes, stator_compiler
from tests.comparison.eager_and_compiled import compiled_outcomes
from tests.rewrites.rewriting import HELPERS, REWRITES

LANG = Path(__file__).parent.parent / "lang"


def topics() -> list[Path]:
    return sorted(path for path in LANG.glob("test_*.py") if "00_harness" not in path.name)


def cases(path: Path) -> list[Case]:
    return list(cases_of(load_topic(path)).values())


@functools.lru_cache(maxsize=1)
def parsed(path: Path) -> str:
    return path.read_text()


def rewritten_code(path: Path, case: str, rewrite: str) -> types.CodeType | None:
    tree = ast.parse(parsed(path))
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == case)
    if not REWRITES[rewrite](function):
        return None
    front = 1 if isinstance(tree.body[0], ast.Expr) else 0
    while isinstance(tree.body[front], ast.ImportFrom) and tree.body[front].module == "__future__":  # type: ignore[attr-defined]
        front += 1
    tree.body[front:front] = ast.parse(HELPERS).body
    return compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)


def rewritten_world(path: Path, case: str, code: types.CodeType) -> World:
    return world_in(load_topic(path, code), case, left_out=("_contextlib", "_each"))


def found_in(left: list[Snapshot], right: list[Snapshot]) -> list[str]:
    return [text for number, (one, other) in enumerate(zip(left, right, strict=True))
            for text in differences(one, other, f"call {number}")]


@functools.lru_cache(maxsize=64)
def plainly(path: Path, case: str) -> list[Snapshot]:
    return list(outcomes(world_of_case(path, case), identity))


def judge(path: Path, case: Case, rewrite: str) -> list[str] | None:
    code = rewritten_code(path, case.name, rewrite)
    if code is None:
        return None
    plain = plainly(path, case.name)
    if found_in(plain, list(outcomes(rewritten_world(path, case.name, code), identity))):
        return None
    whole, report = case.breaks is None, Report()
    compiler = stator_compiler(fullgraph=whole)
    compiled = compiled_outcomes(rewritten_world(path, case.name, code), compiler, whole, EXACT, report)
    if report.unsupported is not None:
        return [f"not captured whole: {report.unsupported[:400]}"]
    return found_in(plain, compiled) + [f"internal failure: {error!r}" for error in report.failures]
