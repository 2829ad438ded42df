"""Probes: context variables and threading.local objects: set, reset, deleted, asked, in the middle of a break."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

from probing import Scene, probe, ramp
from scenery import box, one

import stator


def variable_of(*default: Any) -> contextvars.ContextVar[Any]:
    return contextvars.ContextVar("scale", default=default[0]) if default else contextvars.ContextVar("scale")


@probe()
def context_variable_left_set():
    variable = variable_of(2)

    def fn(x):
        variable.set(variable.get() + 1)
        variable.set(variable.get() * 2)
        return x * variable.get(), variable.get(50)

    return Scene(fn, one(ramp()), lambda: variable.set(-3), lambda: variable.get())


@probe()
def context_variable_without_a_value_set_and_reset():
    variable = variable_of()

    def fn(x):
        token = variable.set(x * 2)
        y = variable.get() + 1
        variable.reset(token)
        return y, variable.get(7)

    return Scene(fn, one(ramp()), lambda: variable.set(3), lambda: variable.get("none"))


@probe()
def context_variable_holds_a_list_that_is_changed():
    variable = variable_of()
    seen: list[Any] = []

    def fn(x):
        token = variable.set([1])
        variable.get().append(x.shape[0])
        seen.append(variable.get())
        variable.get().append(5)
        variable.reset(token)
        return x * len(seen)

    return Scene(fn, one(ramp()), lambda: variable.set([3]), lambda: (variable.get(None), list(seen)))


@probe()
def token_that_leaves():
    variable = variable_of(2)
    slot: list[Any] = []

    def fn(x):
        slot.append(variable.set(variable.get() + 1))
        return x * variable.get(), variable.set(x.shape[0])

    def look():
        if not slot:
            return None
        token = slot[-1]
        return token.old_value if token.old_value is not contextvars.Token.MISSING else "none", token.var is variable, \
            variable.get(), "used" in repr(token)

    return Scene(fn, one(ramp()), lambda: variable.reset(slot.pop()), look)


@probe("SB001 SB009")
def break_while_a_context_variable_is_set():
    variable = variable_of(2)
    seen: list[Any] = []

    def fn(x):
        token = variable.set(variable.get() + 1)
        y = x * variable.get()
        try:
            stator.graph_break()
            seen.append(variable.get())
            return y + variable.get()
        finally:
            variable.reset(token)

    return Scene(fn, one(ramp()), lambda: variable.set(10), lambda: (variable.get(), list(seen)))


@probe("SB001")
def tokens_used_out_of_order():
    variable = variable_of(2)

    def fn(x):
        first = variable.set(3)
        second = variable.set(4)
        variable.reset(first)
        y = x * variable.get()
        variable.reset(second)
        return y * variable.get()

    return Scene(fn, one(ramp()), lambda: variable.set(5), lambda: variable.get())


@probe("SB001")
def token_used_twice():
    variable = variable_of(2)

    def fn(x):
        token = variable.set(3)
        variable.reset(token)
        try:
            variable.reset(token)
        except RuntimeError:
            return x * 2
        return x

    return Scene(fn, one(ramp()), lambda: variable.set(5), lambda: variable.get())


@probe("SB001")
def token_from_outside():
    variable = variable_of(2)
    tokens = [variable.set(number) for number in range(4)]

    def fn(x):
        variable.reset(tokens.pop())
        return x * variable.get()

    return Scene(fn, one(ramp()), look=lambda: variable.get())


@probe("SB001")
def token_of_another_variable():
    one_, other = variable_of(2), variable_of(3)

    def fn(x):
        token = one_.set(5)
        try:
            other.reset(token)
        except ValueError:
            return x * one_.get()
        return x

    return Scene(fn, one(ramp()), look=lambda: (one_.get(), other.get()))


@probe()
def two_context_variables_that_come_to_be_one():
    first, second = variable_of(2), variable_of(3)
    slots = box(a=first, b=second)

    def fn(x):
        token = slots.a.set(10)
        y = x * slots.b.get()
        slots.a.reset(token)
        return y

    return Scene(fn, one(ramp()), lambda: setattr(slots, "b", first), lambda: (first.get(), second.get()))


@probe()
def exception_while_a_context_variable_is_set():
    variable = variable_of(2)

    def fn(x):
        token = variable.set(3)
        try:
            if x.shape[0] == 4:
                raise KeyError("inside")
        except KeyError:
            return x * variable.get()
        finally:
            variable.reset(token)
        return x

    return Scene(fn, one(ramp()), lambda: variable.set(10), lambda: variable.get())


@probe("raises")
def exception_that_leaves_a_context_variable_set():
    variable = variable_of(2)

    def fn(x):
        variable.set(variable.get() + 1)
        raise KeyError("outside")

    return Scene(fn, one(ramp()), lambda: variable.set(10), lambda: variable.get())


@probe()
def printed_while_a_context_variable_is_set():
    variable = variable_of(2)

    def fn(x):
        print("before", variable.get())
        variable.set(variable.get() + 1)
        print("after", variable.get())
        return x

    return Scene(fn, one(ramp()), lambda: variable.set(10), lambda: variable.get())


# ---------------------------------------------------------------------- threading.local


@probe()
def thread_attribute_made_where_there_was_none():
    local: Any = threading.local()

    def fn(x):
        if not hasattr(local, "calls"):
            local.calls = []
        local.calls.append(x.shape[0])
        return x * len(local.calls)

    return Scene(fn, one(ramp()), lambda: delattr(local, "calls"), lambda: vars(local))


@probe()
def thread_attribute_with_a_default():
    local: Any = threading.local()

    def fn(x):
        before = getattr(local, "k", 5)
        local.k = before + 1
        local.t = x * local.k
        return x * before

    return Scene(fn, one(ramp()), lambda: setattr(local, "k", 50), lambda: vars(local))


@probe()
def thread_attribute_deleted():
    local: Any = threading.local()
    local.a, local.b = 1, 2

    def fn(x):
        k = getattr(local, "a", 7)
        if hasattr(local, "a"):
            del local.a
        try:
            del local.a
        except AttributeError as error:
            return x * k, str(error)
        return x

    return Scene(fn, one(ramp()), lambda: setattr(local, "a", 4), lambda: vars(local))


@probe()
def thread_attribute_that_came_and_went():
    local: Any = threading.local()

    def fn(x):
        local.k = 3
        y = x * local.k
        del local.k
        return y, hasattr(local, "k")

    return Scene(fn, one(ramp()), lambda: setattr(local, "k", 4), lambda: vars(local))


@probe("SB009")
def break_while_a_thread_attribute_is_set():
    local: Any = threading.local()
    local.depth = 0

    def fn(x):
        local.depth += 1
        try:
            stator.graph_break()
            return x * local.depth
        finally:
            local.depth -= 1

    return Scene(fn, one(ramp()), lambda: setattr(local, "depth", 4), lambda: vars(local))


@probe()
def two_thread_locals_that_come_to_be_one():
    first, second = threading.local(), threading.local()
    first.k = second.k = 2
    slots: Any = box(a=first, b=second)

    def fn(x):
        slots.a.k = 10
        return x * slots.b.k

    return Scene(fn, one(ramp()), lambda: setattr(slots, "b", first), lambda: (vars(first), vars(second)))


@probe()
def thread_attributes_through_their_dict():
    local: Any = threading.local()
    local.k = 1

    def fn(x):
        local.k += 1
        local.__dict__["k"] += 1
        return x * local.k

    return Scene(fn, one(ramp()), lambda: setattr(local, "k", 40), lambda: vars(local))


@probe()
def thread_attributes_after_their_dict_was_seen():
    local: Any = threading.local()
    local.k = 1

    def fn(x):
        own = local.__dict__
        own["k"] += 1
        k = local.k
        local.k = k + 1
        return x * own["k"]

    return Scene(fn, one(ramp()), lambda: setattr(local, "k", 40), lambda: vars(local))


@probe()
def thread_attributes_of_another_thread():
    local: Any = threading.local()
    local.k = 1

    def fn(x):
        local.k = getattr(local, "k", 10) + 1
        return x * local.k

    def elsewhere(x):
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append((fn(x), vars(local))))
        thread.start()
        thread.join()
        return seen

    return Scene(fn, one(ramp()), lambda: elsewhere(ramp()), lambda: vars(local))


@probe()
def class_of_thread_locals():
    class State(threading.local):
        kind = "state"

        def __init__(self) -> None:
            self.marked, self.k = False, 1

        def more(self) -> int:
            return self.k + 1

        @property
        def twice(self) -> int:
            return self.k * 2

    local = State()

    def fn(x):
        if local.marked:
            raise RuntimeError("marked twice")
        local.marked = True
        local.k += 1
        y = x * local.k + local.more() + local.twice + len(local.kind)
        local.marked = False
        return y

    def elsewhere(x):
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append((fn(x), vars(local))))
        thread.start()
        thread.join()
        return seen

    return Scene(fn, one(ramp()), lambda: (setattr(local, "more", lambda: 7), elsewhere(ramp())), lambda: sorted(vars(local)))
