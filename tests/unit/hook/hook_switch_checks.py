"""Promises of docs/hook.md about switch, skips, threads and helpers.   hook module  ->  AssertionError"""

from __future__ import annotations

import gc
import sys
import threading
import traceback
import types
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hook_watch import Watch

from frame_evaluator import default_evaluator_installed


def add(a: Any, b: Any = 2) -> Any:
    return a + b


def call_add(a: Any) -> Any:
    return add(a) * 10


def expect(error: type[Exception], function: Callable[..., Any], *args: Any) -> str:
    try:
        function(*args)
    except error as caught:
        return str(caught)
    raise AssertionError(f"{function} did not raise {error.__name__}")


def check_the_evaluator_is_installed_only_while_entered(hook: ModuleType) -> None:
    assert default_evaluator_installed()
    hook.enter()
    assert not default_evaluator_installed()
    hook.enter()
    hook.leave()
    assert not default_evaluator_installed()
    hook.leave()
    assert default_evaluator_installed()
    assert "enter" in expect(RuntimeError, hook.leave)


def check_enter_nests_deeply_and_restores_each_level(hook: ModuleType) -> None:
    depth = 500
    for level in range(depth):
        hook.enter()
        assert hook.active()
        if level % 3 == 0:
            hook.pause()
    for level in reversed(range(depth)):
        assert hook.active() == (level % 3 != 0), level
        hook.leave()
    assert not hook.active() and default_evaluator_installed()


def check_pause_and_resume(hook: ModuleType) -> None:
    def drive() -> None:
        token = hook.pause()
        inner = hook.pause()
        add(1)
        hook.resume(inner)
        assert not hook.active()
        add(2)
        hook.resume(token)
        assert hook.active()
        add(3)

    watch = Watch(hook)
    watch.run(drive)
    assert watch.calls == [("drive", ()), ("add", (3, 2))]
    assert "token" in expect(TypeError, hook.resume, 1)


def check_callback_can_be_absent_or_replaced(hook: ModuleType) -> None:
    hook.set_callback(None)
    hook.enter()
    assert call_add(1) == 30
    hook.leave()
    expect(TypeError, hook.set_callback, 3)

    def replaces(func: Any, args: Any, closure: Any) -> Any:
        hook.set_callback(second)
        return hook.RUN

    second = Watch(hook, add=1)
    hook.set_callback(replaces)
    hook.enter()
    result = call_add(1)
    hook.leave()
    hook.set_callback(None)
    assert result == 10 and second.names == ["add"]


def check_call_below_has_a_callback_of_its_own(hook: ModuleType) -> None:
    seen: list[str] = []

    def below(func: Any, args: Any, closure: Any) -> Any:
        seen.append(func.__name__)
        return hook.RUN

    def fails(**named: Any) -> None:
        raise KeyError(named["n"])

    assert hook.call_below(below, call_add, 3) == 50
    assert hook.call_below(below, add, 3, b=4) == 7
    assert "3" in expect(KeyError, lambda: hook.call_below(below, fails, n=3))
    assert seen == ["call_add", "add", "add", "fails"]
    assert hook.exchange_callback(None) is None and not hook.active() and default_evaluator_installed()
    assert hook.call_below(below, lambda: hook.call_below(add, len, [1])) == 1
    for wrong in ((), (below,), (3, add)):
        expect(TypeError, hook.call_below, *wrong)
    seen.clear()
    assert call_add(3) == 50 and seen == []


def check_call_below_runs_closed_code_natively(hook: ModuleType) -> None:
    seen: list[str] = []

    def below(func: Any, args: Any, closure: Any) -> Any:
        seen.append(func.__name__)
        return hook.RUN

    closed = function_in_file("/hook-check/closed.py")
    hook.close_code(closed.__code__)
    assert hook.call_below(below, closed, 3) == 5 and seen == []
    assert hook.call_below(below, lambda: (hook.call_below(below, closed, 3), hook.active())) == (5, True)
    assert hook.call_below(below, lambda: closed(3)) == 5  # not the function of the call itself: asked about
    assert seen == ["<lambda>", "<lambda>", "in_file", "add"]
    hook.skip_prefix("/hook-check/nowhere/")  # earlier decisions are made again; this one stays
    seen.clear()
    assert hook.call_below(below, closed, 3) == 5 and seen == []
    expect(TypeError, hook.close_code, 3)


def function_in_file(filename: str) -> Callable[[Any], Any]:
    scope: dict[str, Any] = {"add": add}
    exec(compile("def in_file(a): return add(a)", filename, "exec"), scope)
    return scope["in_file"]


def check_skip_prefix_outdates_earlier_decisions(hook: ModuleType) -> None:
    before, other = function_in_file("/hook-check/lib/a.py"), function_in_file("/hook-check/user.py")
    watch = Watch(hook)
    watch.run(before, 1)
    assert watch.names == ["in_file", "add"]
    hook.skip_prefix("/hook-check/lib/")
    watch = Watch(hook)
    assert watch.run(before, 1) == watch.run(function_in_file("/hook-check/lib/b.py"), 1) == 3
    assert watch.names == []
    watch.run(other, 1)
    assert watch.names == ["in_file", "add"]
    expect(TypeError, hook.skip_prefix, 3)


def check_skip_code_survives_new_prefixes(hook: ModuleType) -> None:
    skipped = function_in_file("/hook-check/alone.py")
    hook.skip_code(skipped.__code__)
    hook.skip_prefix("/hook-check/unrelated/")
    watch = Watch(hook)
    watch.run(skipped, 1)
    watch.run(skipped, 1)
    assert watch.names == []
    expect(TypeError, hook.skip_code, skipped)


def check_threads_have_their_own_switch(hook: ModuleType) -> None:
    both_in, done = threading.Barrier(2, timeout=30), threading.Event()
    results: dict[str, Any] = {}

    def plain() -> None:
        both_in.wait()
        results["plain"] = (hook.active(), call_add(1))
        both_in.wait()
        hook.enter()
        both_in.wait()
        done.wait(30)
        results["entered"] = call_add(1)
        hook.leave()

    watch = Watch(hook, add=1)
    thread = threading.Thread(target=plain)
    hook.set_callback(watch)
    thread.start()
    hook.enter()
    token = hook.pause()
    both_in.wait()
    both_in.wait()
    both_in.wait()
    hook.resume(token)
    mine = call_add(1)
    hook.leave()
    assert not default_evaluator_installed(), "the other thread is still in"
    done.set()
    thread.join()
    hook.set_callback(None)
    assert default_evaluator_installed()
    assert results == {"plain": (False, 30), "entered": 10} and mine == 10
    assert watch.names.count("add") == 2


def check_new_frame_serves_tracebacks(hook: ModuleType) -> None:
    def outer(free: Any) -> Callable[..., Any]:
        def inner(a: Any) -> Any:
            cell = a
            return lambda: (cell, free)

        return inner

    code = outer(1).__code__
    frame = hook.new_frame(code, globals(), {"a": 1, "cell": 2, "free": 3})
    assert isinstance(frame, types.FrameType) and frame.f_code is code and frame.f_globals is globals()
    assert dict(frame.f_locals) == {"a": 1, "cell": 2, "free": 3}
    assert dict(hook.new_frame(code, globals()).f_locals) == {}
    line = code.co_firstlineno + 1
    error = ValueError("x").with_traceback(types.TracebackType(None, frame, 0, line))
    text = "".join(traceback.format_exception(error))
    assert f"line {line}, in inner" in text
    namespace = {"n": 1}
    assert hook.new_frame(compile("n", "<m>", "exec"), globals(), namespace).f_locals is namespace
    expect(TypeError, hook.new_frame, code, globals(), [])
    expect(TypeError, hook.new_frame, outer, globals())


def check_new_frame_does_not_leak(hook: ModuleType) -> None:
    class Token:
        pass

    token = Token()
    reference = weakref.ref(token)
    frame = hook.new_frame(call_add.__code__, {}, {"a": token})
    del token
    assert reference() is not None
    del frame
    assert reference() is None


def check_tuple_set_item(hook: ModuleType) -> None:
    class Token:
        pass

    old, new = Token(), Token()
    target = (1, old)
    reference = weakref.ref(old)
    del old
    hook.tuple_set_item(target, 1, new)
    assert target[1] is new and reference() is None
    assert "index" in expect(IndexError, hook.tuple_set_item, target, 2, 0)
    expect(IndexError, hook.tuple_set_item, target, -1, 0)
    expect(TypeError, hook.tuple_set_item, [1], 0, 0)


def check_tuple_set_item_keeps_cycles_collectable(hook: ModuleType) -> None:
    class Token:
        pass

    token = Token()
    cycle = tuple([1, 2])
    gc.collect()
    hook.tuple_set_item(cycle, 0, token)
    token.cycle = cycle  # type: ignore[attr-defined]
    reference = weakref.ref(token)
    del token, cycle
    gc.collect()
    assert reference() is None


def check_refcount(hook: ModuleType) -> None:
    thing = object()
    before = hook.refcount(thing)
    assert before == sys.getrefcount(thing)
    holders = [thing, thing]
    assert hook.refcount(thing) == before + len(holders)


def check_sentinels(hook: ModuleType) -> None:
    assert hook.RUN is not hook.RUN_ALL
    assert (repr(hook.RUN), repr(hook.RUN_ALL)) == ("stator._hook.RUN", "stator._hook.RUN_ALL")


def check_another_hook_over_and_under_ours(hook: ModuleType, other: ModuleType) -> None:
    """`other` is a second copy of the extension: a foreign hook that hands frames down."""
    lower, upper = Watch(hook), Watch(other)
    for copy in (hook, other):  # each hook sees the other's callback as a frame like any other
        for code in (Watch.__call__.__code__, expect.__code__):
            copy.skip_code(code)
    hook.set_callback(lower)
    other.set_callback(upper)
    hook.enter()
    other.enter()
    assert call_add(1) == 30
    assert lower.calls == upper.calls == [("call_add", (1,)), ("add", (1, 2))]
    hook.leave()
    assert call_add(1) == 30
    assert (len(lower.calls), len(upper.calls)) == (2, 4)
    hook.enter()  # under the one that buried it: frames come through that
    assert call_add(1) == 30
    assert (len(lower.calls), len(upper.calls)) == (4, 6)
    other.leave()
    assert call_add(1) == 30 and len(lower.calls) == 6
    hook.leave()
    hook.set_callback(None)
    other.set_callback(None)
    assert default_evaluator_installed()
