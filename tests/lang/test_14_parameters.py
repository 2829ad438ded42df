"""Parameters: defaults, keyword-only, positional-only, *args and **kwargs; wrong calls."""

import torch

from curriculum import call, case, ramp


def every_kind(a, b, /, c, d=4, *args, e, f=6, **kwargs):
    return a, b, c, d, args, e, f, kwargs


def plain(a, b, c=3):
    return a, b, c


def keyword_only(*, scale=1.0, shift):
    return scale, shift


def positional_only(a, b=2, /):
    return a, b


class Thing:
    def method(self, a, b=2):
        return a, b


@case(call(ramp(2)))
def every_kind_of_parameter(x):
    return [
        every_kind(1, 2, 3, e=5),
        every_kind(1, 2, c=3, e=5),
        every_kind(1, 2, 3, 4, 5, 6, e=7, g=8, a=9),
        every_kind(*(1, 2), *[3], **{"e": 5}, f=0, **{"z": 1}),
        x + 1,
    ]


@case(call(ramp(2)))
def defaults_are_evaluated_once(x):
    def collect(value, into=[]):
        into.append(value)
        return into

    collect(1)
    collect(2)
    return collect(3), collect.__defaults__, x + 1


cache = []


def remember(value, into=cache):
    into.append(value)
    return len(into)


@case()
def mutable_default_of_a_global_function(x):
    return x + remember(x.shape[0]) + remember(0, [])


@case((ramp(2), 1), (ramp(2), 1, 2), (ramp(2),), call(ramp(2), b=5), call(ramp(2), c=1, b=2))
def optional_arguments(x, a=10, b=None, *, c=0):
    if b is None:
        b = a
    return x * a + b - c


@case((ramp(2), ramp(2)), (ramp(2),), (ramp(2), ramp(2), ramp(2)))
def variable_arguments(*tensors):
    total = tensors[0]
    for t in tensors[1:]:
        total = total + t
    return total, len(tensors), type(tensors)


@case(call(x=ramp(2)), call(x=ramp(2), y=ramp(2)), call(z=ramp(3)))
def variable_keywords(**tensors):
    return {name: t * 2 for name, t in tensors.items()}, sorted(tensors)


@case(call(ramp(2), 1, 2, k=3), call(ramp(2)), call(ramp(2), 5, j=0, k=1))
def args_and_kwargs_are_fresh(x, *args, **kwargs):
    kwargs["added"] = len(args)
    return x + sum(args), args, kwargs


WRONG = [
    lambda: plain(),
    lambda: plain(1),
    lambda: plain(1, 2, 3, 4),
    lambda: plain(1, 2, d=4),
    lambda: plain(1, 2, b=2),
    lambda: keyword_only(),
    lambda: keyword_only(1, shift=2),
    lambda: positional_only(a=1),
    lambda: positional_only(1, 2, 3),
    lambda: every_kind(1, e=2),
    lambda: plain(**{"a": 1, "b": 2}, **{"a": 3}),
    lambda: plain(*5),
    lambda: plain(**[1]),
    lambda: plain(1, 2, **{1: 2}),
    lambda: Thing().method(),
    lambda: Thing().method(1, 2, 3),
    lambda: Thing.method(),
    lambda: (lambda a: a)(),
    lambda: (lambda f: f())(3),
]


@case(call(ramp(2)))
def wrong_calls_are_caught(x):
    told = []
    for attempt in WRONG:
        try:
            attempt()
        except TypeError as error:
            told.append(str(error))
    return told, x + len(told)


@case(call(ramp(2)))
def missing_argument_escapes(x):
    y = x + 1
    return plain(y)


@case(call(ramp(2)))
def too_many_arguments_escape(x):
    def inner(a, *, b):
        return a + b

    return inner(x, 2, b=3)


@case(call(ramp(2), 5), call(ramp(2), k=5), call(1, 2, 3), call())
def the_entry_itself_is_called_wrongly(x, *, k):
    return x + k


@case(call(ramp(2)))
def defaults_see_the_enclosing_scope(x):
    n = 2

    def scale(v, factor=n * 3, /, *, power=n):
        return (v * factor) ** power

    n = 100
    return scale(x), scale.__kwdefaults__, scale.__defaults__


@case(call(ramp(2)))
def annotations(x):
    def typed(a: int, b: "str" = "s", *c: float, d: list[int] = None, **e: dict) -> torch.Tensor:
        return a

    return typed(x * 2), typed.__annotations__, typed.__name__, typed.__doc__


@case(call(ramp(2)))
def parameter_rebinding(x):
    def change(a, items, /, **kw):
        a = a + 1
        items = items + [1]
        kw["z"] = 1
        return a, items

    mine, kw = [0], {"y": 2}
    return change(x, mine, **kw), mine, kw, x
