"""Rules for random numbers of Python and numpy.   random.random()  ->  a number that is drawn when the residual runs

A draw with plain arguments is made by the residual, before the graph, in the order of the program and from the user's
stream; the trace knows its type and range.  A drawn array is an input of the graph.  choice(), sample() and shuffle()
among numbers of one type give such numbers, and break among other things.  A stream that is made, seeded or set inside
draws the same numbers at every call: the trace has a real one, whose state the residual writes back.
"""

from __future__ import annotations

import _random
import functools
import random
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from stator.breaks import Break, Strategy
from stator.interp.arrays.native_numpy import run_on_arrays
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.rule_registry import refuse, rule, suspending_rule
from stator.interp.vm import VM
from stator.library.python.random_functions import draw_whole
from stator.library.python.random_states import Draw, drawn_array, guard_state, stand_in, state_of
from stator.source import Drawn, Pinned, Source

_SEEDS = (int, float, str, bytes)
_PLAIN = (int, float, bool, type(None))
_PYTHON = ("random", "getrandbits", "randint", "randrange", "uniform", "triangular", "gauss", "normalvariate",
           "expovariate", "betavariate", "gammavariate", "lognormvariate", "paretovariate", "vonmisesvariate",
           "weibullvariate")
_AMONG = ("choice", "choices", "sample", "shuffle")
_NUMPY_WHOLE = ("get_state", "set_state", "shuffle", "permuted", "spawn")
_MOST_NUMBERS = 64
_SCRATCH: dict[type, Any] = {random.Random: random.Random(0), numpy.random.RandomState: numpy.random.RandomState(0),
                             numpy.random.Generator: numpy.random.default_rng(0)}
_COMPILED = type(numpy.random.RandomState.__dict__["rand"])
_OF_NUMPY = [function for owner in (numpy.random.RandomState, numpy.random.Generator)
             for name, function in owner.__dict__.items() if type(function) is _COMPILED and name != "seed"]
_WHOLE = [function for function in _OF_NUMPY if function.__name__ in _NUMPY_WHOLE or function.__name__.startswith("__")]


def known_stream(vm: VM, stream: object) -> Any:
    """The trace's own stream behind a value; None where its state is not known."""
    if id(stream) in vm.random.known or type(stream) is random.SystemRandom:  # without a state, in Python
        return stream
    if id(stream) not in vm.random.seeded and Strategy.DRAWN_NUMBERS in vm.turned_off:
        guard_state(vm, stream)
    return vm.random.seeded.get(id(stream), (None, None))[1]


def run_known(vm: VM, function: Callable[..., Any], known: object, args: Any, kwargs: Any, cont: Any) -> None:
    if isinstance(known, random.Random):
        if isinstance(function, types.FunctionType):
            return vm.push(vm.frame_for(function, (known, *args), kwargs), cont)
        return vm.give(vm.native_unhooked(function, (known, *specialise_deep(vm, args)), kwargs), cont)
    if function.__name__ == "shuffle" and type(args[0]) is not numpy.ndarray:
        raise Break("SB013", "a random stream: shuffle() of something else than an array")
    vm.give(run_on_arrays(vm, functools.partial(function, known), tuple(args), kwargs), cont)


def set_known(vm: VM, function: Any, stream: object, args: Any, kwargs: dict[str, Any]) -> None:
    """seed() or setstate(): from now on the stream is known."""
    name = function.__name__
    values = tuple(specialise_deep(vm, (*args, *kwargs.values())))
    if not (len(values) == 1 or len(values) == 2 and name == "seed") or any(type(value) not in _SEEDS and (
            name == "seed" or vm.heap.by_standin.get(id(value)) is not None) for value in values):
        raise Break("SB013", f"a random stream: {name}() to something that changes from call to call, or with options",
                    leave=random.__file__)
    if vm.recorder.scope.enclosing is not None or vm.locks.used or vm.effects.watched:
        raise Break("SB013", f"a random stream: {name}() where its order is seen", leave=random.__file__)
    known = known_stream(vm, stream)
    if known is None:
        known = {each: each for each in (random.Random, numpy.random.RandomState)}[type(vm.heap.original_of(stream))](0)
    try:
        getattr(known, name)(*values[:len(args)], **dict(zip(kwargs, values[len(args):], strict=True)))
    except Exception as error:
        raise Break("SB013", f"a random stream: {name}() that is refused ({error})", leave=random.__file__) from None
    if id(stream) not in vm.random.known:
        stand_in(vm, stream, known)


@rule(random.Random, numpy.random.RandomState, numpy.random.default_rng)
def _make_stream(vm: VM, callee: Any, /, *args: object, **kwargs: object) -> Any:
    values = specialise_deep(vm, args)
    if kwargs or len(values) != 1 or type(values[0]) not in _SEEDS:
        raise Break("SB013", f"a random stream: {callee.__name__}() without a number to begin from")
    made = vm.native_unhooked(callee, values)
    vm.random.known[id(made)] = made
    return made


refuse(_random.Random.getstate, _random.Random.setstate, _random.Random.seed, code="SB013",
       detail="the state of a random stream")


def draw(vm: VM, function: Callable[..., Any], args: Any, kwargs: Any, bounds: Any = None) -> Any:
    """The number that a call of a method of a stream will give."""
    stream, *rest = args
    name = function.__name__
    original = vm.heap.original_of(stream)
    source = vm.heap.source_of(stream)
    cls = type(original)
    draw_whole(vm, original)
    values = _as_they_are(vm, rest)
    named = dict(zip(kwargs, _as_they_are(vm, kwargs.values()), strict=True))
    scratch = _SCRATCH.get(cls)
    why = ""
    if scratch is None:
        why = f"{name}() of a {cls.__name__}"
    elif not all(map(_is_plain, (*values, *named.values()))):
        why = f"{name}() of other things than numbers"
    elif vm.recorder.scope.enclosing is not None or not vm.recorder.scope.data_dependent or vm.locks.used \
            or vm.effects.watched:
        why = f"{name}() where the graph may not wait for a number"
    if why:
        raise Break("SB013", f"a random number: {why}", leave=random.__file__)
    example = _example(scratch, function, values, named)
    if type(example) is numpy.ndarray and example.dtype.kind in "biuf":
        return drawn_array(vm, function, source, values, named, example)
    if type(example) is list and bounds is not None and len(example) <= _MOST_NUMBERS:
        return drawn_list(vm, function, source, values, named, example, bounds)
    if type(example) is not int and type(example) is not float:
        raise Break("SB013", f"a random number: {name}() that makes a {type(example).__name__}", leave=random.__file__)
    place = Drawn(len(vm.residual.draws), name)
    number = vm.recorder.add_drawn(type(example), place, bounds or _range(name, values, named, example))
    vm.residual.draws.append(Draw(function, source, values, tuple(named.items()), place))
    return number


def _as_they_are(vm: VM, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments of a draw; of lists the residual gets copies, as the program may change them afterwards."""
    for each in arguments:
        if type(each) in (list, tuple):
            vm.heap.expose_deep(each)
    return tuple(list(each) if type(each) is list else each for each in specialise_deep(vm, tuple(arguments)))


def draw_among(vm: VM, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A number, or a list of numbers, out of those in a list, tuple or range; shuffle() writes them back."""
    stream, population, *rest = args
    name = function.__name__
    values: tuple[Any, ...] = ()
    if type(population) in (list, tuple, range):
        vm.heap.expose_deep(population)
        values = specialise_deep(vm, tuple(population))
    kinds = set(map(type, values))
    if len(kinds) != 1 or not kinds <= {int, float} or len(values) > _MOST_NUMBERS:
        raise Break("SB013", f"a random stream: {name}() among other things than numbers", leave=random.__file__)
    bounds = (min(values), max(values))
    if name == "choice" and not rest and not kwargs:
        return draw(vm, function, (stream, list(values)), kwargs, bounds)
    shuffles = name == "shuffle"
    if shuffles and (rest or kwargs or type(population) is not list):
        raise Break("SB013", "a random stream: shuffle() in another way", leave=random.__file__)
    made = draw(vm, shuffled if shuffles else function, (stream, list(values), *rest), kwargs, bounds)
    if not shuffles:
        return made
    vm.heap.note_write(population)
    population[:] = made
    return None


def shuffled(stream: Any, values: list[Any]) -> list[Any]:
    values = list(values)
    random.Random.shuffle(stream, values)
    return values


def drawn_list(vm: VM, function: Any, stream: Source, values: Any, named: Any, example: Any, bounds: Any) -> Any:
    """A list of numbers that the residual draws together."""
    name, index = function.__name__, len(vm.residual.draws)
    place, parts = Drawn(index, name), tuple(Drawn((index, number), name) for number in range(len(example)))
    vm.residual.draws.append(Draw(function, stream, values, tuple(named.items()), place, parts))
    return [vm.recorder.add_drawn(type(bounds[0]), part, bounds) for part in parts]


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or type(value) in (tuple, list) and all(type(part) in _PLAIN for part in value)


def _example(scratch: object, function: Callable[..., Any], values: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """An example of the result, from a stream of Stator."""
    try:
        return function(scratch, *values, **named)
    except Exception as error:
        raise Break("SB013", f"a random number whose arguments are refused ({error})", leave=random.__file__) from None


def _range(name: str, values: tuple[Any, ...], named: dict[str, Any], example: object) -> tuple[Any, Any] | None:
    """Between what a number lies, both included; None where that is not known."""
    if type(example) is float:
        return (0.0, 1.0) if name in ("random", "rand", "random_sample") and not values and not named else \
            (float(min(values)), float(max(values))) if name == "uniform" and len(values) == 2 and not named else None
    if name == "getrandbits" and values[0] <= 62:
        return 0, (1 << values[0]) - 1
    if name not in ("randint", "randrange") or named or len(values) not in (1, 2):
        return None
    low, high = (0, values[0]) if len(values) == 1 else values
    return low, high - (name == "randrange")


@suspending_rule(*[getattr(random.Random, name) for name in _PYTHON],
                 *[function for function in _OF_NUMPY if function not in _WHOLE])
def _draw(vm: VM, cont: Any, callee: Any, /, self: Any, *args: Any, **kwargs: Any) -> None:
    if (known := known_stream(vm, self)) is not None:
        return run_known(vm, callee, known, args, kwargs, cont)
    vm.give(draw(vm, callee, (self, *args), kwargs), cont)


@suspending_rule(*[getattr(random.Random, name) for name in _AMONG])
def _draw_among(vm: VM, cont: Any, callee: Any, /, self: Any, *args: Any, **kwargs: Any) -> None:
    if (known := known_stream(vm, self)) is not None:
        return run_known(vm, callee, known, args, kwargs, cont)
    if not args:
        raise Break("SB013", f"a random stream: {callee.__name__}() of named arguments", leave=random.__file__)
    vm.give(draw_among(vm, callee, (self, *args), kwargs), cont)


@suspending_rule(*_WHOLE, random.Random.randbytes, numpy.random.get_state, numpy.random.set_state)
def _look_at(vm: VM, cont: Any, callee: Any, /, *args: Any, **kwargs: Any) -> None:
    known = known_stream(vm, args[0]) if args else None
    if known is None:
        raise Break("SB013", f"a random stream: {callee.__name__}()", leave=random.__file__)
    run_known(vm, callee, known, args[1:], kwargs, cont)


@rule(random.Random.seed, random.Random.setstate, numpy.random.RandomState.seed)
def _set(vm: VM, callee: object, /, self: object, *args: object, **kwargs: object) -> None:
    set_known(vm, callee, self, args, kwargs)


@rule(numpy.random.seed)
def _seed_numpy(vm: VM, /, *args: object, **kwargs: object) -> None:
    stream = numpy.random.mtrand._rand  # behind the functions of numpy.random
    set_known(vm, numpy.random.RandomState.seed, vm.heap.adopt(stream, Pinned(stream)), args, kwargs)


@rule(random.Random.getstate)
def _get_state(vm: VM, self: object) -> Any:
    known = known_stream(vm, self)
    if known is None:
        raise Break("SB013", "a random stream: getstate()", leave=random.__file__)
    return state_of(known)


# A function that Cython has compiled is bound as a Python function is
rule(_COMPILED.__get__)(
    lambda vm, function, obj, owner=None, /: function if obj is None else types.MethodType(function, obj))
