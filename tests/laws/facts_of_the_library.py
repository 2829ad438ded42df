"""Probes: values, modules and settings of the standard library: dates, slots copied by C code, filters, imports."""

from __future__ import annotations

import contextvars
import copy
import datetime
import decimal
import fractions
import io
import sys
import tempfile
import warnings
import weakref
from pathlib import Path
from typing import Any

from probing import RAISES, Scene, probe, ramp
from scenery import box, one


@probe()
def dates():
    thing = box(day=datetime.datetime(2020, 1, 2), span=datetime.timedelta(hours=1))

    def fn(x):
        later = thing.day + thing.span
        return x * thing.day.year + thing.span.total_seconds(), later, later.isoformat(), thing.day < later

    return Scene(fn, one(ramp()), lambda: setattr(thing, "day", datetime.datetime(2021, 5, 2)))


@probe()
def decimal_compared():
    thing, limit = box(n=decimal.Decimal("1.25")), decimal.Decimal("1.250")
    return Scene(lambda x: x * 2 if thing.n == limit else x * 3, one(ramp()),
                 lambda: setattr(thing, "n", decimal.Decimal("2.5")))


def keeping_decimals(fn: Any, change: Any) -> Scene:
    """A scene under a decimal context of its own, whose flags are looked at."""
    users = decimal.getcontext()
    decimal.setcontext(decimal.Context(prec=10))

    def look():
        return sorted(signal.__name__ for signal, raised in decimal.getcontext().flags.items() if raised)

    return Scene(fn, one(ramp()), change, look, lambda: decimal.setcontext(users))


@probe()
def decimals_under_a_context():
    def fn(x):
        part = decimal.Decimal(1) / decimal.Decimal(7)
        return x * float(part), part, -part, abs(part) + 1, part > 1, round(part, 2), str(part)

    return keeping_decimals(fn, lambda: setattr(decimal.getcontext(), "prec", 3))


@probe()
def decimals_that_are_summed():
    parts = [decimal.Decimal("0.10000001"), decimal.Decimal("123.456")]
    return keeping_decimals(lambda x: (x * float(sum(parts)), max(parts), sorted(parts)[0]),
                            lambda: setattr(decimal.getcontext(), "rounding", decimal.ROUND_UP))


@probe(RAISES)
def decimals_that_trap():
    def fn(x):
        try:
            return x * float(decimal.Decimal(1) / decimal.Decimal(0))
        except decimal.DivisionByZero:
            return x * 7

    return keeping_decimals(fn, lambda: decimal.getcontext().traps.__setitem__(decimal.DivisionByZero, False))


@probe("SB006 SB013")
def decimal_context_inside():
    def fn(x):
        with decimal.localcontext() as context:
            context.prec = 4
            part = decimal.Decimal(1) / decimal.Decimal(7)
        return x * float(part), part, decimal.Decimal(1) / decimal.Decimal(3)

    return keeping_decimals(fn, lambda: None)


@probe()
def fraction_as_a_number():
    thing = box(n=fractions.Fraction(1, 3))
    return Scene(lambda x: (x * float(thing.n), thing.n + 1), one(ramp()),
                 lambda: setattr(thing, "n", fractions.Fraction(2, 3)))


@probe()
def context_variable_read():
    variable = contextvars.ContextVar("scale", default=2)
    return Scene(lambda x: x * variable.get() + variable.get(5), one(ramp()), lambda: variable.set(3))


@probe()
def context_variable_without_a_value():
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("scale")

    def fn(x):
        try:
            return x * variable.get()
        except LookupError:
            return x * 7

    return Scene(fn, one(ramp()), lambda: variable.set(3))


@probe()
def copy_of_an_object_with_an_empty_slot():
    class Slotted:
        __slots__ = ("a", "b")

    thing = Slotted()
    thing.a = 1
    return Scene(lambda x: (x * 2, hasattr(copy.copy(thing), "b")), one(ramp()), lambda: setattr(thing, "b", 3))


@probe("SB005 SB006")
def memory_view_written():
    data = bytearray(b"abc")
    view = memoryview(data)

    def fn(x):
        view[0] = 9
        return x * data[0]

    return Scene(fn, one(ramp()), lambda: data.__setitem__(0, 1), lambda: bytes(data))


@probe("SB005 SB014 SB001")
def view_of_a_dict():
    table = {"a": 1}
    keys = table.keys()
    return Scene(lambda x: x * 2 if "b" in keys else x * 3, one(ramp()), lambda: table.update(b=2))


@probe()
def weak_containers_of_one_object():
    class Target:
        pass

    target = Target()
    known, table = weakref.WeakSet([target]), weakref.WeakKeyDictionary({target: 5})
    return Scene(lambda x: x * len(known) * table[target], one(ramp()), lambda: table.__setitem__(target, 6))


@probe("SB019")
def finalizer_registered():
    class Target:
        pass

    target, log = Target(), []

    def fn(x):
        return x * 2, weakref.finalize(target, log.append, 1).alive

    return Scene(fn, one(ramp()), look=lambda: len(log))


@probe("SB006")
def warning_between_filters():
    def fn(x):
        warnings.warn("shown")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("not shown")
        return x * 2

    return Scene(fn, one(ramp()))


@probe()
def warning_of_code_without_a_file():
    names: dict[str, Any] = {"warnings": warnings, "__name__": __name__}
    exec("def fn(x):\n    warnings.warn('from nowhere')\n    return x * 2", names)
    return Scene(names["fn"], one(ramp()))


@probe("SB015")
def stream_replaced_after_text():
    state, kept = [0], io.StringIO()

    class Restore:
        def __enter__(self):
            self.stream = sys.stdout

        def __exit__(self, *exc):
            sys.stdout = self.stream

    def fn(x):
        state[0] += 1
        print("before")
        sys.stdout = kept
        return x * 2

    return Scene(fn, one(ramp()), look=lambda: (state, kept.getvalue()), around=Restore)


@probe("SB006")
def module_loaded_inside():
    folder = tempfile.TemporaryDirectory()
    log: list[Any] = []
    sys.stator_law_log = log
    Path(folder.name, "stator_law_module.py").write_text("import sys\nsys.stator_law_log.append('loaded')\nK = 2\n")
    sys.path.insert(0, folder.name)

    def fn(x):
        log.append("before")
        import stator_law_module
        return x * stator_law_module.K

    def undo():
        sys.path.remove(folder.name)
        sys.modules.pop("stator_law_module", None)
        folder.cleanup()

    return Scene(fn, one(ramp()), lambda: sys.modules.pop("stator_law_module"), lambda: list(log), undo)
