"""exec with builtins, closures and dicts of the program; warnings of the compiler, and filters that raise."""

import types
import warnings

import pytest
import torch

from tests.comparison import call, same_as_eager


def outcome(action):
    try:
        return action()
    except Exception as error:
        return type(error).__name__, str(error), getattr(error, "lineno", None), getattr(error, "filename", None)


def namespaces(x, n):
    seen = []

    class Watched(dict):
        def __setitem__(self, name, value):
            seen.append(("set", name))
            dict.__setitem__(self, name, value)

        def __getitem__(self, name):
            seen.append(("get", name))
            return dict.__getitem__(self, name)

    names = Watched()
    exec("a = 1\nb = a + 1\ndef f(): return b\nc = f()", names)
    seen.append((names["c"], "__builtins__" in names))
    for text, given in (("print(1)", {"__builtins__": {}}), ("print", {"__builtins__": 3}),
                        ("class A: pass", {"__builtins__": {}}), ("import os", {"__builtins__": {}}),
                        ("q = len", {"__builtins__": {"len": n}}), ("q = zz", {"__builtins__": Watched(zz=n)}),
                        ("q = zz", {"__builtins__": Watched()}),
                        ("def f(): return zz\nq = f()", {"__builtins__": Watched(zz=n)})):
        seen.append(outcome(lambda text=text, given=given: exec(text, given)))
        seen.append(given.get("q"))
    safe = {"None": None}
    made = {"type": type, "__builtins__": safe}
    exec("def f(s): pass\ng = type(f)(f.__code__, {})", made)
    return x + n, seen, made["f"].__builtins__ is safe, made["g"].__builtins__ is safe, sorted(made["g"].__globals__)


def closures(x, n):
    result = 0

    def make():
        a, b = 2, n

        def three():
            nonlocal result, a, b
            result = a * b
        return three, lambda: 1
    three, none = make()
    exec(three.__code__, three.__globals__, closure=three.__closure__)
    seen = [result]
    cells = (types.CellType(35), types.CellType(72), three.__closure__[2])
    exec(three.__code__, three.__globals__, closure=cells)
    seen.append(result)
    for code, closure in ((none.__code__, cells), (three.__code__, None), (three.__code__, cells[:2]),
                          (three.__code__, list(cells)), (three.__code__, (1, 2, 3)), ("1", cells)):
        seen.append(outcome(lambda code=code, closure=closure: exec(code, {}, closure=closure)))
    for source in ((), None, 3, b"1+1", bytearray(b"2+3"), memoryview(b"4+5")):
        seen.append(outcome(lambda source=source: eval(source)))
    return x * n, seen


def functions(x, n):
    names = {"k": n}
    f = types.FunctionType((lambda: k).__code__, names)  # noqa: F821
    names["k"] += 1
    g = types.FunctionType((lambda a, b=3: a + b).__code__, names, "named", (7,))
    seen = [f(), g(1), g.__name__, f.__globals__ is names, "__builtins__" in names]
    for given in ((1, {}), (f.__code__, 3), (f.__code__, {}, 3), ((lambda: n).__code__, {})):
        seen.append(outcome(lambda given=given: types.FunctionType(*given)))
    return x + n, seen


def awaited(x, n):
    code = compile("a = await made(n)", "?", "exec", flags=0x2000)

    async def made(value):
        return value + 1
    names = {"made": made, "n": n}
    seen = [outcome(lambda: eval(code, names).send(None)), names["a"]]
    return x + n, seen


@pytest.mark.parametrize("program", [namespaces, closures, functions, awaited])
def test_code_made_at_run_time(program):
    same_as_eager(program, call(torch.ones(2), 3), call(torch.ones(2), 4))


def compiler_warnings(x, source):
    seen = []
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        seen.append(outcome(lambda: bool(compile(source, "<s>", "exec"))))
        seen += [(str(each.message), each.category, each.filename, each.lineno) for each in log]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile("2 is 2", "b.py", "exec")
            warnings.filterwarnings("error", category=SyntaxWarning)
            seen.append(outcome(lambda: compile("\n\n3 is 3", "b.py", "exec")))
            seen.append(outcome(lambda: warnings.warn("raised", SyntaxWarning, stacklevel=1)))
            warnings.warn("ignored", stacklevel=1)
        warnings.warn("recorded", stacklevel=1)
        seen.append(len(log))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen.append(outcome(lambda: warnings.warn("raised", stacklevel=1)))
        seen.append(outcome(lambda: compile("'\\d'", "b.py", "exec")))
    compile("5 is 5", "shown.py", "exec")
    return x + 1, seen


def test_warnings_of_the_compiler():
    for source in ("1 is 1", "'\\d'", "a = 1\nassert (1, 'x')", "1 is 1\n1 +", "0x1for x in ()", "1"):
        same_as_eager(compiler_warnings, call(torch.ones(2), source), call(torch.ones(2), source))


def test_a_filter_of_outside_still_decides():
    def program(x):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", category=DeprecationWarning)
            warnings.warn("shown", UserWarning, stacklevel=1)
        return x + 1
    same_as_eager(program, call(torch.ones(2)), fullgraph=False)
