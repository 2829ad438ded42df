"""Printed text and its order, among tensor operations, branches and failures."""

import io
import sys
import warnings

from curriculum import call, case, ramp


class Named:
    def __init__(self, name):
        self.name = name
        self.shown = 0

    def __str__(self):
        self.shown += 1
        return f"Named {self.name}"


@case()
def plain(x):
    print("hello")
    print("shape", x.shape, x.dtype, 3, None, [1, "a"])
    return x + 1


@case(call(ramp(2)))
def separators_and_ends(x):
    print(1, 2, 3, sep="-", end="|\n")
    print("a", "b", sep="")
    print()
    print("no newline", end="")
    print(*range(3), sep=", ")
    return x + 1


@case((ramp(2), 2), (ramp(2), 0))
def between_operations(x, n):
    print("start")
    for i in range(n):
        x = x + i
        print("step", i)
    print(f"done after {n}")
    return x


@case(call(ramp(2)))
def into_a_buffer(x):
    out = io.StringIO()
    print("one", 2, file=out)
    print("three", file=out, end="")
    return out.getvalue(), x + 1


@case(call(ramp(2)))
def stdout_write(x):
    sys.stdout.write("written directly\n")
    return x + 1


@case(lambda: call(Named("n"), ramp(2)))
def user_str(n, x):
    print(n, [n.name], f"{n}!")
    return x + n.shown


@case(call(ramp(2)))
def before_an_exception(x):
    print("printed first")
    y = x + 1
    raise ValueError("then raised")


@case(call(ramp(2)))
def in_a_handler_and_finally(x):
    try:
        print("try")
        raise KeyError("k")
    except KeyError as error:
        print("except", error, repr(error))
    finally:
        print("finally")
    return x + 1


@case(call(ramp(2)))
def in_a_nested_function_and_generator(x):
    def gen():
        print("started")
        yield 1
        print("resumed")
        yield 2

    for v in gen():
        print("got", v)
        x = x + v
    return x


@case((ramp(2), [1, 2]), (ramp(2), []))
def state_at_the_time_of_printing(x, items):
    print(items)
    items.append(3)
    print(items)
    return x + len(items)


@case(call(ramp(2)))
def returns_none(x):
    return print("value"), x + 1


@case(breaks="the text shows a tensor's values, which are known only after the graph has run")
def tensor_values(x):
    y = x + 1
    print(y)
    return y * 2


@case(call(ramp(2)))
def warning(x):
    warnings.warn("careful", UserWarning)
    warnings.warn(f"shape {tuple(x.shape)}", DeprecationWarning, stacklevel=1)
    return x + 1


@case(call(ramp(2)))
def format_error_while_printing(x):
    class Bad:
        def __str__(self):
            raise RuntimeError("cannot be shown")

    print("before")
    y = x + 1
    print("now", Bad())
    return y
