"""eval, exec and compile: code made at run time is captured like any other, in namespaces given or not."""

import types
import warnings

import torch

import stator
from curriculum import call, case, ramp
from tests.comparison import same_as_eager

SCALE = 3
NAMES = {"count": 0, "step": 2}


class Logged(dict):
    def __init__(self):
        super().__init__()
        self.read = []

    def __getitem__(self, name):
        self.read.append(name)
        return super().__getitem__(name)


@case()
def eval_reads_locals_and_globals(x, y):
    return eval("x * SCALE + y"), eval("  [i + 1 for i in range(SCALE)]"), eval("lambda q: q + SCALE")(2)


@case()
def eval_in_given_namespaces(x, y):
    return eval("a + b", {"a": x}, {"b": y}), eval("k", {"k": 1}), eval("x", None, {"x": y})


@case()
def exec_makes_functions_and_classes(x, y):
    names = {"x": x}
    exec("shift = 2\ndef add(v):\n    return v + shift + x\nclass C:\n    own = shift\n    def get(self):\n        return add(self.own)", names)
    names["shift"] = 5
    return names["add"](y), names["C"]().get(), sorted(names)


@case(graphs=0)
def made_functions_leave_with_their_globals(x, y):
    names = {}
    exec("k = 10\ndef add(v):\n    return v + k", names)
    add = names["add"]
    return add, add.__globals__ is names, add.__globals__["add"] is add


@case()
def exec_writes_locals_that_locals_shows(x, y):
    exec("z = x + 1")
    return locals()["z"], "z" in locals()


@case(graphs=0)
def exec_changes_an_outside_dict(x, y):
    exec("count += step\nseen = [count]\ndel step", NAMES)
    NAMES["step"] = NAMES["count"]
    return NAMES["count"], NAMES["seen"], "__builtins__" in NAMES


@case(graphs=0)
def exec_in_a_mapping_of_its_own(x, y):
    names = Logged()
    exec("a = SCALE\nb = a + 1", globals(), names)
    return dict(names), names.read


@case(graphs=0)
def annotations_and_deletions(x, y):
    names = {}
    exec("a: int = 1\nb = 2\ndel b", names)
    return names["a"], names["__annotations__"], "b" in names


@case(graphs=0)
def exec_assigns_globals(x, y):
    exec("global made\nmade = [1]")
    return made  # noqa: F821


@case()
def code_objects(x, y):
    code = compile("x + y", "<made>", "eval")
    return eval(code), code.co_names, code.co_filename, eval(code, {"x": 1, "y": 2})


@case(graphs=0)
def errors_of_code(x, y):
    said = []
    for text in ("1 +", "missing", "1 / 0"):
        try:
            eval(text)
        except Exception as error:
            said.append((type(error), str(error)))
    for wrong in ([], 3):
        try:
            exec("1", wrong)
        except TypeError as error:
            said.append(str(error))
    try:
        eval("1", [])
    except TypeError as error:
        said.append(str(error))
    return said


@case(lambda: call("x * 2", ramp()), lambda: call("x - 1", ramp()))
def text_of_the_caller(text, x):
    return eval(text)


@case()
def import_inside(x, y):
    names = {}
    exec("import math\nfrom operator import add as plus\nroot = math.sqrt(16)", names)
    return names["root"], names["plus"](x, y)


def test_a_break_behind_made_globals_runs_the_frame_natively():
    def fn(x):
        names = {"x": x}
        exec("y = x + 1\ndef get():\n    return y", names)
        torch._C._dispatch_key_set(x)
        return names["get"]() * 2

    same_as_eager(fn, call(ramp()), fullgraph=False)


def test_a_break_inside_the_code_is_a_break_at_the_call():
    def fn(x):
        exec("import sys\ndepth = sys._getframe().f_lineno", names := {})
        return x + names["depth"]

    same_as_eager(fn, call(ramp()), fullgraph=False)


@case(call(3), call(4), graphs=0)
def names_of_a_comprehension_in_a_class_body(n):
    class Body:
        y = n
        shown = [(locals()["x"], vars()["x"], "x" in dir(), eval("x")) for x in (n, 2)]
        changed = [exec("y = x") for x in (n + 1, 2)]
        nested = [[sorted(name for name in locals() if name in "ab") for b in (1,)] for a in (1, 2)]
        after = "x" in locals()

    made = {}
    exec("y = 0\nshown = [(locals()['x'], 'x' in dir(), eval('x')) for x in (1, 2)]\n[exec('y = x') for x in (1, 2)]", made)
    return Body.shown, Body.y, Body.changed, Body.nested, Body.after, made["shown"], made["y"]


def ending(act):
    try:
        return act()
    except (TypeError, AttributeError, RuntimeError) as error:
        return str(error)


@case(call(3), call(4), graphs=0)
def namespaces_by_name(n):
    names = {}
    acts = [lambda: eval("n + a", locals={"n": n}, globals={"a": 2}), lambda: eval("n", {}, locals={"n": 3}),
            lambda: eval(source="1"), lambda: eval("1", unknown=2), lambda: eval(), lambda: eval("1", {}, {}, {}),
            lambda: exec("1", unknown=2), lambda: exec(source="y = 3"), lambda: exec("y = 3", globals=names),
            lambda: exec("z = n", locals=names, globals={"n": n}), lambda: len(obj=[]), lambda: hash(obj=1)]  # fmt: skip
    found = [ending(act) for act in acts]
    return found, names.get("y"), names.get("z")


@case(call(3, True), call(4, True), call(4, False), graphs=0)
def functions_with_defaults_by_name(n, given):
    def added(a, /, b=4, *, c):
        return a + b + c

    def made(*args, **named):
        function = types.FunctionType(added.__code__, {}, "made", *args, **named)
        return function.__kwdefaults__, function.__defaults__, ending(function), function(c=5)

    parts = {"c": n} if given else None
    acts = [lambda: made((1, 2)), lambda: made((1, 2), None, parts), lambda: made((1, 2), kwdefaults=parts),
            lambda: made((1, 2), kwdefaults=3), lambda: made((1, 2), None, None, None), lambda: made((1,), argdefs=(2,)),
            lambda: made(unknown=1), lambda: types.FunctionType()]  # fmt: skip
    return [ending(act) for act in acts]


def test_classes_with_keys_that_are_no_strings():
    class Key:
        def __hash__(self):
            return hash("name")

    def make(n):
        made = type("Odd", (), {n: 2, Key(): 3})
        return made.__name__, len(vars(made)), n

    def outcomes_of(fn):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            result = fn(1)
        return result, [(each.category, str(each.message), each.lineno) for each in told]

    compiled = stator.compile(make, backend="eager")
    assert outcomes_of(compiled) == outcomes_of(compiled) == outcomes_of(make)


def test_reduce_in_c_reads_the_builtins_of_the_frame():
    def reduced(n):
        found = []
        for given in ({}, {"iter": n}):
            found.append(ending(lambda: eval("x.__reduce__()", {"__builtins__": given, "x": iter([1, 2])})))
        return found

    compiled = stator.compile(reduced, backend="eager")
    for n in (3, 4):
        assert compiled(n) == reduced(n)
