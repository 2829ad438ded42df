"""Programs with a graph break, generated.   breaking instruction x surrounding construct  ->  source of a function

Each break makes the tracer stop at exactly one instruction; each construct puts that instruction somewhere a
continuation has to be resumed.  `programs()` yields (name, source); every program defines `program(x, log)`.
"""

from __future__ import annotations

from collections.abc import Iterator

PRELUDE = '''
import contextlib
import torch
import stator


def opaque(value):
    stator.graph_break()
    return value


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, exc, tb):
        self.log.append(("exit", None if kind is None else kind.__name__))
        return kind is KeyError


class Holder:
    def __init__(self, value):
        self.value = value

    @property
    def slow(self):
        stator.graph_break()
        return self.value * 2

    def __getitem__(self, key):
        stator.graph_break()
        return self.value + key

    def __setitem__(self, key, value):
        stator.graph_break()
        self.value = value + key

    def __add__(self, other):
        stator.graph_break()
        return self.value + other

    def __lt__(self, other):
        stator.graph_break()
        return other

    def __call__(self, value):
        stator.graph_break()
        return self.value + value


@contextlib.contextmanager
def managed(log):
    log.append("begin")
    try:
        yield 3
    finally:
        log.append("end")
'''

# name -> statements; y is a tensor computed before, z must be a tensor afterwards
BREAKS: dict[str, str] = {
    "call": "stator.graph_break()\nz = y + 1",
    "call_value": "z = opaque(y) * 3",
    "call_keyword": "z = opaque(value=y) + 1",
    "call_star": "z = opaque(*[y], **{}) + 1",
    "branch_true": "if y.sum() > -1e9:\n    z = y * 2\nelse:\n    z = y - 2",
    "branch_false": "if y.sum() < -1e9:\n    z = y * 2\nelse:\n    z = y - 2",
    "and_or": "z = y + (1 if (y.sum() > -1e9 and y.sum() < 1e9) else 2)",
    "not": "z = y + (1 if not (y.sum() > 1e9) else 2)",
    "attribute": "z = Holder(y).slow + 1",
    "subscript": "z = Holder(y)[2] + 1",
    "store_subscript": "h = Holder(y)\nh[3] = y\nz = h.value",
    "operator": "z = (Holder(y) + 4) * 2",
    "compare": "z = y + (1 if Holder(y) < 5 else 0)",
    "callable": "z = Holder(y)(2)",
    "format": "log.append(f'{float(y.sum()):.1f}')\nz = y",
    "tolist": "z = y + sum(y.tolist())",
    "raises": "try:\n    opaque(1) / 0\nexcept ZeroDivisionError as e:\n    log.append(str(e))\nz = y + 1",
    "raises_tensor": "try:\n    if y.sum() > -1e9:\n        raise KeyError('k')\nexcept KeyError as e:\n    log.append(e.args)\nz = y",
}

# name -> source with {body} (indented by the marker's column) that computes z from y
CONSTRUCTS: dict[str, str] = {
    "straight": "y = x + 1\n{body}\nreturn z * 2, log",
    "for_list": "y = x\nfor k in [1, 2, 3]:\n    y = y + k\n    {body}\n    y = z\nreturn y, log",
    "for_range": "y = x\nfor k in range(3):\n    y = y + 1\n    {body}\n    y = z\nelse:\n    log.append('else')\nreturn y, log",
    "while": "y = x\nn = 0\nwhile n < 3:\n    n += 1\n    {body}\n    y = z\nreturn y, n, log",
    "try_finally": "y = x + 1\ntry:\n    {body}\nfinally:\n    log.append('finally')\nreturn z, log",
    "except_body": "y = x + 1\ntry:\n    raise ValueError('v')\nexcept ValueError as err:\n    {body}\n    log.append(str(err))\nreturn z, log",
    "finally_body": "y = x + 1\ntry:\n    y = y * 2\nfinally:\n    {body}\nreturn z, log",
    "with_class": "y = x + 1\nwith Manager(log) as m:\n    {body}\nreturn z, log",
    "with_nested": "y = x + 1\nwith Manager(log), managed(log) as v:\n    {body}\n    z = z + v\nreturn z, log",
    "with_torch": "y = x + 1\nwith torch.no_grad():\n    {body}\nreturn z, torch.is_grad_enabled(), log",
    "inner_call": "def inner(y):\n    {body}\n    return z * 2\nreturn inner(x + 1) + 1, log",
    "two_calls": "def inner(y):\n    {body}\n    return z\ndef outer(y):\n    return inner(y * 2) - 1\nreturn outer(x) + outer(x + 1), log",
    "closure": "count = 0\ndef inner(y):\n    nonlocal count\n    count += 1\n    {body}\n    count += 1\n    return z\nr = inner(x) + inner(x)\nreturn r, count, log",
    "comprehension": "def inner(y):\n    {body}\n    return z\nreturn [inner(x + i) for i in range(2)], log",
    "generator": "def gen(y):\n    for i in range(2):\n        {body}\n        yield z + i\nreturn list(gen(x)), log",
    "generator_loop": "def gen(y):\n    yield y\n    {body}\n    yield z\nout = []\nfor item in gen(x):\n    out.append(item * 2)\nreturn out, log",
    "generator_sum": "def gen(y):\n    for i in range(2):\n        {body}\n        yield z + i\nreturn sum(item * 2 for item in gen(x)), log",
    "yield_from": "def inner(y):\n    {body}\n    got = yield z\n    return (z, got)\ndef outer(y):\n    result = yield from inner(y + 1)\n    yield result[0] * 2\nreturn [item - 1 for item in outer(x)], log",
    "manager_enter": "@contextlib.contextmanager\ndef made(y):\n    {body}\n    try:\n        yield z\n    finally:\n        log.append('left')\nwith made(x) as w:\n    w = w * 2\nreturn w, log",
    "manager_exit": "out = []\n@contextlib.contextmanager\ndef made(y):\n    try:\n        yield y + 1\n    except KeyError as err:\n        {body}\n        out.append(z)\n        log.append(str(err))\n    finally:\n        log.append('left')\nwith made(x) as w:\n    raise KeyError('thrown in')\nreturn w * 2, out, log",
    "sent_to": "def gen(y):\n    while True:\n        got = yield y\n        if got is None:\n            return\n        y = y + got\n        {body}\n        y = z\ng = gen(x)\nnext(g)\nreturn g.send(x * 2), g.send(x), next(g, 'over'), log",
    "closed": "def gen(y):\n    try:\n        yield y\n    finally:\n        {body}\n        log.append('closing')\ng = gen(x)\nw = next(g)\ng.close()\nlog.append('closed')\nreturn w + 1, log",
    "dropped": "def gen(y):\n    try:\n        {body}\n        yield z\n        yield z\n    finally:\n        log.append('dropped')\nfor item in gen(x):\n    item = item * 2\n    break\nlog.append('after')\nreturn item, log",
    "awaited": "async def inner(y):\n    {body}\n    return z\nasync def outer(y):\n    return await inner(y) + await inner(y + 1)\ntry:\n    outer(x).send(None)\nexcept StopIteration as stop:\n    return stop.value, log",
    "unpacked": "def gen(y):\n    {body}\n    yield z\n    yield z + 1\na, b = gen(x)\nc, *d = gen(x + 1)\nreturn a, b, c, d, [*gen(a)], log",
    "method": "class A:\n    def __init__(self, v):\n        self.v = v\n    def run(self, y):\n        {body}\n        self.v = self.v + 1\n        return z + self.v\na = A(1)\nreturn a.run(x), a.v, log",
    "init": "class A:\n    def __init__(self, y):\n        {body}\n        self.z = z\nreturn A(x).z + 1, log",
    "callback": "def key(k):\n    y = x + k\n    {body}\n    log.append(k)\n    return -k\nreturn x + sorted([1, 3, 2], key=key)[0], log",
}


def indent(text: str, template: str) -> str:
    """Fill {body}, keeping the column it stands at."""
    lines = []
    for line in template.split("\n"):
        if "{body}" in line:
            margin = line[:line.index("{body}")]
            lines += [margin + part for part in text.split("\n")]
        else:
            lines.append(line)
    return "\n".join(lines)


def programs() -> Iterator[tuple[str, str]]:
    for construct, template in CONSTRUCTS.items():
        for name, body in BREAKS.items():
            text = indent(body, template)
            source = PRELUDE + "\n\ndef program(x, log):\n" + "\n".join("    " + line for line in text.split("\n")) + "\n"
            yield f"{construct}-{name}", source
