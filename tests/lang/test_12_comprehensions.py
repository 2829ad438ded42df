"""Comprehensions: list, set, dict, nested, conditional, scopes, walrus."""

import torch

from curriculum import call, case, ramp

limit = 3


@case()
def list_of_tensors(x):
    return [x * i for i in range(3)]


@case()
def sum_of_generator(x):
    return sum(x * i for i in range(1, 4))


@case(([1, 2, 3, 4],), ([],), graphs=0)
def conditions(items):
    return [i for i in items if i % 2 if i > 1], [i if i % 2 else -i for i in items], [i for i in items if not i > 2]


@case(call([[1, 2], [3]], ramp(2)), call([[]], ramp(2)))
def nested_loops(rows, x):
    flat = [v for row in rows for v in row]
    table = [[v * 2 for v in row] for row in rows]
    return flat, table, [(a, b) for a in flat for b in flat if a < b], x + len(flat)


@case(({"a": 1, "b": 2},), graphs=0)
def dict_and_set(table):
    return {k.upper(): v * 2 for k, v in table.items()}, {v % 2 for v in table.values()}, {i: {j for j in range(i)} for i in range(3)}


@case(call(ramp(2)))
def scope_of_the_target(x):
    i = "outer"
    squares = [i * i for i in range(3)]
    return i, squares, x + squares[-1]


@case((ramp(2), [1, 5, 2]), (ramp(2), [0]))
def walrus_inside(x, items):
    kept = [y for v in items if (y := v * 2) > 3]
    total = 0
    running = [total := total + v for v in items]
    return kept, running, total, x + total


@case(call(ramp(2), 4), call(ramp(2), 1))
def closes_over_locals(x, n):
    scale = n + 1
    return [x * scale + i + limit for i in range(n)]


@case(call(ramp(2)))
def lambdas_bind_late(x):
    late = [lambda: i for i in range(3)]
    early = [lambda i=i: i for i in range(3)]
    return [f() for f in late], [f() for f in early], x + late[0]()


@case(call(ramp(2)))
def generator_is_lazy(x):
    seen = []
    gen = (seen.append(i) or i for i in range(5))
    first = next(gen)
    return first, list(seen), sum(gen), seen, x + first


@case((0,), (5,), graphs=0)
def error_inside(n):
    return [
        10 // (n - i)
        for i in range(3)
    ]


@case(call(ramp(2)))
def first_iterable_evaluated_outside(x):
    class Holder:
        items = [1, 2]
        doubled = [i * 2 for i in items]

    return Holder.doubled, x + len(Holder.doubled)


@case(call(ramp(2)))
def class_scope_is_not_seen_inside(x):
    class Holder:
        factor = 2
        values = [factor for _ in range(2)]

    return Holder, x


@case(call({"q": ramp(2), "k": ramp(2)}), call({"v": ramp(3)}))
def dict_of_tensors(parts):
    doubled = {name: t * 2 for name, t in parts.items()}
    return doubled, torch.cat([t for t in doubled.values()]), {name: t.shape for name, t in parts.items()}


@case(([3, 1, 2], ramp(2)), ([], ramp(2)))
def inside_calls(items, x):
    return max((v for v in items), default=0), any(v > 2 for v in items), ",".join(str(v) for v in items), dict((v, v * v) for v in items), x + 1


@case(call(ramp(4, 3)), call(ramp(2, 3)))
def over_a_tensor(x):
    return [row.sum() for row in x], [i for i, _ in enumerate(x)]
