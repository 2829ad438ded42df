"""operator, math, re, copy, string, textwrap, fractions, json: pure helpers that models use."""

import bisect
import calendar
import copy
import gc
import heapq
import inspect
import io
import json
import math
import operator
import os
import random
import re
import string
import sys
import threading
import time
import tokenize
import types

import numpy
import pytest

import stator
from curriculum import call, case, ramp
from stator import events


class Node:
    def __init__(self, value, child=None):
        self.value, self.child = value, child

    def scaled(self, n, shift=0):
        return self.value * n + shift


class Copied:
    def __init__(self):
        self.copies = 0

    def __copy__(self):
        other = Copied()
        other.copies = self.copies + 1
        return other

    def __deepcopy__(self, memo):
        other = Copied()
        other.copies = self.copies + 100
        return other


@case()
def operator_functions(x, y):
    return operator.add(x, y), operator.mul(x, 2), operator.neg(x), operator.getitem([1, 2], 1), operator.truth([]), operator.index(3)


@case(lambda: call(Node(3, Node(4)), ramp(2)))
def operator_getters(node, x):
    value, deep = operator.attrgetter("value", "child.value")(node)
    return (value + deep + x, operator.itemgetter(1, "k")({1: "a", "k": "b"}), operator.itemgetter(0)([9]),
            operator.methodcaller("scaled", 2, shift=1)(node))  # fmt: skip


@case(call(ramp(2)))
def operator_in_place(x):
    items = [1]
    same = operator.iadd(items, [2])
    y = operator.iadd(x, 1)
    operator.setitem(items, 0, 5)
    return items, same is items, y is x


@case((2.5, 8), (0.25, 3), graphs=0)
def math_functions(f, n):
    return (math.sqrt(n), math.floor(f), math.ceil(f), math.log(n), math.exp(f), math.gcd(n, 12), math.factorial(n), math.prod([n, 2]),
            math.isclose(f, f), math.inf > n, math.isnan(math.nan), math.hypot(3, 4), math.comb(n, 2), math.log2(n), math.fsum([f] * 3))  # fmt: skip


@case((ramp(2), 64), (ramp(2), 16))
def math_decides_the_graph(x, d):
    return x / math.sqrt(d) + math.log2(d) * math.pi


@case((ramp(2), -1.0), (ramp(2), 4.0))
def math_error(x, n):
    y = x + 1
    return y * math.sqrt(n)


@case(("layer.12.weight",), ("bias",), graphs=0)
def regular_expressions(name):
    found = re.search(r"layer\.(?P<n>\d+)\.(\w+)", name)
    return (found and (found.group("n"), found.groups(), found.span()), re.sub(r"\d", "#", name), re.split(r"\.", name),
            re.findall(r"[a-z]+", name), bool(re.fullmatch(r"[a-z]+", name)))  # fmt: skip


pattern = re.compile(r"(\w)(\d*)")


@case((ramp(2), "a12"), (ramp(2), "b"))
def compiled_pattern(x, text):
    letter, digits = pattern.match(text).groups()
    return letter, x + int(digits or 0)


@case(lambda: call([1, [2, 3]], Node(1, Node(2)), ramp(2)))
def copies(items, node, x):
    shallow, deep = copy.copy(items), copy.deepcopy(items)
    items[1].append(4)
    other = copy.copy(node)
    other.value = 9
    return shallow, deep, other.child is node.child, node.value, copy.copy({"a": x})["a"] is x, x + 1


@case(lambda: call(Copied(), ramp(2)))
def copy_hooks(c, x):
    return copy.copy(c).copies, copy.deepcopy([c])[0].copies, x + 1


@case(call([5, 1, 4], ramp(2)))
def heapq_and_bisect(items, x):
    heapq.heapify(items)
    heapq.heappush(items, 0)
    smallest = heapq.heappop(items)
    ordered = sorted(items)
    bisect.insort(ordered, 3)
    return smallest, ordered, bisect.bisect(ordered, 4), heapq.nlargest(2, items), x + smallest


@case(call({"a": [1, 2.5, None, "s"], "b": {"c": True}}, ramp(2)))
def json_round_trip(data, x):
    text = json.dumps(data, sort_keys=True)
    return text, json.loads(text) == data, x + len(text)


@case(call(ramp(2)))
def string_module(x):
    return string.ascii_lowercase[:3], string.Template("$a-${b}").substitute(a=1, b=2), string.capwords("a b"), x + 1


@case(lambda: call(types.SimpleNamespace(n=2, inner=types.SimpleNamespace(m=3)), ramp(2)))
def simple_namespace(ns, x):
    ns.n += 1
    ns.inner.new = x
    made = types.SimpleNamespace(a=1)
    return x + ns.n * ns.inner.m, made, made == types.SimpleNamespace(a=1), repr(made)


@case(call(ramp(2)))
def mapping_proxy(x):
    table = {"a": 1}
    view = types.MappingProxyType(table)
    table["b"] = 2
    try:
        view["c"] = 3
    except TypeError as error:
        return dict(view), str(error), x + len(view)


@case(call(ramp(2)), call(ramp(3)))
def struct_sequences(x):
    return (sys.version_info.major, sys.version_info >= (3, 8), sys.flags.optimize, sys.float_info.epsilon,
            sys.hash_info[0], *sys.int_info, x + sys.version_info.minor)  # fmt: skip


@case(call(ramp(2)), call(ramp(3)))
def settings_of_the_process(x):
    return (gc.get_threshold(), sys.gettrace() is None, sys.getswitchinterval(), os.getpid() > 0,
            threading.get_ident() == threading.main_thread().ident, x + 1)  # fmt: skip


def test_a_struct_sequence_is_a_guarded_value():
    made = os.stat_result(range(10))
    compiled = stator.compile(lambda result, x: x + result.st_size, backend="eager", fullgraph=True)
    assert compiled(made, 1) == 7 and compiled(os.stat_result(range(10, 20)), 1) == 17 and compiled(made, 1) == 7


def test_settings_of_the_process_are_guarded():
    threads = []
    compiled = stator.compile(lambda: (gc.get_threshold(), threading.get_ident()), backend="eager", fullgraph=True)
    me, known = threading.get_ident(), gc.get_threshold()
    assert compiled() == (known, me)
    gc.set_threshold(known[0] + 1, *known[1:])
    try:
        assert compiled() == ((known[0] + 1, *known[1:]), me)
    finally:
        gc.set_threshold(*known)
    other = threading.Thread(target=lambda: threads.append((compiled(), threading.get_ident())))
    other.start()
    other.join()
    assert threads[0] == ((known, threads[0][1]), threads[0][1]) and threads[0][1] != me


OWN = random.Random(7)


def a_branch():
    return 1 if random.random() < 0.5 else 2


def among_objects():
    items = list("abcdefgh")
    random.shuffle(items)
    return items, random.choice("xyz"), random.choices("abc", k=4), random.sample("abcdef", 3), random.randbytes(3)


def with_state():
    state = random.getstate()
    first = random.random()
    random.setstate(state)
    return first == random.random(), [OWN.gauss(0, 1) > 0 for _ in range(3)], OWN.getrandbits(90) & 7


def of_numpy():
    return ["low", "high"][int(numpy.random.rand() < 0.5)], [int(n) > 2 for n in numpy.random.permutation(5)]


@pytest.mark.parametrize("draw", [a_branch, among_objects, with_state, of_numpy])
@pytest.mark.parametrize("fullgraph", [True, False])
def test_random_numbers_that_decide(draw, fullgraph):
    def three_calls(fn):
        random.seed(3)
        OWN.seed(4)
        numpy.random.seed(5)
        return [fn() for _ in range(3)], random.getstate(), OWN.getstate(), numpy.random.rand()

    compiled = stator.compile(draw, backend="eager", fullgraph=fullgraph)
    assert three_calls(compiled) == three_calls(draw)
    with events.record() as log:
        assert three_calls(compiled) == three_calls(draw)  # the states of before are those of entries
    if fullgraph:
        assert not [event for event in log if isinstance(event, events.Recompile)]


@case(call(ramp(2), "a = 1\nif b:\n  c\n"), call(ramp(2), "x = ("), call(ramp(2), "'text"))
def tokens_of_source(x, source):
    found = []
    for tokens in (tokenize.generate_tokens(io.StringIO(source).readline), tokenize.tokenize(iter([source.encode()]).__next__)):
        try:
            found += [tuple(token) for token in tokens]
        except (tokenize.TokenError, SyntaxError) as error:
            found.append(str(error))
    return found, [str(inspect.signature(function)) for function in (len, dict.get, sorted)], x + 1


class Leaving(SystemExit):
    pass


@case(call(ramp(2), 3), call(ramp(2), "text"), call(ramp(2), None), call(ramp(2), (1, 2)), call(ramp(2), ()))
def exits_inside(x, status):
    found = []
    for act in (lambda: sys.exit(status), lambda: sys.exit(), lambda: sys.exit(1, 2), lambda: exit_in_handler(status)):
        try:
            act()
        except SystemExit as left:
            found.append((type(left).__name__, left.code, left.args, type(left.__context__).__name__))
        except TypeError as error:
            found.append(str(error))
    return found, x + 1


def exit_in_handler(status):
    try:
        raise ValueError("first")
    except ValueError:
        sys.exit(status)


def test_exits_with_an_exception_of_before():
    def leave(status):
        found = []
        for act in (lambda: sys.exit(status), lambda: exit_in_handler(status)):
            try:
                act()
            except SystemExit as left:
                found.append((left is status, left.args, type(left.__context__).__name__))
        return found

    compiled = stator.compile(leave, backend="eager")
    for number in range(3):
        assert compiled(Leaving(number)) == leave(Leaving(number))


class Told(tuple[int, ...]):
    def __iter__(self):
        raise AssertionError("C code does not ask")


@case(call(ramp(2), 1), call(ramp(2), 2))
def moments_in_tuples_that_c_code_reads(x, n):
    return time.asctime(Told((2000 + n, 1, 2, 3, 4, 5, 6, 7, 0))), x + 1


@case(call(ramp(2), (1, 2)), call(ramp(2), (3,)), call(ramp(2), ()))
def exits_with_tuples(x, status):
    try:
        sys.exit(status)
    except SystemExit as left:
        return left.code, left.args, left.args is status, x + 1


@case(call(ramp(2), Told((1, 2))), call(ramp(2), Told((3,))), breaks="SB013")
def exits_with_tuples_of_a_class(x, status):
    try:
        sys.exit(status)
    except SystemExit as left:
        return left.code, left.args, left.args is status, x + 1


@pytest.mark.parametrize("status", [3, None, "text", Leaving(5)])
def test_exits_leave_the_call(status):
    left = []

    def leave(n):
        left.append(n)
        sys.exit(status)

    compiled = stator.compile(leave, backend="eager", fullgraph=True)
    for n in range(3):
        with pytest.raises(SystemExit) as ending:
            compiled(n)
        assert ending.value.args == (status.args if isinstance(status, Leaving) else () if status is None else (status,))
        assert isinstance(status, Leaving) == (ending.value is status)
    assert left == [0, 1, 2]


@case(call(ramp(2), 0), call(ramp(2), 86400 * 400), call(ramp(2), 1.5e9))
def moments(x, seconds):
    shown = time.gmtime(seconds)
    return (tuple(shown), shown.tm_zone, shown.tm_gmtoff, time.asctime(shown), time.asctime(tuple(shown)), calendar.timegm(shown),
            x + shown.tm_year)  # fmt: skip
