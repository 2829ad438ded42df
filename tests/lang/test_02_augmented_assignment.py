"""Augmented assignment on names, attributes, items and slices."""


from curriculum import call, case, ramp

total = 10
history = [1, 2]


class Box:
    count = 5

    def __init__(self, value):
        self.value = value


@case()
def names(x):
    n = 3
    n += 2
    n -= 1
    n *= 4
    n /= 2
    n //= 3
    n **= 3
    n %= 5
    return x + n


@case((12, 5), (99, 3), graphs=0)
def bit_operators(a, b):
    a <<= 2
    a >>= 1
    a &= 0xFF
    a |= b
    a ^= 9
    return a


@case()
def tensor_in_place_is_seen_by_the_caller(x):
    y = x
    x += 1
    x *= 2
    return y is x, y


@case()
def tensor_out_of_place_is_not(x):
    y = x
    x = x + 1
    return y is x, y, x


@case(lambda: call(Box(ramp(2))), lambda: call(Box(ramp(3))))
def attribute(box):
    box.value += 1
    box.count += 1
    return box.value


@case()
def class_attribute(x):
    Box.count += 1
    return x * Box.count


@case(([1, 2, 3], ramp(2)), ([4, 5], ramp(2)))
def item(items, x):
    items[0] += 10
    items[-1] *= 2
    return x + items[0]


@case(({"a": 1}, ramp(2)), ({"a": 5, "b": 2}, ramp(2)))
def dict_item(table, x):
    table["a"] += 1
    table["c"] = table.get("c", 0)
    table["c"] -= 7
    return x * table["a"]


@case()
def tensor_item_and_slice(x):
    x[0] += 1
    x[:, 1:] *= 3
    x[..., 0] -= x[..., 1]
    return x


@case(([1], ramp(2)), ([1, 2], ramp(2)))
def list_in_place_against_concatenation(items, x):
    alias = items
    items += (7, 8)
    other = items
    items = items + [9]
    items *= 2
    return alias is other, items, x + len(alias)


@case()
def global_name(x):
    global total
    total += 1
    return x + total


@case()
def global_list(x):
    global history
    history += [x.shape[0]]
    return x + len(history)


@case(call(ramp(2)))
def tuple_item_fails_after_mutating(x):
    pair = ([1], 2)
    try:
        pair[0] += [5]
    except TypeError as error:
        return x + 1, pair, str(error)


@case(call([3, 1], ramp(2)))
def index_evaluated_once(items, x):
    seen = []

    def index():
        seen.append(len(seen))
        return 1

    items[index()] += 5
    return items, seen, x + items[1]


@case((ramp(2),))
def slice_target(x):
    items = [1, 2, 3, 4]
    items[1:3] += [9, 9]
    items[::2] = [0] * len(items[::2])
    return items, x + items[1]
