"""Dicts: methods, order, mutation, views, tensors inside."""


from curriculum import call, case, ramp


class Upper(dict):
    def __missing__(self, key):
        return key.upper()

    def __setitem__(self, key, value):
        super().__setitem__(key.lower(), value)


class Key:
    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return len(self.name)

    def __eq__(self, other):
        return self.name == other.name


@case()
def build_and_read(x):
    table = {"a": x, "b": x + 1, **{"c": 3}}
    table["d"] = table["a"] + table["b"]
    return table, list(table), len(table)


@case(({"a": 1, "b": 2}, ramp(2)), ({"b": 5}, ramp(2)))
def every_mutating_method(table, x):
    table["z"] = 26
    table.update({"q": 1}, r=2)
    table.setdefault("q", 99)
    table.setdefault("s", []).append(1)
    popped = table.pop("b")
    missing = table.pop("nope", None)
    del table["z"]
    last = table.popitem()
    table |= {"u": 0}
    return x + popped, missing, last, table


@case(({"a": 1, "b": 2},), ({},), graphs=0)
def views(table):
    keys = table.keys()
    table["new"] = 3
    return list(keys), list(table.values()), list(table.items()), list(reversed(table)), "a" in keys, ("a", 1) in table.items()


@case(({"a": 1}, ramp(2)), ({"b": 1}, ramp(2)))
def key_error(table, x):
    y = x + 1
    return y * table["a"]


@case(({"a": 1},), ({("t", 1): 2},), graphs=0)
def get_and_default(table):
    return table.get("a"), table.get("zz"), table.get(("t", 1), 7), dict.fromkeys("ab", 0), table.copy() == table


@case(lambda: call({"w": ramp(2), "b": ramp(2)}), lambda: call({"w": ramp(3), "b": ramp(3), "extra": ramp(1)}))
def tensors_in_a_dict_argument(params):
    return {name: p * 2 for name, p in params.items()}


@case(lambda: call({"w": ramp(2)}), lambda: call({"w": ramp(3), "out": None}))
def dict_argument_is_written(state):
    state["out"] = state["w"] * 2
    state["w"].add_(1)
    return state


@case(call(ramp(2)))
def order_of_insertion(x):
    table = {"b": 1, "a": 2}
    table["c"] = 3
    del table["b"]
    table["b"] = 4
    table["a"] = 5
    return list(table.items()), x + table["a"]


@case(({1: "a"}, {2: "b"}), ({1: "a"}, {1: "c"}), graphs=0)
def merge(a, b):
    return a | b, {**b, **a}, {**a, 1: "z"}, a == b


@case(lambda: call(Upper(x=1), ramp(2)))
def subclass_with_missing(table, x):
    table["NEW"] = 2
    return table["absent"], dict(table), "absent" in table, table.get("absent"), x + table["new"]


@case(lambda: call({Key("ab"): 1}, ramp(2)))
def keys_with_their_own_hash(table, x):
    table[Key("ab")] = 5
    table[Key("cd")] = 6
    return len(table), table[Key("cd")], Key("zz") in table, x + table[Key("ab")]


@case(([],), ({},), graphs=0)
def unhashable_key(key):
    return {key: 1}


@case(({"a": 1, "b": 2}, ramp(2)))
def size_changes_while_iterating(table, x):
    for key in table:
        table[key + "!"] = 0
    return x


@case(call(ramp(2)))
def nested_and_shared(x):
    inner = {"x": x}
    outer = {"one": inner, "two": inner}
    outer["one"]["y"] = x * 2
    return outer, outer["two"]["y"]


@case(({"b": 1, "a": 2},), graphs=0)
def sorted_and_inverted(table):
    return sorted(table), dict(sorted(table.items())), {v: k for k, v in table.items()}, max(table, key=table.get), sum(table.values())
