"""contextlib: contextmanager, suppress, nullcontext, ExitStack, redirect, closing."""

import contextlib
import io

from curriculum import call, case, ramp

depth = 0


@contextlib.contextmanager
def nested(by=1):
    global depth
    depth += by
    try:
        yield depth
    finally:
        depth -= by


@contextlib.contextmanager
def translate(log):
    try:
        yield
    except KeyError as error:
        log.append(str(error))
        raise ValueError("translated") from error


class Resource(contextlib.ContextDecorator):
    log = []

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, *exc):
        self.log.append("exit")
        return False


@case()
def contextmanager(x):
    with nested() as one, nested(5) as two:
        x = x + one * two
    return x, depth


@case(call(ramp(2)))
def exception_passes_through(x):
    with nested():
        y = x + depth
        raise KeyError("k")


@case(call(ramp(2)))
def exception_is_translated(x):
    log = []
    try:
        with translate(log):
            {}["k"]
    except ValueError as error:
        return log, str(error), repr(error.__cause__), x + 1


@case((ramp(2), {}), (ramp(2), {"k": 3}))
def suppress(x, table):
    n = 0
    with contextlib.suppress(KeyError, IndexError):
        n = table["k"]
    return x + n


@case((ramp(2), True), (ramp(2), False))
def nullcontext(x, tracked):
    with nested() if tracked else contextlib.nullcontext(10) as n:
        return x + n


@case(call(ramp(2)))
def exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        values = [stack.enter_context(nested(i)) for i in (1, 2, 3)]
        stack.callback(log.append, "callback")
        stack.push(lambda *exc: log.append(exc[0]))
        x = x + sum(values)
    return x, log, depth


@case(call(ramp(2)))
def exit_stack_with_an_exception(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, "last")
        stack.enter_context(contextlib.suppress(ValueError))
        stack.callback(log.append, "first")
        raise ValueError("inside")
    return x + 1, log


@case(call(ramp(2)))
def as_a_decorator(x):
    @nested(3)
    def inner(v):
        return v + depth

    @Resource()
    def other(v):
        Resource.log.append("body")
        return v * 2

    return inner(x), other(x), depth


@case(call(ramp(2)))
def generator_that_never_yields(x):
    @contextlib.contextmanager
    def empty():
        return
        yield

    y = x + 1
    with empty():
        pass
    return y


@case(call(ramp(2)))
def generator_that_yields_twice(x):
    @contextlib.contextmanager
    def twice():
        yield 1
        yield 2

    y = x + 1
    with twice():
        pass
    return y


@case(call(ramp(2)))
def closing(x):
    class Door:
        closed = 0

        def close(self):
            self.closed += 1

    door = Door()
    with contextlib.closing(door) as same:
        inside = same.closed
    return inside, door.closed, same is door, x + 1


@case(call(ramp(2)))
def redirected_output(x):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print("to the buffer", x.dim())
    print("to the console")
    return out.getvalue(), x + 1


@case(lambda: call(nested(2), ramp(2)), breaks="SB014 the frame of a generator from outside")
def manager_from_outside(manager, x):
    with manager as n:
        return x + n


@case(call(ramp(2)))
def return_value_through_a_manager(x):
    def f():
        with nested() as n, contextlib.suppress(ValueError):
            for i in range(3):
                with nested():
                    if i == 1:
                        return x + n + depth

    return f(), depth
