"""Contexts of decimals and of context variables, and files from outside: read, changed and written back."""

from __future__ import annotations

import contextvars
import decimal
import os
import pathlib
from decimal import Decimal

import pytest
import torch

import stator

LEVEL: contextvars.ContextVar[int] = contextvars.ContextVar("LEVEL", default=3)


def shown(value: object) -> object:
    """A context by its state: two contexts compare by identity."""
    if isinstance(value, decimal.Context):
        names = [sorted(signal.__name__ for signal, is_set in signals.items() if is_set)
                 for signals in (value.flags, value.traps)]
        return value.prec, value.rounding, value.capitals, names
    return [shown(each) for each in value] if isinstance(value, (tuple, list)) else value


def local_precision(x, held):
    with decimal.localcontext() as context:
        context.prec = 5
        inner = Decimal(1) / Decimal(7)
    return inner, Decimal(1) / Decimal(7), x + 1


def local_settings(x, held):
    with decimal.localcontext(prec=40) as context:
        long = +Decimal("1." + "3" * 60), Decimal(3).sqrt(context), Decimal(5).sqrt(context=decimal.Context(prec=2))
    return long, format(Decimal("1.25"), ".1f"), Decimal.from_float(0.5)


def made(x, held):
    context = decimal.Context(prec=3, traps=[])
    return context.divide(Decimal(2), Decimal(3)), context.flags[decimal.Inexact], context.Etiny()


def changes_current(x, held):
    decimal.getcontext().prec = 7
    decimal.getcontext().clear_flags()
    return Decimal(1) / Decimal(3), decimal.getcontext().flags[decimal.Inexact]


def changes_held(x, held):
    held.prec += 1
    held.traps[decimal.Inexact] = False
    return held.sqrt(Decimal(2)), held.flags[decimal.Rounded]


def leaves_another(x, held):
    decimal.setcontext(decimal.Context(prec=4, traps=[]))
    return Decimal(1) / Decimal(3), Decimal(1) / Decimal(0)


def sets_template(x, held):
    decimal.setcontext(decimal.ExtendedContext)
    decimal.getcontext().prec = 6
    return Decimal(1) / Decimal(3)


def traps(x, held):
    try:
        decimal.Context(prec=3, traps=[decimal.DivisionByZero]).divide(Decimal(1), Decimal(0))
    except decimal.DivisionByZero as error:
        return type(error), str(error)


def returns_context(x, held):
    context = decimal.Context(prec=11)
    context.flags[decimal.Clamped] = True
    return context, decimal.getcontext() is decimal.getcontext()


@pytest.mark.parametrize("program", [
    local_precision, local_settings, made, changes_current, changes_held, leaves_another, sets_template, traps,
    returns_context])
def test_contexts_of_decimals(program) -> None:
    before, found = decimal.getcontext(), []
    try:
        for run in (program, stator.compile(program, backend="eager", fullgraph=True)):
            decimal.setcontext(decimal.Context())
            held, seen = decimal.Context(prec=5), []
            for _ in range(3):  # flags of the call before are there at the next one
                value = run(torch.ones(2), held)
                seen.append([shown(value), shown(decimal.getcontext()), shown(held), shown(decimal.ExtendedContext)])
            found.append(seen)
    finally:
        decimal.setcontext(before)
    assert str(found[0]) == str(found[1])


def test_made_contexts_are_new_at_each_call() -> None:
    compiled = stator.compile(returns_context, backend="eager", fullgraph=True)
    assert compiled(torch.ones(1), None)[0] is not compiled(torch.ones(1), None)[0]


def test_settings_of_the_thread_are_a_fact() -> None:
    compiled = stator.compile(lambda x: Decimal(1) / Decimal(3), backend="eager", fullgraph=True)
    with decimal.localcontext() as context:
        for context.prec in (5, 9, 5):
            assert compiled(torch.ones(1)) == Decimal(1) / Decimal(3)


def enters(x):
    context, inner = contextvars.Context(), contextvars.ContextVar("inner")

    def body(n):
        token = inner.set(n)
        first = inner.get()
        inner.reset(token)
        inner.set(x * n)
        LEVEL.set(9)
        return first, LEVEL.get(), len(contextvars.copy_context())

    answers = context.run(body, 5)
    with pytest.raises(RuntimeError, match="already entered"):
        context.run(context.run, body, 5)
    return answers, context[inner], inner in context, inner.get(None), LEVEL.get(), context[LEVEL]


def test_contexts_made_inside() -> None:
    compiled, x = stator.compile(enters, backend="eager", fullgraph=True), torch.ones(2)
    size = len(contextvars.copy_context())
    assert str(compiled(x)) == str(enters(x)) == str(compiled(x))
    assert len(contextvars.copy_context()) == size  # nothing leaks into that of the caller


def test_a_break_inside_is_a_break_at_run() -> None:
    def program(x):
        def body():
            stator.graph_break()
            LEVEL.set(1)
            return x + LEVEL.get()
        return contextvars.Context().run(body), LEVEL.get()

    found = stator.compile(program, backend="eager")(torch.ones(1))
    assert torch.equal(found[0], torch.full((1,), 2.0)) and found[1] == 3


def reads(path):
    with open(path, encoding="utf-8") as file:
        return list(file), os.path.isfile(path)


def reads_bytes(path):
    with open(path, "rb") as file:
        return file.read(), os.path.exists(path + "x")


def reads_otherwise(path):
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError as error:
        return error.errno, error.filename, str(error)


@pytest.mark.parametrize("program", [reads, reads_bytes, reads_otherwise])
def test_contents_of_files_are_a_fact(program, tmp_path: pathlib.Path) -> None:
    path, compiled = tmp_path / "data", stator.compile(program, backend="eager", fullgraph=True)
    for text in ("a\nb\r\nc", "a\nb\r\nd", "ü"):
        path.write_text(text, encoding="utf-8", newline="")
        assert compiled(str(path)) == program(str(path))
    path.unlink()
    if program is reads_otherwise:
        assert compiled(str(path)) == program(str(path))


def test_a_file_that_the_call_wrote_under_another_name(tmp_path: pathlib.Path) -> None:
    def program(path, other):
        with open(path, "w", encoding="utf-8") as file:
            file.write("new")
        with open(other, encoding="utf-8") as file:
            return file.read()

    path = tmp_path / "data"
    path.write_text("old", encoding="utf-8")
    compiled = stator.compile(program, backend="eager")
    assert compiled(str(path), str(tmp_path / ".." / tmp_path.name / "data")) == "new"


def test_state_of_files(tmp_path: pathlib.Path) -> None:
    def program(path):
        try:
            exists = os.path.exists(path)
            with open(path, "rb") as file:
                return exists, os.path.getsize(path), os.getcwd(), len(file.read())
        except FileNotFoundError as error:
            return exists, str(error)

    path, compiled = tmp_path / "data", stator.compile(program, backend="eager", fullgraph=True)
    for text in ("one", "three", None):
        path.write_text(text) if text else path.unlink()
        assert compiled(str(path)) == program(str(path))


@pytest.mark.parametrize("program", [
    lambda: open("/proc/self/statm", "rb").read(), lambda: os.stat(os.getcwd()).st_atime,
    lambda: os.path.getatime(os.getcwd())])
def test_files_that_reading_changes_break(program) -> None:
    with pytest.raises(stator.Unsupported):
        stator.compile(program, backend="eager", fullgraph=True)()


def test_subclasses_of_contexts() -> None:
    def program(x):
        class Own(decimal.Context):
            def __init__(self, prec):
                decimal.Context.__init__(self, prec=prec)
                self.label = "own"

        context = Own(4)
        context.traps[decimal.Inexact] = False
        context.capitals = 0
        try:
            del context.label
        except AttributeError as error:
            return context.divide(Decimal(1), Decimal(3)), context.flags[decimal.Inexact], str(error), x + 1

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    assert str(compiled(torch.ones(1))) == str(program(torch.ones(1)))


def test_a_context_of_a_subclass_from_outside_breaks() -> None:
    class Own(decimal.Context):
        pass

    context = Own(prec=5)
    compiled = stator.compile(lambda: (context.divide(Decimal(1), Decimal(3)), context.flags[decimal.Inexact]),
                              backend="eager")
    assert compiled() == (Decimal("0.33333"), True)
    assert context.flags[decimal.Inexact]
