"""Choose the sizes and numbers that become symbols: guards that failed (`Memory.learn`), the user's marks on tensors.

    dynamic=None   constants first; what is seen to change becomes a symbol in the next compile of the same place
    dynamic=True   all sizes, and numbers among the arguments, from the first compile on
    dynamic=False  constants always
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from stator.guards.guard import Guard, Kind, is_constant
from stator.guards.guard_semantics import Unreadable, evaluate, failing
from stator.guards.shape_check import Property, is_ordinary
from stator.guards.tensor_meta import same_contents, tensor_values, value_of_scalar
from stator.host.value_kinds import is_a
from stator.settings.process_config import config
from stator.shapes.named_dimensions import NUMBER, Declarations, Dim
from stator.shapes.symbolic_values import COLLECTIONS, STANDINS
from stator.shapes.tensor_marks import DYNAMIC_MARK, RAGGED_MARK, STATIC_MARK, UNBACKED_MARK, WEAK_MARK
from stator.source import CallOf, Index, Key, KeyAt, Local, Pinned, Source, ValueAt

CONTENTS_LIMIT = 3  # compilations for one tensor's values each, before the program breaks instead
ARRAYS_LIMIT = 5  # the same for numpy arrays: each operation on them is a break then
_VARIES = frozenset({Kind.TENSOR, Kind.LEN, Kind.VALUES})
SAME_CONTENTS = Pinned(same_contents)
VALUE_OF_SCALAR = Pinned(value_of_scalar)
_CONTAINERS = (Index, Key, KeyAt, ValueAt)
_LENGTHS = 4  # that a container may have before its items are taken one by one


@dataclass
class Memory:
    """Sizes, numbers and values that have changed at one place of the program."""

    sizes: dict[Source, set[int]] = field(default_factory=dict)
    strides: dict[Source, set[int]] = field(default_factory=dict)
    numbers: set[Source] = field(default_factory=set)
    tuples: set[Source] = field(default_factory=set)  # constant tuples with numbers that change
    lengths: dict[Source, set[int]] = field(default_factory=dict)  # of containers, as far as they were facts
    unread: set[Source] = field(default_factory=set)  # values that are no longer facts
    undecided_sizes: dict[Source, set[int]] = field(default_factory=dict)  # sizes that code pins down again and again
    undecided_numbers: set[Source] = field(default_factory=set)
    contents: dict[Source, set[Any]] = field(default_factory=dict)  # values that tensors and arrays had, and left
    foreseen: dict[str, Any] | None = None  # of a loaded profile, by the names of the values

    def foresees(self, kind: str, source: Source) -> Any:
        """Dimensions or lengths of a value in the loaded profile; for lists of names, whether it is listed."""
        if self.foreseen is None:
            return ()
        known, name = self.foreseen[kind], source.text()
        return known.get(name, ()) if isinstance(known, dict) else (name,) if name in known else ()

    def learn(self, guards: Iterable[Guard], bound: Sequence[Any]) -> None:
        """Compare an entry's facts with the call that it does not fit."""
        for guard in guards:
            if guard.kind in _VARIES or guard.kind is Kind.EQUALS and type(guard.value) in (int, float, tuple):
                try:
                    value = evaluate(guard.source, bound)
                except Unreadable:
                    continue
                self._compare(guard, value)
            elif guard.kind is Kind.FRESH_CALL and type(guard.source) is CallOf:
                self._compare_arrays(guard, guard.source, bound)

    def give_up(self, guards: Iterable[Guard], bound: Sequence[Any]) -> bool:
        """Stop guarding what keeps failing, now that there are too many entries; whether anything was found."""
        before = self._given_up()
        for guard in failing([each for each in guards if each.kind is not Kind.GLOBAL_STATE], bound):
            if guard.kind is Kind.SHAPE:
                self._leave_undecided(guard)
            else:
                self._leave_unread(guard, bound)
        return self._given_up() > before

    def _given_up(self) -> int:
        return len(self.unread) + len(self.undecided_numbers) + sum(map(len, self.undecided_sizes.values()))

    def _leave_undecided(self, guard: Guard) -> None:
        for operand in guard.value.operands:
            if operand.property is Property.SIZE:
                self.undecided_sizes.setdefault(operand.source, set()).add(operand.index)
            elif operand.property is Property.NUMBER:
                self.undecided_numbers.add(operand.source)

    def _leave_unread(self, guard: Guard, bound: Sequence[Any]) -> None:
        source: Source | None = guard.source
        if type(source) is CallOf and source.args:  # what an iterator will yield, how many items are left
            source = source.args[0]
        while source is not None and type(source) is not Pinned:
            try:
                value = evaluate(source, bound)
            except Unreadable:
                return
            if type(value) in STANDINS:
                self.unread.add(source)
                return
            if type(value) is not types.CodeType:  # the code of a function stands for the function
                return
            source = source.base

    def merge(self, other: Memory, move: Callable[[Source], Source | None]) -> None:
        """Add what another place has learned, as far as `move` can name it here."""
        for mine, theirs in zip(self._sets(), other._sets(), strict=True):
            mine.update([found for found in map(move, theirs) if found is not None])
        for own, others in zip(self._tables(), other._tables(), strict=True):
            for source, items in list(others.items()):  # a place may inherit from itself
                found = move(source)
                if found is not None:
                    own.setdefault(found, set()).update(items)

    def forget(self) -> None:
        for known in (*self._sets(), *self._tables()):
            known.clear()  # type: ignore[attr-defined]

    def _sets(self) -> tuple[set[Source], ...]:
        return self.numbers, self.tuples, self.unread, self.undecided_numbers

    def _tables(self) -> tuple[dict[Source, set[Any]], ...]:
        return self.sizes, self.strides, self.lengths, self.undecided_sizes, self.contents

    def _compare(self, guard: Guard, value: Any) -> None:
        expected = guard.value
        if guard.kind is Kind.EQUALS and is_constant(value):  # another tuple may hold objects with an `__eq__`
            self._compare_constants(guard.source, expected, value)
        elif guard.kind is Kind.LEN:
            self._compare_lengths(guard.source, expected, value)
        elif guard.kind is Kind.VALUES:
            if is_a(value, torch.Tensor) and tensor_values(value) != expected:
                self.contents.setdefault(guard.source, set()).add(expected)
        elif guard.kind is not Kind.TENSOR:
            return
        elif type(value) in (int, float):  # a tensor before: numbers that come in its place will be others, too
            self.numbers.add(guard.source)
        elif type(value) is expected.type and value.dim() == len(expected.sizes):
            changed = {dim for dim, size in enumerate(expected.sizes) if size not in (None, value.shape[dim])}
            if changed:
                self.sizes.setdefault(guard.source, set()).update(changed)
            elif expected.strides is not None and expected.layout is value.layout:  # the sizes do not explain it
                moved = {dim for dim, stride in enumerate(expected.strides) if stride not in (None, value.stride(dim))}
                if moved:
                    self.strides.setdefault(guard.source, set()).update(moved)

    def _compare_arrays(self, guard: Guard, question: CallOf, bound: Sequence[Any]) -> None:
        """Compare the contents of a numpy array or scalar with those of an entry."""
        if question.fn is not SAME_CONTENTS and question.fn is not VALUE_OF_SCALAR:
            return
        try:
            values = [evaluate(argument, bound) for argument in question.args]
        except Unreadable:
            return
        is_array = question.fn is SAME_CONTENTS  # which asks for the type itself
        if (is_array or type(values[0]) in STANDINS) and question.fn.obj(*values) != guard.value:
            place = question.args[0]
            seen = self.contents.setdefault(place, set())
            seen.add(id(guard))
            if not is_array and len(seen) >= ARRAYS_LIMIT:
                self.unread.add(place)

    def _compare_lengths(self, source: Source, expected: int, value: Any) -> None:
        if type(value) not in COLLECTIONS or not hasattr(type(value), "__len__") or len(value) == expected:
            return
        seen = self.lengths.setdefault(source, set())
        seen.update((expected, len(value)))
        if len(seen - {0}) > _LENGTHS:
            self.unread.add(source)

    def _compare_constants(self, source: Source, expected: Any, value: Any) -> None:
        if type(value) is not type(expected) or value == expected:
            return
        if type(value) is tuple and len(value) == len(expected):
            self.tuples.add(source)
            for i, (old, new) in enumerate(zip(expected, value, strict=True)):
                self._compare_constants(Index(source, i), old, new)
        elif type(value) in (int, float) and value == value and expected == expected:
            self.numbers.add(source)


@dataclass
class Policy:
    """The choices of one compiled place."""

    dynamic: bool | None
    breaks: bool = True  # whether an instruction that reads an unread value may break
    memory: Memory = field(default_factory=Memory)
    declared: Declarations = field(default_factory=Declarations)  # by the user, for the arguments
    floats: bool = True  # whether floats may be left open: until a backend refuses a graph that has one
    items: bool = False  # whether numbers in inputs are read at entry: once a backend refused to take them in the graph

    def is_plain(self) -> bool:
        """Whether every size and number is a constant, wherever it is read."""
        memory = self.memory
        return not self.dynamic and not self.declared.dims and memory.foreseen is None \
            and not any(memory._sets()) and not any(memory._tables())

    def declare(self, declared: Declarations) -> None:
        """Take the declarations of the user; of torch's `shapes_spec` all other sizes are constants."""
        self.declared = declared
        if declared.others_are_static:
            self.dynamic = False

    def gives_up(self, value: object, source: Source) -> bool:
        """Whether the value is handed around unread."""
        unread = self.memory.unread
        return bool(unread) and self.breaks and source in unread and type(value) in STANDINS

    def named_number(self, source: Source) -> Dim | None:
        return self.declared.of(source.text()).get(NUMBER) if self.declared.dims else None

    def open_dims(self, tensor: torch.Tensor, source: Source) -> dict[int, str | Dim]:
        """The dimensions that become symbols: "declared" by a mark, "unbacked", "open", or a Dim of the options."""
        with torch._C.DisableTorchFunction():  # the tracer's own mode is on
            rank = tensor.dim()
            if rank == 0 or tensor.layout is not torch.strided:
                return {}
            in_order = tensor.is_contiguous()  # fakes know the layout of results only where they can sort strides
        marks = tensor.__dict__
        found: dict[int, str | Dim] = {}
        if self.dynamic is not False:
            every = self.dynamic and (type(tensor) is torch.Tensor or hasattr(type(tensor), "__tensor_flatten__"))
            undecided = self.memory.undecided_sizes.get(source, ()) if self.breaks and in_order else ()
            seen = (*self.memory.sizes.get(source, ()), *self.memory.foresees("sizes", source))
            found = {**dict.fromkeys((*(range(rank) if every else ()), *seen), "open"),
                     **dict.fromkeys(undecided, "unbacked"),
                     **dict.fromkeys((*marks.get(WEAK_MARK, ()), *marks.get(RAGGED_MARK, ())), "open")}
            for dim in marks.get(STATIC_MARK, ()):
                found.pop(dim, None)
        if self.declared.dims:
            named = self.declared.of(source.text())
            found.update({dim % rank: each for dim, each in named.items() if dim is not None and -rank <= dim < rank})
        found.update(dict.fromkeys(marks.get(DYNAMIC_MARK, ()), "declared"))
        found.update(dict.fromkeys(marks.get(UNBACKED_MARK, ()), "unbacked"))
        return {dim: how for dim, how in found.items() if 0 <= dim < rank}

    def open_strides(self, tensor: torch.Tensor, source: Source) -> frozenset[int]:
        """The dimensions whose strides become symbols: those that changed while no size did."""
        known = {*self.memory.strides.get(source, ()), *self.memory.foresees("strides", source)}
        if self.dynamic is False or not known:
            return frozenset()
        with torch._C.DisableTorchFunction():  # the tracer's own mode is on
            return frozenset(dim for dim in known if tensor.layout is torch.strided and dim < tensor.dim())

    def is_open(self, value: object, source: Source) -> bool:
        if value != value or type(source) is Pinned \
                or type(value) is float and (not self.floats or not is_ordinary(value)) \
                or type(value) is int and not -(1 << 62) < value < 1 << 62:
            return False
        if self.named_number(source) is not None:
            return True
        if self.dynamic is False or type(value) is int and config.specialize_int:
            return False
        return source in self.memory.numbers or bool(self.memory.foresees("numbers", source)) \
            or self.dynamic is True and type(value) is int and _is_argument(source)

    def number_choice(self, value: object, source: Source) -> tuple[bool, Dim | None]:
        """Whether an open int must not be pinned down any more (what needs the number breaks), and its declaration."""
        undecided = self.breaks and type(value) is int and source in self.memory.undecided_numbers
        return undecided, self.named_number(source)

    def opens_length(self, source: Source) -> bool:
        """Whether the length of a list is a symbol, where only its length is read."""
        return self.dynamic is not False and (source in self.memory.lengths
                                              or bool(self.memory.foresees("lengths", source))
                                              or self.dynamic is True and _is_argument(source))

    def may_guard_contents(self, source: Source) -> bool:
        """Whether the values of a tensor may become a guard: not where they have changed again and again."""
        return len(self.memory.contents.get(source, ())) < CONTENTS_LIMIT

    def may_guard_array(self, source: Source) -> bool:
        """The same for a numpy array; without breaks there is no other way."""
        return not self.breaks or len(self.memory.contents.get(source, ())) < ARRAYS_LIMIT

    def feeds_numpy(self, source: Source) -> bool:
        """Whether a numpy array or scalar is an input of the graph: an argument once it has changed, others later."""
        seen = self.memory.contents.get(source, ())
        return self.dynamic is not False and (len(seen) >= ARRAYS_LIMIT or len(seen) > 0 and _is_argument(source))

    def opens_items(self, source: Source) -> bool:
        """Whether numbers in a tensor are read at entry, and guards may depend on them: once a guard on them failed."""
        return self.items or self.dynamic is not False and source in self.memory.contents

    def opens_tuple(self, value: tuple[Any, ...], source: Source) -> bool:
        """Whether a tuple of constants is read item by item, because a number in it is left open."""
        return self.dynamic is not False and bool(
            source in self.memory.tuples or self.memory.foresees("tuples", source)
            or self.dynamic is True and _is_argument(source) and any(type(item) is int for item in value))


def _is_argument(source: Source) -> bool:
    """An argument, or an item of a container among the arguments; what hangs on objects changes less often."""
    step: Source | None = source
    while isinstance(step, _CONTAINERS):
        step = step.base
    return type(step) is Local
