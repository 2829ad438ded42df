"""States of random streams: as facts, and in the residual.   random.choice(xs) under fullgraph  ->  the very item

Where a program looks at a drawn number, fullgraph=True takes the state of the stream for a fact: the trace draws from a
copy, a guard compares the state, and the residual sets the stream to the state in which the program left it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

from stator.guards.guard import Kind
from stator.interp.arrays.array_tensors import real_tensor
from stator.interp.vm import VM
from stator.source import CallOf, Drawn, Pinned, Source

_COMPARABLE = (random.Random, numpy.random.RandomState)  # whose states guards compare


def guard_state(vm: VM, stream: object) -> None:
    """Draw from a copy of an outside stream: where it stands is a guarded fact, and the residual moves it on."""
    original = vm.heap.original_of(stream)
    if type(original) in _COMPARABLE and not vm.locks.used and vm.recorder.scope.enclosing is None:
        place = CallOf(Pinned(comparable_state), (vm.heap.source_of(stream),))
        vm.heap.guard(place, Kind.FRESH_CALL, comparable_state(original))
        stand_in(vm, stream, remade_stream(type(original), state_of(original)))


def comparable_state(stream: object) -> tuple[object, ...]:
    """A pure reader for guards: all that decides over the numbers to come."""
    return tuple(part.tobytes() if type(part) is numpy.ndarray else part for part in state_of(stream))


def stand_in(vm: VM, stream: object, known: object) -> None:
    """From now on the trace draws from `known` in place of an outside stream."""
    vm.random.known[id(known)] = known
    vm.random.seeded[id(stream)] = (stream, known)
    vm.heap.note_handled(stream)


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


def saved_streams(streams: tuple[Any, ...]) -> tuple[Any, ...]:
    """Where streams stand, so that a call whose graph fails can be made again."""
    return tuple((stream, state_of(stream)) for stream in streams)


def restore_streams(saved: tuple[Any, ...]) -> None:
    for stream, state in saved:
        set_state(stream, state)


@dataclass(frozen=True)
class Draw:
    """One call of a stream's method, which the residual makes."""

    function: Any
    stream: Source
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    source: Drawn
    parts: tuple[Drawn, ...] = ()  # of a call that makes a list: one for each of its numbers


def drawn_array(vm: VM, function: Callable[..., object], stream: Source, values: tuple[object, ...],
                named: dict[str, Any], example: numpy.ndarray[Any, Any]) -> object:
    """An array that the residual draws: the trace knows its layout, and the graph has its memory as an input."""
    place = Drawn(len(vm.residual.draws), function.__name__)
    fake = vm.recorder.add_input(real_tensor(example), place)
    vm.recorder.inputs[-1].tensor = None  # nothing is known of what it will hold
    memory = vm.heap.arrays
    memory.backed[id(example)] = (example, fake)
    memory.drawn[id(example)] = place
    vm.residual.draws.append(Draw(function, stream, values, tuple(named.items()), place))
    return example
