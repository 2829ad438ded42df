"""Methods of str and bytes."""

import torch

from curriculum import call, case, ramp


@case(("Hello World",), ("a b  c",), ("",), graphs=0)
def case_and_split(s):
    return s.upper(), s.lower(), s.title(), s.swapcase(), s.split(), s.split(" "), s.partition(" "), s.rsplit(" ", 1)


@case(("  pad ",), ("xxpadxx",), graphs=0)
def strip(s):
    return s.strip(), s.lstrip(), s.rstrip("x"), s.strip("x "), s.removeprefix("xx"), s.removesuffix("xx")


@case(("layer.0.weight", "0"), ("bias", "z"), graphs=0)
def search(s, part):
    return s.find(part), s.count("e"), s.startswith(("layer", "b")), s.endswith("t"), s.replace(".", "/"), part in s


@case(("abc",), ("12",), ("é1",), graphs=0)
def classify(s):
    return [s.isalpha(), s.isdigit(), s.isalnum(), s.islower(), s.isidentifier(), s.isascii(), s.isspace()]


@case(("x", 5), ("abcdef", 3), graphs=0)
def justify(s, width):
    return s.center(width, "-"), s.ljust(width), s.rjust(width, "."), s.zfill(width)


@case((["a", "b"],), ([],), (["x"],), graphs=0)
def join(parts):
    return ", ".join(parts), "".join(reversed(parts)), "-".join(p * 2 for p in parts), "".join(map(str.upper, parts))


@case((["a", 3],), graphs=0)
def join_error(parts):
    return ",".join(parts)


@case(("hello",), ("ab",), graphs=0)
def index_and_slice(s):
    return s[0], s[-1], s[1:], s[::-1], s[:1] + s[-1:], s * 2, len(s), list(s), sorted(set(s)), max(s)


@case(("hello", 2), ("hello", 9), graphs=0)
def index_error(s, i):
    return s[i]


@case(("hello", "l"), ("hello", "z"), graphs=0)
def index_method_error(s, part):
    return s.index(part)


@case(("ab",), ("é",), graphs=0)
def bytes_and_encoding(s):
    raw = s.encode("utf-8")
    return raw, raw.decode(), list(raw), raw + b"!", raw.hex(), bytes([65, 66]), bytearray(raw) == raw, len(raw)


@case(("abc",), graphs=0)
def translate(s):
    table = str.maketrans({"a": "1", "b": None})
    return s.translate(table), s.translate(str.maketrans("abc", "xyz")), "a\tb".expandtabs(4), "A\nB".splitlines()


@case((ramp(2), "relu"), (ramp(2), "tanh"), (ramp(2), "none"))
def string_selects_an_operation(x, kind):
    if kind.startswith("re"):
        return torch.relu(x)
    if kind == "tanh":
        return getattr(torch, kind)(x)
    return x * len(kind)


@case((ramp(2, 3, 4), "b s d -> d"), (ramp(2, 3, 4), "b s d -> b"))
def parse_a_little_language(x, pattern):
    before, after = (side.split() for side in pattern.split("->"))
    gone = [i for i, name in enumerate(before) if name not in after]
    return x.sum(dim=gone)


@case(call(ramp(2)))
def string_as_bytes_of_numbers(x):
    digits = [int(c) for c in "1234" if c not in "2"]
    return x * int("".join(map(str, digits))) + ord("a") - ord("A") + int("ff", 16) + float("0.5")
