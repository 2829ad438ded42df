"""Lists: methods, mutation, aliasing, tensors inside."""

import torch

from curriculum import call, case, ramp


class Track(list):
    label = "t"

    def append(self, item):
        self.label += "+"
        super().append(item)


@case()
def build_and_stack(x):
    rows = []
    for i in range(3):
        rows.append(x + i)
    return torch.stack(rows), rows, len(rows)


@case(([3, 1, 2], ramp(2)), ([5], ramp(2)))
def every_mutating_method(items, x):
    items.append(9)
    items.extend((7, 8))
    items.insert(1, 4)
    items.remove(9)
    last = items.pop()
    first = items.pop(0)
    items.reverse()
    items.sort(reverse=True)
    return x + last + first, items


@case(([1, 2, 2, 3],), ([2],), graphs=0)
def queries(items):
    return items.index(2), items.count(2), items.copy(), len(items), 3 in items, items + [0], items * 2, 2 * items


@case(([1], ramp(2)), ([], ramp(2)))
def pop_error(items, x):
    y = x + items.pop()
    return y + items.pop()


@case(([1, 2],), graphs=0)
def missing_value_errors(items):
    try:
        items.remove(9)
    except ValueError as error:
        items.append(str(error))
    return items.index(9)


@case(lambda: call([ramp(2), ramp(3)]), lambda: call([ramp(2)]))
def tensors_in_a_list_argument(tensors):
    return [t * 2 for t in tensors] + tensors


@case(lambda: call([ramp(2)]), lambda: call([ramp(2), ramp(2)]))
def list_argument_grows(tensors):
    tensors.append(tensors[-1] + 1)
    return tensors


@case(call(ramp(2)))
def aliases_inside(x):
    inner = [x]
    outer = [inner, inner, [x]]
    inner.append(x + 1)
    return outer


@case(call(ramp(2)))
def self_containing(x):
    items = [x + 1]
    items.append(items)
    return items, items[1][1] is items


@case(([[1, 2], [3]], ramp(2)), ([[0]], ramp(2)))
def nested_mutation(rows, x):
    rows[0].append(x.shape[0])
    rows.append(rows[0])
    copy = [*rows]
    copy[0] = None
    return copy, x + rows[0][0]


@case(call(ramp(2)))
def multiplied_rows_are_one_row(x):
    grid = [[0] * 2] * 3
    grid[0][1] = x.dim()
    return grid, x + 1


@case(([4, 2, 9], ramp(2)), (["b", "a"], ramp(2)))
def sort_with_key(items, x):
    before = list(items)
    items.sort(key=lambda v: -v if isinstance(v, int) else v)
    return sorted(before, reverse=True), items, x * len(items)


@case(([2, "a"],), graphs=0)
def sort_error_leaves_the_list(items):
    items.sort()


@case(lambda: call(Track([1]), ramp(2)))
def subclass(track, x):
    track.append(2)
    track += [3]
    return type(track).__name__, track, track.label, isinstance(track, list), x + track[-1]


@case(([1, 2, 3], ramp(2)), ([1], ramp(2)))
def mutation_while_iterating(items, x):
    for value in items:
        if value < 3:
            items.append(value + 2)
    return x + len(items), items
