"""Promises of docs/hook.md about frames, one check each.   hook module  ->  AssertionError or nothing

Every function named check_* takes the loaded extension. No torch, no pytest: standalone.py runs them on each
interpreter, test_hook.py under pytest.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from hook_watch import Watch


def add(a: Any, b: Any = 2) -> Any:
    return a + b


def call_add(a: Any) -> Any:
    return add(a) * 10


def every_kind(a: Any, /, b: Any, *rest: Any, k: Any, d: Any = "d", **named: Any) -> None:
    raise AssertionError("the callback answered for this frame: it must not run")


def check_arguments_are_bound_in_slot_order(hook: ModuleType) -> None:
    watch = Watch(hook, every_kind="answer")
    assert watch.run(every_kind, 1, 2, 3, 4, k=5, z=6) == "answer"
    assert watch.calls == [("every_kind", (1, 2, 5, "d", (3, 4), {"z": 6}))]


def check_cell_arguments_are_plain_values(hook: ModuleType) -> None:
    def captured(a: Any) -> Callable[[], Any]:
        return lambda: a

    watch = Watch(hook)
    assert watch.run(captured, 7)() == 7
    assert watch.calls == [("captured", (7,))]


def check_function_and_closure_are_the_frames_own(hook: ModuleType) -> None:
    free = object()

    def inner() -> Any:
        return free

    seen: list[Any] = []

    def callback(func: Any, args: Any, closure: Any) -> Any:
        seen.append((func, closure))
        return hook.RUN

    hook.set_callback(callback)
    hook.enter()
    assert inner() is free
    add(1)
    hook.leave()
    hook.set_callback(None)
    assert seen[0][0] is inner and seen[0][1] is inner.__closure__
    assert seen[1] == (add, None)


def check_run_intercepts_below_and_run_all_does_not(hook: ModuleType) -> None:
    watch = Watch(hook)
    assert watch.run(call_add, 1) == 30
    assert watch.names == ["call_add", "add"]
    watch = Watch(hook, call_add=hook.RUN_ALL)
    assert watch.run(call_add, 1) == 30
    assert watch.names == ["call_add"]
    watch = Watch(hook, add=100)
    assert watch.run(call_add, 1) == 1000


def check_interception_is_back_after_run_all(hook: ModuleType) -> None:
    watch = Watch(hook, call_add=hook.RUN_ALL)
    assert watch.run(lambda: (call_add(1), add(1))) == (30, 3)
    assert watch.names == ["<lambda>", "call_add", "add"]

    def fail() -> None:
        raise KeyError("x")

    def both() -> int:
        try:
            fail()
        except KeyError:
            return add(1)
        raise AssertionError("unreachable")

    watch = Watch(hook, fail=hook.RUN_ALL)
    assert watch.run(both) == 3
    assert watch.names == ["both", "fail", "add"]


def check_callback_is_not_intercepted_unless_it_enters(hook: ModuleType) -> None:
    names: list[str] = []

    def callback(func: Any, args: Any, closure: Any) -> Any:
        names.append(func.__name__)
        assert not hook.active()
        if func is call_add:
            add(5)
            hook.enter()
            assert hook.active()
            add(6)
            hook.leave()
            assert not hook.active()
            add(7)
        return hook.RUN

    hook.set_callback(callback)
    hook.enter()
    call_add(1)
    assert hook.active()
    hook.leave()
    hook.set_callback(None)
    assert names == ["call_add", "add", "add"]


def check_exceptions_of_the_callback_propagate(hook: ModuleType) -> None:
    def callback(func: Any, args: Any, closure: Any) -> Any:
        if func is add:
            raise LookupError("from the callback")
        return hook.RUN

    def catches() -> str:
        try:
            add(1)
        except LookupError as error:
            return str(error)
        raise AssertionError("unreachable")

    hook.set_callback(callback)
    hook.enter()
    try:
        assert catches() == "from the callback"
        assert hook.active()
    finally:
        hook.leave()
        hook.set_callback(None)


def count_up(n: int) -> Iterator[int]:
    for i in range(n):
        try:
            yield add(i, 0)
        except ValueError:
            yield add(100, 0)


def check_generators_are_asked_about_once(hook: ModuleType) -> None:
    watch = Watch(hook)
    assert watch.run(lambda: list(count_up(3))) == [0, 1, 2]
    assert watch.names == ["<lambda>", "count_up", "add", "add", "add"]
    watch = Watch(hook, count_up=iter("ab"))
    assert watch.run(lambda: list(count_up(3))) == ["a", "b"]


def check_generators_throw_and_close_natively(hook: ModuleType) -> None:
    def drive() -> tuple[int, int]:
        generator = count_up(3)
        first = next(generator)
        second = generator.throw(ValueError)  # type: ignore[attr-defined]
        generator.close()  # type: ignore[attr-defined]
        return first, second

    watch = Watch(hook)
    assert watch.run(drive) == (0, 100)
    assert watch.names == ["drive", "count_up", "add", "add"]


def check_resumed_generators_of_skipped_code_are_off(hook: ModuleType) -> None:
    def skipped(n: int) -> Iterator[int]:
        try:
            yield add(n)
        except ValueError:
            yield add(n)

    def drive() -> tuple[int, int]:
        generator = skipped(1)
        return next(generator), generator.throw(ValueError)  # type: ignore[attr-defined]

    hook.skip_code(skipped.__code__)
    watch = Watch(hook)
    assert watch.run(drive) == (3, 3)
    assert watch.names == ["drive"]


async def async_add(a: int) -> int:
    await asyncio.sleep(0)
    return add(a)


async def async_count(n: int) -> Any:
    for i in range(n):
        await asyncio.sleep(0)
        yield i


async def async_main() -> list[int]:
    total = [await async_add(1)]
    async for i in async_count(2):
        total.append(i)
    return total


def check_coroutines_and_async_generators(hook: ModuleType) -> None:
    watch = Watch(hook, run=hook.RUN)
    assert watch.run(asyncio.run, async_main()) == [3, 0, 1]
    assert "async_add" in watch.names and "async_count" in watch.names and "add" in watch.names


def check_namespaces_of_class_bodies_and_exec(hook: ModuleType) -> None:
    seen: list[tuple[str, Any]] = []

    def callback(func: Any, args: Any, closure: Any) -> Any:
        if func.__code__.co_filename in (__file__, "<exec>"):  # torch has an audit hook, which exec() calls
            seen.append((func.__name__, hook.current_locals()))
        return hook.RUN

    namespace = {"n": 1}
    code = compile("n += 1", "<exec>", "exec")
    hook.set_callback(callback)
    hook.enter()

    class Body:
        attribute = 1

    exec(code, {}, namespace)
    add(1)
    hook.leave()
    hook.set_callback(None)
    assert [name for name, _ in seen] == ["Body", "<module>", "add"]
    assert seen[0][1]["attribute"] == 1
    assert seen[1][1] is namespace and namespace == {"n": 2}
    assert seen[2][1] is None
    try:
        hook.current_locals()
    except RuntimeError:
        pass
    else:
        raise AssertionError("current_locals() outside a callback must raise")


class Key:
    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.value == other.value

    def __hash__(self) -> int:
        return 1

    @property
    def doubled(self) -> int:
        return 2 * self.value

    def __getattr__(self, name: str) -> str:
        return name

    def __getitem__(self, index: int) -> int:
        return index


def check_callbacks_from_c_are_intercepted(hook: ModuleType) -> None:
    def drive() -> Any:
        keys = {Key(1): "one"}
        return sorted([3, 1], key=negate), keys[Key(1)], Key(2).doubled, Key(2).other

    def negate(n: int) -> int:
        return -n

    watch = Watch(hook)
    assert watch.run(drive) == ([3, 1], "one", 4, "other")
    for name in ("negate", "__hash__", "__eq__", "doubled", "__getattr__", "__init__"):
        assert name in watch.names, name


def check_warm_code_is_intercepted_too(hook: ModuleType) -> None:
    """Specialised instructions (CALL_PY, BINARY_SUBSCR_GETITEM, properties, generators) must step back."""

    def hot(key: Key) -> Any:
        return key[1], key.doubled, add(1), [i for i in count_up(1)]

    for _ in range(200):
        hot(Key(3))
    watch = Watch(hook)
    assert watch.run(hot, Key(3)) == (1, 6, 3, [0])
    missing = {"doubled", "add", "count_up", "__getitem__"} - set(watch.names)
    assert missing == set(), missing


def check_arguments_die_with_the_frame(hook: ModuleType) -> None:
    class Token:
        pass

    watch = Watch(hook, every_kind=None)
    token = Token()
    reference = weakref.ref(token)
    watch.run(every_kind, token, 0, token, k=token, named=token)
    watch.calls.clear()
    del token
    assert reference() is None


def check_finalizers_run_python_while_the_frame_is_cleared(hook: ModuleType) -> None:
    log: list[int] = []

    class Loud:
        def __del__(self) -> None:
            log.append(add(1))

    def answer(func: Any, args: Any, closure: Any) -> Any:
        return None if func is every_kind else hook.RUN

    hook.set_callback(answer)
    hook.enter()
    every_kind(Loud(), 0, k=Loud())
    hook.leave()
    hook.set_callback(None)
    assert log == [3, 3]


def check_frames_across_stack_chunks(hook: ModuleType) -> None:
    """Answered and native frames at every offset of CPython's chunked frame stack."""
    names = ", ".join(f"v{i}=None" for i in range(90))
    scope: dict[str, Any] = {}
    exec(f"def leaf({names}): raise AssertionError\ndef deep(n, {names}):\n"
         "    return leaf() + (deep(n - 1) if n else 0) + leaf()", scope)
    watch = Watch(hook, leaf=1)
    assert watch.run(scope["deep"], 150) == 302
    assert watch.names.count("leaf") == 302


def check_collection_inside_callback_and_frame(hook: ModuleType) -> None:
    def collects(a: Any) -> int:
        gc.collect()
        return add(len(a))

    def callback(func: Any, args: Any, closure: Any) -> Any:
        gc.collect()
        return hook.RUN

    hook.set_callback(callback)
    hook.enter()
    result = collects([1])
    hook.leave()
    hook.set_callback(None)
    assert result == 3


def check_works_under_settrace_and_setprofile(hook: ModuleType) -> None:
    """Functions that trace or profile, and what they call, are not intercepted themselves."""
    for setter in (sys.settrace, sys.setprofile):
        events: list[str] = []

        def note(frame: Any, event: str, events: list[str] = events) -> None:
            events.append(f"{event} {frame.f_code.co_name}")

        def tracer(frame: Any, event: str, arg: Any, note: Any = note) -> Any:
            note(frame, event)
            return tracer  # noqa: B023  (asked for before the next one is made)

        watch = Watch(hook, add=5)
        setter(tracer)
        try:
            assert watch.run(call_add, 1) == 50
        finally:
            setter(None)
        assert "call call_add" in events and "call add" not in events
        assert watch.names == ["call_add", "add"]


def check_what_a_profile_function_enters_itself_is_intercepted(hook: ModuleType) -> None:
    watch, answers = Watch(hook, add=5), []

    def profile(frame: Any, event: str, arg: Any) -> None:
        if not answers:
            answers.append(watch.run(call_add, 1))

    sys.setprofile(profile)
    try:
        call_add(1)
    finally:
        sys.setprofile(None)
    assert answers == [50] and watch.names == ["call_add", "add"]


def log_around(log: list[Any], first: Any) -> Any:
    def inside() -> Any:
        return first  # a cell

    try:
        got = yield inside()
        yield from (got, got)
    except KeyError as error:
        yield error, sys.exc_info()[1]
    finally:
        log.append("finally")


def check_a_generators_frame_is_read_and_replaced(hook: ModuleType) -> None:
    null = object()
    first_log, second_log = [], []  # type: ignore[var-annotated]
    first, second = log_around(first_log, 1), log_around(second_log, 2)
    assert hook.generator_read(first, null)[0] == 0
    next(first)
    state, code, namespace, unit, values, handled = hook.generator_read(first, null)
    assert state == 1 and code is log_around.__code__ and namespace is globals() and handled is None
    assert first_log in values and null in values
    hook.generator_write(second, 1, unit, values, handled, null)
    assert second.gi_frame.f_lineno == first.gi_frame.f_lineno
    assert second.send("sent") == "sent" and second.gi_yieldfrom is not None
    state, code, namespace, unit, values, handled = hook.generator_read(second, null)
    hook.generator_write(first, 1, unit, values, handled, null)
    assert list(first) == ["sent"] and first_log == ["finally"]
    second.close()


def check_a_generators_handled_exception_goes_along(hook: ModuleType) -> None:
    null = object()
    log: list[Any] = []
    first, second = log_around(log, 1), log_around(log, 2)
    next(first)
    error, same = first.throw(KeyError("k"))
    assert error is same
    _, _, _, unit, values, handled = hook.generator_read(first, null)
    assert handled is error
    hook.generator_write(second, 1, unit, values, handled, null)
    assert list(second) == [] and log == ["finally"]


def check_a_generator_can_seem_to_run_and_be_over(hook: ModuleType) -> None:
    null = object()
    generator = count_up(3)
    _, code, _, unit, values, _ = hook.generator_read(generator, null)
    empty = (null,) * len(values)
    hook.generator_write(generator, 2, unit, empty, None, null)
    assert generator.gi_running and hook.generator_read(generator, null) == (2,)
    try:
        next(generator)
    except ValueError as error:
        assert str(error) == "generator already executing"
    hook.generator_write(generator, 0, unit, empty, None, null)
    generator.close()
    assert hook.generator_read(generator, null) == (3,) and list(generator) == []
    for wrong in ((generator, 1, unit, values), (count_up(3), 1, unit, ()), (count_up(3), 1, 10_000, values)):
        try:
            hook.generator_write(*wrong, None, null)
        except ValueError:
            continue
        raise AssertionError(f"accepted {wrong}")
