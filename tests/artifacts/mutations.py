"""Change a program between the process that saves and the one that loads.   python -m tests.artifacts.mutations [1000]

In: a program, and a change of its source, of settings, of versions, of its inputs or of the file.  Out: one line for
each change whose loaded result differs from eager (a stale result), and how many changes hit and missed.  Changes that
do not concern the traced code must hit.

Each change gets modules of its own, under the same names: objects of the program that was saved are found nowhere.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib
import importlib.util
import io
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import stator
from stator import events
from stator.artifacts import environment

NAME = "stator_mutated_program"
SOURCE = '''
import functools
import torch

SCALE = 3
LIMITS = {"low": -1.0, "high": 2.5}
NAMES = ("a", "b")


def scaled(offset=1):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(x, *rest, **named):
            return function(x, *rest, **named) * 2 + offset
        return wrapper
    return decorate


def helper(x, n=2, *, shift=0.5):
    return x * n + shift


def other(x, n=2, *, shift=0.5):
    return x * n - shift


@scaled(offset=4)
def decorated(x):
    return helper(x, SCALE) - LIMITS["low"]


def make(weight):
    step = weight + 1
    def inner(x):
        return x * weight + step
    return inner


closure = make(1.5)


class Base:
    factor = 2

    @property
    def doubled(self):
        return self.factor * 2

    @staticmethod
    def bend(x):
        return x.clamp(-3, 3)

    @classmethod
    def made(cls):
        return cls()

    def apply(self, x):
        return self.bend(x) * self.doubled


class Child(Base):
    extra = 7

    def apply(self, x):
        return super().apply(x) + self.extra


class Net(torch.nn.Module):
    slope = 0.1

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.child = Child.made()
        self.size = 4

    def forward(self, x):
        y = torch.nn.functional.leaky_relu(self.linear(x), self.slope)
        if len(NAMES) > 1 and self.size == 4:
            y = y + sum(number for number in range(self.size))
        return self.child.apply(y)


def unused(x):
    return x - 100


def program(x):
    y = decorated(x) + closure(x)
    for name, value in LIMITS.items():
        y = y + value if name == "high" else y * 1.5
    return Child().apply(y).sin()


def breaking(x):
    y = helper(x) * SCALE
    print("between")
    stop()
    return other(y).cos()


def stop():
    torch._dynamo.graph_break()


net = Net()
'''
ROOTS = ("program", "breaking", "net")


@dataclass(frozen=True)
class Change:
    """`source` and `file` give the changed text and bytes; `around` is in force while the entry is loaded and used."""

    name: str
    source: str = SOURCE
    around: Callable[[], Any] = contextlib.nullcontext
    inputs: Callable[[torch.Tensor], torch.Tensor] = lambda x: x
    settings: tuple[tuple[str, Any], ...] = ()
    file: Callable[[bytes], bytes] = lambda data: data
    must_hit: bool = False


# ---------------------------------------------------------------------- changes of the source


class Rewriter(ast.NodeTransformer):
    """Applies the change of number `wanted`; counts those there are."""

    def __init__(self, wanted: int, rng: random.Random) -> None:
        self.wanted, self.rng, self.count, self.what = wanted, rng, 0, ""

    def chosen(self, what: str) -> bool:
        self.count += 1
        if self.count - 1 == self.wanted:
            self.what = what
            return True
        return False

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value: Any = node.value
        if type(value) in (int, float) and self.chosen(f"{value} at line {node.lineno}"):
            return ast.copy_location(ast.Constant(value + self.rng.choice([1, 2, -1])), node)
        if type(value) is str and self.chosen(f"{value!r} at line {node.lineno}"):
            return ast.copy_location(ast.Constant(value + "x"), node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if self.chosen(f"operator at line {node.lineno}"):
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        if self.chosen(f"operands at line {node.lineno}"):
            node.left, node.right = node.right, node.left
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if self.chosen(f"comparison at line {node.lineno}"):
            node.ops = [ast.NotEq() if isinstance(node.ops[0], (ast.Eq, ast.Gt)) else ast.Eq()]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        pairs = {"helper": "other", "other": "helper", "Child": "Base", "SCALE": "len"}
        if node.id in pairs and isinstance(node.ctx, ast.Load) and self.chosen(f"{node.id} at line {node.lineno}"):
            return ast.copy_location(ast.Name(pairs[node.id], node.ctx), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if node.args and self.chosen(f"argument at line {node.lineno}"):
            node.args = node.args[:-1]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if node.decorator_list and self.chosen(f"decorator of {node.name}"):
            node.decorator_list = node.decorator_list[1:]
        if len(node.body) > 1 and self.chosen(f"first statement of {node.name}"):
            node.body = node.body[1:]
        if self.chosen(f"result of {node.name}"):
            node.body = [ast.parse("return None").body[0]] if not node.args.args else \
                ast.parse(f"return {node.args.args[-1].arg}").body
        return node


def source_changes(rng: random.Random) -> Iterator[Change]:
    """Changes of one place of the source, without end."""
    total = Rewriter(-1, rng)
    total.visit(ast.parse(SOURCE))
    while True:
        first = Rewriter(rng.randrange(total.count), rng)
        tree = first.visit(ast.parse(SOURCE))
        what = first.what
        if rng.random() < 0.3:
            second = Rewriter(rng.randrange(total.count), rng)
            tree = second.visit(tree)
            what += f" and {second.what}"
        yield Change(f"source: {what}", ast.unparse(ast.fix_missing_locations(tree)))


UNRELATED = [
    Change("unrelated: lines above", "# one\n# two\n\n" + SOURCE, must_hit=True),
    Change("unrelated: another function", SOURCE.replace("return x - 100", "return x - 200"), must_hit=True),
    Change("unrelated: a new function", SOURCE + "\n\ndef added(x):\n    return x\n", must_hit=True),
    Change("unrelated: a new constant", SOURCE.replace("SCALE = 3", "MORE = 5\nSCALE = 3"), must_hit=True),
]


# ---------------------------------------------------------------------- other changes


@contextlib.contextmanager
def other_fact(name: str, value: object) -> Iterator[None]:
    before = environment.process_facts

    def changed() -> dict[str, Any]:
        return {**before(), name: value}

    with patched("stator.artifacts.entry_files", "process_facts", changed):
        yield


@contextlib.contextmanager
def patched(module: str, name: str, value: object) -> Iterator[None]:
    place = importlib.import_module(module)
    before = getattr(place, name)
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)


@contextlib.contextmanager
def changed_default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def flipped(rng: random.Random) -> Callable[[bytes], bytes]:
    place = rng.random()

    def flip(data: bytes) -> bytes:
        at = int(place * len(data))
        return data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1:]

    return flip


def other_changes(rng: random.Random) -> Iterator[Change]:
    """Changes of versions, settings, inputs and files, without end."""
    facts = ["python", "torch", "stator", "numpy", "processor", "machine", "torch build", "threads", "format"]
    while True:
        fact = rng.choice(facts)
        shape = (rng.randint(1, 5), 4)
        yield Change(f"version: {fact}", around=lambda fact=fact: other_fact(fact, "another"))
        yield Change("setting: dynamic", settings=(("dynamic", rng.choice([True, False])),))
        yield Change("setting: fullgraph", settings=(("fullgraph", True),))
        yield Change("state: no grad", around=torch.no_grad)
        yield Change("state: inference", around=torch.inference_mode)
        yield Change("state: default dtype", around=changed_default_dtype)
        yield Change("state: autocast", around=lambda: torch.autocast("cpu"))
        yield Change("input: dtype", inputs=lambda x: x.double())
        yield Change(f"input: shape {shape}", inputs=lambda x, shape=shape: torch.ones(shape))
        yield Change("input: requires grad", inputs=lambda x: x.requires_grad_())
        yield Change("input: strides", inputs=lambda x: x.t().contiguous().t())
        yield Change("file: a byte", file=flipped(rng))
        yield Change("file: cut", file=lambda data, share=rng.random(): data[:int(share * len(data))])


# ---------------------------------------------------------------------- one change


@dataclass
class Outcome:
    change: Change
    root: str
    stale: str  # empty: the result is that of eager
    hit: bool
    why: str = ""


def program_of(source: str, folder: Path) -> ModuleType:
    """The module of a source, made anew."""
    (folder / f"{NAME}.py").write_text(source)
    sys.modules.pop(NAME, None)
    importlib.invalidate_caches()
    spec = importlib.util.spec_from_file_location(NAME, folder / f"{NAME}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    torch.manual_seed(0)
    spec.loader.exec_module(module)
    return module


def result_of(fn: Callable[..., Any], x: torch.Tensor) -> tuple[str, Any]:
    try:
        return "value", fn(x)
    except Exception as error:
        return "raised", type(error).__name__


def same(one: tuple[str, Any], other: tuple[str, Any]) -> bool:
    if isinstance(one[1], torch.Tensor) and isinstance(other[1], torch.Tensor):
        return one[1].dtype == other[1].dtype and one[1].requires_grad == other[1].requires_grad \
            and torch.equal(one[1].nan_to_num(), other[1].nan_to_num())
    return bool(one == other)


class Trial:
    """Entries of the unchanged program, and a folder for changed ones."""

    def __init__(self, folder: Path, ruin: bool = False) -> None:
        self.folder, self.ruin = folder, ruin
        self.x = torch.arange(12.0).reshape(3, 4) / 5 - 1
        self.number = 0
        module = program_of(SOURCE, self.place())
        for root in ROOTS:
            compiled = stator.compile(getattr(module, root), backend="eager")
            compiled(self.x)
            assert stator.save(compiled, str(folder / root)) > 0, stator.why_not_cached(compiled)

    def place(self) -> Path:
        self.number += 1
        made = self.folder / str(self.number)
        made.mkdir()
        return made

    def outcomes(self, change: Change) -> Iterator[Outcome]:
        place = self.place()
        try:
            module = program_of(change.source, place)
        except Exception:
            return  # no program any more
        for root in ROOTS:
            path = place / root
            path.write_bytes(change.file((self.folder / root).read_bytes()))
            fn = getattr(module, root)
            x = change.inputs(self.x.clone())
            with change.around(), events.record() as log:
                eager = result_of(copy.deepcopy(fn) if root == "net" else fn, x.detach().clone().requires_grad_(
                    x.requires_grad))
                loaded = stator.load(str(path), fn, backend="eager", **dict(change.settings))
                found = result_of(loaded, x)
            hit = any(isinstance(event, events.EntryLoaded) for event in log)
            if self.ruin and hit and isinstance(found[1], torch.Tensor):
                found = ("value", found[1] + 1)
            stale = "" if same(eager, found) or found == ("raised", "Unsupported") else f"{found} is not {eager}"
            yield Outcome(change, root, stale, hit, stator.why_not_cached(loaded) or "")


def changes(count: int, seed: int) -> Iterator[Change]:
    """All unrelated edits, then sources and other changes by turns."""
    rng = random.Random(seed)
    yield from UNRELATED[:count]
    sources, others = source_changes(rng), other_changes(rng)
    for number in range(max(count - len(UNRELATED), 0)):
        yield next(others) if number % 4 == 3 else next(sources)


@contextlib.contextmanager
def trial(ruin: bool = False) -> Iterator[Trial]:
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()), \
            stator.config.patch(artifact_key_file=f"{folder}/key", accumulated_recompile_limit=10**6):
        try:
            yield Trial(Path(folder), ruin)
        finally:
            sys.dont_write_bytecode = before
            sys.modules.pop(NAME, None)


def main(count: int = 1000, seed: int = 0) -> int:
    counts: Counter[str] = Counter()
    problems: list[str] = []
    with trial() as made:
        for change in changes(count, seed):
            for outcome in made.outcomes(change):
                counts["hit" if outcome.hit else "miss"] += 1
                if outcome.stale:
                    problems.append(f"stale: {change.name}, {outcome.root}: {outcome.stale}")
                if change.must_hit and not outcome.hit:
                    problems.append(f"missed: {change.name}, {outcome.root}: {outcome.why}")
            stator.reset()
    print("\n".join(problems))
    print(f"{count} changes: {dict(counts)}, {len(problems)} problems")
    return len(problems)


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
