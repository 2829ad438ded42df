"""del of names, attributes, items, slices; unbound names afterwards."""

import types

import torch

from curriculum import call, case, ramp

temporary = 5
table = {"a": 1, "b": 2}


class Holder:
    shared = 1

    def __init__(self, **values):
        self.__dict__.update(values)


@case()
def local_name(x):
    y = x + 1
    z = y * 2
    del y
    return z


@case(call(ramp(2)))
def local_name_then_read(x):
    y = x + 1
    del y
    return y


@case(call(ramp(2)))
def deleted_twice(x):
    y = x + 1
    del y
    try:
        del y
    except UnboundLocalError as error:
        return str(error), x * 2


@case(call(ramp(2)))
def argument(x):
    y = x + 1
    del x
    x = y * 2
    return x


@case(lambda: call(Holder(a=1, b=2), ramp(2)))
def attribute(h, x):
    del h.a
    return x + h.b, hasattr(h, "a"), vars(h)


@case(lambda: call(Holder(b=2), ramp(2)))
def missing_attribute(h, x):
    y = x + h.b
    del h.a
    return y


@case(lambda: call(Holder(), ramp(2)))
def class_attribute_through_an_instance(h, x):
    try:
        del h.shared
    except AttributeError as error:
        return str(error), x + h.shared


@case(call(ramp(2)))
def class_attribute(x):
    class Local:
        a = 1
        b = 2

    del Local.a
    return hasattr(Local, "a"), Local.b + x


@case(({"a": 1, "b": 2}, ramp(2)), ({"a": 5}, ramp(2)))
def dict_item(t, x):
    del t["a"]
    return x + len(t)


@case(({"a": 1}, "z"), ({}, 3), graphs=0)
def missing_item(t, key):
    del t[key]


@case(([1, 2, 3, 4], ramp(2)), ([1, 2, 3], ramp(2)))
def list_items_and_slices(items, x):
    del items[0], items[-1]
    del items[:1]
    return x + len(items)


@case()
def global_item(x):
    if "a" in table:
        del table["a"]
    else:
        table["c"] = 3
    return x + len(table)


@case(call(ramp(2)))
def global_name(x):
    global temporary
    try:
        y = x + temporary
        del temporary
    except NameError as error:
        return x, str(error)
    return y


@case(call(ramp(2)))
def several_targets(x):
    a, b, c = 1, [1, 2], {"k": 1}
    del a, (b[0], c["k"])
    return b, c, x + len(b)


@case(call(ramp(2)))
def loop_variable_and_tensor_lifetime(x):
    total = torch.zeros(2)
    for i in range(3):
        part = x * i
        total = total + part
        del part
    del i
    return total


class Above:
    shared = 1


class Below(Above):
    shared = 2
    own = 3


@case()
def class_attribute_that_came_and_went(x):
    Above.guest = 1
    del Above.guest
    return x + 1


@case()
def class_attribute_set_again(x):
    value = Below.own
    del Below.own
    Below.own = value + 1
    return x + Below.own


@case()
def class_attribute_that_hid_another(x):
    del Below.shared
    y = x + Below.shared
    Below.shared = 5
    return y


@case(call(ramp(2)))
def inherited_class_attribute(x):
    try:
        del Below.nothing
    except AttributeError as error:
        print(error)

    class Deeper(Below):
        pass

    try:
        del Deeper.own
    except AttributeError as error:
        return x + 1, str(error)


@case(call(ramp(2)))
def global_that_came_and_went(x):
    global guest, temporary
    guest = 1
    del guest
    temporary = 4
    del temporary
    temporary = 6
    return x + temporary, "guest" in globals()


class Beneath(Above):
    pass


@case()
def attribute_of_a_base_class(x):
    try:
        del Beneath.shared
    except AttributeError as error:
        return str(error), x + Beneath.shared


@case(call(ramp(2)))
def name_of_a_module_made_inside(x):
    made = types.ModuleType("made")
    made.k, made.gone = 2, 3
    both = made.k + made.gone
    del made.gone
    try:
        del made.gone
    except AttributeError as error:
        return both, str(error), hasattr(made, "gone"), getattr(made, "gone", 5), x * made.k


@case(call(ramp(2)))
def names_in_a_class_body(x):
    class Local:
        a, b = 1, 2
        both = a + b
        del a, b

    try:
        class Wrong:
            del never
    except NameError as error:
        return Local.both, hasattr(Local, "a"), str(error), x + Local.both
