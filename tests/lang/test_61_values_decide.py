"""Programs that look at tensor values: what Python alone cannot know before the graph has run."""

import torch

from curriculum import case


@case(breaks="a branch on a tensor's value")
def branch(x):
    if x.max() > 1:
        return x * 2
    return x - 2


@case(breaks="a loop whose count is a tensor's value")
def loop(x):
    n = 0
    while x.sum() < 20 and n < 10:
        x = x + 1
        n += 1
    return x, n


@case(breaks="a Python number made from a tensor's value decides")
def item_decides(x):
    n = int(x.sum().item())
    return [x] * (n % 3)


@case(breaks="a list made from a tensor's values")
def tolist(x):
    values = x.flatten().tolist()
    return [v for v in values if v > 0], x * 2


@case(breaks="an exception that depends on a tensor's value")
def check(x):
    y = x + 1
    if (y < -100).any():
        raise ValueError("too small")
    return y


@case(breaks="text made from a tensor's value")
def text(x):
    return f"{x.sum().item():.2f}", x * 2


@case(breaks="branches after one another, each on a value")
def two_branches(x, y):
    a = x + 1 if x.mean() > 0 else x - 1
    b = y * 2 if y.mean() > 0 else y * 3
    print("both decided")
    return a + b


@case(breaks="a value decides inside a with block and a try")
def inside_blocks(x):
    log = []
    try:
        with torch.no_grad():
            if x.sum() > 0:
                raise KeyError("positive")
            y = x * 2
    except KeyError as error:
        log.append(str(error))
        y = x * 3
    finally:
        log.append("finally")
    return y, log


@case(breaks="torch.equal gives a Python bool made from values")
def equality_of_tensors(x, y):
    return torch.equal(x, y), torch.equal(x, x), x + y


@case()
def index_of_several_tensors(x):
    rows, columns = zip(*torch.tensor([[0, 1], [1, 0], [1, 2]]), strict=True)
    y = x.clone()
    y[rows, columns] = 7.0
    y[[rows[0], rows[1]], 0] = 5.0
    return y, x[rows, columns], x[[columns[0]], :]


@case(breaks="a value decides in a loop over a dict")
def loops_over_dicts(x):
    layers, log = {"a": 1.0, "b": -2.0, "c": 3.0}, []
    for scale in layers.values():
        x = x * scale if x.sum() > 0 else x + scale
    for number, (name, scale) in enumerate(layers.items()):
        if x.sum() > number:
            log.append(name)
        x = x + scale
    for name in layers:
        log.append((name, bool(x.max() > 0)))
    rest = iter(layers)
    while (name := next(rest, None)) is not None:
        if x.min() < 0:
            log.append(name)
    return x, log, next(rest, "end")


@case(breaks="a dict grows while a value decides in a loop over it")
def dict_that_grows_under_its_loop(x):
    layers = {"a": 1.0}
    try:
        for name in layers:
            if x.sum() > -1e9:
                layers[name + "b"] = 2.0
    except RuntimeError as error:
        return x * 2, str(error), sorted(layers)
    return x, layers
