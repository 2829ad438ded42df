"""The standard library inside a capture equals eager: addresses in texts, sizes, lifetimes, warnings, imports."""

from __future__ import annotations

import ast
import bisect
import collections
import gc
import heapq
import importlib
import io
import pickle
import struct
import sys
import traceback
import types
import typing
import unittest
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator


def whole(function: Callable[..., Any]) -> Callable[..., Any]:
    return stator.compile(function, backend="eager", fullgraph=True)  # type: ignore[no-any-return]


class Plain:
    def __init__(self) -> None:
        self.shown = repr(self)


class Empty:
    pass


class Answers:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def read(self) -> Any:
        return self.answer

    def __index__(self) -> Any:
        return self.answer


def test_the_text_of_an_object_shows_the_address_of_the_object_that_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    def program(table: dict[str, str]) -> tuple[Any, ...]:
        made, walker = Plain(), iter([1, 2])
        print(f"{walker!r:>60}")
        table["text"] = "%s" % made  # noqa: UP031
        return made, repr(made)[1:-1], walker, str(walker)

    compiled = whole(program)
    for _ in range(3):
        table: dict[str, str] = {}
        made, inner, walker, text = compiled(table)
        assert repr(made) == made.shown == table["text"] == f"<{inner}>"
        assert text == repr(walker) == capsys.readouterr().out.strip()


def test_the_text_of_objects_from_outside_shows_their_own_addresses() -> None:
    def program(value: Any) -> tuple[str, ...]:
        return repr([value]), "%s" % value, "{}".format(value.append), str({1: value.append})  # noqa: UP031, UP032

    compiled = whole(program)
    for value in ([1], [2, 3], collections.UserList([4])):
        assert compiled(value) == program(value)


def test_sizes_of_objects_made_inside() -> None:
    def program(count: int) -> list[int]:
        made = [list(range(count)), {n: n for n in range(count)}, [n for n in range(count)], {n for n in range(count)},
                tuple(range(count)), {**dict.fromkeys(range(count)), "a": 1}, "a" * count, 1 << count, count, [*range(count), 1]]
        return [sys.getsizeof(each) for each in made]

    compiled = whole(program)
    for count in (0, 1, 5, 6, 11, 23):
        assert compiled(count) == program(count)


def test_collections_untrack_tuples_and_keep_weakly_referenced_objects() -> None:
    def program(number: int) -> tuple[Any, ...]:
        plain, held = (number, "a"), (number, [])
        kept, dropped = Empty(), Empty()
        first, second = weakref.ref(kept), weakref.ref(dropped)
        del dropped
        gc.collect()
        return gc.is_tracked(plain), gc.is_tracked(held), first() is kept, second(), gc.is_tracked({"a": 1})

    compiled = whole(program)
    assert compiled(1) == program(1) == (False, True, True, None, False)
    assert compiled(2) == program(2)


def test_objects_that_a_collection_ends() -> None:
    def program(number: int) -> tuple[Any, ...]:
        made, kept = Empty(), Empty()
        made.own = made  # type: ignore[attr-defined]
        kept.own = [kept]  # type: ignore[attr-defined]
        table = weakref.WeakValueDictionary({number: made, "kept": kept})
        references = weakref.ref(made), weakref.ref(kept), weakref.WeakMethod(Answers(number).read)
        alive = [reference() is None for reference in references]
        del made
        gc.collect()
        return alive, [reference() is None for reference in references], list(table), len(table)

    compiled = whole(program)
    for number in (1, 2, 1):
        assert compiled(number) == program(number) == ([False, False, True], [True, False, True], ["kept"], 1)


def test_a_handled_exception_ends_with_its_objects() -> None:
    class Holding(Exception):
        def __init__(self, held: Any) -> None:
            self.held = held

    def program(raised: bool) -> bool:
        held: Any = Empty()
        reference = weakref.ref(held)
        try:
            if raised:
                raise Holding(held)
        except Holding:
            pass
        held = None
        return reference() is None

    compiled = whole(program)
    assert [compiled(raised) for raised in (True, False, True)] == [program(raised) for raised in (True, False, True)]


def test_an_object_whose_address_was_read_dies() -> None:
    def program(number: int) -> bool:
        held: Any = [Empty(), number]
        sorted(held, key=id)
        reference = weakref.ref(held.pop(0))
        return reference() is None

    compiled = stator.compile(program, backend="eager")
    assert [compiled(number) for number in (1, 1, 2)] == [program(number) for number in (1, 1, 2)] == [True, True, True]


def test_parts_of_groups_from_outside() -> None:
    def made(number: int) -> ExceptionGroup:
        try:
            raise ExceptionGroup("some", [ValueError(number), TypeError(int), ExceptionGroup("more", [OSError(2)])])
        except ExceptionGroup as group:
            group.add_note("a note")
            return group

    def program(group: Any) -> Any:
        match, rest = group.split(ValueError)
        deep = group.subgroup(lambda exc: isinstance(exc, OSError))
        same = match.exceptions[0] is group.exceptions[0], group.subgroup(Exception) is group
        try:
            group.split(1)
        except TypeError as error:
            return match, rest, deep, same, group.subgroup(KeyError), str(error)

    def shown(found: Any, group: ExceptionGroup) -> Any:
        parts = [(repr(part), part.__notes__, part.__traceback__ is group.__traceback__) for part in found[:3]]
        return parts, found[3:], found[2].exceptions[0].exceptions[0] is group.exceptions[2].exceptions[0]  # type: ignore[attr-defined]

    compiled = whole(program)
    for number in (1, 1, 2):
        group, other = made(number), made(number)
        assert shown(compiled(group), group) == shown(program(other), other)


def test_names_and_registrations_of_types_made_inside() -> None:
    def program(number: int) -> tuple[Any, ...]:
        namespace: dict[str, Any] = {}
        exec("import typing\nT = typing.TypeVar('T')\nN = typing.NewType('N', int)", namespace)

        @typing.runtime_checkable
        class Has(typing.Protocol):
            x = 1

        class Plain:
            pass

        Has.register(Plain)
        return namespace["T"].__module__, namespace["N"].__module__, isinstance(Plain(), Has), number

    compiled = whole(program)
    assert [compiled(number) for number in (1, 2)] == [program(number) for number in (1, 2)]


@pytest.mark.parametrize("add", [bisect.insort, lambda items, value: heapq.heappush(items, value)])
def test_a_list_that_c_code_changes_while_it_compares_tensors(add: Callable[..., Any]) -> None:
    def program(items: list[Any]) -> list[Any]:
        def made() -> torch.Tensor:
            stator.graph_break()
            return torch.tensor(2)
        add(items, made())
        return items

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for count in (3, 3, 5):
        items, other = list(range(count)), list(range(count))
        assert compiled(items) is items and items == program(other)


class Unpickleable:
    def __reduce__(self) -> Any:
        raise KeyError("no")


def test_errors_of_pickling_have_the_frames_of_eager() -> None:
    def program(number: int) -> list[Any]:
        found: list[Any] = []
        for value in (Unpickleable(), (each for each in [1])):
            for protocol in (0, 2, 4):
                try:
                    pickle.dumps([number, value], protocol)
                except Exception as error:
                    frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
                    found.append((type(error).__name__, str(error), frames))
        return found

    compiled = whole(program)
    assert [compiled(number) for number in (1, 2)] == [program(number) for number in (1, 2)]


def test_buffers_that_other_arguments_write_to() -> None:
    def program(buffer: bytearray, number: int) -> tuple[Any, ...]:
        own = bytearray(4)
        struct.pack_into("<h", buffer, 2, number)
        struct.Struct("<h").pack_into(own, 0, number)
        read = io.BytesIO(b"ab").readinto(own)
        made = types.ModuleType.__new__(types.ModuleType)
        made.__init__("made", "text")  # type: ignore[misc]
        try:
            struct.pack_into("<h", buffer, 9, number)
        except struct.error as error:
            return own, read, made.__name__, made.__doc__, str(error)
        return ()

    compiled = whole(program)
    for number in (1, 1, 2):
        buffer, other = bytearray(4), bytearray(4)
        assert (compiled(buffer, number), buffer) == (program(other, number), other)


def test_warnings_of_conversions_are_recorded_and_replayed() -> None:
    def recorded(value: Any) -> tuple[int, list[str]]:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", DeprecationWarning)
            number = int(value)
        return number, [str(each.message) for each in heard]

    def replayed(value: Any) -> int:
        return int(value) + 1

    for value in (Answers(True), Answers(3)):
        assert whole(recorded)(value) == recorded(value)
        with warnings.catch_warnings(record=True) as expected:
            warnings.simplefilter("always")
            replayed(value)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            assert whole(replayed)(value) == replayed(value)
        assert {(str(each.message), each.lineno) for each in found} == {(str(e.message), e.lineno) for e in expected}


def test_assert_warns_inside() -> None:
    def program(case: unittest.TestCase, text: str) -> str:
        with case.assertWarns(UserWarning) as context:
            warnings.warn(text, UserWarning, stacklevel=1)
        return str(context.warning)

    compiled = whole(program)
    assert compiled(unittest.TestCase(), "one") == "one"
    assert compiled(unittest.TestCase(), "two") == "two"


@pytest.mark.parametrize("make", [io.StringIO, io.BytesIO])
def test_a_stream_in_memory_has_no_file_number(make: Any) -> None:
    outside = make()

    def program(number: int) -> Any:
        found: list[Any] = [number]
        for stream in (make(), outside):
            try:
                found.append(stream.fileno())
            except io.UnsupportedOperation as error:
                found.append((type(error), error.args))
        inside = make()
        found.append(inside.isatty())
        inside.close()
        try:
            inside.isatty()
        except ValueError as error:
            found.append((type(error), error.args))
        return found

    compiled = whole(program)
    for number in (1, 2):
        assert compiled(number) == program(number)


def test_the_hook_of_exceptions_writes_to_a_stream_of_the_call() -> None:
    def program(number: int) -> str:
        before, sys.stderr = sys.stderr, io.StringIO()
        try:
            try:
                [].missing  # type: ignore[attr-defined]  # noqa: B018
            except AttributeError:
                sys.__excepthook__(*sys.exc_info())
            return f"{number} {sys.stderr.getvalue().splitlines()[-1]}"  # type: ignore[attr-defined]
        finally:
            sys.stderr = before

    compiled = whole(program)
    assert compiled(1) == program(1)
    assert compiled(2) == program(2)


def test_descriptors_called_by_hand_and_reductions() -> None:
    class Slotted:
        __slots__ = ("a",)

    def program(text: str, target: Any) -> tuple[Any, ...]:
        Slotted.a.__set__(target, text)  # type: ignore[attr-defined]
        made = Slotted()
        made.a = 1
        Slotted.a.__delete__(made)  # type: ignore[attr-defined]
        ordered = collections.OrderedDict(k=text)
        return (str.upper.__get__(text)(), hasattr(made, "a"), ordered.__reduce__()[:2], bytearray(b"x").__reduce_ex__(4),
                {1}.__reduce__(), pickle.loads(pickle.dumps(ordered)))

    compiled = whole(program)
    for text in ("p", "q"):
        first, second = Slotted(), Slotted()
        assert compiled(text, first) == program(text, second)
        assert first.a == second.a == text


def test_imports_by_name_and_behind_a_changed_table_of_modules() -> None:
    def program(name: str) -> tuple[Any, ...]:
        made = types.ModuleType("made_inside")
        sys.modules["made_inside"] = made
        try:
            import json.decoder
            return importlib.import_module(name), importlib.import_module("made_inside") is made, json.decoder
        finally:
            del sys.modules["made_inside"]

    compiled = whole(program)
    assert compiled("json.encoder") == program("json.encoder")
    assert compiled("string") == program("string")


def test_syntax_trees_and_orders_of_bases_inside() -> None:
    class Reversed(type):
        def mro(cls) -> list[type]:
            return [cls, *super().mro()[1:]]

    def program(number: int) -> tuple[Any, ...]:
        tree = ast.parse(f"{number} + 1", mode="eval")
        made = Reversed("made", (int,), {})
        return eval(compile(tree, "<tree>", "eval")), type(tree.body).__name__, [each.__name__ for each in made.__mro__]

    compiled = whole(program)
    assert compiled(1) == program(1)
    assert compiled(4) == program(4)


def test_an_exception_whose_argument_has_no_text_is_handled() -> None:
    class Unreadable:
        __str__ = __repr__ = None  # type: ignore[assignment]

    def program(number: int) -> int:
        try:
            raise AttributeError(Unreadable())
        except AttributeError:
            return number

    compiled = whole(program)
    assert compiled(1) == 1
    assert compiled(2) == 2


def test_no_attribute_of_an_object_is_read_for_its_size() -> None:
    class Guarded:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

    def program(number: int) -> tuple[Any, ...]:
        made = Guarded()
        return sys.getsizeof(made), gc.is_tracked(made), number

    compiled = whole(program)
    assert compiled(1) == program(1)
    assert compiled(2) == program(2)


def test_sets_refuse_generators_from_outside_without_a_look() -> None:
    def program(members: set[Any], generator: Any) -> list[str]:
        found = []
        for combine in (lambda: members | generator, lambda: members - generator):
            try:
                found.append(repr(combine()))
            except TypeError as error:
                found.append(str(error))
        return found

    compiled = whole(program)
    for _ in range(2):
        left, right = (each for each in [1, 2]), (each for each in [1, 2])
        assert compiled({1}, left) == program({1}, right)
        assert list(left) == list(right) == [1, 2]
