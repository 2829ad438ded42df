"""asyncio inside a call: tasks, sleeps, context variables, async generators; what leaves the loop breaks."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import gc
import io
import itertools
import os
import pickle
import re
import traceback
import typing
import warnings
from collections.abc import AsyncIterator

import pytest
import torch

import stator
from tests.comparison import call, same_as_eager

LEVEL: contextvars.ContextVar[int] = contextvars.ContextVar("LEVEL", default=0)


async def scaled(x, n, order):
    await asyncio.sleep(0)
    LEVEL.set(n)
    order.append(n)
    await asyncio.sleep(0.001 * n)
    order.append(-n)
    return x * n + LEVEL.get()


async def two_tasks(x):
    order: list[int] = []
    later = asyncio.create_task(scaled(x, 3, order))
    sooner = asyncio.create_task(scaled(x, 2, order))
    total = await later + await sooner
    return total, order, LEVEL.get(), isinstance(later, asyncio.Task), later.done(), sooner.cancelled()


async def cancelled(x):
    task = asyncio.ensure_future(asyncio.sleep(10))
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return x + 1, task.cancelled()


async def with_event(x):
    ready = asyncio.Event()
    found = []

    async def wait():
        await ready.wait()
        found.append(x * 2)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    before = len(found)
    ready.set()
    await task
    return before, found[0]


async def fails(x):
    await asyncio.sleep(0)
    raise ValueError(f"size {x.shape[0]}")


async def counted(x) -> AsyncIterator[torch.Tensor]:
    for i in range(3):
        yield x + i
        await asyncio.sleep(0)


async def consumed(x):
    source = counted(x)
    first = await anext(source)
    rest = [each async for each in aiter(source)]
    return first, rest, await anext(source, "over")


class Pairs:
    """An async iterator that the program has written."""

    def __init__(self, n):
        self.n = n

    def __aiter__(self):
        return self

    async def __anext__(self):
        self.n -= 1
        if self.n < 0:
            raise StopAsyncIteration
        return self.n


async def of_pairs(x):
    pairs = Pairs(2)
    return x + await anext(pairs), await anext(pairs, None), await anext(pairs, "none left")


MAINS = [two_tasks, cancelled, with_event, consumed, of_pairs]


@pytest.mark.parametrize("main", MAINS, ids=lambda main: main.__name__)
def test_run_is_captured(main) -> None:
    def program(x):
        return asyncio.run(main(x))
    same_as_eager(program, call(torch.ones(2)), call(torch.arange(3.0)))


@pytest.mark.parametrize("main", MAINS, ids=lambda main: main.__name__)
def test_idle_loop_from_outside(main) -> None:
    loop = asyncio.new_event_loop()
    try:
        compiled = stator.compile(lambda x: loop.run_until_complete(main(x)), backend="eager", fullgraph=True)
        for x in (torch.ones(2), torch.arange(2.0)):
            assert str(compiled(x)) == str(loop.run_until_complete(main(x)))
        loop.call_soon(lambda: None)  # no longer idle
        with pytest.raises(stator.Unsupported, match="SB018"):
            compiled(torch.ones(2))
        loop.run_until_complete(asyncio.sleep(0))
        assert str(compiled(torch.ones(2))) == str(loop.run_until_complete(main(torch.ones(2))))
    finally:
        loop.close()


def test_exceptions_leave_the_loop() -> None:
    def handled(x):
        try:
            asyncio.run(fails(x))
        except ValueError as error:
            return x + 1, str(error)
    same_as_eager(handled, call(torch.ones(2)), call(torch.ones(3)))
    same_as_eager(lambda x: asyncio.run(fails(x)), call(torch.ones(2)))
    same_as_eager(lambda x: asyncio.run(3) or x, call(torch.ones(2)))  # no coroutine


def test_errors_of_async_iterators() -> None:
    def program(x, value, function):
        try:
            function(value)
        except TypeError as error:
            return x + 1, str(error)
    class Strange:
        def __aiter__(self):
            return 3
    for value, function in ((1, anext), (1, aiter), (Strange(), aiter)):
        same_as_eager(program, call(torch.ones(2), value, function))


def test_a_break_in_a_task_is_one_at_the_call() -> None:
    async def opaque(x):
        gc.get_count()
        return x + 1
    same_as_eager(lambda x: asyncio.run(opaque(x)) * 2, call(torch.ones(2)), call(torch.zeros(2)), fullgraph=False)


def test_what_outlives_the_loop_breaks() -> None:
    async def left(x):
        async for each in counted(x):
            return each
    async def kept(x):
        return asyncio.ensure_future(asyncio.sleep(0))
    async def waits(x):
        await asyncio.get_running_loop().run_in_executor(None, len, "ab")
        return x + 1
    for main in (left, kept, waits):
        with pytest.raises(stator.Unsupported):
            stator.compile(lambda x, main=main: asyncio.run(main(x)), backend="eager", fullgraph=True)(torch.ones(2))
    same_as_eager(lambda x: asyncio.run(left(x)), call(torch.ones(2)), fullgraph=False)
    same_as_eager(lambda x: asyncio.run(waits(x)), call(torch.ones(2)), fullgraph=False)


def test_policies_of_the_program_are_asked() -> None:
    async def main(x):
        return x + 1

    class Policy(asyncio.DefaultEventLoopPolicy):
        made = 0

        def new_event_loop(self):
            Policy.made += 1
            return super().new_event_loop()
    compiled = stator.compile(lambda x: asyncio.run(main(x)), backend="eager")
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        asyncio.set_event_loop_policy(Policy())
        try:
            compiled(torch.ones(2))
        finally:
            asyncio.set_event_loop_policy(None)
    assert Policy.made == 1


def test_environment_is_set() -> None:
    def program(x, value):
        os.environ["STATOR_TEST_NAME"] = value
        return x + len(os.environ["STATOR_TEST_NAME"])
    try:
        compiled = stator.compile(program, backend="eager", fullgraph=True)
        for value in ("a", "bcd"):
            assert torch.equal(compiled(torch.ones(2), value), torch.ones(2) + len(value))
            with os.popen("echo $STATOR_TEST_NAME") as pipe:
                assert pipe.read().strip() == value  # a process sees it
    finally:
        del os.environ["STATOR_TEST_NAME"]


def test_annotations_made_inside() -> None:
    def program(x):
        alias = typing.Union[typing.List[int], typing.Optional[typing.Dict[str, int]]]  # noqa: UP006, UP007, UP045
        return x + len(typing.get_args(alias)), str(alias)
    same_as_eager(program, call(torch.ones(2)), call(torch.zeros(3)))


def test_update_without_an_instance() -> None:
    def program(x):
        try:
            dict.update()
        except TypeError as error:
            return x + 1, str(error)
    same_as_eager(program, call(torch.ones(2)))


def test_deprecated_copies_of_iterators_warn() -> None:
    def program(x):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            copy.copy(itertools.count(3))
            pickle.dumps(itertools.repeat(3, 2))
            itertools.chain([1], [2]).__reduce__()
            return x + len(heard), [str(each.message) for each in heard]
    same_as_eager(program, call(torch.ones(2)), call(torch.zeros(2)))


def ordered_deaths(x):
    out: list = []

    class Noted:
        def __init__(self, name):
            self.name = name

        def __del__(self):
            out.append(self.name)

    def inner():
        held = Noted("local")
        out.append("inside")
        return held.name

    Noted("temporary")
    out.append(inner())
    pair = [Noted("first"), Noted("second")]
    pair.clear()
    out.append("cleared")
    again = Noted("old")
    again = Noted("new")
    out.append("replaced")
    del again
    try:
        raise ValueError(Noted("raised"))
    except ValueError:
        out.append("handled")
    return x + len(out), out


def counted_deaths(x):
    class Counted:
        left = 0

        def __init__(self):
            Counted.left += 1

        def __del__(self):
            Counted.left -= 1

    made = [Counted() for _ in range(3)]
    before = Counted.left
    made.pop()
    return x + before, Counted.left, made.clear(), Counted.left


def kept_by_a_closure(x):
    out = []

    class Noted:
        def __del__(self):
            out.append("dead")

    def make():
        held = Noted()
        return (lambda: held)() is held
    return make(), out, x + len(out)


def alive_at_the_end(x, log):
    class Noted:
        def __del__(self):
            log.append("dead")
    held = Noted()
    log.append("made")
    return x + len(log), held is None


def breaks_inside(x, log):
    class Noted:
        def __del__(self):
            log.append(len(gc.get_objects()) > 0)
    Noted()
    return x + len(log)


def changed_later(x, log):
    class Noted:
        def __del__(self):
            log.append("first")
    held = Noted()
    Noted.__del__ = lambda self: log.append("second")
    del held
    return x + len(log)


def resurrected(x, log):
    class Noted:
        def __del__(self):
            log.append(self)
    Noted()
    return x + len(log)


def test_finalizers_of_classes_made_inside() -> None:
    for program in (ordered_deaths, counted_deaths):
        same_as_eager(program, call(torch.ones(2)), call(torch.zeros(3)))
    same_as_eager(kept_by_a_closure, call(torch.ones(2)), fullgraph=False)
    for program in (alive_at_the_end, breaks_inside, changed_later):
        same_as_eager(program, call(torch.ones(2), []), call(torch.zeros(2), [1]), fullgraph=False)
    log: list = []
    stator.compile(resurrected, backend="eager")(torch.ones(2), log)
    assert len(log) == 1
    stator.compile(resurrected, backend="eager")(torch.ones(2), log)
    assert len(log) == 2


def written_and_read(x, path):
    with open(path, "w", encoding="utf-8") as file:
        count = file.write("one\r\ntwo\n")
        file.writelines(f"{n}\n" for n in range(x.shape[0]))
    assert file.closed
    file = open(path, encoding="utf-8")
    lines = list(file)
    file.seek(0)
    first, rest = file.readline(), file.read()
    file.close()
    try:
        file.read()
    except ValueError as error:
        return x + len(lines), count, lines, first, rest, str(error)


def refused_uses(x, path):
    found = []
    with open(path, "wb") as file:
        file.write(b"abc")
        for wrong in (file.read, lambda: open(path, "q")):  # noqa: SIM115
            try:
                wrong()
            except (OSError, ValueError) as error:
                found.append(type(error).__name__)
    with open(path, "rb") as file:
        data = file.read()
    os.unlink(path)
    return x + len(found), found, data, isinstance(file, io.BufferedReader)


def test_files_written_inside(tmp_path) -> None:
    for program, full in ((written_and_read, True), (refused_uses, False)):
        paths = [str(tmp_path / name) for name in ("eager", "compiled")]
        compiled = stator.compile(program, backend="eager", fullgraph=full)
        for x in (torch.ones(2), torch.zeros(3), torch.ones(3)):
            assert str(program(x, paths[0])) == str(compiled(x, paths[1]))
            assert os.path.exists(paths[0]) == os.path.exists(paths[1])
            if os.path.exists(paths[0]):
                with open(paths[0], "rb") as one, open(paths[1], "rb") as other:
                    assert one.read() == other.read()


def test_file_that_cannot_be_written(tmp_path) -> None:
    def program(x, path):
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write("text")
        except OSError as error:
            return x + 1, type(error).__name__
        return x
    compiled = stator.compile(program, backend="eager")
    path = tmp_path / "name"
    assert torch.equal(compiled(torch.ones(2), str(path)), torch.ones(2))
    path.unlink()
    path.mkdir()  # a folder from now on
    assert str(compiled(torch.ones(2), str(path))) == str(program(torch.ones(2), str(path)))
    missing = str(tmp_path / "missing" / "name")
    assert str(compiled(torch.ones(2), missing)) == str(program(torch.ones(2), missing))


def test_open_file_that_leaves_the_call(tmp_path) -> None:
    def program(x, path):
        file = open(path, "w", encoding="utf-8")  # noqa: SIM115
        file.write("text")
        return x + 1, file
    y, file = stator.compile(program, backend="eager")(torch.ones(2), str(tmp_path / "name"))
    assert type(file) is io.TextIOWrapper
    file.close()
    assert (tmp_path / "name").read_text() == "text"


def raises(x):
    raise ValueError(f"size {x.shape[0]}")


def test_text_of_a_traceback() -> None:
    def program(x):
        try:
            raises(x)
        except ValueError as error:
            entries = [(each.name, each.line) for each in traceback.extract_tb(error.__traceback__)]
            return x + len(entries), entries, traceback.format_exception_only(error)

    def name_not_found(x):
        try:
            return x + torhc  # noqa: F821
        except NameError as error:
            return x + 1, str(error)
    for each in (program, name_not_found):
        same_as_eager(each, call(torch.ones(2)), call(torch.zeros(3)))


def test_lines_of_a_file_that_changes(tmp_path) -> None:
    source = tmp_path / "failing.py"
    source.write_text("def fail(x):\n    raise ValueError  # first\n")
    namespace: dict = {}
    exec(compile(source.read_text(), str(source), "exec"), namespace)

    def program(x):
        try:
            namespace["fail"](x)
        except ValueError as error:
            return traceback.extract_tb(error.__traceback__)[-1].line
    compiled = stator.compile(program, backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)) == "raise ValueError  # first"
    source.write_text("def fail(x):\n    raise ValueError  # another\n")
    assert compiled(torch.ones(2)) == "raise ValueError  # another"


def test_subclasses_of_a_class_made_inside() -> None:
    def program(x):
        class Base: ...
        class One(Base): ...
        class Two(One): ...
        return x + len(Base.__subclasses__()), [each.__name__ for each in One.__subclasses__()]
    same_as_eager(program, call(torch.ones(2)), call(torch.zeros(2)))


async def without_context():
    try:
        yield 1
    except IndexError:
        error = KeyError("kept")
        try:
            raise error
        finally:
            error.__context__ = None


async def thrown_into(x):
    source = without_context()
    await anext(source)
    try:
        try:
            raise IndexError
        except IndexError as error:
            await source.athrow(error)
    except KeyError as error:
        return x + 1, error.__context__


def test_context_of_an_exception_that_passes_c_code() -> None:
    def key(value):
        error = KeyError(value)
        try:
            raise error
        finally:
            error.__context__ = None

    def through_sorted(x):
        try:
            try:
                raise IndexError
            except IndexError:
                sorted([1, 2], key=key)
        except KeyError as error:
            return x + 1, error.__context__
    same_as_eager(through_sorted, call(torch.ones(2)))
    same_as_eager(lambda x: asyncio.run(thrown_into(x)), call(torch.ones(2)))


def test_patterns_that_print_or_warn() -> None:
    def debugged(x):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            re.compile("a+", re.DEBUG)
        return x + 1, text.getvalue()

    def warned(x):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            re.compile("[a||b]")
            re.purge()
        return x + len(heard), [str(each.message) for each in heard]

    def named(x):
        match = re.compile("b").match
        return x + 1, match.__name__, match.__qualname__
    re.purge()
    same_as_eager(debugged, call(torch.ones(2)), fullgraph=False)
    same_as_eager(warned, call(torch.ones(2)), fullgraph=False)
    same_as_eager(named, call(torch.ones(2)), call(torch.zeros(2)))
