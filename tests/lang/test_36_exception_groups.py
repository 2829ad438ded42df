"""ExceptionGroup and except*."""


import functools

from curriculum import call, case, ramp


def group(*kinds):
    return ExceptionGroup("many", [kind(kind.__name__) for kind in kinds])


@case(call(ramp(2)))
def except_star(x):
    log = []
    try:
        raise group(ValueError, TypeError, ValueError)
    except* ValueError as eg:
        log.append((len(eg.exceptions), eg.message))
    except* TypeError as eg:
        log.append(str(eg))
    return log, x + len(log)


@case(call(ramp(2)))
def the_rest_is_raised(x):
    y = x + 1
    try:
        raise group(ValueError, KeyError)
    except* ValueError:
        y = y + 1
    return y


@case(call(ramp(2)))
def plain_exception_is_wrapped(x):
    try:
        raise ValueError("alone")
    except* ValueError as eg:
        caught = eg
    return type(caught).__name__, caught.exceptions[0].args, x + 1


@case(call(ramp(2)))
def else_and_finally(x):
    log = []
    try:
        log.append("body")
    except* ValueError:
        log.append("no")
    else:
        log.append("else")
    finally:
        log.append("finally")
    return log, x + 1


@case(call(ramp(2)))
def nested_groups(x):
    log = []
    try:
        raise ExceptionGroup("top", [ValueError(1), ExceptionGroup("sub", [TypeError(2), ValueError(3)])])
    except* ValueError as eg:
        log.append([type(e).__name__ for e in eg.exceptions])
    except* TypeError as eg:
        log.append(repr(eg))
    return log, x + 1


@case(call(ramp(2)))
def raising_in_a_handler(x):
    y = x + 1
    try:
        raise group(ValueError, TypeError)
    except* ValueError:
        raise KeyError("from the handler")
    except* TypeError:
        pass
    return y


@case(call(ramp(2)))
def reraise_in_a_handler(x):
    log = []
    try:
        try:
            raise group(ValueError, TypeError)
        except* ValueError:
            log.append("seen")
            raise
        except* TypeError:
            log.append("type")
    except ExceptionGroup as eg:
        log.append([type(e).__name__ for e in eg.exceptions])
    return log, x + 1


@case(call(ramp(2)))
def split_and_subgroup(x):
    g = group(ValueError, TypeError, KeyError)
    match, rest = g.split((ValueError, KeyError))
    sub = g.subgroup(lambda e: isinstance(e, TypeError))
    return len(match.exceptions), len(rest.exceptions), sub.exceptions[0].args, g.subgroup(OSError), x + 1


@case(call(ramp(2)))
def derived_group(x):
    class MyGroup(ExceptionGroup):
        def derive(self, exceptions):
            return MyGroup("derived " + self.message, exceptions)

    try:
        raise MyGroup("mine", [ValueError(1), TypeError(2)])
    except* ValueError as eg:
        kept = type(eg).__name__, eg.message
    except* TypeError:
        pass
    return kept, x + 1


@case(call(ramp(2)))
def group_escapes(x):
    y = x + 1
    raise ExceptionGroup("all of them", [ValueError("a"), ExceptionGroup("b", [KeyError("c")])])


@case(call(ramp(2)))
def invalid_groups(x):
    told = []
    for arguments in ((), ("m",), ("m", []), ("m", [3]), (1, [ValueError()]), ("m", [KeyboardInterrupt()])):
        try:
            ExceptionGroup(*arguments)
        except Exception as error:
            told.append(f"{type(error).__name__}: {error}")
    return told, x + 1


@case((ramp(2), ["1", "a", "3", "b"]), (ramp(2), ["5"]))
def collect_errors_then_raise(x, texts):
    total, errors = 0, []
    for text in texts:
        try:
            total += int(text)
        except ValueError as error:
            error.add_note(f"while reading {text}")
            errors.append(error)
    y = x + total
    if errors:
        raise ExceptionGroup(f"{len(errors)} bad", errors)
    return y


def shown(error):
    """A group as text, with all that hangs on it."""
    parts = [shown(each) for each in error.exceptions] if isinstance(error, BaseExceptionGroup) else list(error.args)
    return type(error).__name__, str(error), getattr(error, "__notes__", []), parts


@case(call(ramp(2)))
def handlers_that_raise_parts_again(x):
    def ending(handle):
        try:
            try:
                raise ExceptionGroup("all", [ValueError(1), ValueError(2), TypeError(3), KeyError(4)])
            except* ValueError as part:
                handle(part)
                raise
            except* TypeError:
                pass
        except ExceptionGroup as error:
            return shown(error)

    def nothing(part):
        pass

    def noted(part):
        part.add_note("seen")

    def a_part_of_it(part):
        raise part.subgroup(lambda error: error.args == (2,))

    def another_group(part):
        raise ExceptionGroup("again", part.exceptions)

    def a_single_one(part):
        raise part.exceptions[0]

    return [ending(handle) for handle in (nothing, noted, a_part_of_it, another_group, a_single_one)], x + 1


@case(call(ramp(2)))
def parts_raised_again_where_they_are_handled(x):
    def group():
        return ExceptionGroup("all", [ValueError(1), ValueError(2), TypeError(3)])

    found = []
    try:
        try:
            raise group()
        except* ValueError as part:
            raise ExceptionGroup("again", part.exceptions)
    except ExceptionGroup as error:
        found.append(shown(error))
    try:
        try:
            raise group()
        except* ValueError as part:
            part.add_note("seen")
            raise
    except ExceptionGroup as error:
        found.append(shown(error))
    try:
        try:
            raise group()
        except* ValueError as part:
            raise part.subgroup(lambda error: error.args == (2,))
    except ExceptionGroup as error:
        found.append(shown(error))
    return found, x + 1


class Predicate:
    def __init__(self, kind):
        self.kind = kind

    def __call__(self, error):
        return type(error) is self.kind

    def method(self, error):
        return type(error) is self.kind


@case(lambda: call(ExceptionGroup("g", [ValueError(1), TypeError(2)]), Predicate(ValueError)),
      lambda: call(ExceptionGroup("g", [ValueError(1), TypeError(2)]), Predicate(KeyError)), graphs=0)  # fmt: skip
def predicates_that_are_no_functions(group, predicate):
    found = []
    for condition in (predicate, predicate.method, Predicate(TypeError), functools.partial(lambda error: False), 3, int):
        for where in (group, ExceptionGroup("own", [ValueError(3), TypeError(4)])):
            try:
                found.append((repr(where.split(condition)), repr(where.subgroup(condition))))
            except TypeError as error:
                found.append(str(error))
    return found
