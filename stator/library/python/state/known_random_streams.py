"""Random streams whose state the trace knows.   random.seed(5); random.choice(xs)  ->  the very item, no break

A stream that is made inside, seeded or set to a state there draws the same numbers at every call: it is a real one, of
the trace's own, and its methods are interpreted or run as they are.  Where it stands in for one from outside, the
residual sets that one to the state in which the program left it.
"""

from __future__ import annotations

import _random
import functools
import random
from collections.abc import Callable
from typing import Any

import numpy

from stator.breaks import Break
from stator.interp.arrays.native_numpy import run_on_arrays
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.rule_registry import refuse, rule
from stator.interp.vm import VM
from stator.source import Pinned

_SEEDS = (int, float, str, bytes)


def known_stream(vm: VM, stream: object) -> Any:
    """The trace's own stream behind a value; None where its state is not known."""
    if id(stream) in vm.random.known:
        return stream
    return vm.random.seeded.get(id(stream), (None, None))[1]


def make_known(vm: VM, made: object) -> Any:
    vm.random.known[id(made)] = made
    return made


def run_known(vm: VM, function: Callable[..., Any], known: object, args: Any, kwargs: Any, cont: Any) -> None:
    """A method of a stream that is known."""
    if type(known) is random.Random:
        if type(function) is type(random.Random.seed):
            return vm.push(vm.frame_for(function, (known, *args), kwargs), cont)
        return vm.give(vm.native_unhooked(function, (known, *specialise_deep(vm, args)), kwargs), cont)
    if function.__name__ == "shuffle" and type(args[0]) is not numpy.ndarray:
        raise Break("SB013", "a random stream: shuffle() of something else than an array")
    vm.give(run_on_arrays(vm, functools.partial(function, known), tuple(args), kwargs), cont)


def set_known(vm: VM, function: Any, stream: Any, args: Any, kwargs: Any) -> None:
    """seed() or setstate(): from now on the stream is known."""
    name = function.__name__
    values = tuple(specialise_deep(vm, tuple(args)))
    if kwargs or len(values) != 1 or type(values[0]) not in _SEEDS and (
            name == "seed" or vm.heap.by_standin.get(id(values[0])) is not None):
        raise Break("SB013", f"a random stream: {name}() to something that changes from call to call, or with options",
                    leave=random.__file__)
    if vm.recorder.scope.enclosing is not None or vm.locks.used or vm.effects.watched:
        raise Break("SB013", f"a random stream: {name}() where its order is seen", leave=random.__file__)
    known = known_stream(vm, stream)
    if known is None:
        known = {random.Random: random.Random, numpy.random.RandomState: numpy.random.RandomState}[
            type(vm.heap.original_of(stream))](0)
    try:
        getattr(known, name)(*values)
    except Exception as error:
        raise Break("SB013", f"a random stream: {name}() that is refused ({error})", leave=random.__file__) from None
    if id(stream) not in vm.random.known:
        vm.random.known[id(known)] = known
        vm.random.seeded[id(stream)] = (stream, known)
        vm.heap.note_handled(stream)


def global_stream(vm: VM) -> Any:
    """numpy's own stream, behind the functions of numpy.random."""
    return vm.heap.adopt(numpy.random.mtrand._rand, Pinned(numpy.random.mtrand._rand))


@rule(random.Random, numpy.random.RandomState, numpy.random.default_rng)
def _make(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    values = specialise_deep(vm, args)
    if kwargs or len(values) != 1 or type(values[0]) not in _SEEDS:
        raise Break("SB013", f"a random stream: {callee.__name__}() without a number to begin from")
    return make_known(vm, vm.native_unhooked(callee, values))


refuse(_random.Random.getstate, _random.Random.setstate, _random.Random.seed, code="SB013",
       detail="the state of a random stream")


def state_of(stream: Any) -> Any:
    """All that decides over the numbers to come."""
    return stream.getstate() if type(stream) is random.Random else \
        stream.bit_generator.state if type(stream) is numpy.random.Generator else stream.get_state()


def set_state(stream: Any, state: Any) -> Any:
    """The stream, in a state."""
    if type(stream) is random.Random:
        stream.setstate(state)
    elif type(stream) is numpy.random.Generator:
        stream.bit_generator.state = state
    else:  # of numpy's RandomState, or torch's Generator
        stream.set_state(state)
    return stream


def remade_stream(cls: type, state: object) -> Any:
    """A new stream in a state."""
    return set_state(numpy.random.default_rng(0) if cls is numpy.random.Generator else cls(0), state)
