"""Programs from a seed.

In: a seed.  Out: the text of a module with `program(...)`, made of the prelude and random typed statements.
Variables carry a kind, and an expression of a kind uses variables of that kind, so that most programs run;
some raise, which is an outcome to compare like any other.
"""

from __future__ import annotations

import random
import re

from tests.fuzz.memory_templates import MEMORY_EXPRESSIONS, MEMORY_SIMPLE
from tests.fuzz.method_templates import METHOD_PRELUDE
from tests.fuzz.prelude import PRELUDE
from tests.fuzz.shrink import valid
from tests.fuzz.stdlib_templates import STDLIB_EXPRESSIONS, STDLIB_IMPORTS, STDLIB_SIMPLE
from tests.fuzz.templates import EXPRESSIONS, HANDLERS, LITERALS, SIMPLE

ASSIGNS = re.compile(r"^\{[^=]*\} [|^+*-]?=|^\[[^=]*\] [|^+*-]?=|^\([^=]*\) [|^+*-]?=")
HOLE = re.compile(r"\$(\w+)")
KINDS = ("int", "str", "bool", "list", "dict", "set", "mat", "vec", "ivec", "point", "fun", "pts",
         "float", "tup", "deq", "ctr", "dd", "obj", "scal", "wide", "par", "arr")
RARE = frozenset({"deq", "ctr", "dd", "obj", "par"})
ARGUMENTS = {"mat": ["mat"], "vec": ["vec"], "ivec": ["ivec"], "int": ["n"], "bool": ["flag"],
             "list": ["items"], "dict": ["table"], "point": ["point"], "float": ["G_RATE"],
             "deq": ["G_DEQUE"], "obj": ["G_GAUGE"], "par": ["G_PARAM"], "arr": ["G_ARRAY"]}  # fmt: skip


class Writer:
    """Writes one program; `scope` maps a kind to the names that hold it at this point."""

    def __init__(self, seed: int, weights: str = "") -> None:
        self.random = random.Random(seed)
        self.library = weights == "library"  # three in four templates are calls into the standard library
        self.scope: dict[str, list[str]] = {kind: list(ARGUMENTS.get(kind, ())) for kind in KINDS}
        self.made = 0
        self.left = self.random.randint(6, 24)
        self.breaks = self.random.choice((0.0, 0.1, 0.3))
        self.memory = 0.0 if self.library else self.random.choice((0.0, 0.3, 0.7))  # the share of statements about shared memory
        self.in_loop = 0
        self.functions = 0

    def name(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}{self.made}"

    def leaf(self, kind: str) -> str:
        names = self.scope[kind]
        if names and self.random.random() < 0.85:
            return self.random.choice(names)
        return self.random.choice(LITERALS[kind])

    def choose(self, templates: tuple[str, ...]) -> str:
        return self.random.choice(templates)

    def from_library(self) -> bool:
        return self.library and self.random.random() < 0.75

    def expression(self, kind: str, depth: int = 2) -> str:
        if depth <= 0 or self.random.random() < 0.3:
            return self.leaf(kind)
        about_memory = kind in MEMORY_EXPRESSIONS and self.random.random() < self.memory / 2
        templates = MEMORY_EXPRESSIONS[kind] if about_memory else EXPRESSIONS[kind]
        if kind in STDLIB_EXPRESSIONS and self.from_library():
            templates = STDLIB_EXPRESSIONS[kind]
        text = "(" + self.fill(self.choose(templates), depth - 1) + ")"
        if self.breaks and self.random.random() < self.breaks / 10:  # a break with values on the stack
            return f"({text} if stator.graph_break() is None else None)"
        return text

    def fill(self, template: str, depth: int, targets_first: bool = False) -> str:
        """The template with every hole filled; `targets_first` puts a variable into the first hole."""
        filled = 0

        def value(hole: re.Match[str]) -> str:
            nonlocal filled
            filled += 1
            if hole[1] == "small":
                return str(self.random.randint(0, 2))
            if targets_first and filled == 1:
                return self.target(hole[1])
            text = self.expression(hole[1], depth)
            # Inside a replacement field quotes of the same sort may not appear before 3.12.
            return "0" if "f'" in template and "'" in text else text

        return HOLE.sub(value, template)

    def target(self, kind: str) -> str:
        """A thing to be changed: a variable where there is one."""
        return self.random.choice(self.scope[kind]) if self.scope[kind] else self.leaf(kind)

    def block(self, depth: int, most: int = 4) -> list[str]:
        before = {kind: list(names) for kind, names in self.scope.items()}
        lines: list[str] = []
        for _ in range(self.random.randint(1, most)):
            lines += self.statement(depth)
        if self.random.random() < 0.93:
            self.scope = before
        return ["    " + line for line in lines]

    def statement(self, depth: int) -> list[str]:
        self.left -= 1
        lines = ["stator.graph_break()"] if self.random.random() < self.breaks else []
        roll = self.random.random()
        if depth > 0 and self.left > 0 and roll < 0.38:
            choice = self.random.choice((
                self.an_if, self.a_for, self.a_for, self.a_while, self.a_try, self.a_try, self.a_with, self.a_closure,
                self.a_generator, self.a_class, self.a_match, self.a_coroutine, self.a_comprehension, self.a_delegation,
                self.a_group, self.a_decorated, self.a_class_body, self.a_rich_match,
            ))  # fmt: skip
            return lines + choice(depth - 1)
        if roll < 0.68:
            return lines + self.assignment()
        if self.in_loop and roll < 0.71:
            return [*lines, f"if {self.expression('bool', 1)}:", "    " + self.random.choice(("break", "continue"))]
        if roll < 0.73:
            return [*lines, f"if {self.expression('bool', 1)}:", "    return " + self.result()]
        if roll < 0.75:
            return [*lines, f"raise {self.random.choice(('Oops', 'ValueError'))}({self.expression('str', 1)})"]
        return [*lines, *self.simple().split("\n")]

    def simple(self) -> str:
        """A simple statement; what is assigned to in place has to be a name."""
        text = "{} |="
        while text.startswith(("{", "[", "(")) and ASSIGNS.search(text):
            templates = MEMORY_SIMPLE if self.random.random() < self.memory else SIMPLE
            templates = STDLIB_SIMPLE if self.from_library() else templates
            text = self.fill(self.choose(templates), 1, targets_first=True)
        return text

    def assignment(self) -> list[str]:
        kinds = tuple(STDLIB_EXPRESSIONS) if self.library else KINDS
        kind = self.random.choice(kinds)
        kind = self.random.choice(kinds) if kind in RARE else kind
        names = [name for name in self.scope[kind] if name[-1].isdigit()]
        value = self.expression(kind, 2)
        if kind == "int" and names and self.random.random() < 0.3:
            return [f"{self.random.choice(names)} {self.random.choice(('+=', '-=', '|='))} {value}"]
        if names and self.random.random() < 0.35:
            return [f"{self.random.choice(names)} = {value}"]
        name = self.name(kind[0])
        self.scope[kind].append(name)
        return [f"{name} = {value}"]

    def an_if(self, depth: int) -> list[str]:
        lines = [f"if {self.expression('bool')}:", *self.block(depth)]
        if self.random.random() < 0.3:
            lines += [f"elif {self.expression('bool')}:", *self.block(depth)]
        if self.random.random() < 0.6:
            lines += ["else:", *self.block(depth)]
        return lines

    def a_for(self, depth: int) -> list[str]:
        name = self.name("i")
        lazy = self.random.choice(("iter", "list"))  # a `break` leaves a lazy one suspended
        over, kind = self.random.choice((
            (f"range({self.random.randint(1, 4)})", "int"), (f"list({self.expression('list', 1)})[:4]", "int"),
            (f"{lazy}(count_up(0, {self.random.randint(1, 4)}))", "int"), (f"sorted({self.expression('dict', 1)})", "str"),
            (f"{self.expression('mat', 1)}.unbind()", "vec"), (f"{self.expression('pts', 1)}[:3]", "point"),
            ("range(n % 4)", "int"), (f"({self.expression('int', 1)}, {self.expression('int', 1)})", "int"),
            (f"{lazy}(chain({self.expression('list', 1)}[:2], count_up(1, 3)))", "int"),
        ))  # fmt: skip
        return [f"for {name} in {over}:", *self.loop_body(depth, kind, name), *self.loop_else(depth)]

    def loop_body(self, depth: int, kind: str, name: str) -> list[str]:
        self.in_loop += 1
        self.scope[kind].append(name)
        lines = self.block(depth)
        if name in self.scope[kind]:
            self.scope[kind].remove(name)
        self.in_loop -= 1
        return lines

    def loop_else(self, depth: int) -> list[str]:
        return ["else:", *self.block(depth, 2)] if self.random.random() < 0.2 else []

    def a_while(self, depth: int) -> list[str]:
        name = self.name("w")
        self.in_loop += 1
        body = self.block(depth, 3)
        self.in_loop -= 1
        # Counted in the condition, so that no deletion by the shrinker makes the loop endless.
        most = self.random.randint(2, 5)
        head = [f"{name} = 0", f"while ({name} := {name} + 1) < {most} and {self.expression('bool', 1)}:"]
        return [*head, *body, *self.loop_else(depth)]

    def a_try(self, depth: int) -> list[str]:
        lines = ["try:", *self.block(depth)]
        handlers = self.random.randint(0, 2)
        for _ in range(handlers):
            lines += [f"except {self.random.choice(HANDLERS)} as e:"]
            lines += [self.random.choice(("    print(type(e).__name__, e)", "    items.append(len(str(e)))", "    pass"))]
            lines += self.block(depth, 2) if self.random.random() < 0.6 else []
            if self.random.random() < 0.15:
                lines += [self.random.choice(("    raise", "    raise Oops('again') from e", "    raise KeyError('k')"))]
        if handlers and self.random.random() < 0.25:
            lines += ["else:", *self.block(depth, 2)]
        if not handlers or self.random.random() < 0.4:
            lines += ["finally:", *self.block(depth, 2)]
        return lines

    def a_with(self, depth: int) -> list[str]:
        name = self.name("c")
        manager = self.random.choice((
            f"Slotted({self.expression('int', 1)}) as {name}", f"managed({self.expression('list', 1)}, {self.expression('int', 1)}) as {name}",
            "torch.no_grad()", "contextlib.suppress(KeyError, Oops)", f"contextlib.nullcontext({self.leaf('int')}) as {name}",
        ))  # fmt: skip
        return [f"with {manager}:", *self.block(depth)]

    def a_closure(self, depth: int) -> list[str]:
        """A nested function that may change a variable of the function around it."""
        name, held = self.name("f"), self.name("h")
        inner_loop, self.in_loop = self.in_loop, 0
        saved = {kind: list(names) for kind, names in self.scope.items()}
        # Only what the function is given and its own variables: assigning an outer name would make it local.
        self.scope = {kind: list(ARGUMENTS.get(kind, ())) for kind in KINDS}
        self.scope["int"] = ["q", held, "n"]
        body = self.block(depth, 3)
        self.scope, self.in_loop = saved, inner_loop
        change = self.random.choice((f"    {held} += q", f"    {held} = {held} * 2 % 31", f"    print({held})"))
        lines = [f"{held} = {self.expression('int', 1)}", f"def {name}(q, r={self.leaf('int')}, *rest, **more):",
                 f"    nonlocal {held}", change, *body, f"    return {held} + r"]  # fmt: skip
        self.scope["int"].append(held)
        self.scope["fun"].append(name)
        return [*lines, f"{self.name('i')} = {name}({self.expression('int', 1)})"]

    def a_generator(self, depth: int) -> list[str]:
        name = self.name("g")
        inner_loop, self.in_loop = self.in_loop, 0
        saved = {kind: list(names) for kind, names in self.scope.items()}
        self.scope = {kind: list(ARGUMENTS.get(kind, ())) for kind in KINDS}
        first, second = self.block(depth, 2), self.block(depth, 2)
        self.scope, self.in_loop = saved, inner_loop
        lines = [f"def {name}(k):", *first, "    sent = yield k", "    print('sent', sent)", *second, "    yield k + 1"]
        made = self.name("l")
        use = self.random.choice((
            [f"{made} = [v for v in {name}(3) if isinstance(v, int)]"],
            [f"it = {name}({self.expression('int', 1)})", f"{made} = [next(it)]", f"{made}.append(it.send('hi'))", "it.close()"],
            [f"{made} = []", f"for v in {name}({self.leaf('int')}):", f"    {made}.append(v)", "    if v == 3:", "        break"],
            [f"{made} = list(zip({name}(1), items))", f"{made} = [len({made})]"],
            [f"it = {name}(1)", f"{made} = [next(it)]", "try:", "    it.throw(Oops('thrown'))", "except Oops as e:", "    print(e)"],
        ))  # fmt: skip
        self.scope["list"].append(made)
        return [*lines, *use]

    def a_class(self, depth: int) -> list[str]:
        name = self.name("C")
        field, method = self.expression("int", 1), self.expression("str", 1)
        made = self.name("p")
        lines = [f"class {name}({self.random.choice(('Point', 'Late'))}):", f"    extra = {field}",
                 "    def __repr__(self):", f"        return 'C' + {method}",
                 "    def __getitem__(self, key):", "        return self.extra + key",
                 f"{made} = {name}({self.expression('int', 1)}, 1)"]  # fmt: skip
        self.scope["point"].append(made)
        return lines

    def a_match(self, depth: int) -> list[str]:
        return [f"match {self.expression(self.random.choice(('int', 'list', 'dict', 'point')), 1)}:",
                "    case int(m) if m > 2:", *indent(self.block(depth, 2)),
                "    case [m, *others]:", "        print('seq', m, others)",
                "    case {'a': m, **others}:", "        print('map', m, others)",
                "    case Point(x=m):", *indent(self.block(depth, 2)),
                "    case _:", *indent(self.block(depth, 2))]  # fmt: skip

    def a_coroutine(self, depth: int) -> list[str]:
        """An async function with its own try, driven to its end."""
        name, made = self.name("a"), self.name("i")
        inner_loop, self.in_loop = self.in_loop, 0
        saved = {kind: list(names) for kind, names in self.scope.items()}
        self.scope = {kind: list(ARGUMENTS.get(kind, ())) for kind in KINDS}
        self.scope["int"] = ["k"]
        body = self.block(depth, 2)
        self.scope, self.in_loop = saved, inner_loop
        lines = [f"async def {name}(k):", *body, "    async for t in ticks(2):", "        k += t + await later(k)",
                 "    async with Ready(k) as ready:", f"        k += {self.leaf('int')}", "        checked(k)",
                 "    return k"]  # fmt: skip
        self.scope["int"].append(made)
        return [*lines, f"{made} = drive({name}({self.expression('int', 1)})) or 0"]

    def a_comprehension(self, depth: int) -> list[str]:
        """Comprehension scopes: a name that shadows, a walrus that escapes, a closure over the variable."""
        made, other = self.name("l"), self.name("i")
        number = self.expression("int", 1)
        lines = self.random.choice((
            [f"{other} = {number}", f"{made} = [{other} for {other} in items if {other} > 1] + [{other}]"],
            [f"{made} = [last := v + {number} for v in items]", f"{other} = last if items else 0"],
            [f"{other} = {number}", f"{made} = [f() for f in [lambda: v + {other} for v in items]]"],
            [f"{other} = {number}", f"{made} = [a + b for a in items[:2] for b in (a, {other}) if a != b]"],
            [f"{other} = {number}", f"{made} = sorted({{v % 3: [w for w in (v, {other})] for v in items}})"],
            [f"{other} = {number}", f"{made} = list(v + w for v in items[:2] for w in range(v % 3))"],
        ))  # fmt: skip
        self.scope["list"].append(made)
        self.scope["int"].append(other)
        return lines

    def a_delegation(self, depth: int) -> list[str]:
        """`yield from` with a value sent through and a value returned; or `return` in a `finally`."""
        outer, inner, made = self.name("g"), self.name("g"), self.name("l")
        lines = [f"def {inner}(k):", "    try:", "        got = yield k", f"        items.append({self.expression('int', 1)})",
                 "        yield got", "    finally:", f"        print('closing', {self.leaf('int')})", "    return k * 2",
                 f"def {outer}(k):", f"    value = yield from {inner}(k)", "    yield value"]  # fmt: skip
        use = self.random.choice((
            [f"{made} = list({outer}({self.expression('int', 1)}))[2:]"],
            [f"it = {outer}(2)", f"{made} = [next(it), it.send({self.leaf('int')}), next(it, 9)]"],
            [f"it = {outer}(1)", f"{made} = [next(it)]", "it.close()"],
            [f"it = {outer}(1)", f"{made} = [next(it)]", "try:", "    it.throw(KeyError('in'))", "except LookupError as e:", "    print(repr(e))"],
        ))  # fmt: skip
        self.scope["list"].append(made)
        return [*lines, *use]

    def a_group(self, depth: int) -> list[str]:
        """An exception group, split among handlers; `except*` takes no `return`, `break` or `continue`."""
        number, text = self.expression("int", 1), self.expression("str", 1)
        raising = self.random.choice((
            f"raise ExceptionGroup('many', [ValueError({number}), KeyError({text}), Oops('x')])",
            f"raise ExceptionGroup({text}, [ExceptionGroup('inner', [Oops({number})]), ValueError('v')])",
            f"checked({number})",
        ))  # fmt: skip
        lines = ["try:", *self.block(depth, 2), f"    {raising}", "except* ValueError as e:", "    print('values', e.exceptions)",
                 f"    {self.simple()}", "except* (KeyError, Oops) as e:", "    print('group', repr(e))"]  # fmt: skip
        lines += [self.random.choice(("    raise", "    raise Oops('again') from e", f"    {self.simple()}", "    pass"))]
        return [*lines, "finally:", f"    print('after', {self.leaf('int')})"] if self.random.random() < 0.3 else lines

    def a_decorated(self, depth: int) -> list[str]:
        """A function of this scope under decorators, with arguments by position, by keyword and defaults."""
        name, made = self.name("f"), self.name("i")
        marks = self.random.sample(("@tracing", f"@repeated({self.random.randint(1, 3)})", "@functools.lru_cache", "@functools.cache"), 2)
        saved, inner_loop = {kind: list(names) for kind, names in self.scope.items()}, self.in_loop
        self.in_loop = 0
        self.scope = {kind: list(ARGUMENTS.get(kind, ())) for kind in KINDS}
        self.scope["int"] = ["q", "k", "n"]
        body = self.block(depth, 2)
        self.scope, self.in_loop = saved, inner_loop
        lines = [*marks[: self.random.randint(1, 2)], f"def {name}(q, /, r={self.leaf('int')}, *, k={self.leaf('int')}):", *body,
                 f"    return q * 2 + k{self.random.choice(('', ' + r', ' - r'))}"]  # fmt: skip
        self.scope["fun"].append(name)
        self.scope["int"].append(made)
        return [*lines, f"{made} = {name}({self.expression('int', 1)})"]

    def a_class_body(self, depth: int) -> list[str]:
        """A class whose body computes: a loop, a condition, comprehensions, a name of the scope around it."""
        name, made, around = self.name("C"), self.name("i"), self.name("i")
        number, other = self.expression("int", 1), self.expression("int", 1)
        lines = [f"{around} = {number}", f"class {name}({self.random.choice(('Base', 'Base, tag=5', 'Gauge', 'Vec2', 'dict', 'list', 'Exception'))}):",
                 "    held = {}", f"    first = {around}", "    for each in range(2):", f"        held[each] = first + {other}",
                 "    both = [v * 2 for v in held.values()]", f"    if {self.expression('bool', 1)}:", "        kind = 'yes'", "    else:", "        kind = __qualname__",
                 "    @property", "    def size(self):", f"        return len(self.both) + {around}", "    @staticmethod", "    def plus(v):", "        return v + 1",
                 "    @classmethod", "    def named(cls, v=1):", "        return len(cls.__name__) + v", "    class Inner:", f"        deep = {around}"]  # fmt: skip
        use = self.random.choice((f"{name}.named({self.leaf('int')})", f"{name}.plus({self.leaf('int')})", f"{name}.both[0]", f"{name}.Inner.deep + len({name}.kind)",
                                  f"{name}(*[1, 2][: {self.random.randint(0, 2)}]).size", f"len({name}.__mro__)"))  # fmt: skip
        self.scope["int"] += [around, made]
        return [*lines, f"{made} = {use}"]

    def a_rich_match(self, depth: int) -> list[str]:
        """Patterns inside patterns: classes by position, mappings, alternatives, captures, values, guards."""
        subject = self.random.choice((
            f"Vec2({self.expression('int', 1)}, {self.expression('int', 1)})", f"({self.expression('int', 1)}, {self.expression('list', 1)})",
            self.expression("dict", 1), self.expression("tup", 1), "Colour(1 + n % 3)", f"[Vec2(1, {self.leaf('int')}), *{self.expression('list', 1)}]", self.expression("str", 1),
        ))  # fmt: skip
        cases = [["    case Vec2(0, y) | Vec2(y, 0):", "        print('axis', y)"], ["    case Vec2(x=a, y=b) if a > b:", "        print('falls', a, b)"],
                 ["    case (int() | float() as head, [first, *_]):", "        print('pair', head, first)"], ["    case {'a': int(v), **rest} if v > 1:", "        print('a', v, sorted(rest))"],
                 ["    case Colour.RED | Colour.BLUE as c:", "        print('colour', c)"], ["    case [Vec2(), *others]:", "        print('led', others)"],
                 ["    case str() as s if len(s) < 3:", "        print('short', s)"], ["    case (a, b, *_):", "        print('two', a, b)"], ["    case None | True:", "        print('none')"]]  # fmt: skip
        chosen = self.random.sample(cases, self.random.randint(2, 5))
        return [f"match {subject}:", *(line for case in chosen for line in case), "    case _:", *indent(self.block(depth, 2))]

    def result(self) -> str:
        kinds = self.random.sample(KINDS, self.random.randint(1, 4))
        return ", ".join(self.leaf(kind) for kind in kinds)

    def program(self) -> str:
        lines: list[str] = []
        while self.left > 0:
            lines += self.statement(3)
        lines.append("return " + self.result())
        head = "def program(mat, vec, ivec, n, flag, items, table, point):"
        imports = STDLIB_IMPORTS + METHOD_PRELUDE if self.library else ""
        return PRELUDE + imports + "\n".join([head, *indent(lines)]) + "\n"


def indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def generate(seed: int, weights: str = "") -> str:
    """The program of a seed; where a walrus came to stand inside a comprehension's iterable, that of a seed far away."""
    text = Writer(seed, weights).program()
    return text if valid(text) else generate(seed + 10**9, weights)
