"""Generators: lazy iteration, send, return values, state between yields."""

import torch

from curriculum import call, case, ramp


def count_to(n):
    for i in range(n):
        yield i


def running_total():
    total = 0
    while True:
        value = yield total
        if value is None:
            return total
        total = total + value


def chunks(x, size):
    for start in range(0, x.shape[0], size):
        yield x[start : start + size]


log = []


def logging_generator(items):
    log.append("start")
    for item in items:
        yield item
    log.append("end")


@case((ramp(2), 3), (ramp(2), 0))
def for_loop(x, n):
    for i in count_to(n):
        x = x + i
    return x


@case(call(ramp(6)), call(ramp(4)))
def tensors_are_yielded(x):
    return [c.sum() for c in chunks(x, 2)], torch.cat(list(chunks(x, 3)))


@case(call(ramp(2)))
def send(x):
    g = running_total()
    next(g)
    first = g.send(x)
    second = g.send(2)
    return first, second


@case(call(ramp(2)))
def return_value(x):
    g = running_total()
    next(g)
    g.send(5)
    try:
        g.send(None)
    except StopIteration as stop:
        return stop.value + x, stop.args


@case(call(ramp(2)))
def send_to_an_unstarted_generator(x):
    y = x + 1
    g = running_total()
    return y, g.send(3)


@case(call(ramp(2)))
def exhausted(x):
    g = count_to(1)
    return next(g), next(g, "none"), list(g), x + 1


@case()
def side_effects_happen_in_step(x):
    g = logging_generator([1, 2])
    log.append("made")
    a = next(g)
    log.append("between")
    rest = list(g)
    return x + a, rest


@case(call(ramp(2)))
def expressions(x):
    squares = (v * v for v in range(4))
    scaled = (x * s for s in squares if s)
    return next(scaled), sum(scaled)


@case(call(ramp(2)))
def interleaved(x):
    a, b = count_to(3), count_to(5)
    mixed = []
    for p in a:
        mixed.append(p)
        mixed.append(next(b) * 10)
    return mixed, list(b), x + len(mixed)


@case(call(ramp(2)))
def infinite(x):
    def naturals():
        n = 0
        while True:
            yield n
            n += 1

    def take(n, it):
        return [v for _, v in zip(range(n), it)]

    return take(4, naturals()), x + sum(take(5, naturals()))


@case(lambda: call(count_to(4), ramp(2)), lambda: call(count_to(1), ramp(2)),
      breaks="SB014 the frame of a generator from outside")
def generator_argument_is_consumed(g, x):
    return x + sum(g)


@case(lambda: call(count_to(4), ramp(2)), breaks="SB014 the frame of a generator from outside")
def generator_argument_is_advanced(g, x):
    return x + next(g) + next(g)


@case(call(ramp(2)), graphs=0)
def generator_is_returned(x):
    def produce():
        yield x
        yield x + 1

    return produce()


@case(call(ramp(2)))
def started_generator_is_returned(x):
    def produce(v):
        v = v * 2
        yield v
        v = v + 1
        yield v
        yield "end"

    g = produce(x)
    return g if next(g) is not None else None


@case(call(ramp(2)))
def attributes(x):
    g = count_to(2)
    before = g.gi_running, g.gi_yieldfrom, g.__name__, g.gi_code.co_name
    next(g)
    return before, g.gi_frame is not None, list(g), g.gi_frame is None, x + 1


@case(call(ramp(2)))
def error_inside(x):
    def bad():
        yield 1
        raise ValueError("inside the generator")

    y = x + 1
    for v in bad():
        y = y + v
    return y


@case(call(ramp(2)))
def stop_iteration_inside_becomes_runtime_error(x):
    def bad():
        yield 1
        next(iter([]))

    y = x + 1
    return y, list(bad())


@case(call(ramp(2)))
def unpack_and_star(x):
    a, *b = count_to(4)

    def use(*args):
        return args

    return a, b, use(*count_to(3)), {*count_to(2)}, dict(zip("ab", count_to(2))), x + a
