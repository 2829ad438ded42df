"""Probes: the filters of warnings, changed and put back by the program, seen by what is shown of its warnings."""

from __future__ import annotations

import warnings

from probing import Scene, probe, ramp
from scenery import box, one

import stator


def kinds() -> list[str]:
    return [entry[0] for entry in warnings.filters][:3]


@probe()
def warning_ignored_inside():
    def fn(x):
        warnings.warn("before", stacklevel=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("inside", stacklevel=1)
            y = x + 1
        warnings.warn("after", stacklevel=1)
        return y * 2

    return Scene(fn, one(ramp()), look=kinds)


@probe()
def warnings_ignored_by_kind_and_text():
    world = box(loud=False)

    def fn(x):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="not .*", category=UserWarning)
            warnings.warn("not this", stacklevel=1)
            warnings.warn("but this", stacklevel=1)
            if world.loud:
                warnings.resetwarnings()
                warnings.warn("not this", stacklevel=1)
        return x + 1

    return Scene(fn, one(ramp()), lambda: setattr(world, "loud", True), kinds)


@probe()
def manager_from_outside():
    world = box(manager=None)

    def args():
        world.manager = warnings.catch_warnings()
        return (ramp(),)

    def fn(x):
        with world.manager:
            warnings.simplefilter("ignore", UserWarning)
            warnings.warn("inside", stacklevel=1)
        return x + 1

    return Scene(fn, args, look=kinds)


@probe("SB009")
def break_under_changed_filters():
    def fn(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stator.graph_break()
            warnings.warn("inside", stacklevel=1)
            y = x + 1
        warnings.warn("after", stacklevel=1)
        return y

    return Scene(fn, one(ramp()), look=kinds)


@probe("SB006 SB013")
def warning_made_an_error_inside():
    def fn(x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                warnings.warn("inside", stacklevel=1)
            except UserWarning as error:
                return x + 1, str(error)
        return x

    return Scene(fn, one(ramp()), look=kinds)


@probe("SB006")
def filters_read_after_a_change():
    def fn(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return x + 1, len(warnings.filters) > 0, warnings.filters[0][0]

    return Scene(fn, one(ramp()), look=kinds)


@probe("SB006 SB015")
def warnings_recorded_inside():
    def fn(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            warnings.warn("inside", stacklevel=1)
        return x + len(seen)

    return Scene(fn, one(ramp()), look=kinds)


@probe()
def region_left_by_an_exception():
    def fn(x):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                raise KeyError(1)
        except KeyError:
            warnings.warn("after", stacklevel=1)
        return x + 1

    return Scene(fn, one(ramp()), look=kinds)


@probe("SB006 SB015")
def record_read_between_warnings():
    def fn(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            warnings.warn("first", stacklevel=1)
            count = len(seen)
            warnings.warn("second", stacklevel=1)
        return x + count, len(seen)

    return Scene(fn, one(ramp()), look=kinds)


@probe("SB015")
def truth_of_not_implemented():
    def fn(x):
        return x + 1, bool(NotImplemented)

    return Scene(fn, one(ramp()))
