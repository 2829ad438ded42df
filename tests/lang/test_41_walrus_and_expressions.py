"""Assignment expressions, starred expressions, conditional and odd corners of expressions."""


from curriculum import call, case, ramp


@case((ramp(2), [1, 2]), (ramp(2), []))
def walrus_in_a_condition(x, items):
    if (n := len(items)) > 1:
        return x + n
    return x - n


@case(call(ramp(2)))
def walrus_in_a_while(x):
    source = iter([3, 2, 1, 0, 5])
    seen = []
    while (v := next(source)) > 0:
        seen.append(v)
        x = x + v
    return x, seen, v


@case()
def walrus_with_tensors(x):
    return (y := x + 1) * y, y


@case(call(ramp(2)))
def walrus_in_calls_and_displays(x):
    items = [a := 1, b := a + 1, (c := b * 2)]
    return items, a, b, c, f"{(d := 7)}", d, max((e := 3), 2), e, x + a


@case(call(ramp(2)))
def walrus_binds_in_the_function_from_a_comprehension(x):
    found = any((hit := v) > 2 for v in [1, 2, 3, 4])
    return found, hit, x + hit


@case(call(ramp(2)))
def starred_expressions(x):
    a = [1, 2]

    def f():
        return *a, 3

    def g():
        yield *a, 4

    for row in *a, 9:
        last = row
    return f(), list(g()), last, (*a, *a)[1:3], {**{"a": 1}, **dict(b=2)}, x + last


@case(call(ramp(2)))
def chained_attribute_and_calls(x):
    return x.add(1).mul(2).sum().add(3).view(1).expand(2), "a-b".split("-")[0].upper().lower().strip()


@case(call(ramp(2)))
def ellipsis_and_constants(x):
    return ..., None, NotImplemented, True, (), 1_000_000, 0xFF, 0b11, 0o17, 1e-3, 2j, b"a", x[...]


@case((1, 2, 3), (3, 2, 1), graphs=0)
def operators_mixed(a, b, c):
    return a if b > 1 else c, not a == b, a < b or b < c and c, (a, b)[a > b], -a**2, a - -b, a // b % c, ~a & b | c


@case(call(ramp(2)))
def string_concatenation(x):
    long = "one " "two " f"{x.dim()} " r"\n" "end"
    return long, """multi
line""", x + len(long)


@case(call(ramp(2)))
def evaluation_order_in_assignment(x):
    log = []

    def t(v):
        log.append(v)
        return v

    table = {}
    table[t("key")] = t("value")
    a = [t(1), t(2)][t(0)]
    t(3) if t(0) else t(4)
    {t("k1"): t("v1")}
    t(5) < t(6) < t(7)
    return log, x + a


@case(call(ramp(2)))
def unused_expressions(x):
    x + 1
    x.shape
    [1, 2, 3]
    "docstring-like"
    return x * 2


@case(call(ramp(2)))
def long_expression(x):
    return ((((x + 1) * 2 - 3) / 4) ** 2).sum() + (x @ x) * (x.max() - x.min()) + sum([x.mean(), x.std()])


@case(call(ramp(2), 5), call(ramp(2), 0))
def conditional_tensor_or_number(x, n):
    scale = x.sum() if n else n
    return (scale * x) if n else (x, scale)


@case(call(ramp(2)))
def many_locals_and_constants(x):
    a = b = c = d = e = f = g = h = 1
    (a, b), [c, d] = (2, 3), [4, 5]
    total = a + b * c - d // e + f ** g % h
    return x * total, [a, b, c, d, e, f, g, h]
