"""C functions and types of modules that were imported afresh behave, and are captured, as the originals are."""

import copy
import functools
import importlib.util
import json
import operator
import sys

from curriculum import call, case, ramp


def copy_of(name):
    """Another copy of a C module, with its own function and type objects."""
    spec = importlib.util.find_spec(name)
    known = sys.modules.pop(name)
    try:
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
    finally:
        sys.modules[name] = known
    return made


_functools, _operator, _heapq, _bisect = map(copy_of, ("_functools", "_operator", "_heapq", "_bisect"))
outside = _operator.itemgetter(1)
_json = copy_of("_json")
scanner = _json.make_scanner(json.JSONDecoder())


@case(call(ramp(3), 2), call(ramp(4), 5))
def functions_of_copies(x, n):
    heap = [5, 3]
    _heapq.heapify(heap)
    _heapq.heappush(heap, n)
    return (_functools.reduce(lambda a, b: a + b, [x, n, 1]), _operator.add(x, n), _operator.getitem([n, x], 1), heap,
            _bisect.bisect_left([1, 2, 3], n), _functools.reduce is functools.reduce)  # fmt: skip


@case(call(ramp(3), 2), call(ramp(4), 5))
def types_of_copies(x, n):
    add = _functools.partial(operator.add, x)
    return (add(n), type(add) is functools.partial, isinstance(add, _functools.partial), add.args[0] is x,
            sorted([3, 1, n], key=_functools.cmp_to_key(lambda a, b: b - a)), _operator.itemgetter(1)([n, x]),
            _operator.attrgetter("real")(n), _operator.methodcaller("upper")("a"))  # fmt: skip


@case(call(5), call(6), graphs=0)
def caches_of_copies(n):
    @functools.partial(_functools._lru_cache_wrapper, maxsize=None, typed=False, cache_info_type=tuple)
    def fibonacci(k):
        return k if k < 2 else fibonacci(k - 1) + fibonacci(k - 2)

    return fibonacci(n)


@case(call(5), call(6), graphs=0)
def methods_of_caches_of_copies(n):
    square = _functools._lru_cache_wrapper(lambda k: k * k, 8, False, lambda *counts: counts)
    found = square(n), square(n), square.cache_info()
    square.cache_clear()
    return found, square.cache_info()


@case(call(3), call(4), graphs=0)
def copies_of_partials(n):
    made = _functools.partial(max, n)
    return copy.copy(made).args, made.func is max, made.keywords


@case(call([1, 2]), call([3, 4]), graphs=0)
def callbacks_run_in_order(items):
    seen = []
    total = _functools.reduce(lambda a, b: seen.append(b) or a + b, items, 0)
    try:
        _functools.reduce(lambda a, b: a, [])
    except TypeError as error:
        return total, seen, str(error)


@case(call(5), call(6), graphs=0)
def types_of_copies_that_name_no_module(n):
    context = json.JSONDecoder()
    encode = _json.make_encoder(None, str, _json.encode_basestring, None, ": ", ", ", False, False, True)
    return (_json.make_scanner(context)("[1, 2]", 0), scanner('{"a": 1}', 0), encode({"a": [n, None]}, 0),
            type(encode) is json.encoder.c_make_encoder)  # fmt: skip
