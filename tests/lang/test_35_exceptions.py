"""Raising: escaping to the caller, custom classes, chaining, notes, assert, errors from C code."""

import array
import datetime

import stator
from curriculum import call, case, ramp


class AppError(Exception):
    """An error with data."""

    def __init__(self, message, code=1):
        super().__init__(message)
        self.code = code


class Stop(BaseException):
    """No Exception: only the program's own handlers and CPython see it."""


@case(*[call(ramp(2), kind) for kind in (Stop, KeyboardInterrupt, SystemExit, GeneratorExit)])
def effects_before_an_exception_that_is_no_error(x, kind):
    seen = []
    try:
        x.add_(1)
        raise kind(seen)
    finally:
        x.mul_(2)
        seen.append(len(seen))


@case(call(ramp(2), 2), call(ramp(2), 5))
def exception_that_is_no_error_from_a_callback(x, bad):
    def key(item):
        if item == bad:
            raise Stop(item)
        return -item

    x.add_(1)
    return x, sorted([3, 2, 1], key=key)


class Detailed(AppError):
    def __str__(self):
        return f"[{self.code}] {self.args[0]}"


def fail(n):
    raise AppError(f"failed with {n}", code=n)


@case(call(ramp(2), 3), call(ramp(2), 0))
def custom_escapes(x, n):
    y = x + 1
    if n:
        fail(n)
    return y


@case(call(ramp(2)))
def custom_str(x):
    y = x + 1
    raise Detailed("text", code=7)


@case(call(ramp(2)))
def raise_from(x):
    y = x + 1
    try:
        {}["k"]
    except KeyError as error:
        raise AppError("wrapped") from error


@case(call(ramp(2)))
def raise_from_none(x):
    y = x + 1
    try:
        {}["k"]
    except KeyError:
        raise AppError("hidden") from None


@case(call(ramp(2)))
def implicit_context(x):
    y = x + 1
    try:
        [][1]
    except IndexError:
        int("x")
    return y


@case(call(ramp(2)))
def chain_of_three(x):
    try:
        try:
            try:
                raise KeyError("one")
            except KeyError as one:
                raise ValueError("two") from one
        finally:
            {}["three"]
    except KeyError as three:
        return str(three), repr(three.__context__), repr(three.__context__.__cause__), three.__cause__, x + 1


@case(call(ramp(2)))
def notes(x):
    y = x + 1
    try:
        raise ValueError("v")
    except ValueError as error:
        error.add_note("first note")
        error.add_note("second")
        raise


@case((ramp(2), 3), (ramp(2), -1))
def assertion(x, n):
    assert n > 0, f"n must be positive, got {n}"
    assert x.dim() == 1
    return x * n


@case((ramp(2),), (ramp(2, 2),))
def assertion_without_message(x):
    y = x + 1
    assert x.dim() == 1
    return y


ERRORS = [
    lambda: {}["missing"],
    lambda: [1][5],
    lambda: (1,)[3],
    lambda: 1 / 0,
    lambda: 1 % 0,
    lambda: 1.0 // 0.0,
    lambda: int("abc"),
    lambda: int(None),
    lambda: float("x"),
    lambda: "a" + 1,
    lambda: 1 + "a",
    lambda: [] + (),
    lambda: None.attribute,
    lambda: undefined_name,  # noqa: F821
    lambda: "abc".index("z"),
    lambda: [].pop(),
    lambda: {}.popitem(),
    lambda: set().pop(),
    lambda: next(iter(())),
    lambda: len(5),
    lambda: chr(-1),
    lambda: 1 << -1,
    lambda: [1] < ["a"],
    lambda: {**[1]},
    lambda: "%d" % "a",
    lambda: "{}".format(),  # noqa: F524
    lambda: isinstance(1, 1),
    lambda: object().x,
    lambda: b"\xff".decode(),
    lambda: max([]),
    lambda: dict([(1,)]),
    lambda: range(1, 2, 0),
    lambda: "a".join([1]),
    lambda: (1).real.foo,
]


@case(call(ramp(2)))
def errors_of_c_code(x):
    told = []
    for attempt in ERRORS:
        try:
            attempt()
        except Exception as error:
            told.append((type(error).__name__, str(error)))
    return told, x + len(told)


@case((ramp(2), "k"), (ramp(2), ("t", 1)), (ramp(2), None))
def key_error_text(x, key):
    y = x + 1
    return y + {}[key]


@case(call(ramp(2)))
def undefined_name_escapes(x):
    y = x + 1
    return y + not_defined_anywhere  # noqa: F821


@case(call(ramp(2)))
def raise_a_class(x):
    y = x + 1
    raise LookupError


@case(call(ramp(2)))
def raise_what_is_no_exception(x):
    y = x + 1
    raise "text"


@case(call(ramp(2)))
def raise_without_an_active_exception(x):
    y = x + 1
    raise


@case(call(ramp(2)))
def exception_object_is_returned(x):
    error = AppError("kept", code=5)
    error.extra = x + 1
    try:
        raise error
    except AppError as caught:
        return caught is error, error, error.__traceback__ is not None


@case(call(ramp(2)))
def line_of_a_multiline_statement(x):
    y = x + 1
    return (
        y
        + sum(
            [1, 2]
        )
        + {}[
            "deep"
        ]
    )


@case(call(ramp(2)))
def side_effects_before_an_escape(x):
    record.append("reached")
    x.add_(1)
    print("about to fail")
    raise AppError(record)


record = []


@case(call(ramp(2, 3), ramp(2, 3)), call(ramp(2, 3), ramp(3, 2)))
def tensor_error_escapes(a, b):
    c = a + 1
    return c @ b


@case(call(ramp(2)))
def traceback_lines(x):
    def inner():
        raise ValueError("deep")

    def middle():
        inner()

    try:
        middle()
    except ValueError as error:
        tb = error.__traceback__
        names = []
        while tb:
            names.append((tb.tb_frame.f_code.co_name, tb.tb_lineno))
            tb = tb.tb_next
        return names, x + 1


def walked(error):
    found, tb = [], error.__traceback__
    while tb is not None:
        found.append((tb.tb_frame.f_code.co_name, tb.tb_lineno))
        tb = tb.tb_next
    return found


@case(call(ramp(2)))
def traceback_through_functions_written_in_c(x):
    def items(n):
        for i in range(n):
            if i == 2:
                raise ValueError(i)
            yield i

    found = []
    for consume in (sum, list, max, any, lambda it: dict((i, i) for i in it), lambda it: [*it]):
        try:
            consume(items(4))
        except ValueError as error:
            found.append(walked(error))
    return found, x + 1


@case(call(ramp(2)), call(ramp(3)))
def names_of_c_types_in_errors(x):
    def said(step):
        try:
            return step()
        except (TypeError, AttributeError) as error:
            return str(error)

    day, numbers = datetime.date(2024, 2, 3), array.array("i", [1])
    return (said(lambda: day()), said(lambda: day[0]), said(lambda: day.missing), said(lambda: numbers()),
            said(lambda: max(*(int | str))), x + 1)  # fmt: skip


def test_errors_about_iterators_from_outside():
    def negated(walker):
        try:
            return -walker
        except TypeError as error:
            return str(error)

    for make in (lambda: iter((1, 2)), lambda: iter({1, 2}), lambda: iter(range(3)), lambda: iter([1])):
        assert stator.compile(negated, backend="eager")(make()) == negated(make())


def test_values_that_are_over_leave_as_they_are():
    def over():
        walker, view = reversed([1, 2]), memoryview(b"ab")
        with view:
            total = sum(walker)
        return walker, view, total

    walker, view, total = stator.compile(over, backend="eager")()
    assert type(walker) is type(reversed([])) and not list(walker) and total == 3 and "released" in repr(view)


@case(call(3), call(4), graphs=0)
def a_cause_whose_class_gives_no_exception(n):
    class Cause(Exception):
        def __new__(cls):
            return None

    try:
        raise IndexError(n) from Cause
    except (IndexError, TypeError) as error:
        return type(error), str(error), error.__cause__, error.__suppress_context__
