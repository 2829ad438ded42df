"""Decorators: plain, with parameters, stacked, as classes, on classes and methods."""

import functools

import torch

from curriculum import call, case, ramp


def double(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs) * 2

    return wrapper


def add(n):
    def decorate(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            return fn(*args, **kwargs) + n

        return wrapper

    return decorate


class CountCalls:
    def __init__(self, fn):
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.calls = 0

    def __call__(self, *args):
        self.calls += 1
        return self.fn(*args)


def registered(table, name=None):
    def decorate(thing):
        table[name or thing.__name__] = thing
        return thing

    return decorate


def with_repr(cls):
    cls.__repr__ = lambda self: f"<{cls.__name__} {vars(self)}>"
    cls.made_by = "with_repr"
    return cls


@double
def shifted(x):
    """Shift by one."""
    return x + 1


@add(10)
@double
def stacked(x):
    return x * 3


@CountCalls
def counted(x):
    return x + 1


LAYERS = {}


@registered(LAYERS)
def sine(x):
    return torch.sin(x)


@registered(LAYERS, name="cosine")
def _cos(x):
    return torch.cos(x)


@with_repr
class Config:
    def __init__(self, n):
        self.n = n

    @double
    def value(self, x):
        return x * self.n


@case()
def wrapped_function(x):
    return shifted(x), shifted.__name__, shifted.__doc__, shifted.__wrapped__(x)


@case()
def with_parameters_and_stacked(x):
    return stacked(x)


@case()
def instance_as_decorator(x):
    return counted(counted(x)), counted.calls, counted.__name__


@case((ramp(2), "sine"), (ramp(2), "cosine"))
def registry(x, name):
    return LAYERS[name](x), sorted(LAYERS)


@case()
def decorated_class_and_method(x):
    config = Config(3)
    return config.value(x), repr(config), Config.made_by


@case()
def decorating_inside(x):
    seen = []

    def log(fn):
        seen.append(("decorated", fn.__name__))

        @functools.wraps(fn)
        def wrapper(v):
            seen.append(("called", fn.__name__))
            return fn(v)

        return wrapper

    @log
    @log
    def inner(v):
        return v + 1

    return inner(x), seen


@case(call(ramp(2)))
def decorator_expression(x):
    makers = [add(1), add(2)]

    @makers[1]
    @(lambda f: lambda v: f(v) * 5)
    def inner(v):
        return v

    return inner(x)


@case(call(ramp(2)))
def decorator_replaces_by_a_value(x):
    @lambda f: f(3)
    def nine(n):
        return n * n

    @sum
    @list
    @lambda f: f()
    def total():
        return (1, 2, 3)

    return nine, total, x + nine


@case(call(ramp(2)))
def memo_decorator(x):
    def memo(fn):
        known = {}

        def wrapper(n):
            if n not in known:
                known[n] = fn(n)
            return known[n]

        wrapper.known = known
        return wrapper

    @memo
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return x + fib(12), len(fib.known)


@case((ramp(2), 3), (ramp(2), -1))
def validating_decorator(x, n):
    def positive(fn):
        def wrapper(v, n):
            if n <= 0:
                raise ValueError(f"{fn.__name__} wants a positive number, got {n}")
            return fn(v, n)

        return wrapper

    @positive
    def scale(v, n):
        return v * n

    return scale(x, n)


@case()
def no_grad_decorator(x):
    @torch.no_grad()
    def frozen(v):
        return v * 2, torch.is_grad_enabled()

    return frozen(x), torch.is_grad_enabled()
