"""for, while, else, break, continue."""

import torch

from curriculum import call, case, ramp


@case((ramp(2), 3), (ramp(2), 0), (ramp(2), 5))
def for_range(x, n):
    for i in range(n):
        x = x + i
    return x


@case((ramp(2), 10), (ramp(2), 1))
def while_loop(x, n):
    while n > 1:
        x = x * 2
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        if n > 100:
            break
    return x, n


@case((ramp(2), [1, 2, 3]), (ramp(2), [1, -1, 3]), (ramp(2), []))
def for_else(x, items):
    for i in items:
        if i < 0:
            x = x - 100
            break
        x = x + i
    else:
        x = x * 2
    return x


@case((ramp(2), 3), (ramp(2), 20))
def while_else(x, n):
    while n < 10:
        n += 3
        if n == 9:
            break
    else:
        return x + n
    return x - n


@case((ramp(2), range(6)), (ramp(2), [2, 4]))
def continue_statement(x, items):
    for i in items:
        if i % 2 == 0:
            continue
        x = x + i
    return x


@case(call(ramp(2), [[1, 2], [3, 0, 4], [5]]), call(ramp(2), [[0], []]))
def nested_break_and_continue(x, rows):
    seen = []
    for row in rows:
        for v in row:
            if v == 0:
                break
            seen.append(v)
        else:
            continue
        seen.append("broken")
    return seen, x + len(seen)


@case(([1, 2],), ([],), graphs=0)
def target_survives(items):
    i = "before"
    for i in items:
        pass
    return i


@case(([],), ([3],), graphs=0)
def target_never_bound(items):
    for value in items:
        pass
    return value


@case(call(ramp(2)))
def while_true(x):
    n = 0
    while True:
        n += 1
        if n == 3:
            continue
        if n > 5:
            return x + n
        x = x + 1


@case(call(ramp(3, 2)), call(ramp(2, 2)))
def iterate_over_a_tensor(x):
    total = torch.zeros(2)
    for i, row in enumerate(x):
        total = total + row * i
    return total


@case(call(ramp(2), {"a": 1, "b": 2}), call(ramp(2), {"z": 0}))
def iterate_over_a_dict(x, table):
    for key, value in table.items():
        x = x + value
        table[key] = value * 2
    return x


@case(call(ramp(2)))
def loop_over_different_iterables(x):
    out = []
    for c in "ab":
        out.append(c)
    for v in (1, 2):
        out.append(v)
    for v in {7}:
        out.append(v)
    for a, b in zip([1, 2], "xy"):
        out.append((a, b))
    for v in reversed([1, 2]):
        out.append(v)
    for v in map(str, [3]):
        out.append(v)
    return out, x + len(out)


@case((ramp(2), 0.5), (ramp(2), 2.0))
def attribute_and_item_targets(x, step):
    table = {}
    items = [None]

    class Holder:
        pass

    holder = Holder()
    for table["k"] in range(3):
        pass
    for items[0] in "abc":
        pass
    for holder.v in (1, 2):
        pass
    return table, items, holder.v, x + step


@case((5,), (None,), graphs=0)
def not_iterable(value):
    for _ in value:
        pass


@case(call(ramp(2), 1.0), call(ramp(2), 64.0))
def float_loop(x, value):
    count = 0
    while value > 0.1:
        value /= 2
        count += 1
    return x + count


@case(call(ramp(2)), call(ramp(3)))
def sixty_operations(x):
    for i in range(60):
        x = torch.sin(x) if i % 3 else x + i
    return x
