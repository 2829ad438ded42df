"""Templates over the standard library, enums and decorators, and more of tensors.

In: nothing.  Out: tables like those of `templates`, which they are joined to.
"""

from __future__ import annotations

LIBRARY_EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "int": (
        "functools.reduce(operator.add, $list, 0)", "functools.reduce(operator.xor, $tup)", "functools.partial(stars, $int, k=$int)($int)",
        "functools.partial(operator.add, $int)($int)", "len(list(itertools.product($list[:2], $tup)))", "sum(map(len, itertools.combinations($list, 2)))",
        "next(itertools.cycle($list))", "sum(a - b for a, b in itertools.pairwise($list))", "len(list(itertools.takewhile(lambda v: v > $int, $list)))",
        "Colour.RED + $int", "Colour(1 + $int % 3)", "Colour['BLUE'].value", "Mood.CALM.doubled", "len(Mood)", "Mood.of($int).value", "(Mode.READ | Mode.WRITE).value",
        "Row($int, 2).total", "Row($int)._replace(b=$int).b", "Row._make($tup).a", "len(Row($int))", "traced($int)", "thrice($int)", "traced.calls",
        "Plugin.registered[-1]", "len(Base.registered)", "Guarded($int).seen", "Vec2($int, 1) @ Vec2(2, $int)", "abs(Vec2($int, -2))", "(3 * Vec2($int, 1)).x",
        "(-Vec2($int, 1)).y", "(~Vec2($int, 2)).x", "round(Vec2($int, 2))", "len(Ring($list, 3))", "Ring($list, 2)[1]", "Ring($list, 4).index($int)",
        "Ring($list, 3).count($int)", "spoken($int)", "bisect.bisect(sorted($list), $int)", "heapq.nsmallest(1, $list)[0]", "$dict.keys().__len__()",
        "len($dict.keys() | {'a', 'zz'})", "len($dict.items() & {('a', 5)})", "collections.ChainMap($dict, {'a': $int})['a']", "sum(collections.OrderedDict($dict).values())",
        "max($dict.values(), default=0)", "max($dict, key=$dict.get) and 1", "sum(divmod($int, 4))", "min($list, $tup, key=len)[0]", "int(f'{$int:d}')",
        "$list.count($int)", "sum($list[::2])", "len($str.split('a'))", "$str.find('s')", "int.from_bytes(b'ab', 'big') % ($int or 1)", "($int).bit_length()",
        "(lambda a, /, b, *, c=$int: a + b + c)($int, b=2)", "(lambda *, k: k)(k=$int)", "(yes := $int) if $bool else 0", "sum([*$list][1:-1])",
        "G_LAYER.steps", "int(G_LAYER($vec).sum())", "next(x for x in $list if x)", "sum(x for x in (y * 2 for y in $list))", "stars(*map(str, $list), **{'k': $int, 'z': 1})",
    ),
    "str": (
        "'{:>5}|{:<4}|{:^6}'.format($int, $str, $int)", "'%s-%5.2f-%r' % ($str, $float, $int)", "'{0[0]} {1.x}'.format($list, $point)", "f'{$int:,}|{$int:#x}|{$int:08b}'",
        "string.Template(chr(36) + 'a!').substitute(a=$int)", "' '.join('{}={}'.format(k, v) for k, v in sorted($dict.items()))", "$str.center(7, '*')", "$str.partition('a')[2]",
        "repr(Colour.RED)", "str(Mood.CALM)", "Mood.LOUD.name", "repr(Row($int))", "repr(Mode.READ | Mode.WRITE)", "str($ctr.most_common(2))", "''.join(reversed($str))",
        "'|'.join(k for k, g in itertools.groupby(sorted($str)))", "$str.encode().hex()", "$str.zfill(4)", "f'{Colour.BLUE!s} {Colour.BLUE:d}'", "traced.__name__",
        "repr(collections.OrderedDict($dict))", "str(range($int))", "ascii($str)", "$str.translate({97: 'Z'})", "f'{$tup}' f'{$float:>8.3f}'", "str(type($obj).__mro__[0].__name__)",
    ),
    "bool": (
        "Colour.RED < $int", "Mood.CALM is Mood(1)", "Mode.READ in (Mode.READ | Mode.WRITE)", "isinstance(Colour.RED, int)", "Row($int) == ($int, 3)", "Ranked($int) >= Ranked($int)",
        "Ranked($int) == Ranked(2)", "$dict.keys() <= {'a', 'b', 'c'}", "'a' in $dict.keys()", "('a', 1) in $dict.items()", "5 in $dict.values()", "$int in Ring($list, 3)",
        "issubclass(Plugin, Base)", "all(itertools.starmap(operator.le, zip($list, $list)))", "any(map(bool, $tup))", "$str.isdigit()", "$set > {1}", "frozenset($list) == $set",
        "isinstance(Ring($list, 2), collections.abc.Sequence)", "isinstance($list, collections.abc.Iterable)", "operator.attrgetter('x')($point) == $int", "G_LAYER.training",
        "$vec.requires_grad or $bool", "torch.equal($vec, $vec)", "$mat.dtype is torch.float32", "torch.is_tensor($scal)", "$int == 5 if $bool else not $bool",
    ),
    "list": (
        "sorted($list, key=lambda v: (v % 2, -v))", "sorted($str)", "sorted($dict.items(), key=operator.itemgetter(1))[0:0]", "sorted($list, reverse=True)", "sorted($list, key=Ranked)",
        "sorted($list, key=functools.cmp_to_key(lambda a, b: b - a))", "sorted($pts, key=operator.attrgetter('y'))[0:0]", "[k for k, g in itertools.groupby($list, key=lambda v: v % 2)]",
        "[sum(g) for k, g in itertools.groupby(sorted($list), key=lambda v: v > 3)]", "list(itertools.zip_longest($list, $tup, fillvalue=0))[0:0]", "[a * b for a, b in itertools.product($list[:2], repeat=2)]",
        "list(itertools.starmap(operator.mul, zip($list, $list)))", "list(itertools.compress($list, [1, 0, 1]))", "list(itertools.filterfalse(lambda v: v % 2, $list))", "list(itertools.repeat($int, 2))",
        "list(itertools.dropwhile(lambda v: v < 3, $list))", "[x for pair in itertools.pairwise($list) for x in pair]", "[c.value for c in Colour]", "[m.value for m in Mood if m is not Mood.CALM]",
        "list(Row($int, 1))", "list(Ring($list, 4))", "list(reversed(Ring($list, 3)))", "[x for t in itertools.tee($list) for x in t]", "list(itertools.permutations($list[:2]))[0:0]",
        "heapq.nlargest(2, $list)", "[*{**$dict}.values()]", "[x for x, _ in collections.Counter($list).most_common(2)]", "list(map(max, zip($list, $list)))", "list(map(lambda a, b: a - b, $list, $tup))",
        "list(Vec2($int, $int))", "[y for x in $list if (y := x * 2) > 4]", "[[i + j for j in $tup] for i in $list][0]", "list(itertools.chain.from_iterable([$list, $tup]))", "copy.deepcopy($list)",
        "$list[-2:] + $list[:-2]", "list($dict.values())[::-1]", "[len(k) for k in $dict]", "list(itertools.accumulate($list, operator.mul, initial=1))", "[int(v) for v in $vec]",
    ),
    "dict": (
        "{k: v for k, v in zip('xyz', $list)}", "dict(collections.ChainMap({'a': $int}, $dict))", "dict(sorted($dict.items(), key=lambda kv: -kv[1]))", "{c.name: c.value for c in Colour}",
        "Row($int)._asdict()", "dict.fromkeys('ab', $int)", "{k: $dict[k] for k in sorted($dict.keys())}", "{**{'a': 0}, **$dict}", "dict(map(lambda k: (k, $int), 'pq'))", "dict(zip($dict.keys(), $list))",
        "copy.copy($dict)", "dict($dict.items())", "{k + str(i): i for i, k in enumerate($dict)}",
    ),
    "set": ("{x % 4 for x in $list} - {$int}", "set(itertools.chain($list, $tup))", "set.union($set, $list)", "set($dict.values())", "{*map(abs, $list)}", "set(range($small)) ^ $set", "$set.intersection($list)", "set($list).difference($tup)"),
    "tup": ("tuple(Row($int, 2))[:2]", "tuple(itertools.islice(itertools.cycle($list), 2))", "tuple(reversed($tup))", "(*$tup[:1], *$list[:1], 3)", "next(itertools.product($list, $tup))", "$tup[::-1]", "tuple(c.value for c in Colour)", "($int,) * 2"),
    "fun": ("traced", "thrice", "functools.partial(operator.mul, 2)", "functools.partial(posonly, y=$int)", "operator.methodcaller('__add__', 1)", "Vec2(1, 2).shifted", "spoken", "(lambda q, *, k=$int: q + k)", "Colour.RED.__add__", "int"),
    "deq": ("collections.deque(reversed($deq))", "collections.deque(itertools.islice($deq, 2))", "$deq + collections.deque([$int])", "collections.deque($list, 4)"),
    "ctr": ("$ctr - collections.Counter(b=1)", "collections.Counter({'a': $int})", "$ctr | collections.Counter(a=3)", "+$ctr", "collections.Counter(k[0] for k in $dict if k)"),
    "dd": ("collections.defaultdict(list, {'a': [$int]}) and collections.defaultdict(int, q=1)", "collections.defaultdict(lambda: len($list), a=$int)", "copy.copy($dd)"),
    "point": ("copy.copy($point)", "functools.reduce(operator.add, $pts)", "min($pts, key=lambda p: p.x)", "next(iter($pts))", "($point if $bool else $point)", "type($point)($int, 2)"),
    "pts": ("sorted($pts, key=lambda p: -p.x)", "[*$pts, $point]", "$pts[::-1]", "[p.bump() for p in $pts]", "list(dict.fromkeys($pts))"),
    "obj": ("Boxed(level=$int, held=[1])", "dataclasses.replace(Boxed($int), c=4)", "Gauge(Colour.BLUE)", "copy.deepcopy($obj)", "next(iter([$obj]))"),
    "mat": (
        "G_LAYER($mat)", "$mat.double().add(1).float()", "($mat > 0).logical_not().float()", "$mat.view(-1, 2).reshape(-1, 4)", "$mat.unfold(1, 2, 2).reshape(-1, 4)", "torch.stack([$vec, $vec, $vec])", "$mat.clone().fill_($float)",
        "torch.where($mat.isnan(), 0.0, $mat)", "$mat.transpose(0, 1).transpose(0, 1)", "$mat.masked_select($mat == $mat).view(-1, 4)", "$mat.complex().real if False else $mat", "torch.einsum('ij,j->ij', $mat, $vec)",
        "$mat.index_select(0, torch.arange($mat.size(0)))", "torch.cat([$mat, $vec[None]])[: $mat.shape[0]]", "$mat.sort(0).values", "$mat.softmax(1).round()", "torch.nn.functional.pad($mat, (0, 0, 0, 1))[:-1]", "$mat.split(2, 1)[0].repeat(1, 2)",
    ),
    "vec": (
        "G_LAYER.weight.detach() * 2", "G_LAYER.shift", "$vec.cumsum(0)", "$vec.sort(descending=True).values", "$mat.diagonal()[:1].expand(4)", "$vec.to(torch.complex64).real.clone()", "$vec.masked_fill($vec > 0, $int)", "torch.lerp($vec, $vec, 0.5)",
        "$mat.select(0, 0)", "$vec.reshape(2, 2).flatten()", "$vec.where($vec > 0, $float)", "$mat.t()[:4, 0]", "torch.tensor($list + [1, 2, 3, 4])[:4].float()", "$vec.topk(4).values", "torch.linspace(0, $int, 4)", "$vec.movedim(0, 0)",
    ),
    "ivec": ("$ivec.bitwise_xor(1)", "$ivec.to(torch.uint8).long()", "$ivec.clamp(0, $small)", "$ivec.masked_fill($ivec > 1, $int)", "$vec.round().to(torch.int8).long()", "torch.cat([$ivec[2:], $ivec[:2]])", "$ivec.view(2, 2).t().flatten()", "$ivec.gather(0, torch.tensor([3, 2, 1, 0]))"),
    "scal": ("$mat.norm() * 0", "torch.tensor($bool)", "$vec.prod()", "$ivec.max()", "$vec.dot($vec)", "torch.tensor(float($int), dtype=torch.float64)", "$mat.flatten()[0]"),
    "wide": ("G_LAYER($vec) * $par", "torch.autograd.grad(($par * $vec).sum(), $par)[0]", "($par * 2).detach().requires_grad_() * 1", "$par[:2].repeat(2)", "$wide.clone()", "torch.where($par > 0, $par, $wide.sum())", "($par + 1).view(2, 2).flatten()", "torch.stack([$par, $par]).sum(0)"),
    "float": ("float(Colour.BLUE)", "sum(map(float, $list))", "math.fsum($list)", "math.hypot(3, $int)", "float(f'{$float:.3f}')", "$float ** 2", "statistics.mean($list)", "math.copysign($float, -1)", "min($float, $int)", "float(G_LAYER.scale)", "(0.1).hex() and $float"),
}  # fmt: skip

LIBRARY_SIMPLE = (
    "$list[::2] = [$int] * len($list[::2])", "$list[1:1] = $tup", "$list[-1:] = []", "del $list[1:]", "$list[:] = sorted($list)", "$list.sort(key=lambda v: -v)", "$list.sort(key=lambda v: v % 3, reverse=True)",
    "$list[::-1] = $list", "$dict.setdefault('l', $int)", "$dict.update({'m': $int}, n=1)", "$dict.update(zip('ab', $list))", "for x in $dict: $dict[x] += 1", "for x in $dict: $dict[x + 'q'] = 1", "for x in list($dict.keys()): del $dict[x]",
    "x = $dict.keys(); $dict['v'] = 1; print(sorted(x))", "x = $dict.items(); $dict.clear(); print(len(x))", "$set.intersection_update($list)", "$set.remove($int)", "$set ^= {$int, 2}", "$set.pop() if len($set) == 1 else None",
    "$deq.extendleft($list)", "$deq[0] = $int", "$deq.remove($int)", "$deq.insert(1, $int)", "$deq.clear()", "del $ctr['a']", "$ctr.clear()", "$dd.setdefault('w', $int)", "$dd.pop('a')",
    "print(Colour.RED, Mood.CALM, list(Mood))", "print(Row($int), traced($int))", "print('%s %r' % ($str, $list), file=None)", "print(end='')", "print(f'{$list}', *$tup, sep='/')", "print(collections.OrderedDict($dict))",
    "Mood.CALM.doubled = $int", "Row($int).a = 2", "Guarded($int).level = $int", "Guarded($int).locked = 1", "del Guarded($int).level", "Base.registered.append($int)", "traced.calls = $int", "traced.extra = $int",
    "G_LAYER.steps = $int", "G_LAYER.steps += 1", "G_LAYER.shift.add_($int)", "G_LAYER.scale = $float", "G_LAYER.train($bool)", "G_LAYER.register_buffer('late', $vec.clone())", "with torch.no_grad(): G_LAYER.weight.mul_(2)",
    "raise ValueError($str) from None", "raise KeyError($int) from Oops($str)", "e = Oops($str); e.add_note('noted'); raise e", "raise ExceptionGroup($str, [Oops($int), KeyError($str)])", "raise Oops", "raise $int", "next(iter(()))", "1 // ($int - $int)",
    "int('x' + $str)", "[].pop()", "(1, 2)[$int]", "float('abc')", "Colour(99)", "Colour['NONE']", "a, b = $list; print(a, b)", "(a, b), *c = [$tup, $int]; print(a, c)", "[a, *b, c] = $list; print(b)", "a = b = $int; a += 1; print(a, b)",
    "a = $int; del a", "a = $int; del a; print(a)", "del undefined_name", "a: int = $int; print(a)", "(a := $int); print(a)", "x = lambda: x; print(x() is x)", "x = [0]; x[x[0]], x = 1, 2; print(x)", "x = {}; x['s'] = x; print(x)",
    "x = $list; x += x; print(x is $list)", "x = $tup; x += (1,); print(x)", "x = []; x.append(x); print(x)", "print(*sorted({**$dict}.items()))", "print(max($list, key=lambda v: (v % 3, v)), min($str, default='-'))", "assert isinstance($obj, object), f'{$obj}'",
    "$mat[:, ::2] = $int", "$mat[..., -1] *= 2", "$mat[1:] -= $mat[:-1].clone()", "$mat[$mat.shape[0] - 1].add_(1)", "$mat.view(-1)[::3].zero_()", "$mat.t().mul_(2)", "$vec.view(2, 2)[0].fill_($float)", "$vec[torch.tensor([0, 2])] += 1", "$vec[-1] = $vec[0]",
    "$vec.data = $vec.data * 2", "$vec.masked_scatter_($vec > 0, torch.zeros(4))", "$ivec.bitwise_or_(1)", "$ivec[1:] = $ivec[:-1].clone()", "$ivec //= 2", "$ivec.clamp_(min=0)", "$vec.copy_($ivec)", "$mat.copy_($vec)", "$vec.set_($vec.clone())", "$vec.zero_().add_($mat[0])",
    "torch.mul($vec, 2, out=$vec)", "torch.cat([$vec[:2], $vec[2:]], out=torch.empty(4))", "$vec.requires_grad_(False)", "($par * 2).sum().backward()", "$par.grad.zero_()", "print($par.grad)", "$wide.mean().backward(retain_graph=True)", "torch.autograd.backward([($par * $vec).sum()])",
    "$mat.index_add_(0, torch.tensor([0]), $vec[None])", "$mat.index_copy_(0, torch.tensor([1]), $vec[None])", "$vec.index_put_((torch.tensor([1]),), torch.tensor(7.0))", "$mat[0], $mat[1] = $mat[1].clone(), $mat[0].clone()", "$vec.resize_(4)", "$vec.sub_($vec)", "$vec.div_($int)",
)  # fmt: skip
