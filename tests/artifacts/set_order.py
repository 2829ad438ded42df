"""Orders of sets in stored entries.   python -m tests.artifacts.set_order save|load FOLDER

In: programs whose results depend on the order of a set, or only seem to.  Out: a JSON line: for `save` the names of
those that were stored, for `load` the names that were loaded and those whose result is not that of eager.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

import stator
from stator import events


def loop(x: torch.Tensor) -> torch.Tensor:
    for number, name in enumerate({"alpha", "be", "gam", "d"} | {"epsilon"}):
        x = x + number * len(name)
    return x


def popped(x: torch.Tensor) -> torch.Tensor:
    return x + len({name for name in ("ab", "c", "ddd")}.pop())


def listed(x: torch.Tensor) -> torch.Tensor:
    return x + len([*frozenset(["ab", "c", "ddd"])][0]) + list({b"ab", b"c"})[0][0]


def joined(x: torch.Tensor) -> torch.Tensor:
    return x + ",".join({"ab", "c", "ddd"}).index("c")


def shown(x: torch.Tensor) -> torch.Tensor:
    return x + f"{[{'ab', 'c', 'ddd'}]}".index("c")


def first_of_equal(x: torch.Tensor) -> torch.Tensor:
    return x + "abcdefgh".index(max({"ab", "cd", "ef", "gh"}, key=len))


def by_method(x: torch.Tensor) -> torch.Tensor:
    return x + len({"ab", "c", "ddd"}.union({"x"}).__iter__().__next__())


def pairs(x: torch.Tensor) -> torch.Tensor:
    return x + list({("ab", 1), ("c", 2), ("ddd", 3)})[0][1]


def of_classes(x: torch.Tensor) -> torch.Tensor:
    return x + (int, str, float).index(list({int, str, float})[0])


def in_order(x: torch.Tensor) -> torch.Tensor:
    return x + len(sorted({"ab", "c", "ddd"})[0]) + ("a" in {"a", "c"}) + len({"a"} | {"b"}) + list({3, 1, 2})[0]


def of_two(x: torch.Tensor) -> torch.Tensor:
    for number, name in enumerate({"ab", "c"}):
        x = x + number * len(name)
    return x


def returned(x: torch.Tensor) -> tuple[set[str], frozenset[str], set[tuple[str, int]]]:
    names = {"ab", "c"}
    names.add("epsilon")
    return names, frozenset(["gam", "d", "be", "alpha"]), {("ab", 1), ("c", 2), ("ddd", 3)}


def returned_union(x: torch.Tensor) -> set[str]:
    return {"alpha", "be", "gam", "d"} | {"epsilon"}


def returned_rest(x: torch.Tensor) -> set[str]:
    names = set("abcdefgh")
    names.discard("c")
    return names - {"e"}


SEEDED = (loop, popped, listed, joined, shown, first_of_equal, by_method, pairs, of_two,
          returned_union, returned_rest)
IN_ORDER = (in_order, returned)
PROGRAMS = (*SEEDED, of_classes, *IN_ORDER)


def shown_result(result: Any) -> Any:
    """A result with the orders of its sets."""
    if isinstance(result, (set, frozenset)):
        return list(result)
    return list(map(shown_result, result)) if isinstance(result, tuple) else result.tolist()


def main(what: str, name: str) -> None:
    folder, x = Path(name), torch.zeros(1)
    stator.config.artifact_key_file = str(folder / "key")
    stored, loaded, wrong = [], [], []
    for fn in PROGRAMS:
        path = str(folder / fn.__name__)
        if what == "save":
            compiled = stator.compile(fn, backend="eager")
            compiled(x)
            stored += [fn.__name__] * stator.save(compiled, path)
            continue
        with events.record() as log:
            result = stator.load(path, fn, backend="eager")(x)
        loaded += [fn.__name__] * any(isinstance(event, events.EntryLoaded) for event in log)
        wrong += [fn.__name__] * (shown_result(result) != shown_result(fn(x)))
    print(json.dumps({"stored": stored, "loaded": loaded, "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
