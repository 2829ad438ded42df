"""Change a package between two processes.   python -m tests.artifacts.package_mutations [1000] [seed] [light] [backend]

In: a package of six modules, saved by one process, and one change of a source, of the state behind the import, of
settings, of versions or of bytes of the files.  Out: one line for each change whose loaded result differs from eager (a
stale result), or that does not concern the traced code and misses; and counts of hits and misses by kind.

Each change has a process of its own, forked from one that has imported torch and Stator and never the package.  Half of
these have no tracer: a hit runs without it.  A miss runs eagerly, since its capture is no subject here.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import io
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # noqa: F401  (the package needs it: loaded before the forks)

import stator
from stator import _core, events
from stator.capture import first_call
from tests.artifacts.mutations import Rewriter, changed_default_dtype, flipped, other_fact
from tests.artifacts.package_source import NAME, ROOTS, STATE, package
from tests.comparison import CLOSE, EXACT, Snapshotter, differences, tensors_in

Sources = dict[str, str]
FACTS = ("python", "torch", "stator", "numpy", "processor", "machine", "torch build", "GPU", "format", "platform")
INPUT = torch.arange(12.0).reshape(3, 4) / 5 - 1
UNRELATED: list[tuple[str, Callable[[Sources], Sources]]] = [
    ("lines above", lambda old: {**old, "tools.py": "# one\n# two\n" + old["tools.py"]}),
    ("an unused function", lambda old: {**old, "tools.py": old["tools.py"].replace("return x - ", "return x + ")}),
    ("an unused method", lambda old: {**old, "layers.py": old["layers.py"] + "\n\n    def unused_too(self): pass\n"}),
    ("an unused class", lambda old: {**old, "layers.py": old["layers.py"] + "\n\nclass Unused:\n    factor = 3\n"}),
    ("a new constant", lambda old: {**old, "settings.py": "MORE = 5\n" + old["settings.py"]}),
    ("an unused constant", lambda old: {**old, "settings.py": old["settings.py"].replace("UNUSED = ", "UNUSED = 1")}),
    ("a new module", lambda old: {**old, "added.py": "x = 1\n"}),
    ("an import", lambda old: {**old, "wrappers.py": "import json\n" + old["wrappers.py"]}),
    ("a comment behind the code", lambda old: {**old, "main.py": old["main.py"] + "\n# nothing\n"}),
]


@dataclass(frozen=True)
class Change:
    """`around` is in force while entries are loaded and used; `statement` runs behind the import, `files` before it."""

    kind: str
    name: str
    sources: Sources | None = None
    statement: str = ""
    around: Callable[[], Any] = contextlib.nullcontext
    settings: tuple[tuple[str, Any], ...] = ()
    files: Callable[[dict[str, bytes]], dict[str, bytes]] = lambda files: files
    must_hit: bool = False


def source_change(old: Sources, rng: random.Random) -> Change:
    """A change of one place of one module."""
    name = rng.choice([each for each in old if old[each]])
    count = Rewriter(-1, rng)
    count.visit(ast.parse(old[name]))
    rewriter = Rewriter(rng.randrange(count.count), rng)
    tree = ast.fix_missing_locations(rewriter.visit(ast.parse(old[name])))
    return Change("source", f"{name}: {rewriter.what}", {**old, name: ast.unparse(tree) + "\n"})


def file_change(rng: random.Random) -> Change:
    flip, share = flipped(rng), rng.random()
    ways: list[tuple[str, Callable[[dict[str, bytes]], dict[str, bytes]]]] = [
        ("a byte", lambda files: {name: flip(data) for name, data in files.items()}),
        ("cut", lambda files: {name: data[:int(share * len(data))] for name, data in files.items()}),
        ("longer", lambda files: {name: data + b"\0" * 8 for name, data in files.items()}),
        ("of another root", lambda files: dict(zip(files, [*files.values()][1:] + [*files.values()][:1], strict=True)))]
    name, files = rng.choice(ways)
    return Change("file", name, files=files)


def setting_change(rng: random.Random) -> Change:
    changes = [
        Change("setting", "dynamic", settings=(("dynamic", rng.choice([True, False])),)),
        Change("setting", "fullgraph", settings=(("fullgraph", True),)),
        Change("setting", "backend", settings=(("backend", "eager_noexcept"),)),
        Change("setting", "config", around=lambda: stator.config.patch(capture_backward=False)),
        Change("setting", "no grad", around=torch.no_grad), Change("setting", "inference", around=torch.inference_mode),
        Change("setting", "default dtype", around=changed_default_dtype),
        Change("setting", "autocast", around=lambda: torch.autocast("cpu"))]
    return rng.choice(changes)


def changes(old: Sources, count: int, rng: random.Random) -> Iterator[Change]:
    for number in range(count):
        turn = number % 10
        if turn < 4:
            yield source_change(old, rng)
        elif turn < 6:
            statement = rng.choice(STATE).format(rng.randint(1, 90))
            yield Change("state", statement, statement=statement)
        elif turn == 6:
            name, edit = rng.choice(UNRELATED)
            yield Change("unrelated", name, edit(old), must_hit=True)
        elif turn == 7:
            yield setting_change(rng)
        elif turn == 8:
            fact = rng.choice(FACTS)
            yield Change("version", fact, around=lambda fact=fact: other_fact(fact, "another"))  # type: ignore[misc]
        else:
            yield file_change(rng)


# ---------------------------------------------------------------------- the two processes


def in_fork(work: Callable[[], Any]) -> Any:
    """The result of a function, called in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                said = work()
        except BaseException as error:
            said = {"error": f"{type(error).__name__}: {error}"[:300]}
        with os.fdopen(write, "w") as file:
            json.dump(said, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text)


def imported(folder: Path, sources: Sources) -> dict[str, Any]:
    """The modules of the package, written to a folder and imported from it."""
    place = folder / NAME
    place.mkdir(parents=True)
    for name, text in sources.items():
        (place / name).write_text(text)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    importlib.import_module(f"{NAME}.main")
    return {name.removesuffix(".py"): sys.modules[f"{NAME}.{name.removesuffix('.py')}"] for name in sources
            if f"{NAME}.{name.removesuffix('.py')}" in sys.modules}


def outcome(fn: Callable[..., Any], x: torch.Tensor) -> Any:
    try:
        return fn(x)
    except Exception as error:
        return type(error).__name__


def save(folder: Path, sources: Sources, x: torch.Tensor, backend: str) -> dict[str, Any]:
    modules = imported(folder, sources)
    left_out = {}
    for root in ROOTS:
        compiled = stator.compile(getattr(modules["main"], root), backend=backend)
        for each in tensors_in(compiled(x)):
            if each.requires_grad:
                each.sum().backward(retain_graph=True)
        if not stator.save(compiled, str(folder / root)):
            left_out[root] = stator.why_not_cached(compiled)
    return left_out


def use(folder: Path, change: Change, sources: Sources, given: Saved, ruin: bool) -> list[Any]:
    """Rows of root, hit, difference."""
    try:
        modules = imported(folder, sources)
        exec(change.statement, {**modules, "torch": torch})  # noqa: S102  a line of STATE
    except Exception:
        return []  # no program any more
    rows, x, files = [], INPUT, given.files
    has_tracer = first_call.TRACER in first_call.loaded
    for root, data in change.files(files).items():
        if root == ROOTS[-1] and not has_tracer:
            continue
        path = folder / f"{root}.entries"
        path.write_bytes(data)
        fn = getattr(modules["main"], root)
        if not callable(fn):
            continue
        with change.around(), events.record() as log:
            expected = outcome(fn, x.clone())
            loaded = stator.load(str(path), fn, **{"backend": given.backend, **dict(change.settings)})
            found = outcome(loaded, x.clone())
        hit = any(isinstance(event, events.EntryLoaded) for event in log)
        if ruin and hit:
            found = "ruined"
        one, other = (Snapshotter(NAME).take(each, "result") for each in (expected, found))
        tolerance = EXACT.tolerance if given.backend == "eager" else CLOSE.tolerance
        rows.append([root, hit, list(differences(one, other, "result", tolerance))[:2]])
    return rows


def eager_at_a_miss(with_tracer: bool) -> None:
    """From now on nothing is captured; entries of files are used as ever."""
    if with_tracer:
        first_call.tracer().may_compile = lambda *_: False  # type: ignore[attr-defined]
    else:
        first_call._first_miss = lambda compiled, bound, *_: _core.RETRY if first_call._taken_early(  # type: ignore
            compiled._stator_site, bound) else _core.EAGER


@dataclass
class Saved:
    """A package, and the files that a process of its own has saved."""

    folder: Path
    rng: random.Random
    old: Sources
    files: dict[str, bytes]
    backend: str


def saved(folder: Path, seed: int, backend: str = "eager") -> Saved:
    folder.mkdir()
    rng = random.Random(seed)
    old = package(rng)
    left_out = in_fork(lambda: save(folder, old, INPUT, backend))
    assert left_out == {}, left_out
    return Saved(folder, rng, old, {root: (folder / root).read_bytes() for root in ROOTS}, backend)


def run(given: Saved, count: int, with_tracer: bool, ruin: bool = False) -> tuple[Counter[str], list[str]]:
    """Counts by kind, and problems."""
    counts, problems = Counter[str](), list[str]()

    def tried(place: Path, change: Change) -> list[Any]:
        eager_at_a_miss(with_tracer)
        return use(place, change, change.sources or given.old, given, ruin)

    for number, change in enumerate(changes(given.old, count, given.rng)):
        place = given.folder / f"{with_tracer}{number}"
        rows = in_fork(lambda place=place, change=change: tried(place, change))  # type: ignore[misc]
        shutil.rmtree(place, ignore_errors=True)
        if isinstance(rows, dict):
            problems.append(f"failed: {change.kind} {change.name}: {rows['error']}")
            continue
        for root, hit, differing in rows:
            counts[f"{change.kind} {'hit' if hit else 'miss'}"] += 1
            if differing:
                problems.append(f"stale: {change.kind} {change.name}, {root}: {differing}")
            if change.must_hit and not hit:
                problems.append(f"missed: {change.kind} {change.name}, {root}")
    return counts, problems


def main(count: int = 1000, seed: int = 0, sides: str = "both", backend: str = "eager") -> int:
    """`sides`: "light" leaves out processes with a tracer."""
    counts, problems = Counter[str](), list[str]()
    parts = 1 + count // 400  # packages with other numbers
    share = count // parts // (2 if sides == "both" else 1)
    with tempfile.TemporaryDirectory() as name, stator.config.patch(artifact_key_file=f"{name}/key"):
        stator.compile(outcome)  # loads what each child needs, and no tracer
        gc.freeze()  # a collection in a child would copy every page of its parent
        made = [saved(Path(name) / f"package{part}", seed + part, backend) for part in range(parts)]
        for with_tracer in (False, True) if sides == "both" else (False,):  # a tracer that is loaded stays
            if with_tracer:
                first_call.tracer()
            for given in made:
                some, found = run(given, share, with_tracer)
                counts += some
                problems += found
                print("\n".join([*found, f"{sum(some.values())} calls: {dict(sorted(some.items()))}"]), flush=True)
    print(f"{count} changes: {dict(sorted(counts.items()))}, {len(problems)} problems")
    return len(problems)


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:3]), *sys.argv[3:])))
