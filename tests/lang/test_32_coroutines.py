"""Coroutines driven by hand; async with, async for, async comprehensions and generators."""

import types
import warnings

import pytest

import stator
from curriculum import call, case, ramp


class Ready:
    """An awaitable that suspends `n` times, then gives its value."""

    def __init__(self, value, n=0):
        self.value, self.n = value, n

    def __await__(self):
        for i in range(self.n):
            yield ("suspended", i)
        return self.value


class Scope:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    async def __aenter__(self):
        self.log.append("enter")
        return await Ready("resource")

    async def __aexit__(self, kind, value, tb):
        self.log.append(("exit", kind and kind.__name__))
        return self.swallow


class Ticker:
    def __init__(self, n):
        self.i, self.n = 0, n

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.i >= self.n:
            raise StopAsyncIteration
        self.i += 1
        return await Ready(self.i)


async def agen(n):
    for i in range(n):
        yield await Ready(i)


def run(coroutine, replies=()):
    """Drive to the end; what it suspended with, and its result."""
    steps = []
    replies = list(replies)
    try:
        while True:
            steps.append(coroutine.send(replies.pop(0) if replies and steps else None))
    except StopIteration as stop:
        return stop.value, steps


@case()
def simple_await(x):
    async def work(v):
        return v + await Ready(3)

    return run(work(x))


@case(call(ramp(2), 2), call(ramp(2), 0))
def suspensions(x, n):
    async def work():
        a = await Ready(1, n)
        b = await Ready(2, 1)
        return x + a + b

    return run(work())


@case()
def nested_coroutines(x):
    async def low(v):
        return await Ready(v * 2)

    async def high(v):
        return await low(await low(v)) + 1

    return run(high(x))


@case(call(ramp(2)))
def async_with(x):
    log = []

    async def work():
        async with Scope(log) as got:
            log.append(got)
            return x + 1

    return run(work()), log


@case(call(ramp(2)))
def async_with_swallows(x):
    log = []

    async def work():
        async with Scope(log, swallow=True):
            raise ValueError("inside")
        return x + len(log)

    return run(work()), log


@case(call(ramp(2)))
def async_with_raises(x):
    log = []

    async def work():
        y = x + 1
        async with Scope(log):
            raise ValueError("inside")
        return y

    return run(work())


@case(call(ramp(2), 3), call(ramp(2), 0))
def async_for(x, n):
    async def work():
        total = x
        async for i in Ticker(n):
            total = total + i
        else:
            total = total * 2
        return total

    return run(work())


@case(call(ramp(2)))
def async_comprehensions(x):
    async def work():
        squares = [i * i async for i in Ticker(3) if i != 2]
        table = {i: i async for i in agen(2)}
        waited = [await Ready(i) for i in range(3)]
        return squares, table, waited, x + sum(waited)

    return run(work())


@case(call(ramp(2)))
def async_generators(x):
    async def work():
        out = []
        async for v in agen(3):
            out.append(x * v)
        return out

    return run(work())


@case(call(ramp(2)))
def async_generator_send_throw_close(x):
    log = []

    async def talk():
        try:
            got = yield 1
            log.append(got)
            try:
                yield 2
            except KeyError:
                log.append("key")
                yield 3
        finally:
            log.append("closed")

    async def work():
        g = talk()
        out = [await g.asend(None), await g.asend("hello"), await g.athrow(KeyError())]
        await g.aclose()
        return out

    return run(work()), log, x + 1


@case(call(ramp(2)))
def throw_into_a_coroutine(x):
    async def work():
        try:
            await Ready(0, 5)
        except ValueError as error:
            return x + len(str(error))

    c = work()
    c.send(None)
    try:
        c.throw(ValueError("four"))
    except StopIteration as stop:
        return stop.value


@case(call(ramp(2)))
def exception_escapes(x):
    async def work():
        y = x + 1
        raise RuntimeError("from the coroutine")

    return run(work())


@case(call(ramp(2)))
def await_of_what_is_not_awaitable(x):
    async def work():
        await 3

    y = x + 1
    return y, run(work())


@case(call(ramp(2)))
def a_small_scheduler(x):
    log = []

    async def worker(name, n):
        for i in range(n):
            log.append((name, i))
            await Ready(None, 1)
        return name

    tasks = [worker("a", 2), worker("b", 3)]
    done = []
    while tasks:
        task = tasks.pop(0)
        try:
            task.send(None)
            tasks.append(task)
        except StopIteration as stop:
            done.append(stop.value)
    return log, done, x + len(log)


@case(call(ramp(2)))
def generator_based_coroutine(x):
    @types.coroutine
    def switch():
        got = yield "switch"
        return got

    async def work():
        return x + await switch()

    return run(work(), replies=[7])


@case(call(ramp(2)))
def close_and_reuse(x):
    async def work():
        await Ready(0, 1)

    c = work()
    c.send(None)
    c.close()
    y = x + 1
    c.send(None)
    return y


@case(call(ramp(2)))
def iterator_of_another_class(x):
    class Steps:
        def __init__(self, n):
            self.n = n

        async def __anext__(self):
            self.n -= 1
            if self.n < 0:
                raise StopAsyncIteration
            return self.n

    class Numbers:
        def __aiter__(self):
            return Steps(3)

    class Wrong:
        def __aiter__(self):
            return 3

    async def main(numbers):
        return [n async for n in numbers]

    def run(coroutine):
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value
        except TypeError as error:
            return str(error)

    return run(main(Numbers())), run(main(Wrong())), run(main([1])), x + 1


def ending(step):
    try:
        return step()
    except Exception as error:
        return type(error).__name__, str(error), type(error.__cause__).__name__


@types.coroutine
def suspended_once():
    yield


async def waits(value=None):
    await suspended_once()
    return value


@case(call(ramp(2)), call(ramp(3)))
def a_coroutine_is_no_iterator(x):
    coroutine = waits()
    takers = (list, tuple, sum, iter, max, dict, next, enumerate, lambda c: [i for i in c], lambda c: c in c, lambda c: [*c])
    found = [ending(lambda: taker(coroutine)) for taker in takers]
    coroutine.close()

    async def numbers():
        yield 1

    return found, ending(lambda: next(numbers())), ending(lambda: [n for n in numbers()]), x + 1


@case(call(ramp(2)), call(ramp(3)))
def errors_of_await(x):
    class Wrong:
        def __aiter__(self):
            return self

        def __anext__(self):
            return self

        def __await__(self):
            raise ZeroDivisionError("no")

    class NoAwaitable(Wrong):
        def __anext__(self):
            return 5

    async def over(numbers):
        async for _ in numbers:
            pass

    async def awaiting(coroutine):
        await coroutine

    async def clings():
        try:
            await suspended_once()
        except GeneratorExit:
            await suspended_once()

    begun, clinging = waits(), clings()
    begun.send(None)
    clinging.send(None)
    found = (ending(lambda: awaiting(begun).send(None)), ending(lambda: over(Wrong()).send(None)),
             ending(lambda: over(NoAwaitable()).send(None)), ending(clinging.close))  # fmt: skip
    begun.close()

    class Answering:
        def __init__(self, answer):
            self.answer = answer

        def __await__(self):
            return self.answer

    unused = waits()
    found += tuple([ending(lambda: awaiting(Answering(answer)).send(None)) for answer in (None, 3, [1], unused, suspended_once())])
    unused.close()
    return found, x + 1


@case(call(ramp(2)), call(ramp(3)))
def wrappers_of_await(x):
    class Delegating:
        def __await__(self):
            return (yield from waits(1).__await__())

    class Handing:
        def __await__(self):
            return waits(2).__await__()

    async def main():
        return await Delegating(), await Handing()

    running, found = main(), []
    try:
        while True:
            found.append(running.send(None))
    except StopIteration as stop:
        found.append(stop.value)
    wrapper = waits(3).__await__()
    found += [type(wrapper).__name__, iter(wrapper) is wrapper, "__iter__" in dir(wrapper), next(wrapper)]
    found += [ending(lambda: wrapper.send(None)), ending(lambda: next(wrapper)), [*waits(4).__await__()]]
    thrown = waits(5).__await__()
    next(thrown)
    return found, ending(lambda: thrown.throw(ValueError("thrown"))), thrown.close(), x + 1


@pytest.mark.parametrize("keeps", ["nothing", "a variable", "a begun one", "a closed one"])
def test_coroutines_that_nothing_awaits_warn(keeps):
    def dropped(n):
        coroutine = waits() if keeps != "nothing" else waits() and None
        if keeps == "a begun one":
            coroutine.send(None)
        elif keeps == "a closed one":
            coroutine.close()
        return n

    def warnings_of(fn):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            fn(1)
        return [str(each.message) for each in told]

    compiled = stator.compile(dropped, backend="eager")
    assert warnings_of(compiled) == warnings_of(compiled) == warnings_of(dropped)
    assert bool(warnings_of(dropped)) == (keeps in ("nothing", "a variable"))


@case(call(ramp(2)), call(ramp(3)))
def classes_of_suspended_frames(x):
    async def numbers():
        yield 1

    begun, coroutine = (n for n in (1, 2)), waits()
    found = [(value.__class__, isinstance(value, int), isinstance(value, types.CoroutineType))
             for value in (begun, coroutine, numbers())]  # fmt: skip
    coroutine.close()
    return found, x + 1
