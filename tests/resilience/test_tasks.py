"""Compiled functions under asyncio and threads: context variables, threading.local, tasks, gather, a break in between."""

import asyncio
import concurrent.futures
import contextvars
import threading

import pytest
import torch

import stator

LEVEL = contextvars.ContextVar("LEVEL", default=0)
OWN = threading.local()


def scaled(x):
    LEVEL.set(LEVEL.get() + 1)
    return x * LEVEL.get()


def with_a_break(x):
    token = LEVEL.set(10)
    y = x + LEVEL.get()
    stator.graph_break()
    LEVEL.reset(token)
    return y * LEVEL.get()


def counted(x):
    OWN.count = getattr(OWN, "count", 0) + 1
    return x + OWN.count


async def awaited(x):
    y = x + LEVEL.get()
    await asyncio.sleep(0)
    LEVEL.set(5)
    await asyncio.sleep(0)
    return y * LEVEL.get()


def variants(function):
    """The function, and compiled: one object for all of its calls."""
    return function, stator.compile(function, backend="eager")


@pytest.mark.parametrize("function", [scaled, with_a_break])
def test_tasks_have_contexts_of_their_own(function):
    async def task(call, level):
        LEVEL.set(level)
        first = call(torch.ones(2))
        await asyncio.sleep(0)
        second = call(torch.ones(2))
        return first.tolist(), second.tolist(), LEVEL.get()

    async def main(call):
        found = await asyncio.gather(*[task(call, level) for level in (1, 2, 3)])
        return found, LEVEL.get(), contextvars.copy_context().run(call, torch.ones(1)).tolist(), LEVEL.get()

    eager, compiled = [asyncio.run(main(call)) for call in variants(function)]
    assert compiled == eager


def test_coroutines_that_call_compiled_functions_and_are_compiled():
    async def task(level):
        LEVEL.set(level)
        return (await call(torch.ones(2))).tolist()

    async def main():
        return await asyncio.gather(*[asyncio.create_task(task(level)) for level in (1, 2, 3)]), LEVEL.get()

    results = []
    for call in variants(awaited):
        results.append(asyncio.run(main()))
    assert results[0] == results[1]


def test_thread_locals_belong_to_their_threads():
    def calls(call):
        OWN.__dict__.clear()
        with concurrent.futures.ThreadPoolExecutor(1) as one, concurrent.futures.ThreadPoolExecutor(1) as other:
            found = [pool.submit(call, torch.ones(1)).result().tolist() for pool in (one, other, one, one, other)]
        return found, call(torch.ones(1)).tolist(), OWN.count

    eager, compiled = [calls(call) for call in variants(counted)]
    assert compiled == eager == ([[2.0], [2.0], [3.0], [4.0], [3.0]], [2.0], 1)
