"""Results and arguments in containers: nested, shared, recursive, user classes, empty."""

import collections
import dataclasses

import torch

from curriculum import call, case, ramp


@dataclasses.dataclass
class Output:
    loss: object
    hidden: tuple = ()
    extra: dict = None


class ModelOutput(collections.OrderedDict):
    def __init__(self, **items):
        super().__init__(items)
        for name, value in items.items():
            setattr(self, name, value)

    def to_tuple(self):
        return tuple(self[k] for k in self)


Pair = collections.namedtuple("Pair", "a b")


@case()
def nested_containers(x):
    return {"a": [x, (x + 1, {"b": x * 2})], "c": {1: [None, "s", 2.5]}}


@case()
def nothing_and_constants(x):
    x.add_(1)
    return None


@case((1, "a"), (2.5, None), graphs=0)
def constants_only(a, b):
    return {"a": a, "b": [b, a], "c": (1, 2)}


@case()
def dataclass_result(x):
    return Output(loss=x.sum(), hidden=(x, x + 1), extra={"k": x * 2})


@case()
def namedtuple_result(x):
    return Pair(x + 1, b=[Pair(1, x)])


@case()
def dict_subclass_result(x):
    out = ModelOutput(loss=x.sum(), logits=x * 2)
    return out, out.to_tuple(), out.loss is out["loss"]


@case()
def shared_objects(x):
    shared = {"x": x + 1}
    return [shared, shared, {"again": shared}], shared


@case()
def recursive_objects(x):
    class Node:
        pass

    a, b = Node(), Node()
    a.other, b.other, a.value = b, a, x * 2
    table = {"a": a}
    table["self"] = table
    return table


@case(lambda: call({"ids": ramp(2), "mask": None, "sizes": [1, 2]}), lambda: call({"ids": ramp(3), "mask": ramp(3), "sizes": []}))
def structured_argument(batch):
    ids = batch["ids"] * 2
    if batch["mask"] is not None:
        ids = ids * batch["mask"]
    return {**batch, "out": ids + len(batch["sizes"])}


@case(lambda: call(Output(ramp(2)), (ramp(2), [ramp(2)])), lambda: call(Output(ramp(3)), (ramp(3), [])))
def mixed_arguments(out, parts):
    first, rest = parts
    out.hidden = (first + out.loss, *rest)
    rest.append(first)
    return out, rest


@case()
def argument_containers_are_returned_as_they_are(x):
    def keep(*args, **kwargs):
        return args, kwargs

    return keep(x, 1, k=[x + 1])


@case()
def many_outputs(x):
    return tuple(x + i for i in range(12))


@case()
def closures_and_objects(x):
    class Adder:
        def __init__(self, n):
            self.n = n

        def __call__(self, v):
            return v + self.n

    adder = Adder(x)
    return adder, adder(1), adder.n


@case()
def iterators_in_results(x):
    views = {"k": x + 1}
    return iter([1, 2]), enumerate("ab", 1), zip([1], "a"), views.keys(), views.values(), views.items(), map(str, [1])


@case(lambda: call([ramp(2)], [ramp(2)]), lambda: call(*[[ramp(2)]] * 2))
def two_lists_or_one(a, b):
    a.append(a[0] + 1)
    return len(b), b


@case()
def sizes_and_tensors_together(x):
    return x.shape, x.shape[0], x, x.dtype, torch.Size([1, 2]), torch.device("cpu"), x.sum()


@case()
def bound_method_and_partial_results(x):
    items = []
    return items.append, x.dim(), x * 2
