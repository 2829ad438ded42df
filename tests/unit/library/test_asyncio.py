"""asyncio inside a call: tasks, sleeps, context variables, async generators; what leaves the loop breaks."""

from __future__ import annotations

import asyncio
import contextvars
import gc
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
