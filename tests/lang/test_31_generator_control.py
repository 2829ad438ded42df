"""Generators: throw, close, finally, yield from and delegation."""

import contextlib

from curriculum import call, case, ramp


def guarded(log):
    try:
        while True:
            try:
                received = yield len(log)
                log.append(("got", received))
            except ValueError as error:
                log.append(("caught", str(error)))
    finally:
        log.append("closed")


def inner(x):
    received = yield x
    second = yield received
    return second


def outer(x, log):
    result = yield from inner(x)
    log.append(result)
    yield from [10, 20]
    return "outer done"


@case(call(ramp(2)))
def throw(x):
    log = []
    g = guarded(log)
    next(g)
    g.send("a")
    n = g.throw(ValueError("bad"))
    g.throw(ValueError, "old form")
    return log, x + n


@case(call(ramp(2)))
def throw_not_caught(x):
    log = []
    g = guarded(log)
    next(g)
    try:
        g.throw(KeyError("k"))
    except KeyError as error:
        log.append(repr(error))
    return log, next(g, "finished"), x + 1


@case(call(ramp(2)))
def throw_escapes(x):
    y = x + 1
    g = guarded([])
    next(g)
    g.throw(KeyError("k"))
    return y


@case(call(ramp(2)))
def close(x):
    log = []
    g = guarded(log)
    next(g)
    g.close()
    g.close()
    return log, list(g), x + 1


@case(call(ramp(2)))
def close_ignored(x):
    def stubborn():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    y = x + 1
    g = stubborn()
    next(g)
    g.close()
    return y


@case(call(ramp(2)))
def close_before_start(x):
    log = []
    g = guarded(log)
    g.close()
    return log, list(g), x + 1


@case(call(ramp(2)))
def yield_from(x):
    log = []
    g = outer(x, log)
    steps = [next(g), g.send("one"), g.send(x + 1), next(g)]
    try:
        next(g)
    except StopIteration as stop:
        return steps, log, stop.value


@case(call(ramp(2)))
def throw_through_yield_from(x):
    log = []

    def sub():
        try:
            yield 1
        except ValueError:
            log.append("sub caught")
            yield 2
        return "sub result"

    def top():
        got = yield from sub()
        yield got

    g = top()
    next(g)
    return g.throw(ValueError()), next(g), log, x + 1


@case(call(ramp(2)))
def close_through_yield_from(x):
    log = []

    def sub():
        try:
            yield 1
        finally:
            log.append("sub")

    def top():
        try:
            yield from sub()
        finally:
            log.append("top")

    g = top()
    next(g)
    g.close()
    return log, x + 1


@case(call([1, [2, [3]], 4], ramp(2)), call([], ramp(2)))
def recursive_delegation(tree, x):
    def flatten(node):
        for item in node:
            if isinstance(item, list):
                yield from flatten(item)
            else:
                yield item

    return list(flatten(tree)), x + sum(flatten(tree))


@case(call(ramp(2)))
def finally_runs_when_a_loop_breaks(x):
    log = []

    def numbers():
        try:
            yield 1
            yield 2
        finally:
            log.append("cleanup")

    g = numbers()
    for n in g:
        break
    log.append("after break")
    g.close()
    return log, x + n


@case(call(ramp(2)))
def return_in_try_and_finally(x):
    def g():
        try:
            yield 1
            return "value"
        finally:
            yield "from finally"

    it = g()
    values = [next(it), next(it)]
    try:
        next(it)
    except StopIteration as stop:
        return values, stop.value, x + 1


@case(call(ramp(2)))
def generator_in_a_context_manager(x):
    log = []

    @contextlib.contextmanager
    def scope(name):
        log.append(f"enter {name}")
        try:
            yield name
        finally:
            log.append(f"exit {name}")

    with scope("a") as a, scope("b"):
        x = x + len(a)
    return x, log


@case(call(ramp(2)))
def coroutine_style_pipeline(x):
    out = []

    def sink():
        while True:
            out.append((yield))

    def scale(factor, target):
        while True:
            target.send((yield) * factor)

    def primed(g):
        next(g)
        return g

    pipe = primed(scale(3, primed(sink())))
    pipe.send(x)
    pipe.send(x + 1)
    return out


@case(call(ramp(2)))
def already_executing(x):
    def g():
        yield list(me)

    me = g()
    y = x + 1
    next(me)
    return y


@case(call(ramp(2)))
def exception_context_in_generators(x):
    def g():
        try:
            yield 1
        except KeyError as error:
            raise ValueError("translated") from error

    it = g()
    next(it)
    y = x + 1
    it.throw(KeyError("original"))
    return y


@case(call(ramp(2)))
def closing_goes_through_the_delegating_frame(x):
    def inner():
        try:
            yield 1
        except GeneratorExit:
            print("inner ends")
            return 7

    def outer(log):
        try:
            log.append((yield from inner()))
        except GeneratorExit as error:
            log.append(type(error).__name__)
            raise
        finally:
            log.append("outer")
        log.append("never")

    log = []
    it = outer(log)
    next(it)
    return it.close(), log, x + 1


@case(call(ramp(2)))
def closing_an_object_that_is_delegated_to(x):
    class Counter:
        def __iter__(self):
            return self

        def __next__(self):
            return 5

        def close(self):
            print("closed")
            return "ignored"

    def outer(log):
        try:
            yield from Counter()
        finally:
            log.append("outer")
        log.append("never")

    log = []
    it = outer(log)
    return next(it), it.close(), log, x + 1


@case(call(ramp(2)))
def throwing_into_an_object_that_is_delegated_to(x):
    class Counter:
        def __init__(self):
            self.n = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.n += 1
            return self.n

        def throw(self, error):
            if self.n > 1:
                raise StopIteration(("result", str(error)))
            return "answer"

    def outer():
        got = yield from Counter()
        yield got

    it = outer()
    return next(it), it.throw(KeyError("a")), next(it), it.throw(KeyError("b")), list(it), x + 1


@case(call(ramp(2)))
def what_is_delegated_to(x):
    def inner():
        yield 1
        yield 2

    def outer():
        yield 0
        yield from part

    part = inner()
    it = outer()
    seen = [it.gi_yieldfrom, next(it), it.gi_yieldfrom, next(it), it.gi_yieldfrom is part, list(it), it.gi_yieldfrom]
    return seen, x + 1


@case(call(3), call(4), graphs=0)
def values_that_close_returns(n):
    def finishing():
        try:
            yield 1
        except GeneratorExit:
            return n

    def delegating():
        yield from finishing()

    def plain():
        yield n

    found = []
    for make in (finishing, delegating, plain):
        generator = make()
        found.append((next(generator), generator.close(), generator.close()))
    unstarted = finishing()
    return found, unstarted.close()
