"""f-strings, format specifications and conversions."""


from curriculum import call, case, ramp


class Money:
    def __init__(self, amount):
        self.amount = amount

    def __format__(self, spec):
        return f"<{self.amount}|{spec}>"

    def __str__(self):
        return "str-money"

    def __repr__(self):
        return "repr-money"


@case((ramp(2), 3, "abc"), (ramp(2), -1, ""))
def plain(x, n, s):
    return f"n={n} s={s} {n + 1}", x + n


@case((3.14159, 42), (-2.5, 255), graphs=0)
def specifications(f, n):
    return [f"{f:.2f}", f"{f:10.3e}|", f"{n:05d}", f"{n:x}", f"{n:#b}", f"{n:,}", f"{n:>8}|", f"{n:<8}|", f"{n:^8}|",
            f"{f:+.1f}", f"{f:%}", f"{n:_}", f"{'s':*^9}"]  # fmt: skip


@case(("it's", [1, "a"]), ("\n", {"k": None}), graphs=0)
def conversions(s, value):
    return f"{s!r} {s!s} {s!a} {value!r:>20} {value}"


@case((3,), (7,), graphs=0)
def self_documenting(n):
    return f"{n=} {n + 1 = } {n=!r:>5}"


@case((2.71828, 8, 3), (1.0, 12, 0), graphs=0)
def nested_specification(value, width, precision):
    return f"{value:{width}.{precision}f}|{value:{'>' if width > 9 else '<'}{width}}|"


@case(lambda: call(Money(5)), graphs=0)
def user_format(money):
    return f"{money}", f"{money:wide}", f"{money!s:>12}", f"{money!r}", format(money, "x"), f"{[money]}"


@case()
def shapes_and_dtypes(x):
    return f"{x.shape} {x.dtype} {tuple(x.shape)!r} {x.dim()} {x.shape[0]:03d}", x * 2


@case((ramp(2), "w"), (ramp(2), "b"))
def name_lookup_by_fstring(x, key):
    table = {f"layer.{i}.{name}": i for i in range(3) for name in "wb"}
    return x + table[f"layer.{2}.{key}"]


@case(call(ramp(2), "x"), call(ramp(2), 5))
def format_error(x, value):
    y = x + 1
    return f"{value:d}", y


@case(("a", 1), ("b", 2), graphs=0)
def str_format_and_percent(s, n):
    return ["{} {}".format(s, n), "{1}-{0}-{1!r}".format(s, n), "{name:>{w}}".format(name=s, w=4),
            "%s=%03d %r %x %5.1f%%" % (s, n, s, n, n), "%(k)s" % {"k": s}, "{0[1]} {1.real}".format([s, n], n)]  # fmt: skip


@case((1, 2), (3, 4), graphs=0)
def joined_and_braces(a, b):
    return f"{{{a}}}" f"{a}{b}" "plain", f"{'nested ' + f'{a + b}'}", f"{(lambda v: v * 2)(a)}", f"{a if a else b:>3}"


@case(call(ramp(2, 2)))
def message_built_but_unused(x):
    message = f"got {x.shape}, expected {(2, 2)}, {x.dtype}"
    if x.shape != (2, 2):
        raise ValueError(message)
    return x.t()


@case(call(ramp(3)), call(ramp(2, 2)))
def message_of_an_exception(x):
    if x.dim() != 2:
        raise ValueError(f"expected a matrix, got {x.dim()}-d {list(x.shape)}")
    return x.t() + 1
