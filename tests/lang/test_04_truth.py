"""Boolean operators, truth values, conditional expressions."""

import torch

from curriculum import call, case, ramp


class Truthy:
    def __init__(self, answer):
        self.answer = answer
        self.asked = 0

    def __bool__(self):
        self.asked += 1
        return self.answer


class Sized:
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size


class BadBool:
    def __bool__(self):
        return 3


class BadLength:
    def __len__(self):
        return -1


@case(*[(ramp(2), value) for value in (0, 1, 0.0, 1e-9, 0j, None)])
def truth_of_numbers(x, value):
    return x + 1 if value else x - 1


@case(*[(ramp(2), value) for value in ([], [0], {}, {"k": 1}, (), (0,), set())])
def truth_of_containers(x, value):
    return x + 1 if value else x - 1


@case(*[(ramp(2), value) for value in ("", "a", b"", b"0", range(0), range(2))])
def truth_of_sequences(x, value):
    if not value:
        return x + 1
    return x - 1


@case((ramp(2), 0, 5), (ramp(2), 2, 5), (ramp(2), 2, 0))
def and_or_give_operands(x, a, b):
    return a and b, a or b, not a, a and not b or 7, x + (a or b)


@case(lambda: call(ramp(2), Truthy(True)), lambda: call(ramp(2), Truthy(False)))
def bool_method(x, thing):
    y = x + 1 if thing else x - 1
    if not thing:
        y = y * 2
    return y, thing.asked


@case(lambda: call(ramp(2), Sized(3)), lambda: call(ramp(2), Sized(0)))
def len_method(x, thing):
    while thing:
        x = x + 1
        thing.size -= 1
    return x


@case(lambda: call(ramp(2), BadBool()), lambda: call(ramp(2), BadLength()))
def invalid_truth_value(x, thing):
    if thing:
        return x + 1
    return x


@case(call(ramp(2)))
def short_circuit(x):
    seen = []

    def note(value):
        seen.append(value)
        return value

    note(0) and note(1)
    note(2) or note(3)
    note("") or note(None) or note("end")
    return seen, x + len(seen)


@case((ramp(2), 2), (ramp(2), 1), (ramp(2), 3))
def nested_conditional_expression(x, n):
    return x if n == 1 else x * 2 if n == 2 else x * 3


@case()
def shape_decides(x):
    if x.shape[0] > 2 and x.dim() == 2 or x.dtype is torch.int64:
        return x.sum(0)
    elif not x.requires_grad:
        return x.sum(1)


@case((ramp(2),), (torch.arange(2),), (ramp(2).double(),))
def dtype_decides(x):
    if x.is_floating_point():
        return x * 0.5
    return x * 2


@case(call(torch.ones(0)), call(ramp(3)))
def numel_and_len(x):
    return (x.numel() and x.dim()) or 0, len(x) and True, bool(x.shape), x + 1


@case(call(ramp(2)))
def bool_builtin_and_all_any(x):
    return bool([]), bool("x"), bool(x.dim), all([]), any([]), all([1, "", 2]), any([0, None, 5]), x * 2


@case(breaks="a branch on a tensor's value")
def tensor_value_decides(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


@case(call(ramp(3)), call(ramp(4)))
def truth_of_several_values_is_ambiguous(x):
    if x > 0:
        return x + 1
    return x


@case((None, ramp(2)), ([], ramp(2)), ("set", ramp(2)))
def default_idiom(name, x):
    name = name or "default"
    scale = len(name) if name != "default" else None
    return name, x * (scale if scale is not None else 1)


class Falsy:
    __bool__ = staticmethod(lambda: False)


class Sized:
    def __init__(self, n):
        self.n = n

    class Length:
        def __get__(self, obj, cls):
            return lambda: obj.n

    __len__ = Length()


@case(call(ramp(2)))
def truth_of_odd_methods(x):
    return [bool(each) for each in (Falsy(), Sized(0), Sized(3))], (1 if Falsy() else 2), not Sized(0), x + 1
