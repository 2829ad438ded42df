"""The with statement and user context managers."""


from curriculum import call, case, ramp


class Scope:
    def __init__(self, log, name="s", swallow=()):
        self.log, self.name, self.swallow = log, name, swallow

    def __enter__(self):
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind, value, tb):
        self.log.append(f"exit {self.name} {kind and kind.__name__} {value}")
        return kind is not None and issubclass(kind, self.swallow)


state = {"depth": 0}


class Depth:
    def __enter__(self):
        state["depth"] += 1
        return state["depth"]

    def __exit__(self, *exc):
        state["depth"] -= 1


@case(call(ramp(2)))
def enter_and_exit(x):
    log = []
    with Scope(log) as s:
        x = x + len(s.name)
    return x, log


@case(call(ramp(2)))
def several(x):
    log = []
    with Scope(log, "a") as a, Scope(log, "b"), Scope(log, "c") as c:
        log.append((a.name, c.name))
        x = x * 2
    return x, log


@case(call(ramp(2)))
def parenthesised(x):
    log = []
    with (
        Scope(log, "a"),
        Scope(log, "b") as b,
    ):
        x = x + len(b.name)
    return x, log


@case((ramp(2), 0), (ramp(2), 1))
def suppresses(x, n):
    log = []
    with Scope(log, swallow=ZeroDivisionError):
        x = x + 1 // n
        log.append("after")
    return x + 1, log


@case(call(ramp(2)))
def does_not_suppress(x):
    log = []
    y = x + 1
    try:
        with Scope(log, "outer"), Scope(log, "inner"):
            raise KeyError("k")
    except KeyError:
        log.append("caught")
    return y, log


@case(call(ramp(2)))
def exception_escapes(x):
    with Depth() as depth:
        y = x + depth
        raise ValueError(f"depth {state['depth']}")


@case()
def global_state_is_restored(x):
    seen = []
    with Depth() as one:
        with Depth() as two:
            seen.append(dict(state))
            x = x + one + two
    return x, seen, dict(state)


@case(call(ramp(2)))
def error_in_enter(x):
    log = []

    class Bad:
        def __enter__(self):
            raise RuntimeError("cannot enter")

        def __exit__(self, *exc):
            log.append("never")

    y = x + 1
    try:
        with Scope(log, "outer"), Bad():
            log.append("never")
    except RuntimeError as error:
        return str(error), log, y


@case(call(ramp(2)))
def error_in_exit_replaces(x):
    class Bad:
        def __enter__(self):
            return self

        def __exit__(self, *exc):
            raise ValueError("in exit")

    y = x + 1
    with Bad():
        raise KeyError("in body")


@case(call(ramp(2)))
def return_break_continue_inside(x):
    log = []

    def f():
        with Scope(log, "f"):
            return x + 1

    for i in range(3):
        with Scope(log, i):
            if i == 0:
                continue
            break
    return f(), log


@case(call(ramp(2), 3), call(ramp(2), None))
def not_a_context_manager(x, thing):
    y = x + 1
    with thing:
        pass
    return y


@case(call(ramp(2)))
def targets(x):
    class Pair:
        def __enter__(self):
            return 1, [2, x]

        def __exit__(self, *exc):
            return None

    table = {}
    with Pair() as (a, [b, t]):
        pass
    with Pair() as table["k"]:
        pass
    return a, b, t + 1, table


@case(lambda: call(Scope([], "given", KeyError), ramp(2)))
def manager_from_outside(scope, x):
    with scope as s:
        s.entered = True
        x = x + 1
        raise KeyError(s.name)
    return x, scope.log


@case(call(ramp(2)))
def one_manager_entered_twice(x):
    log = []
    s = Scope(log)
    with s:
        with s:
            x = x + len(log)
    return x, log


@case(call(ramp(2)))
def exit_is_looked_up_first(x):
    class NoExit:
        def __enter__(self):
            return self

    y = x + 1
    with NoExit():
        return y
