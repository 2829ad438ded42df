"""Programs from a seed.

In: a seed.  Out: the text of a module with `program(...)`, made of the prelude and random typed statements.
Variables carry a kind, and an expression of a kind uses variables of that kind, so that most programs run;
some raise, which is an outcome to compare like any other.
"""

from __future__ import annotations

import random
import re

from tests.fuzz.prelude import PRELUDE

HOLE = re.compile(r"\$(\w+)")
KINDS = ("int", "str", "bool", "list", "dict", "set", "mat", "vec", "ivec", "point", "fun", "pts")
ARGUMENTS = {"mat": ["mat"], "vec": ["vec"], "ivec": ["ivec"], "int": ["n"], "bool": ["flag"],
             "list": ["items"], "dict": ["table"], "point": ["point"]}  # fmt: skip

# `$int` stands for an expression of that kind, `$small` for a number up to 2.
EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "int": (
        "$int + $int", "$int - $int", "($int * $int) % 17", "$int // 3", "$int % 7", "-$int", "len($list)",
        "$point.x", "$point.total", "$point[$small]", "len($point)", "$point($int)", "$fun($int)",
        "sum($list)", "max($list)", "$list[$small]", "$list[-1]", "$dict.get('a', $int)", "$dict['a']",
        "$mat.shape[0]", "$vec.numel()", "$mat.dim()", "int($bool)", "bump_global($int)", "checked($int)",
        "default_grows($int)", "sum(i for i in $list)", "sum(count_up(0, $small))", "len($set)", "len($str)",
        "($int if $bool else $int)", "$list.pop()", "$list.index($int)", "Point.clip($int)", "Point.made",
        "(lambda a, b=2: a + b)($int)", "$dict.pop('b', 0)", "G_COUNT", "G_LIST[$small]", "abs($int)",
        "int($vec.sum().item())", "$ivec[$small].item()", "divmod($int, 5)[1]", "min($int, $int)",
        "$dict.setdefault('k', $int)", "next(count_up($int, 99))", "next(iter($list), 0)", "sum(map($fun, $list))",
        "len([*$list, *$set])", "(w := $int) + w", "getattr($point, 'x')", "getattr($point, 'zz', $int)",
        "$mat.size(0) * $int", "sum(a * b for a, b in zip($list, $list))", "$point.bump($small).x",
        "sum(p.x for p in $pts)", "min($pts).x", "$int ^ $int", "$int & 6", "$point.auto_q",
    ),
    "str": (
        "'s'", "f'{$int}-{$int:>3}'", "str($int)", "$str + $str", "$str.upper()", "repr($list)",
        "','.join(str(i) for i in $list)", "repr($point)", "'%d' % $int", "$str[:3]", "str($dict)",
        "f'{$point!r}'", "type($point).__name__", "sorted($dict)[0]", "str($mat.dtype)", "str($pts)",
    ),
    "bool": (
        "$int > $int", "$int == $int", "not $bool", "$int in $list", "'a' in $dict", "$bool and $bool",
        "$bool or $bool", "bool($list)", "$point == $point", "$point is $point", "$list == $list",
        "isinstance($point, Late)", "$int in $point", "any(i > 3 for i in $list)", "all($list)",
        "bool($point)", "$mat.shape[0] > $small", "bool(($vec > 0).any())", "$mat is $mat", "hasattr($point, 'z')",
        "1 < $int < 9", "$vec.sum() > 0", "callable($point)", "$list is $list", "$mat.shape == (3, 4)",
    ),
    "list": (
        "[$int, $int]", "list($list)", "[i * 2 for i in $list]", "[i for i in $list if i > $int]", "sorted($list)",
        "$list[1:]", "$list + [$int]", "list(range($small))", "list(count_up($small, 4))", "list($dict.values())",
        "[j for i in $list for j in range(i % 3)]", "list(map($fun, $list))", "$list", "[*$list, $int]",
        "list(chain($list, count_up(0, 2)))", "[($fun)(i) for i in $list]", "sorted($set)", "G_LIST",
        "list(filter(lambda v: v > $int, $list))", "sorted($list, key=lambda v: -v)", "list(reversed($list))",
        "$ivec.tolist()", "[i + k for k, i in enumerate($list)]", "[*map(lambda q: q + $int, $list)]",
        "list($mat.shape)", "[p.x for p in sorted($pts)]", "$list[::-1]",
    ),
    "dict": (
        "{'a': $int, 'z': $int}", "dict($dict)", "{k: v + 1 for k, v in $dict.items()}", "$dict",
        "$dict | {'q': $int}", "{**$dict, 'w': $int}", "dict(a=$int, b=$int)", "G_TABLE",
        "dict(zip('abc', $list), a=1)", "vars($point)",
    ),
    "set": ("{$int, $int}", "set($list)", "$set | {$int}", "{i % 3 for i in $list}", "$set & $set"),
    "mat": (
        "$mat + 1", "$mat * $vec", "$mat + $mat", "$mat.relu()", "$mat - $int", "$mat.clone()", "$mat",
        "$mat * $int", "torch.zeros_like($mat)", "$mat.view($mat.shape)", "$mat.t().t()", "$mat[:]",
        "torch.where($mat > $int, $mat, 0)", "$mat.flip(0)", "$mat.double().float()", "torch.maximum($mat, $vec)",
        "torch.ones($mat.shape[0], 4) * $int", "torch.full(($mat.size(0), 4), float($int))", "$mat.detach()",
        "$vec.expand($mat.shape[0], 4).clone()", "$vec.expand($mat.shape[0], 4)", "$mat.reshape(-1).view(-1, 4)", "torch.stack([r + 1 for r in $mat])",
        "torch.cat([$mat[:1], $mat[1:]])", "$mat.contiguous()", "$mat.bfloat16().float()", "$mat.add($vec)",
    ),
    "vec": (
        "$vec + 1", "$mat.sum(0)", "$mat[$small]", "$vec * $int", "$vec.clone()", "$mat[0]", "$mat[-1]",
        "$ivec.float()", "$vec.flip(0)", "$vec", "$mat.max(0).values", "$vec.abs()", "torch.zeros(4) + $int",
        "$vec.view(2, 2).t().reshape(4)", "$mat.unbind()[0]", "$vec[:]", "next(iter($mat))", "$vec - $vec",
        "torch.tensor([$int, 1, 2, 3]).float()", "$mat.mean(0).round()", "$mat.amax(0)", "torch.arange(4.0) + $int",
        "$vec.squeeze()", "$mat.narrow(0, 1, 1)[0]", "$vec.half().float()",
    ),
    "ivec": (
        "$ivec + $int", "$ivec * 2", "$vec.long()", "torch.arange(4)", "($vec > 0).long()", "$ivec.clone()",
        "$vec.argsort(stable=True)", "$ivec % 5", "$ivec[:]", "$ivec.int().long()", "$ivec - $ivec",
        "torch.tensor([1, 2, 3, $int])", "$ivec.cumsum(0)", "($ivec == $int).long()", "$ivec.sort().values",
    ),
    "point": (
        "Point($int, $int)", "Late($int, $int)", "$point", "$point + $point", "Point.origin()", "Late.origin()",
        "$int + $point", "$point.bump()", "max($point, $point)", "$pts[0]", "$pts[-1]", "sum($pts, $int)",
    ),
    "fun": ("(lambda q: q + $int)", "Point.clip", "abs", "checked", "$fun", "$point", "bump_global"),
    "pts": ("[$point, $point]", "[Point(i, 1) for i in $list[:3]]", "$pts[:1]", "sorted($pts)", "$pts",
            "[p for p in $pts if p.x > $int] + [$point]"),
}  # fmt: skip

LITERALS = {
    "int": ("0", "1", "2", "5", "7", "-3"), "str": ("'a'", "'xy'", "''"), "bool": ("True", "False"), "list": ("[2, 9]", "[3]"),
    "dict": ("{'a': 1}",), "set": ("{1, 4}",), "mat": ("torch.ones(3, 4)",), "vec": ("torch.ones(4)",),
    "ivec": ("torch.tensor([3, 1, 2, 0])",), "point": ("Point(1, 2)",), "fun": ("(lambda q: q * 2)",),
    "pts": ("[Point(3, 0), Late(1, 1)]",),
}  # fmt: skip

SIMPLE = (
    "print($int, $str)", "print($list, $dict)", "print($point, sep='|')", "print(sorted($set), $bool)",
    "print($pts)", "print($mat.shape, $vec.dtype)", "print($vec.sum())",
    "$list.append($int)", "$list.extend($list[:2])", "$list.insert(0, $int)", "$list[0] = $int", "$list[:1] = [$int]",
    "$list.sort()", "$list.reverse()", "del $list[0]", "$list.remove($int)", "$list.clear()",
    "$dict['k'] = $int", "$dict.update(a=$int)", "del $dict['a']", "$dict[str($int)] = $int", "$dict.pop('a')",
    "$set.add($int)", "$set.discard($int)", "$set.update($list)",
    "$point.x = $int", "$point.total = $int", "$point.extra = $int", "$point[$small] = $int", "$point.x += $int",
    "del $point.y", "setattr($point, 'y', $int)", "$point.tags.append($str)", "Point.made = $int", "$point.link = $point",
    "$point.cache = $mat", "$point.items = $list", "$pts.append($point)", "$pts[0].x = $int", "G_LIST.append($int)",
    "G_TABLE[$str] = $int", "bump_global($int)",
    "$mat.add_($int)", "$mat.mul_(2)", "$mat[0] = $int", "$mat[:, 1] += $int", "$mat[0].zero_()", "$vec.copy_($vec)",
    "$vec[$small] = $int", "$vec[1:3] = $vec[:2].clone()", "$vec[1:3] = $vec[:2]", "$ivec.sub_($int)", "$ivec[$ivec > 2] = $int", "$vec.clamp_(-4, 4)",
    "$vec *= 2", "$mat += $vec.clone()", "$mat += $vec", "$mat.masked_fill_($mat > $int, 0)", "$mat[$mat > $int] = 0", "$mat.t()[0].fill_($int)", "$vec.neg_()",
    "assert $bool, $str", "$int + $str", "$list[99]", "$dict['missing']", "$point.nothing", "$mat + torch.ones(7)",
    "a, *b = $list; print(a, b)", "(p, q), r = ($int, $int), $int; print(p, q, r)",
)  # fmt: skip

# Known to differ from eager, and left out unless asked for: an error that only the running graph raises loses its
# line and the effects before it; the message of some shape errors is that of the shape rules; a generator that is
# dropped while suspended does not run its `finally`.
KNOWN_OPEN = frozenset({
    "$vec[1:3] = $vec[:2]", "$vec.copy_($vec)", "$mat += $vec", "$mat[$mat > $int] = 0", "$vec.expand($mat.shape[0], 4)",
    "$mat + torch.ones(7)", "next(count_up($int, 99))",
})  # fmt: skip

HANDLERS = ("Exception", "Oops", "(KeyError, IndexError)", "ValueError", "LookupError", "AttributeError", "TypeError")


class Writer:
    """Writes one program; `scope` maps a kind to the names that hold it at this point."""

    def __init__(self, seed: int, open_causes: bool = False) -> None:
        self.random = random.Random(seed)
        self.open_causes = open_causes
        self.scope: dict[str, list[str]] = {kind: list(ARGUMENTS.get(kind, ())) for kind in KINDS}
        self.made = 0
        self.left = self.random.randint(6, 24)
        self.breaks = self.random.choice((0.0, 0.1, 0.3))
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
        """One of the templates; those that are known to differ only where they are asked for."""
        while (found := self.random.choice(templates)) in KNOWN_OPEN and not self.open_causes:
            pass
        return found

    def expression(self, kind: str, depth: int = 2) -> str:
        if depth <= 0 or self.random.random() < 0.3:
            return self.leaf(kind)
        return "(" + self.fill(self.choose(EXPRESSIONS[kind]), depth - 1) + ")"

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
                self.a_generator, self.a_class, self.a_match,
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
        return [*lines, self.fill(self.choose(SIMPLE), 1, targets_first=True)]

    def assignment(self) -> list[str]:
        kind = self.random.choice(KINDS)
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
        lazy = "iter" if self.open_causes else "list"  # a `break` leaves a lazy one suspended
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

    def result(self) -> str:
        kinds = self.random.sample(KINDS, self.random.randint(1, 4))
        return ", ".join(self.leaf(kind) for kind in kinds)

    def program(self) -> str:
        lines: list[str] = []
        while self.left > 0:
            lines += self.statement(3)
        lines.append("return " + self.result())
        head = "def program(mat, vec, ivec, n, flag, items, table, point):"
        return PRELUDE + "\n".join([head, *indent(lines)]) + "\n"


def indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def generate(seed: int, open_causes: bool = False) -> str:
    return Writer(seed, open_causes).program()
