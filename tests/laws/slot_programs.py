"""Programs for each special method.   programs()  ->  `a + b` where `__add__` raises, gives NotImplemented, a wrong type ...

In: nothing.  Out: one program for each special method and behaviour: a function that makes its classes, runs the
operation and gives the result or the error, and a way to patch the class between two calls.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

BINARY = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "matmul": operator.matmul,
          "truediv": operator.truediv, "floordiv": operator.floordiv, "mod": operator.mod, "divmod": divmod,
          "pow": pow, "lshift": operator.lshift, "rshift": operator.rshift, "and": operator.and_, "xor": operator.xor,
          "or": operator.or_}
IN_PLACE = {"iadd": operator.iadd, "isub": operator.isub, "imul": operator.imul, "imatmul": operator.imatmul,
            "itruediv": operator.itruediv, "ifloordiv": operator.ifloordiv, "imod": operator.imod,
            "ipow": operator.ipow, "ilshift": operator.ilshift, "irshift": operator.irshift, "iand": operator.iand,
            "ixor": operator.ixor, "ior": operator.ior}
COMPARISONS = {"lt": operator.lt, "le": operator.le, "eq": operator.eq, "ne": operator.ne, "gt": operator.gt,
               "ge": operator.ge}
UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg, "pos": operator.pos, "abs": abs, "invert": operator.invert, "int": int, "float": float,
    "complex": complex, "index": operator.index, "bool": bool, "len": len, "hash": hash, "repr": repr, "str": str,
    "bytes": bytes, "round": round, "trunc": math.trunc, "floor": math.floor, "ceil": math.ceil, "iter": iter,
    "next": next, "reversed": reversed, "dir": dir, "length_hint": operator.length_hint, "sizeof": None,  # type: ignore[dict-item]
    "format": lambda made: format(made, "x"), "copy": copy.copy, "deepcopy": lambda made: copy.deepcopy(made),
    "reduce_ex": lambda made: made.__reduce_ex__(2), "fspath": __import__("os").fspath,
    "call": lambda made: made(), "await": lambda made: _awaited(made), "aiter": lambda made: made.__aiter__(),
    "enter": lambda made: _entered(made), "getattr": lambda made: made.missing,
    "getattribute": lambda made: made.anything, "setattr": lambda made: setattr(made, "x", 1),
    "delattr": lambda made: delattr(made, "x"), "getitem": lambda made: made[0], "setitem": lambda made: _stored(made),
    "delitem": lambda made: _deleted(made), "contains": lambda made: 1 in made, "missing": lambda made: made[1],
    "instancecheck": None, "class_getitem": lambda made: type(made)[int],  # type: ignore[dict-item]
    "get": lambda made: type("Owner", (), {"field": made})().field,
    "set": lambda made: setattr(type("Owner", (), {"field": made})(), "field", 1),
    "delete": lambda made: delattr(type("Owner", (), {"field": made})(), "field"),
    "set_name": lambda made: type("Owner", (), {"field": made}).__name__,
    "init_subclass": lambda made: type("Sub", (type(made),), {}).__name__,
    "mro_entries": lambda made: _subclass_of(made)}
WRONG: tuple[Any, ...] = ("text", 2.5, None, [1])


def _awaited(made: Any) -> Any:
    async def waits() -> Any:
        return await made
    try:
        waits().send(None)
    except StopIteration as stop:
        return stop.value


def _entered(made: Any) -> Any:
    with made as value:
        return value


def _stored(made: Any) -> Any:
    made[0] = 1


def _deleted(made: Any) -> Any:
    del made[0]


def _subclass_of(made: Any) -> Any:
    class Sub(made):  # type: ignore[misc]
        pass
    return [base.__name__ for base in Sub.__bases__]


@dataclass(frozen=True)
class Program:
    name: str
    run: Callable[[Any], Any]  # of the class or of an instance: the result, or the error as text
    takes_class: bool
    method: str
    behaviours: tuple[Callable[..., Any], ...]  # of the method in the first, second, ... call


def _shown(value: Any) -> Any:
    """A result as something that two worlds can compare."""
    if type(value).__module__ == "builtins" and not isinstance(value, (list, tuple, dict)):
        return type(value).__name__, value if isinstance(value, (int, float, complex, str, bytes, type(None))) else ""
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [_shown(each) for each in value]
    return type(value).__name__, ""


def _observed(operation: Callable[..., Any], *given: Any) -> Any:
    try:
        return _shown(operation(*given))
    except Exception as error:
        return type(error).__name__, str(error)


def raises(*args: Any) -> Any:
    raise KeyError("raised inside")


def refuses(*args: Any) -> Any:
    return NotImplemented


def stops(*args: Any) -> Any:
    raise StopIteration(3)


def lacks(*args: Any) -> Any:
    raise AttributeError("lacks it")


def answers(*args: Any) -> Any:
    return 7


def answers_true(*args: Any) -> Any:
    return True


def _wrong(value: Any) -> Callable[..., Any]:
    def gives(*args: Any) -> Any:
        return value
    return gives


def behaviours() -> dict[str, tuple[Callable[..., Any], ...]]:
    found: dict[str, tuple[Callable[..., Any], ...]] = {
        "answers": (answers,), "raises": (raises,), "refuses": (refuses,), "stops": (stops,), "lacks": (lacks,),
        "patched": (answers, raises, refuses, answers_true)}
    found.update({f"gives_{type(value).__name__}": (_wrong(value),) for value in WRONG})
    return found


def operations() -> Iterator[tuple[str, str, Callable[[Any], Any]]]:
    """A name, the special method, and the operation on one instance."""
    for name, function in {**BINARY, **IN_PLACE, **COMPARISONS}.items():
        yield f"{name}_number", f"__{name}__", lambda made, function=function: function(made, 2)
        yield f"{name}_itself", f"__{name}__", lambda made, function=function: function(made, made)
    for name, function in BINARY.items():
        yield f"r{name}", f"__r{name}__", lambda made, function=function: function(2, made)
    for name, function in UNARY.items():
        if function is not None:
            yield name, f"__{name}__", function


def programs() -> Iterator[Program]:
    for name, method, operation in operations():
        for kind, found in behaviours().items():
            yield Program(f"{name}_{kind}", lambda made, operation=operation: _observed(operation, made), False, method, found)
        yield Program(f"{name}_patched_made_inside", lambda cls, operation=operation: _observed(operation, cls()), True,
                      method, behaviours()["patched"])


def made_classes(program: Program) -> tuple[type, type]:
    """A class, and the class of which to make instances: for programs that make them inside, it only inherits."""
    names = {"__exit__": lambda self, *error: None} if program.method == "__enter__" else {}
    cls = type("Made", (dict,) if program.method == "__missing__" else (), names)
    return cls, type("Inherits", (cls,), {}) if program.takes_class else cls


def patch(cls: type, program: Program, call: int) -> None:
    behaviour = program.behaviours[min(call, len(program.behaviours) - 1)]
    wraps: Any = classmethod if program.method in ("__class_getitem__", "__init_subclass__") else lambda function: function
    setattr(cls, program.method, wraps(behaviour))


def results(program: Program, compiled: Callable[[Callable[..., Any]], Callable[..., Any]]) -> list[Any]:
    """Results of calls between which the class is patched."""
    (owner, cls), found = made_classes(program), []
    run = compiled(program.run)
    for call in range(max(2, len(program.behaviours))):
        patch(owner, program, call)
        try:
            found.append(run(cls if program.takes_class else cls()))
        except BaseException as error:  # nothing leaves the program itself
            found.append(("left", type(error).__name__, str(error)))
    return found
