"""Parts of generated programs.

In: nothing.  Out: expressions of each kind, literals, simple statements, handlers. `$int` stands for an expression of that
kind, `$small` for a number up to 2. Kinds: mat, vec, ivec are tensors of two dimensions, of one, of integers; par is a leaf that
requires grad, wide a tensor that may require it; obj is an object with a descriptor, slots or a metaclass; arr is a
numpy array.
"""

from __future__ import annotations

from tests.fuzz.library_templates import LIBRARY_EXPRESSIONS, LIBRARY_SIMPLE
from tests.fuzz.memory_templates import MEMORY_EXPRESSIONS, MEMORY_LITERALS, MEMORY_SIMPLE

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

HANDLERS = ("Exception", "Oops", "(KeyError, IndexError)", "ValueError", "LookupError", "AttributeError", "TypeError")

# What else the language has; joined to the tables above.
MORE_EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "int": (
        "$tup[0]", "len($tup)", "$deq[0]", "$deq.popleft()", "len($deq)", "$ctr['a']", "$ctr.total()", "sum($ctr.values())",
        "$dd['new']", "len($dd)", "$obj.level", "$obj.__class__.level if False else $int", "int($obj)", "[1, 2, 3][Gauge(1)]",
        "Counted($int).v", "len(Counted)", "Counted.kind_x", "Pair($int, $int).left", "Boxed($int).c",
        "dataclasses.replace(Pair($int, 2), right=$int).right", "drive(later($int))", "drive(adds($int, $int))",
        "functools.reduce(lambda a, b: a * 2 + b, $list, $int)", "math.gcd($int, 12)", "int($float)", "round($float)",
        "stars(*$list)", "stars($int, *$tup, k=$int)", "stars(**{'k': $int})", "stars(*[$int], **dict(z=$int))",
        "(lambda *a, k=1, **m: len(a) + k + len(m))(*$list, **{'y': 1})", "operator.itemgetter(0)($tup)",
        "$int << 2", "~$int", "$int ** 2 % 1000", "int($str or '7', 36) % 50", "10 ** 20 % ($int or 3)", "hash($tup) % 1000",
        "posonly($int, y=$int)", "kwonly(y=$int)", "ord(($str + 'a')[0])", "sum($obj)", "cached($int)",
        "(1 if $int < $int <= 9 != $int else 2)", "globals()['G_COUNT']", "len(f'{$int:05d}|{$int!r:>6}|{$int:+}')",
        "[k for k, v in $dict.items()].index('a')", "G_STEP", "$par.dim()", "$wide.shape[0]", "$scal.item()", "int($scal)",
        "sum(1 for _ in $wide)", "max($list, key=lambda v: -v, default=$int)", "bool($int) + True",
    ),
    "float": (
        "$float + $int", "$float * 2", "$float / 4", "-$float", "float($int)", "abs($float)", "math.floor($float) + 0.5",
        "$float // 1", "$float % 3", "math.sqrt(abs($float))", "max($float, 0.0)", "$int / 2", "float('inf') if $bool else $float",
        "float('nan') if $float > 50 else $float", "-0.0 * $int", "$vec.sum().item()", "G_RATE", "round($float, 1)", "$scal.item() * 0.5",
    ),
    "tup": ("($int, $int)", "tuple($list) + (1,)", "$tup + ($int,)", "$tup[:1] + (2, 3)", "(*$list, $int)", "divmod($int, 3)",
            "tuple(sorted($tup))", "tuple(zip($list, $list))[0]", "Pair($int, 1).both", "tuple($mat.shape)", "$tup"),
    "deq": ("collections.deque($list)", "collections.deque($tup, maxlen=3)", "$deq", "$deq.copy()", "collections.deque([$int])"),
    "ctr": ("collections.Counter($list)", "collections.Counter($str)", "$ctr + collections.Counter(a=2)", "$ctr"),
    "dd": ("collections.defaultdict(int, a=$int)", "collections.defaultdict(lambda: $int)", "$dd", "Defaulting(b=$int)"),
    "obj": ("Gauge($int)", "Gauge(len($list))", "$obj", "Counted.made_by($int)", "Boxed($int, [$int])", "copy.copy($obj)"),
    "str": ("f'{$float:.2f}|{$int:x}'", "f'{$obj}'", "format($obj, '>4')", "str($tup)", "repr($deq)", "repr(sorted($ctr.items()))",
            "'-'.join(sorted(map(str, $set)))", "str($float)", "f'{$bool!s:>6}{$str!r}'", "$str.join(['x', 'y'])", "$str.replace('a', 'bb')",
            "'{0} {k}'.format($int, k=$str)", "repr(Pair($int, 2))", "repr(Boxed($int))", "str($scal.dtype)", "$str * 2", "$str.title()[::-1]"),
    "bool": ("$float < $float <= 9.5", "$tup < $tup", "$tup == $tup", "$int in $deq", "Pair($int, 1) < Pair($int, 2)", "$par.requires_grad",
             "$wide.requires_grad", "isinstance($obj, (Gauge, Boxed))", "$obj is G_GAUGE", "not not $tup", "issubclass(type($point), Point)",
             "1 <= $int < 3 < $int", "$float != $float", "(z := $int) > 2 and z < 9", "$str.startswith('s')", "$int is None",
             "set($list) <= $set", "$set.isdisjoint($tup)", "bool($scal > 0)", "$mat.is_contiguous()"),
    "list": ("[*$deq]", "sorted($ctr)", "list($dd.values())", "list($tup)",
             "drive(collected($small))", "list(itertools.chain($list, $tup))", "list(itertools.accumulate($list))", "[i for i in $obj]",
             "sorted($list, key=$fun)", "list(dict.fromkeys($list))", "[a + b for a in $list[:2] for b in $tup]",
             "list(itertools.islice(itertools.count($int), 3))", "[(lambda: i)() for i in $list]", "[f() for f in [lambda i=i: i + $int for i in $list]]",
             "list(map(operator.add, $list, $tup))", "[*range(*sorted(($small, 3)))]", "list($set)", "$list * 2"),
    "dict": ("dict($ctr)", "dict(sorted($dict.items()))", "{str(i): i for i in $list}", "dataclasses.asdict(Boxed($int))",
             "{k: $dict[k] for k in $dict.keys() & {'a', 'b'}}", "dict(enumerate($list))"),
    "set": ("set($tup)", "$set - {$int}", "$set ^ {$int}", "{*$list, *$tup}", "frozenset($list) | $set", "set($str)"),
    "fun": ("functools.partial(stars, $int)", "cached", "operator.neg", "(lambda *a: len(a))", "$point.bump_by", "adder($int)", "Counted"),
    "scal": ("$vec.sum()", "$mat.max()", "torch.tensor($int)", "torch.tensor($float)", "$vec[0]", "$scal + 1", "$ivec.sum()", "$vec.mean()", "$scal"),
    "wide": ("$mat * $par", "$par * 2", "$par.sum() * $vec", "$wide.relu()", "$par.detach() * 3", "$wide + $vec", "$par.expand(2, 4)", "$wide[:1]",
             "torch.cat([$par, $vec])", "$wide.t().sum(0)", "$wide.sum()", "$wide.view(-1)", "($par * $int).cumsum(0)"),
    "par": ("G_PARAM",),
    "mat": ("$mat.to(torch.float64).to($mat.dtype)", "($mat > 0).float()", "$mat.int().float()", "$mat.t().contiguous().t()", "$mat[:, [1, 0, 2, 3]]",
            "torch.where($mat > 0, $mat, -$mat)", "$mat @ torch.eye(4)", "$mat.unsqueeze(0).squeeze(0)", "$mat[..., :]", "$mat[torch.arange($mat.shape[0])]",
            "sum($vec for _ in range(2)) + $mat", "torch.tril($mat)", "$mat.roll(1, 0)", "$mat.chunk(2, 1)[0].repeat(1, 2)", "$mat.to(torch.uint8).float()"),
    "vec": ("$vec.unsqueeze(0)[0]", "$mat[:, 1:].sum(1)[:1].expand(4)", "$vec.double().float()", "$vec.unfold(0, 2, 2).reshape(4)", "$vec.view(4)",
            "torch.complex($vec, $vec).real", "$vec.as_strided((4,), (1,))", "$vec[[3, 2, 1, 0]]", "$wide.detach().reshape(-1)[:4]", "$vec.to(torch.int8).float()"),
    "ivec": ("$ivec.to(torch.int16).long()", "$ivec.flip(0)", "torch.bincount($ivec.abs(), minlength=4)[:4]", "$ivec.unique()[:1].expand(4).clone()",
             "torch.where($ivec > $int, $ivec, 0)", "$ivec & 3", "$ivec // 2", "(~($ivec > 1)).long()"),
}  # fmt: skip

MORE_LITERALS = {
    "float": ("0.5", "-1.25", "3.0", "1e3"), "tup": ("(4, 1)", "(2,)"), "deq": ("collections.deque([5, 6])",),
    "ctr": ("collections.Counter('abca')",), "dd": ("collections.defaultdict(int)",), "obj": ("Gauge(3)",), "par": ("G_PARAM",),
    "scal": ("torch.tensor(2.0)", "torch.tensor(3)"), "wide": ("torch.ones(4)",),
}  # fmt: skip

MORE_SIMPLE = (
    "print(f'{$float:.3f}', $tup)", "print($deq, $obj)", "print(*$list, sep='-', end=';')", "print($scal, $bool)",
    "$deq.append($int)", "$deq.appendleft($int)", "$deq.rotate($int)", "$deq.extend($list)", "$deq.pop()", "del $deq[0]",
    "$ctr.update($list)", "$ctr['z'] += $int", "$ctr.subtract(a=1)", "$dd['q'] += $int", "$dd[$str]", "del $dd['a']",
    "$obj.level = $int", "del $obj.level", "$obj.level += $int", "$obj.anything = $int", "Gauge.top = $int", "Pair($int, 1).left = 2",
    "Counted.count = $int", "G_GAUGE.level = $int", "G_DEQUE.append($int)", "set_globals($int)", "$point.__dict__['y'] = $int",
    "$list += [$int]", "$list *= 2", "$list[1:2] = $tup", "$list[$small], $list[0] = $list[0], $list[$small]", "$set |= {$int}", "$set -= {$int}",
    "$dict |= {'u': $int}", "del $list[::2]", "$dict.popitem()", "x, y = $tup; print(y, x)", "*x, y = $tup; print(x, y)",
    "for x, *y in [$tup, $tup]: print(x, y)", "with contextlib.ExitStack() as stack: stack.callback(print, $int); print(stack.enter_context(Slotted($int)).v)",
    "x = y = $list; x.append($int); print(y)", "x = [$int]; x[0], x = $int, $tup; print(x)", "del Point.made; Point.made = $int",
    "raise Oops($int) from KeyError($str)", "drive(guarded($int))", "G_PARAM.grad = None", "$wide.sum().backward()", "($par * $vec).sum().backward(retain_graph=False)",
    "$par.data.add_($int)", "$wide.detach().zero_()", "assert $int != $int, f'{$int} {$str}'", "print([x for x in sorted($set)], x if $bool else 0)",
    "$scal.add_($int)", "torch.add($vec, $int, out=$vec)", "$mat[:] = $mat.flip(0)", "$mat[[0, 1]] = $mat[[1, 0]]", "$vec[0], $vec[1] = $vec[1].clone(), $vec[0].clone()",
    "$mat.t_().t_()", "$vec.unsqueeze_(0).squeeze_(0)", "$ivec.scatter_(0, torch.tensor([0, 2]), $int)", "$vec.index_fill_(0, torch.tensor([1]), 9)",
)  # fmt: skip

for _table in (MORE_EXPRESSIONS, LIBRARY_EXPRESSIONS, MEMORY_EXPRESSIONS):
    for _kind, _templates in _table.items():
        EXPRESSIONS[_kind] = EXPRESSIONS.get(_kind, ()) + _templates
LITERALS.update(MORE_LITERALS | MEMORY_LITERALS)
SIMPLE += MORE_SIMPLE + LIBRARY_SIMPLE + MEMORY_SIMPLE
