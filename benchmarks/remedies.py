"""Share of broken programs that proposals mend.   python -m benchmarks.remedies [--set held_aside] [--verbose]

In: the programs of tests/remedies/programs, each with recorded calls.  Out: one line for each program, and the share
without breaks and with equal results after the proposals alone.

The check is not the one of the trials: proposals are applied to the text of the file, the text is run as a module of
its own, and both programs are called afresh, on the recorded calls and on two sets of other numbers. "mended" means: no
break, no eager call, and for programs that only recompiled, no recompile. WRONG marks programs with another result.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import itertools
import logging
import pkgutil
import random
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

import stator
from stator import events
from stator.remedies.proposals import Proposals
from stator.remedies.recorded_calls import Call
from stator.remedies.search import propose
from tests.remedies.programs import Factory

SETS = ("development", "held_aside")
_numbers = itertools.count(1)


@dataclass
class Program:
    """One factory and the module that it is in."""

    name: str
    module: types.ModuleType
    factory: Factory


@dataclass
class Verdict:
    """Breaks and results of one program before and after its proposals."""

    program: Program
    proposals: Proposals | None
    breaks: int = 0
    recompiles: int = 0
    wrong: str = ""
    seconds: float = 0.0

    @property
    def mended(self) -> bool:
        if self.proposals is None or not self.proposals.proposals or self.wrong or self.breaks:
            return False
        return self.recompiles == 0 or self.proposals.before.breaks > 0


def programs(which: str) -> Iterator[Program]:
    package = importlib.import_module(f"tests.remedies.programs.{which}")
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for name, factory in module.programs.items():
            yield Program(name, module, factory)


def changed_module(program: Program, texts: dict[str, str]) -> types.ModuleType:
    """The program's file with all proposals, run as a module."""
    made = types.ModuleType(f"{program.module.__name__}_changed_{next(_numbers)}")
    made.__file__ = program.module.__file__
    text = texts.get(str(program.module.__file__)) or inspect.getsource(program.module)
    sys.modules[made.__name__] = made
    text = text.replace('"remedies::', f'"remedies{next(_numbers)}::')  # torch keeps one operator for a name
    exec(compile(text, f"<{made.__name__}>", "exec"), made.__dict__)
    return made


def other_numbers(args: object, seed: int) -> object:
    """Arguments of the same shapes with other numbers; 0 leaves them."""
    generator = torch.Generator().manual_seed(seed)

    def changed(value: object) -> object:
        if not isinstance(value, torch.Tensor) or seed == 0:
            return value
        if value.is_floating_point():
            return (torch.randn(value.shape, generator=generator) * 2 ** (seed - 1)).to(value.dtype)
        return value.flatten()[torch.randperm(value.numel(), generator=generator)].view(value.shape)

    return pytree.tree_map(changed, args)


def observed(fn: Callable[..., object], calls: list[tuple[object, ...]], added: dict[str, str], state: object,
             ) -> list[object]:
    """Results, arguments, state and output of calls in their order."""
    out = io.StringIO()
    found: list[object] = []
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args in calls:
            more: dict[str, object] = {}
            if added:
                original = inspect.unwrap(getattr(state, "forward", state))  # type: ignore[arg-type]
                names = dict(zip(inspect.signature(original).parameters, args, strict=False))
                space = getattr(getattr(original, "__func__", original), "__globals__", {})
                more = {name: eval(text, {**space, **names}) for name, text in added.items()}
            try:
                value = fn(*args, **more)
            except Exception as error:
                value = f"raised {type(error).__name__}"
            found.append(pytree.tree_map(lambda each: each.detach().clone() if isinstance(each, torch.Tensor) else each,
                                         (value, args)))
    owner = getattr(state, "__self__", state)
    if isinstance(owner, torch.nn.Module):
        found.append({name: tensor.clone() for name, tensor in owner.state_dict().items()})
    plain = {name: value for name, value in sorted(getattr(owner, "__dict__", {}).items())
             if isinstance(value, (int, float, str, torch.Tensor))}
    return [*found, plain, out.getvalue()]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.allclose(
            one.double(), other.double(), rtol=1e-6, atol=1e-7, equal_nan=True) if one.dtype is not torch.bool \
            else torch.equal(one, other)
    if isinstance(one, torch.nn.Module):
        return isinstance(other, torch.nn.Module)
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(itertools.starmap(same, zip(one, other, strict=True)))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other or one != one and other != other


def same_where_stable(wanted: Any, again: Any, got: Any) -> bool:
    """Equal to both eager runs; what differs between these (a clock) has the same type."""
    if same(wanted, again):
        return same(wanted, got)
    if isinstance(wanted, (list, tuple)) and type(wanted) is type(got) and len(wanted) == len(again) == len(got):
        return all(itertools.starmap(same_where_stable, zip(wanted, again, got, strict=True)))
    if isinstance(wanted, dict) and type(wanted) is type(got) and wanted.keys() == again.keys() == got.keys():
        return all(same_where_stable(wanted[key], again[key], got[key]) for key in wanted)
    return type(wanted) is type(got)


def seeded(factory: Factory, seed: int) -> tuple[Callable[..., object], list[tuple[object, ...]]]:
    fn, calls = factory()
    random.seed(seed)
    torch.manual_seed(seed)
    return fn, [pytree.tree_map(lambda each: each, other_numbers(args, seed)) for args in calls]


def judge(program: Program) -> Verdict:
    """Propose, apply, run, compare."""
    began = time.perf_counter()
    fn, calls = program.factory()
    random.seed(0)
    torch.manual_seed(0)
    found = propose(fn, [Call(args) for args in calls], name=program.name)
    verdict = Verdict(program, found, seconds=time.perf_counter() - began)
    added = {name: text for each in found.proposals for name, text in each.added.items()}
    settings = {name: value for each in found.proposals for name, value in each.settings.items()}
    for seed in (0, 1, 3):
        fn, calls = seeded(program.factory, seed)
        wanted = observed(fn, calls, {}, fn)
        fn, calls = seeded(program.factory, seed)
        again = observed(fn, calls, {}, fn)
        module = changed_module(program, found.texts)
        fn, calls = seeded(module.programs[program.name], seed)
        compiled = stator.compile(fn, backend="eager", **settings)  # type: ignore[call-overload]
        with events.record() as log:
            got = observed(compiled, calls, added, fn)
            if seed == 0:
                for args in calls[:1]:
                    observed(compiled, [args], added, fn)
        if not same_where_stable(wanted, again, got) and not (seed and raises(wanted)):
            verdict.wrong = f"other results (numbers {seed})"
        if seed == 0:
            verdict.breaks = sum(isinstance(each, (events.GraphBreak, events.EagerFallback, events.InternalFailure))
                                 for each in log)
            verdict.recompiles = sum(isinstance(each, events.Recompile) for each in log)
    return verdict


def raises(outcome: list[object]) -> bool:
    return any(isinstance(each, tuple) and isinstance(each[0], str) and each[0].startswith("raised ")
               for each in outcome)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.remedies", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=SETS, default="development")
    parser.add_argument("--only", nargs="*", help="names of programs")
    parser.add_argument("--verbose", action="store_true", help="print the proposals, too")
    chosen = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    verdicts = []
    for program in programs(chosen.set):
        if chosen.only and program.name not in chosen.only:
            continue
        verdict = judge(program)
        verdicts.append(verdict)
        assert verdict.proposals is not None
        titles = "; ".join(each.title for each in verdict.proposals.proposals)
        state = "WRONG" if verdict.wrong else "mended" if verdict.mended else "left"
        print(f"{state:7} {program.name:24} {verdict.seconds:4.1f} s  breaks {verdict.proposals.before.breaks} -> "
              f"{verdict.breaks}, recompiles {verdict.proposals.before.recompiles} -> {verdict.recompiles}  "
              f"{titles}{verdict.wrong}", flush=True)
        if chosen.verbose:
            print(verdict.proposals)
    mended, wrong = sum(each.mended for each in verdicts), sum(bool(each.wrong) for each in verdicts)
    print(f"{chosen.set}: {mended} of {len(verdicts)} mended, {wrong} with another result")


if __name__ == "__main__":
    main(sys.argv[1:])
