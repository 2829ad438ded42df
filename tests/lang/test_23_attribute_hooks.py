"""__getattr__, __getattribute__, __setattr__, __delattr__, __slots__."""

import abc
import collections.abc

import torch

from curriculum import call, case, ramp


class Config:
    def __init__(self, **values):
        object.__setattr__(self, "values", dict(values))

    def __getattr__(self, name):
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(f"no option {name}") from None

    def __setattr__(self, name, value):
        self.values[name] = value

    def __delattr__(self, name):
        del self.values[name]


class Proxy:
    def __init__(self, target):
        self._target = target

    def __getattr__(self, name):
        return getattr(self._target, name)


class Traced:
    def __init__(self):
        self.reads = []
        self.n = 1

    def __getattribute__(self, name):
        if name != "reads":
            object.__getattribute__(self, "reads").append(name)
        return super().__getattribute__(name)


class Slotted:
    __slots__ = ("a", "b", "__weakref__")

    def __init__(self, a):
        self.a = a


class SlottedChild(Slotted):
    __slots__ = ("c",)


class MixedChild(Slotted):
    pass


def config(**values):
    return lambda: call(Config(**values), ramp(2))


@case(config(scale=3, bias=1), config(scale=5, bias=0))
def getattr_hook(cfg, x):
    return x * cfg.scale + cfg.bias


@case(config(scale=3))
def getattr_hook_misses(cfg, x):
    y = x * cfg.scale
    return y + cfg.bias


@case(config(scale=3))
def setattr_and_delattr_hooks(cfg, x):
    cfg.bias = x
    cfg.scale += 1
    del cfg.scale
    return cfg.bias + 1, sorted(cfg.values), hasattr(cfg, "scale"), getattr(cfg, "scale", None)


@case(lambda: call(Proxy(Slotted(4)), ramp(2)))
def proxy(p, x):
    p.own = 2
    return x + p.a + p.own, p._target.a


@case(lambda: call(Traced(), ramp(2)))
def getattribute_hook(t, x):
    y = x + t.n
    t.n = 5
    t.method = None
    return y + t.n, t.reads


@case(lambda: call(Slotted(3), ramp(2)), lambda: call(Slotted(ramp(2)), ramp(2)))
def slots(s, x):
    s.b = s.a * 2
    s.a = x
    return s.a + s.b


@case(lambda: call(Slotted(3), ramp(2)))
def slots_refuse_other_names(s, x):
    y = x + s.a
    s.other = 1
    return y


@case(lambda: call(Slotted(3), ramp(2)))
def empty_slot(s, x):
    y = x + s.a
    return y + s.b


@case(lambda: call(Slotted(3), ramp(2)))
def delete_a_slot(s, x):
    had = hasattr(s, "a")
    del s.a
    return had, hasattr(s, "a"), hasattr(s, "__dict__"), x + 1


@case(lambda: call(SlottedChild(1), MixedChild(2), ramp(2)))
def inherited_slots(child, mixed, x):
    child.b = child.c = 5
    mixed.extra = x
    return x + child.a + child.b + child.c, mixed.extra * mixed.a, vars(mixed)


@case(call(ramp(2)))
def module_like_getattr(x):
    class Registry:
        def __init__(self):
            self._parts = {}

        def __setattr__(self, name, value):
            if isinstance(value, torch.Tensor):
                self.__dict__["_parts"][name] = value
            else:
                super().__setattr__(name, value)

        def __getattr__(self, name):
            parts = self.__dict__.get("_parts", {})
            if name in parts:
                return parts[name]
            raise AttributeError(f"{type(self).__name__!r} has no {name!r}")

        def __dir__(self):
            return sorted(self._parts)

    r = Registry()
    r.weight = x * 2
    r.size = 3
    return r.weight + r.size, dir(r), list(r._parts)


@case(call(ramp(2)))
def dunder_lookup_skips_hooks(x):
    class Odd:
        def __getattr__(self, name):
            return lambda *a: "hook"

    odd = Odd()
    try:
        len(odd)
    except TypeError as error:
        return str(error), odd.__len__(), odd.anything(1), x + 1


@case(call(ramp(2)))
def recursive_getattr(x):
    class Chain:
        def __init__(self, path=()):
            self.path = path

        def __getattr__(self, name):
            return Chain(self.path + (name,))

        def __getitem__(self, key):
            return Chain(self.path + (key,))

    return Chain().model.layers[0].weight.path, x + len(Chain().a.b.path)


@case(call(ramp(2)))
def instance_method_is_looked_up_on_the_type(x):
    class Thing:
        def __len__(self):
            return 2

    thing = Thing()
    thing.__len__ = lambda: 99
    return len(thing), thing.__len__(), x + len(thing)


class Real:
    pass


class Abstract(abc.ABC):
    pass


class Claims:
    """Says by __getattribute__ that it is of another class."""

    def __init__(self, claimed):
        self.claimed = claimed

    def __getattribute__(self, name):
        if name == "__class__":
            claimed = object.__getattribute__(self, "claimed")
            if claimed is None:
                raise AttributeError(name)
            return claimed
        return object.__getattribute__(self, name)


OUTSIDE = Claims(Real)


@case(call(Real, ramp(2)), call(Abstract, ramp(2)), call(int, ramp(2)), call(list, ramp(2)), call(3, ramp(2)),
      call(None, ramp(2)))
def class_that_an_object_claims(claimed, x):
    thing = Claims(claimed)
    found = []
    for cls in (Real, Abstract, int, (str, Real), collections.abc.Sized, object, Claims):
        try:
            found.append(isinstance(thing, cls))
        except (TypeError, AttributeError) as error:
            found.append(str(error))
    match thing:
        case Real():
            found.append("matched")
    return found, type(thing).__name__, isinstance(OUTSIDE, Real), isinstance(OUTSIDE, Abstract), x + 1
