"""Probes: attributes kept in a dict that has another owner, another name, or is the object itself."""

from __future__ import annotations

from typing import Any

from probing import Scene, probe, ramp
from scenery import one


class AttributeDict(dict):  # type: ignore[type-arg]
    """The idiom of many configurations: items are attributes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Loud(AttributeDict):
    """`obj.name = value` goes past the methods of the dict."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, ("item", value))

    def __getitem__(self, key: Any) -> Any:
        return "never", super().__getitem__(key)


class Plain:
    pass


def sharing(namespace: dict[str, Any]) -> Any:
    made = Plain()
    made.__dict__ = namespace
    return made


@probe()
def attributes_that_are_items():
    config = AttributeDict(a=2.0)

    def fn(x):
        config.b = x + 1
        config["c"] = len(config)
        return x * config["a"] + config.b, config.c, "b" in config, list(config)

    return Scene(fn, one(ramp()), lambda: config.update(a=3.0), lambda: (dict(config), vars(config) is config))


@probe()
def items_deleted_as_attributes():
    config = AttributeDict(a=2.0, b=3.0)

    def fn(x):
        y = x * config.a
        del config.a
        config.update(q=1)
        return y, hasattr(config, "a"), config.pop("q"), getattr(config, "absent", None)

    def again():
        config.update(a=4.0)

    def args():
        again()
        return (ramp(),)

    return Scene(fn, args, lambda: setattr(config, "absent", 5), lambda: dict(config))


@probe()
def attributes_past_the_methods_of_their_dict():
    config = Loud(a=2.0)

    def fn(x):
        config.b = x.dim()
        config["c"] = 1
        return x * config.a, config.b, config["b"], config.c

    return Scene(fn, one(ramp()), lambda: setattr(config, "a", 3.0), lambda: sorted(dict.items(config)))


@probe()
def attribute_dict_made_inside():
    def fn(x):
        made = AttributeDict(a=x)
        made.b = x + 1
        made["c"] = 3
        return made, made.c, vars(made) is made

    return Scene(fn, one(ramp()))


@probe()
def attribute_dict_copied_from_outside():
    config = AttributeDict(a=2.0)

    def fn(x):
        copied = AttributeDict(config)
        copied.a += 1
        return x * copied.a, copied, config

    return Scene(fn, one(ramp()), lambda: config.update(a=3.0), lambda: dict(config))


@probe()
def objects_of_one_shared_state():
    state: dict[str, Any] = {"k": 1}
    first, second = sharing(state), sharing(state)

    def fn(x):
        first.n = x.dim()
        y = x * second.n * second.k
        del second.n
        return y, hasattr(first, "n"), vars(first) is vars(second)

    return Scene(fn, one(ramp()), lambda: setattr(second, "k", 3), lambda: (state, first, second))


@probe()
def state_shared_with_objects_made_inside():
    state: dict[str, Any] = {"k": 1}

    def fn(x):
        made, other = Plain(), Plain()
        made.__dict__ = other.__dict__ = state
        made.n = x.dim()
        return x * other.n * other.k, made, hasattr(made, "absent")

    return Scene(fn, one(ramp()), lambda: state.update(absent=3), lambda: state)


@probe()
def attributes_of_another_object():
    source = sharing({"k": 2})

    def fn(x):
        made = Plain()
        made.__dict__ = vars(source)
        made.q = x.dim()
        return x * source.q * made.k, made, vars(made) is vars(source)

    return Scene(fn, one(ramp()), lambda: setattr(source, "k", 3), lambda: vars(source))


@probe()
def attributes_given_and_taken_inside():
    def fn(x):
        given: dict[str, Any] = {"a": x.dim()}
        made = Plain()
        made.first = x
        left = made.__dict__
        made.__dict__ = given
        made.b = x + 1
        left["late"] = x + 2
        given["c"] = 3
        other = Plain()
        other.k = 1
        del other.__dict__
        other.z = made.c
        return made, given, left, other

    return Scene(fn, one(ramp()))


@probe("SB006")
def attributes_replaced_on_an_object_from_outside():
    source = sharing({"k": 2})
    held = [vars(source)]

    def fn(x):
        before = source.__dict__
        source.__dict__ = {"k": before["k"] + 1}
        before["late"] = x.dim()
        return x * source.k, before, before.keys()

    return Scene(fn, one(ramp()), lambda: setattr(source, "k", 7), lambda: (held, vars(source)))


@probe("SB006")
def attributes_deleted_from_an_object_from_outside():
    source = sharing({"k": 2})
    held = [vars(source)]

    def fn(x):
        before = source.__dict__
        del source.__dict__
        source.k = before["k"] + 1
        return x * source.k, before

    return Scene(fn, one(ramp()), lambda: setattr(source, "k", 7), lambda: (held, vars(source)))
