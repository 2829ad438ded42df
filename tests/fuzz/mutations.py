"""Change random facts between calls and look for a stale result: `python -m tests.fuzz.mutations --steps N --seed S`.

In: the subjects of changing_programs.py.  Out: the first change after which a compiled call differs from the eager one.
Each step picks a fact reachable from a subject (an attribute, an item, a parameter's data, dtype, gradient flag or strides,
a hook, a class attribute, a method, a default, a cell, a global, a setting of torch), changes it, calls twice, and mostly
puts it back and calls again: what was proven before must neither be believed nor forgotten wrongly.
"""

from __future__ import annotations

import argparse
import collections
import copy
import logging
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import stator
from tests.comparison import Checks, Snapshot, Surroundings, call, differences, observe_call
from tests.fuzz import changing_programs
from tests.fuzz.changing_programs import Heavy, Louder, Node, Scale, Subject, subjects

Undo = Callable[[], object]
Change = Callable[[], Undo]
RESET_AFTER = 150
CHECKS = Checks(exception="class", warnings="none", gradients="none")
LEAVE = 0.15  # how often a change stays


def put(table: Any, key: Any, value: Any) -> Undo:
    old = dict(table)
    table[key] = value
    return lambda: (table.clear(), table.update(old))


def drop(table: Any, key: Any) -> Undo:
    old = dict(table)
    del table[key]
    return lambda: (table.clear(), table.update(old))


def set_attribute(owner: Any, name: str, value: Any) -> Undo:
    own = vars(owner)
    had, old = name in own, own.get(name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, old) if had else delattr(owner, name)


def other_value(value: Any, rng: random.Random) -> Any:
    """Another value of some kind; most often of the same one."""
    if rng.random() < 0.1:
        return rng.choice([None, 3, 2.5, "x", True, (1, 2)])
    if type(value) is bool:
        return not value
    if type(value) is int:
        return rng.choice([value + 1, float(value), -value, value + 1000])
    if type(value) is float:
        return rng.choice([value + 1.0, -value, int(value) if value == int(value) else value * 2])
    if type(value) is str:
        return rng.choice([value + "x", "on", "mean", "sum", ""])
    if type(value) is tuple:
        return value[:-1] if value and rng.random() < 0.5 else (*value, 1)
    return rng.choice([1, "x", None])


def of_table(table: Any, rng: random.Random) -> Iterator[Change]:
    for key, value in list(table.items()):
        if isinstance(value, (bool, int, float, str, tuple, type(None))) and not (
                isinstance(key, str) and key.startswith("__")):
            yield lambda key=key, value=value: put(table, key, other_value(value, rng))
            if rng.random() < 0.2:
                yield lambda key=key: drop(table, key)


def of_list(items: list[Any], rng: random.Random) -> Iterator[Change]:
    def restoring(act: Callable[[], object]) -> Undo:
        old = list(items)
        act()
        return lambda: items.__setitem__(slice(None), old)

    if not items:
        return
    place = rng.randrange(len(items))
    value = items[place]
    if isinstance(value, (int, float, str)):
        yield lambda: restoring(lambda: items.__setitem__(place, other_value(value, rng)))
    yield lambda: restoring(lambda: items.append(copy.copy(items[-1])))
    yield lambda: restoring(items.pop)
    yield lambda: restoring(items.reverse)


def of_tensor(tensor: torch.Tensor, rng: random.Random) -> Iterator[Change]:
    def with_data(data: torch.Tensor) -> Undo:
        old = tensor.data
        tensor.data = data
        return lambda: setattr(tensor, "data", old)

    def flip() -> Undo:
        old = tensor.requires_grad
        tensor.requires_grad_(not old)
        return lambda: tensor.requires_grad_(old)

    def fill() -> Undo:
        old = tensor.detach().clone()
        with torch.no_grad():
            tensor.mul_(1.5)

        def back() -> None:
            with torch.no_grad():
                tensor.copy_(old)
        return back

    def swap() -> Undo:
        other = type(tensor)(torch.rand_like(tensor.detach()))  # type: ignore[call-arg]
        torch.utils.swap_tensors(tensor, other)
        return lambda: torch.utils.swap_tensors(tensor, other)

    data = tensor.detach()
    yield lambda: with_data(data * 2)
    yield lambda: with_data(data.double())
    yield lambda: with_data(torch.cat([data, data]))
    if data.ndim == 2:
        yield lambda: with_data(data.t().contiguous().t())
    yield flip
    yield fill
    if type(tensor) is nn.Parameter:
        yield swap


def of_module(module: nn.Module, rng: random.Random) -> Iterator[Change]:
    yield lambda: set_attribute(module, "training", not module.training)
    hooks = [module.register_forward_hook, module.register_forward_pre_hook]
    results = [lambda m, a, out: out * 2 if isinstance(out, torch.Tensor) else None, lambda m, a: (a[0] + 1,)]
    for register, hook in zip(hooks, results, strict=True):
        yield lambda register=register, hook=hook: register(hook).remove
    yield lambda: set_attribute(module, "forward", lambda x: x * 5)
    for name, parameter in list(module._parameters.items()):
        if isinstance(parameter, torch.Tensor):
            fresh = nn.Parameter(torch.rand_like(parameter))
            yield lambda name=name, fresh=fresh: put(module._parameters, name, fresh)
            yield lambda name=name: put(module._parameters, name, None)
    for name, child in list(module._modules.items()):
        if not isinstance(child, nn.Module):
            continue
        yield lambda name=name, child=child: put(module._modules, name, copy.deepcopy(child))
        yield lambda name=name: put(module._modules, name, nn.Identity())
    if type(module) in (Scale, Louder):
        yield lambda: change_class(module, Louder if type(module) is Scale else Scale)


def change_class(instance: Any, cls: type) -> Undo:
    old = type(instance)
    instance.__class__ = cls
    return lambda: setattr(instance, "__class__", old)


def of_class(cls: type, rng: random.Random) -> Iterator[Change]:
    for name, value in list(vars(cls).items()):
        if isinstance(value, (int, float, str)) and not name.startswith("__"):
            yield lambda name=name, value=value: set_attribute(cls, name, other_value(value, rng))
    if "forward" in vars(cls):
        original = vars(cls)["forward"]
        yield lambda: set_attribute(cls, "forward", lambda self, x: original(self, x))
        yield lambda: set_attribute(cls, "forward", lambda self, x: original(self, x + 1))
        yield lambda: replace_code(original, (lambda self, x: x * 9).__code__)
    if cls is Node:
        yield lambda: set_attribute(cls, "total", lambda self: 11)
        yield lambda: set_attribute(cls, "doubled", property(lambda self: 13))
        yield lambda: set_attribute(cls, "value", property(lambda self: 17))
        yield lambda: set_attribute(cls, "unrelated", rng.random())


def replace_code(function: Any, code: types.CodeType) -> Undo:
    old = function.__code__
    if old.co_freevars != code.co_freevars:
        code = old.replace(co_consts=old.co_consts)
    function.__code__ = code
    return lambda: setattr(function, "__code__", old)


def of_function(function: types.FunctionType, rng: random.Random) -> Iterator[Change]:
    for name in ("__defaults__", "__kwdefaults__"):
        old = getattr(function, name)
        if old:
            new: Any = {k: other_value(v, rng) for k, v in old.items()} if isinstance(old, dict) else tuple(
                other_value(v, rng) for v in old)
            yield lambda name=name, old=old, new=new: (setattr(function, name, new),
                                                       lambda: setattr(function, name, old))[1]
    for cell in function.__closure__ or ():
        held = cell.cell_contents
        if isinstance(held, (int, float, str)):
            yield lambda cell=cell, held=held: (setattr(cell, "cell_contents", other_value(held, rng)),
                                                lambda: setattr(cell, "cell_contents", held))[1]


def of_instance(instance: Any, rng: random.Random) -> Iterator[Change]:
    if type(instance) in (Node, Heavy):
        yield lambda: change_class(instance, Heavy if type(instance) is Node else Node)
        yield lambda: set_attribute(instance, "child", Node(5))
        yield lambda: set_attribute(instance, "total", lambda: 23)
    for cls in type(instance).__mro__:
        for name in vars(cls).get("__slots__", ()):
            value = getattr(instance, name)
            if not isinstance(value, (list, dict)):
                yield lambda name=name, value=value: (setattr(instance, name, other_value(value, rng)),
                                                      lambda: setattr(instance, name, value))[1]


def of_torch(rng: random.Random) -> Iterator[Change]:
    def grad() -> Undo:
        old = torch.is_grad_enabled()
        torch.set_grad_enabled(not old)
        return lambda: torch.set_grad_enabled(old)

    def dtype() -> Undo:
        torch.set_default_dtype(torch.float64)
        return lambda: torch.set_default_dtype(torch.float32)

    yield grad
    yield dtype


def reachable(roots: tuple[Any, ...]) -> list[Any]:
    """Every object of the subject's own whose facts may be changed, from its roots."""
    found: dict[int, Any] = {}
    pending = list(roots)
    while pending:
        value = pending.pop()
        if id(value) in found or isinstance(value, (int, float, str, type(None), bool, types.ModuleType)):
            continue
        found[id(value)] = value
        if isinstance(value, dict):
            if value is not vars(changing_programs):
                pending += value.values()
            else:
                pending += [value[name] for name in ("TABLE", "ORDER", "scaled")]
        elif isinstance(value, (list, tuple, set)):
            pending += value
        elif isinstance(value, types.FunctionType):
            pending += [cell.cell_contents for cell in value.__closure__ or ()]
        elif not isinstance(value, (type, torch.Tensor)) and hasattr(value, "__dict__"):
            pending += [held for name, held in vars(value).items() if not name.endswith("hooks")]
        for name in getattr(type(value), "__slots__", ()):
            pending.append(getattr(value, name, None))
    return list(found.values())


def changes_of(value: Any, rng: random.Random) -> Iterator[Change]:
    if value is vars(changing_programs):
        yield lambda: put_global("FACTOR", other_value(changing_programs.FACTOR, rng))
        yield lambda: put_global("scaled", lambda x: x * 31)
        yield lambda: put_global("unrelated", rng.random())
    elif isinstance(value, collections.OrderedDict):
        yield from of_table(value, rng)
        if value and isinstance(next(iter(value)), str):
            first = next(iter(value))
            yield lambda: reorder(value, first)
    elif isinstance(value, dict):
        yield from of_table(value, rng)
        if all(isinstance(held, (int, float)) for held in value.values()):
            yield lambda: put(value, "zz", 4)
    elif isinstance(value, list):
        yield from of_list(value, rng)
    elif isinstance(value, set):
        yield lambda: change_set(value)
    elif isinstance(value, torch.Tensor):
        yield from of_tensor(value, rng)
    elif isinstance(value, type):
        yield from of_class(value, rng)
    elif isinstance(value, types.FunctionType):
        yield from of_function(value, rng)
    else:
        if isinstance(value, nn.Module):
            yield from of_module(value, rng)
        if hasattr(value, "__dict__"):
            own = vars(value)
            plain = {name: held for name, held in own.items() if isinstance(held, (bool, int, float, str, tuple))}
            for name, held in plain.items():
                yield lambda name=name, held=held: set_attribute(value, name, other_value(held, rng))
        yield from of_instance(value, rng)


def put_global(name: str, value: Any) -> Undo:
    return set_attribute(changing_programs, name, value)


def reorder(table: collections.OrderedDict[str, Any], first: str) -> Undo:
    table.move_to_end(first)
    return lambda: table.move_to_end(first, last=False)


def change_set(names: set[Any]) -> Undo:
    old = set(names)
    names.symmetric_difference_update({"a", "q"})
    return lambda: (names.clear(), names.update(old))


def of_arguments(subject: Subject, rng: random.Random) -> Iterator[Change]:
    def replace(place: int, value: Any) -> Undo:
        old = subject.args
        subject.args = (*old[:place], value, *old[place + 1:])
        return lambda: setattr(subject, "args", old)

    for place, value in enumerate(subject.args):
        if isinstance(value, torch.Tensor):
            other = rng.choice([value + 1, value.double(), torch.cat([value, value]), value.detach().clone()])
            yield lambda place=place, other=other: replace(place, other)
            if len(subject.args) > 1:
                yield lambda place=place: replace(place, subject.args[0])
    yield from ()


class Session:
    """One seed: a subject after the other, changed step by step."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.subjects = subjects(seed)
        self.compiled = {each.name: stator.compile(
            each.run, backend="eager", recompile_limit=10 * RESET_AFTER, dynamic=self.rng.choice([None, False]),
            options={"strict": True}) for each in self.subjects}
        self.changes = 0

    def difference(self, subject: Subject) -> str | None:
        def outcome(run: Callable[..., Any]) -> Snapshot:
            return observe_call(run, call(*subject.args), Surroundings(changing_programs.__name__), CHECKS)

        return next(differences(outcome(subject.run), outcome(self.compiled[subject.name]), subject.name), None)

    def pick(self, subject: Subject) -> Change | None:
        rng = self.rng
        kind = rng.random()
        if kind < 0.1:
            found = list(of_torch(rng))
        elif kind < 0.2 or not subject.roots:
            found = list(of_arguments(subject, rng))
        else:
            found = list(changes_of(rng.choice(reachable(subject.roots)), rng))
        return rng.choice(found) if found else None

    def step(self) -> str | None:
        """One change; what differs after it, if anything does."""
        subject = self.rng.choice(self.subjects)
        change = self.pick(subject)
        if change is None:
            return None
        if self.changes % RESET_AFTER == RESET_AFTER - 1:
            stator.reset()  # before a site has so many entries that it stops compiling
        undo: Undo | None = None
        try:
            undo = change()
        except (RuntimeError, TypeError, AttributeError):
            return None  # not a change that this object takes
        self.changes += 1
        try:
            found = self.difference(subject) or self.difference(subject)
        finally:
            if self.rng.random() > LEAVE or torch.get_default_dtype() != torch.float32:
                undo()
        return found or self.difference(subject) or self.difference(subject)


def run(steps: int, seed: int, report: Callable[[str], object] = print) -> int:
    """How many changes were made; raises AssertionError at the first stale result."""
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)  # programs that raise are tried too
    done = 0
    was = {name: copy.deepcopy(getattr(changing_programs, name)) for name in ("FACTOR", "TABLE", "ORDER")}
    classes = [value for value in vars(changing_programs).values() if isinstance(value, type)]
    kept = {cls: dict(vars(cls)) for cls in (*classes, nn.Linear)}
    functions = {f: (f.__defaults__, f.__kwdefaults__, f.__code__) for f in vars(changing_programs).values()
                 if isinstance(f, types.FunctionType)}
    original_scaled = changing_programs.scaled
    while done < steps:
        session = Session(seed)
        try:
            for _ in range(400):
                found = session.step()
                assert found is None, f"seed {seed}, change {session.changes}: {found}"
                if done + session.changes >= steps:
                    break
        finally:
            torch.set_grad_enabled(True)
            torch.set_default_dtype(torch.float32)
            changing_programs.scaled = original_scaled
            for name, value in was.items():
                setattr(changing_programs, name, copy.deepcopy(value))
            for function, (defaults, keywords, code) in functions.items():
                function.__defaults__, function.__kwdefaults__, function.__code__ = defaults, keywords, code
            for cls, old in kept.items():
                restore_class(cls, old)
            stator.reset()
        done += session.changes
        seed += 1
        report(f"{done} changes")
    return done


def restore_class(cls: type, old: dict[str, Any]) -> None:
    for name in set(vars(cls)) - set(old):
        delattr(cls, name)
    for name, value in old.items():
        if vars(cls).get(name) is not value:
            setattr(cls, name, value)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.mutations", description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{run(chosen.steps, chosen.seed)} changes, no stale result")
    return 0


if __name__ == "__main__":
    sys.exit(main())
