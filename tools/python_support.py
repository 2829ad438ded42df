"""Print one table of Python's types and slots: what a capture does with each.

    python -m tools.python_support            run every cell, write docs/python-support.json and docs/python-support.md
    python -m tools.python_support --share    print the share that is captured, and change nothing
    python -m tools.python_support --errors   the same, with the errors of slots that a type lacks

In: a type, a slot, and where the value comes from (made inside the call, or an argument).  Out: a letter or break code
for each, from a program that ran: `c` captured, `g` captured with a guard on the value, `e` captured with an effect on
it, `x` captured with the TypeError of eager, or the code of the graph break.  Each program runs in eager and under
fullgraph=True; another result, text of an error or state of the value is a bug, and ends the run.
"""

from __future__ import annotations

import collections
import itertools
import json
import re
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import stator

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "docs" / "python-support.json"
PAGE = ROOT / "docs" / "python-support.md"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PLACES = ("inside", "argument")
CAPTURED = "cgex"
ABSENT = ("TypeError", "AttributeError")  # in eager: the type has no such slot, and the cell does not count

# A type: an expression that makes a value of it, and one for a second operand.
TYPES = {
    "int": ("7", "3"), "bool": ("True", "False"), "float": ("2.5", "2.0"), "complex": ("(1 + 2j)", "2j"),
    "str": ("'abc'", "'b'"), "bytes": ("b'abc'", "b'b'"), "bytearray": ("bytearray(b'abc')", "b'b'"),
    "memoryview": ("memoryview(b'abc')", "98"), "list": ("[3, 1, 2]", "[1]"), "tuple": ("(3, 1, 2)", "(1,)"),
    "range": ("range(4)", "2"), "dict": ("{'a': 1, 'b': 2}", "{'c': 3}"), "set": ("{1, 2, 3}", "{2}"),
    "frozenset": ("frozenset({1, 2})", "{2}"), "slice": ("slice(1, 3)", "slice(2)"), "NoneType": ("None", "1"),
    "ellipsis": ("...", "1"), "NotImplementedType": ("NotImplemented", "1"), "object": ("SENTINEL", "1"),
    "type": ("Plain", "int"), "instance": ("Plain()", "1"), "function": ("(lambda a=1: a)", "1"),
    "method": ("[3, 1].copy", "1"), "builtin function": ("len", "'ab'"), "property": ("property(len)", "1"),
    "staticmethod": ("staticmethod(len)", "'ab'"), "classmethod": ("classmethod(len)", "1"),
    "module": ("types.ModuleType('made')", "1"), "cell": ("types.CellType(1)", "types.CellType(2)"),
    "generic alias": ("list[int]", "list[str]"), "union": ("(int | str)", "(int | None)"),
    "deque": ("collections.deque([3, 1, 2])", "collections.deque([1])"),
    "defaultdict": ("collections.defaultdict(int, {'a': 1})", "{'c': 3}"),
    "OrderedDict": ("collections.OrderedDict(a=1, b=2)", "{'c': 3}"),
    "Counter": ("collections.Counter('aab')", "collections.Counter('b')"),
    "ChainMap": ("collections.ChainMap({'a': 1}, {'b': 2})", "{'c': 3}"), "namedtuple": ("Pair(3, 1)", "Pair(1, 2)"),
    "UserList": ("collections.UserList([3, 1])", "[1]"), "UserDict": ("collections.UserDict(a=1)", "{'c': 3}"),
    "UserString": ("collections.UserString('abc')", "'b'"),
    "mappingproxy": ("types.MappingProxyType({'a': 1})", "{'c': 3}"),
    "dict_keys": ("{'a': 1, 'b': 2}.keys()", "{'a'}"), "dict_values": ("{'a': 1, 'b': 2}.values()", "1"),
    "dict_items": ("{'a': 1}.items()", "{('a', 1)}"), "list_iterator": ("iter([3, 1, 2])", "1"),
    "tuple_iterator": ("iter((3, 1, 2))", "1"), "range_iterator": ("iter(range(4))", "1"),
    "dict_keyiterator": ("iter({'a': 1})", "1"), "set_iterator": ("iter({1, 2})", "1"),
    "str_iterator": ("iter('abc')", "'b'"), "enumerate": ("enumerate('ab')", "1"), "zip": ("zip('ab', [1, 2])", "1"),
    "map": ("map(str, [1, 2])", "'1'"), "filter": ("filter(None, [0, 1, 2])", "1"),
    "reversed": ("reversed([3, 1, 2])", "1"), "callable_iterator": ("iter(lambda: 1, 2)", "1"),
    "generator": ("(n for n in (3, 1, 2))", "1"), "coroutine": ("waiting()", "1"),
    "async_generator": ("counting()", "1"), "chain": ("itertools.chain('ab', [1])", "1"),
    "islice": ("itertools.islice([3, 1, 2], 2)", "1"), "count": ("itertools.count(3)", "4"),
    "cycle": ("itertools.cycle('ab')", "'a'"), "repeat": ("itertools.repeat(3, 2)", "3"),
    "product": ("itertools.product('ab', repeat=2)", "1"), "accumulate": ("itertools.accumulate([3, 1])", "1"),
    "groupby": ("itertools.groupby('aab')", "1"), "partial": ("functools.partial(len, 'ab')", "1"),
    "itemgetter": ("operator.itemgetter(0)", "'ab'"), "lru_cache": ("functools.lru_cache(Plain)", "1"),
    "SimpleNamespace": ("types.SimpleNamespace(a=1)", "types.SimpleNamespace(b=2)"),
    "array": ("array.array('i', [3, 1, 2])", "array.array('i', [1])"), "Fraction": ("fractions.Fraction(7, 2)", "2"),
    "Decimal": ("decimal.Decimal('7.5')", "decimal.Decimal(2)"),
    "date": ("datetime.date(2024, 2, 3)", "datetime.timedelta(1)"),
    "timedelta": ("datetime.timedelta(3)", "datetime.timedelta(1)"), "Enum member": ("Colour.RED", "Colour.BLUE"),
    "Flag member": ("Right.READ", "Right.WRITE"), "dataclass": ("Point(1, 2)", "Point(2, 1)"),
    "exception": ("ValueError('no', 1)", "1"), "exception group": ("ExceptionGroup('no', [ValueError(1)])", "1"),
    "weak reference": ("weakref.ref(Plain)", "1"), "pattern": ("re.compile('a+')", "'caat'"),
    "context variable": ("VARIABLE", "1"), "version_info": ("sys.version_info", "(3, 8)"),
}

# A slot of CPython, and a program on a value `v` with a second operand `w`.
SLOTS = {
    "tp_repr": "repr(v)", "tp_str": "str(v)", "tp_hash": "hash(v) == hash(v)",
    "tp_richcompare ==": "(v == w, v != w, v == v)", "tp_richcompare <": "(v < w, v <= w, v > w, v >= w)",
    "tp_call": "v()", "tp_call with an argument": "v(w)", "tp_getattro": "v.__class__.__name__",
    "tp_getattro of a name that is missing": "v.missing", "tp_setattro": "setattr(v, 'extra', 1)",
    "tp_setattro, delete": "delattr(v, 'extra')", "tp_iter": "[*itertools.islice(v, 5)]", "tp_iternext": "next(v)",
    "tp_new": "type(v)()", "tp_new with an argument": "type(v)(v)", "tp_dir": "len(dir(v)) > 5",
    "tp_format": "format(v, '')",
    "tp_instancecheck": "(isinstance(v, type(w)), isinstance(v, type(v)), issubclass(type(v), object))",
    "tp_descr_get": "v.__get__(w, type(w))", "tp_as_buffer": "memoryview(v).tolist()", "tp_reduce": "copy.copy(v)",
    "tp_reduce, deep": "copy.deepcopy(v)", "tp_del": "[v].pop() is v", "nb_add": "v + w",
    "nb_add, reflected": "w + v", "nb_subtract": "v - w", "nb_multiply": "v * w", "nb_remainder": "v % w",
    "nb_divmod": "divmod(v, w)", "nb_power": "v ** w", "nb_power, three": "pow(v, w, 5)", "nb_negative": "-v",
    "nb_positive": "+v", "nb_absolute": "abs(v)", "nb_bool": "(not v, bool(v))", "nb_invert": "~v",
    "nb_lshift": "v << w", "nb_rshift": "v >> w", "nb_and": "v & w", "nb_xor": "v ^ w", "nb_or": "v | w",
    "nb_int": "int(v)", "nb_float": "float(v)", "nb_complex": "complex(v)", "nb_round": "round(v)",
    "nb_index": "operator.index(v)", "nb_floor_divide": "v // w", "nb_true_divide": "v / w",
    "nb_matrix_multiply": "v @ w", "nb_inplace_add": "operator.iadd(v, w)",
    "nb_inplace_subtract": "operator.isub(v, w)", "nb_inplace_multiply": "operator.imul(v, w)",
    "nb_inplace_and": "operator.iand(v, w)", "nb_inplace_or": "operator.ior(v, w)",
    "nb_inplace_xor": "operator.ixor(v, w)", "sq_length": "len(v)", "sq_item": "v[0]", "sq_item, negative": "v[-1]",
    "sq_slice": "v[0:2]", "sq_contains": "w in v", "sq_repeat": "v * 2", "sq_inplace_repeat": "operator.imul(v, 2)",
    "sq_ass_item": "operator.setitem(v, 0, 1)", "sq_ass_item, delete": "operator.delitem(v, 0)",
    "sq_ass_slice": "operator.setitem(v, slice(0, 1), w)", "mp_subscript": "v['a']",
    "mp_subscript of a missing key": "v['z']", "mp_ass_subscript": "operator.setitem(v, 'a', 5)",
    "mp_ass_subscript, delete": "operator.delitem(v, 'a')", "am_await": "v.__await__()", "am_aiter": "aiter(v) is v",
    "am_send": "v.send(None)", "length_hint": "operator.length_hint(v)", "reversed": "[*reversed(v)]",
    "sorted": "sorted(v)", "unpack": "(lambda a, *b: (a, b))(*v)", "match": "matched(v)",
    "context manager": "entered(v)", "f-string": "f'{v!r:>4}'", "sum": "sum(v)", "min": "min(v)",
    "dict of it": "{v: 1}[v]",
}

ENDLESS = ("count", "cycle", "callable_iterator")
CONSUMING = ("sorted", "unpack", "sum", "min")  # of all items

PRELUDE = """
import array, collections, contextvars, copy, dataclasses, datetime, decimal, enum, fractions, functools, itertools
import operator, re, sys, types, weakref


class Plain:
    pass


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Right(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(order=True)
class Point:
    x: int
    y: int


Pair = collections.namedtuple("Pair", "first second")
SENTINEL = object()
VARIABLE = contextvars.ContextVar("VARIABLE", default=3)


async def waiting():
    return 1


async def counting():
    yield 1


def matched(value):
    match value:
        case [first, *_]:
            return "sequence", first
        case {"a": found}:
            return "mapping", found
        case int() | str():
            return "number or text"
        case _:
            return None


def entered(value):
    with value as found:
        return found
"""
TEXT = """
def program({parameters}):
    {made}
    try:
        return "value", {expression}, v
    except Exception as error:
        return type(error).__name__, str(error), v
"""


HEAD = """# Python: types and slots

`python -m tools.python_support` writes this page from [python-support.json](python-support.json). Each cell is the outcome of a
program that ran in eager and under `fullgraph=True`, with equal results, texts of errors and states afterwards. A slot that a
type lacks is no cell. `tests/unit/test_python_support.py` runs a sample of the cells; with `-m slow` it runs all of them, and
the errors of absent slots.

| outcome | meaning |
|---|---|
| c | captured; the value is made inside the call |
| g | captured; the value is an argument, under guards |
| e | captured; the change of the argument is an effect |
| x | captured, with the exception of eager |
| SBnnn | a graph break with that [code](breaks/index.md) |

| Python | cells | captured |
|---|---|---|"""  # noqa: E501


class Cell(NamedTuple):
    """One program of the table."""

    kind: str
    slot: str
    place: str


class Difference(AssertionError):
    """A captured program that differs from eager."""


def cells() -> list[Cell]:
    return [Cell(kind, slot, place) for kind in TYPES for slot in SLOTS for place in PLACES
            if kind not in ENDLESS or slot not in CONSUMING]


def namespace_of(cell: Cell) -> dict[str, object]:
    value, other = TYPES[cell.kind]
    made = f"v, w = {value}, {other}" if cell.place == "inside" else "pass"
    text = TEXT.format(parameters="" if cell.place == "inside" else "v, w", made=made, expression=SLOTS[cell.slot])
    module = sys.modules["python_support"] = types.ModuleType("python_support")
    exec(PRELUDE + text, module.__dict__)  # noqa: S102  text of this file
    return module.__dict__


def arguments_of(cell: Cell, names: dict[str, object]) -> tuple[object, ...]:
    return tuple(eval(text, names) for text in TYPES[cell.kind]) if cell.place != "inside" else ()  # noqa: S307


def shown(value: object, depth: int = 0) -> str:
    """A value as text that is equal for equal outcomes: no addresses; iterators by what they have left."""
    if type(value) in (tuple, list) and depth < 4:
        return f"{type(value).__name__}({', '.join(shown(part, depth + 1) for part in value)})"  # type: ignore[attr-defined]
    text = re.sub(r"0x[0-9a-f]+|python_support\.|\d{12,}", "", f"{type(value).__name__} {value!r}")
    if hasattr(value, "__next__") and type(value).__name__ not in (*ENDLESS, "coroutine_wrapper"):
        text += repr([shown(part, depth + 1) for part in itertools.islice(value, 20)])  # type: ignore[call-overload]
    if hasattr(value, "close") and not hasattr(value, "__next__"):
        getattr(value, "close")()
    names = sorted(getattr(value, "__dict__", {})) if type(value).__name__ in ("Plain", "function") else ""
    return f"{text}{names}"


def outcome_of(cell: Cell, errors: bool = False) -> str:
    """Run one cell: its letter, or the code of its graph break; nothing for an absent slot, unless `errors`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = namespace_of(cell)
        before = shown(arguments_of(cell, names)[:1])
        program: Any = names["program"]
        ending, value, after = program(*arguments_of(cell, names))
        failed, expected = ending != "value", shown((ending, value, after))
        if ending in ABSENT and not errors:
            return ""
        names = namespace_of(cell)
        given = arguments_of(cell, names)
        try:
            found = stator.compile(names["program"], backend="eager", fullgraph=True)(*given)
        except stator.Unsupported as error:
            shown(given)  # closes coroutines
            return error.code
        if shown(found) != expected:
            raise Difference(f"{cell}: eager {expected}, captured {shown(found)}")
    if failed:
        return "x"
    return "c" if cell.place == "inside" else "g" if expected.endswith(before.removeprefix("tuple(")) else "e"


def run(wanted: list[Cell], errors: bool = False) -> Iterator[tuple[Cell, str]]:
    for cell in wanted:
        if outcome := outcome_of(cell, errors):
            yield cell, outcome
        stator.reset()


Table = dict[str, dict[str, str]]  # type -> slot -> outcomes by place, one blank between them; "-" where there is none


def table_of(found: dict[Cell, str]) -> Table:
    table: Table = {}
    for kind, slot in dict.fromkeys((cell.kind, cell.slot) for cell in found):
        table.setdefault(kind, {})[slot] = " ".join(found.get(Cell(kind, slot, place), "-") for place in PLACES)
    return table


def outcomes(table: Table) -> list[str]:
    return [each for slots in table.values() for text in slots.values() for each in text.split() if each != "-"]


def share(table: Table) -> float:
    found = outcomes(table)
    return sum(each in CAPTURED for each in found) / max(len(found), 1)


def page(records: dict[str, Table]) -> str:
    """The page, of the records of all versions."""
    versions = sorted(records, key=lambda text: [int(part) for part in text.split(".")])
    lines = [HEAD]
    lines += [f"| {version} | {len(outcomes(table))} | {share(table):.1%} |"
              for version, table in ((version, records[version]) for version in versions)]
    newest = records[versions[-1]]
    lines += ["", f"## Types on {versions[-1]}", "",
              "Cells of each type by outcome, and the slots that break (made inside, argument).", "",
              "| type | c | g | e | x | breaks |", "|---|---|---|---|---|---|"]
    for kind, slots in newest.items():
        counted = collections.Counter(outcomes({kind: slots}))
        broken = [f"{slot}: {text.replace(' ', ', ')}" for slot, text in slots.items() if "SB" in text]
        lines.append(f"| {kind} | {' | '.join(str(counted[letter]) for letter in CAPTURED)} | {'; '.join(broken)} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    table = table_of(dict(run(cells(), "--errors" in arguments)))
    print(f"Python {VERSION}: {len(outcomes(table))} cells, {share(table):.1%} captured")
    if not arguments:
        records = json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else {}
        records[VERSION] = table
        RECORDS.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(records), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
