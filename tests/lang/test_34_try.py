"""try, except, else, finally and how they meet return, break and continue."""

import sys

from curriculum import call, case, ramp


@case((ramp(2), {"a": 1}), (ramp(2), {}))
def except_one(x, table):
    try:
        n = table["a"]
    except KeyError:
        n = -1
    return x + n


@case((ramp(2), 0), (ramp(2), "a"), (ramp(2), 2), (ramp(2), None))
def except_several(x, v):
    try:
        y = x + 10 // v + int(v)
    except ZeroDivisionError as error:
        return x * 2, "zero", str(error)
    except (TypeError, ValueError) as error:
        return x, "type", type(error).__name__, error.args
    else:
        return y, "fine"


@case((ramp(2), 0), (ramp(2), 1))
def else_and_finally(x, n):
    log = []
    try:
        log.append("try")
        1 / n
    except ZeroDivisionError:
        log.append("except")
    else:
        log.append("else")
    finally:
        log.append("finally")
    return x + len(log), log


@case((ramp(2), 0), (ramp(2), 1))
def finally_while_an_exception_escapes(x, n):
    marks.append("before")
    try:
        y = x + 1
        return y / (1 // n)
    finally:
        marks.append("cleanup")


marks = []


@case(call(ramp(2)))
def return_in_finally_wins(x):
    def f():
        try:
            return x
        finally:
            return x + 1

    def g():
        try:
            raise ValueError("lost")
        finally:
            return x + 2

    return f(), g()


@case(call(ramp(2)))
def finally_after_return_sees_the_old_value(x):
    def f():
        n = 1
        try:
            return n
        finally:
            n = 2

    def g():
        items = [1]
        try:
            return items
        finally:
            items.append(2)

    return f(), g(), x + f()


@case(call(ramp(2)))
def break_and_continue_with_finally(x):
    log = []
    for i in range(5):
        try:
            if i == 1:
                continue
            if i == 3:
                break
            log.append(i)
        finally:
            log.append(f"f{i}")
    while True:
        try:
            raise KeyError
        finally:
            break
    return log, x + len(log)


@case(call(ramp(2)))
def nested(x):
    log = []
    try:
        try:
            raise KeyError("inner")
        except ValueError:
            log.append("wrong")
        finally:
            log.append("inner finally")
    except KeyError as error:
        log.append(str(error))
        try:
            {}["second"]
        except KeyError as again:
            log.append((str(again), again.__context__ is error))
    return log, x + 1


@case((ramp(2), 1), (ramp(2), 2))
def reraise(x, n):
    y = x + 1
    try:
        if n == 1:
            raise ValueError("first")
    except ValueError:
        y = y + 1
        raise
    return y


@case(call(ramp(2)))
def name_is_deleted_after_except(x):
    error = "outer"
    try:
        raise ValueError
    except ValueError as error:
        pass
    y = x + 1
    return y, error


@case(call(ramp(2)))
def exc_info(x):
    before = sys.exc_info()
    try:
        raise ValueError("v")
    except ValueError as error:
        kind, value, tb = sys.exc_info()
        inside = kind is ValueError, value is error, tb is error.__traceback__, tb.tb_lineno - tb.tb_frame.f_code.co_firstlineno
    return before, inside, sys.exc_info(), x + 1


@case(call(ramp(2)))
def except_expression_is_evaluated(x):
    log = []

    def kinds(name):
        log.append(name)
        return {"key": KeyError, "value": (ValueError, TypeError)}[name]

    try:
        raise TypeError("t")
    except kinds("key"):
        pass
    except kinds("value"):
        log.append("hit")
    return log, x + len(log)


@case(call(ramp(2)))
def except_with_what_is_no_exception(x):
    y = x + 1
    try:
        raise ValueError
    except 3:
        return y


@case((ramp(2), ["1", "x", "3"]), (ramp(2), []))
def try_in_a_loop(x, texts):
    bad = 0
    for text in texts:
        try:
            x = x + int(text)
        except ValueError:
            bad += 1
            continue
    return x, bad


@case(call(ramp(2)))
def bare_except_and_base_exception(x):
    log = []
    try:
        raise KeyboardInterrupt("k")
    except Exception:
        log.append("no")
    except:  # noqa: E722
        log.append("bare")
    try:
        raise SystemExit(3)
    except BaseException as error:
        log.append(error.code)
    return log, x + 1


@case(call(ramp(2, 3)), call(ramp(3, 2)))
def error_of_a_tensor_operation_is_caught(x):
    try:
        y = x @ x
    except RuntimeError as error:
        return x.sum(), type(error).__name__
    return y
