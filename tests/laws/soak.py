"""Memory over many calls and many captures.   python -m tests.laws.soak [calls] [captures]

In:  how many calls (with recompiles in between) and how many captures of small functions.
Out: objects by type, memory that malloc has handed out and resident memory, after a warm-up and at the end; the growth
between the two.  Free memory is given back to the system before it is counted: what is left between live blocks is
no leak.  malloc counts for its main arena alone: MALLOC_ARENA_MAX=1 makes it the only one.
"""

from __future__ import annotations

import collections
import ctypes
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import stator

_LIBC = ctypes.CDLL(None)
FULL_CALLS, FULL_CAPTURES = 100_000, 20_000


@dataclass
class Growth:
    """Objects that were there at the end and not after the warm-up."""

    rounds: int
    seconds: float
    objects: collections.Counter[str]
    resident_kib: int
    allocated_kib: int = 0

    @property
    def total(self) -> int:
        return sum(self.objects.values())

    def text(self) -> str:
        most = ", ".join(f"{name} {count:+d}" for name, count in self.objects.most_common(6) if count)
        return (f"{self.rounds} rounds in {self.seconds:.1f} s: {self.total:+d} objects ({most or 'none'}), "
                f"malloc {self.allocated_kib:+d} KiB, resident {self.resident_kib:+d} KiB")


def census() -> collections.Counter[str]:
    gc.collect()
    return collections.Counter(f"{type(o).__module__}.{type(o).__qualname__}" for o in gc.get_objects())


class MallInfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


def allocated_kib() -> int:
    """KiB that malloc has handed out; 0 where it does not tell."""
    ask = getattr(_LIBC, "mallinfo2", None)
    if ask is None:
        return 0
    ask.restype = MallInfo
    found = ask()
    return (found.uordblks + found.hblkhd) // 1024


def resident_kib() -> int:
    trim = getattr(_LIBC, "malloc_trim", None)
    if trim is not None:
        trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4


def growth_of(round_: Callable[[int], None], rounds: int, warm_up: int) -> Growth:
    for i in range(warm_up):
        round_(i)
    objects, memory, handed_out, started = census(), resident_kib(), allocated_kib(), time.perf_counter()
    for i in range(warm_up, rounds):
        round_(i)
    seconds = time.perf_counter() - started
    after = census()
    after.subtract(objects)
    return Growth(rounds - warm_up, seconds, after, resident_kib() - memory, allocated_kib() - handed_out)


# ---------------------------------------------------------------------- calls


class Holder:
    """The outside world of the call soak."""

    def __init__(self) -> None:
        self.k, self.log, self.table = 2, [], {"a": 1}


def soak_calls(calls: int) -> Growth:
    """Calls of one function, whose facts change every few hundred calls, so that it is compiled again."""
    holder = Holder()

    def fn(x: torch.Tensor) -> Any:
        holder.log.append(holder.k)
        holder.table["a"] = len(holder.log)
        return x * holder.k, {"log": holder.log[-1]}

    compiled = stator.compile(fn, backend="eager", recompile_limit=4)
    x = torch.ones(4)

    def one_call(i: int) -> None:
        if i % 250 == 0:
            holder.k = i // 250 % 7 + 2
            stator.reset()
        holder.log.clear()
        compiled(x)

    return growth_of(one_call, calls, max(calls // 5, 500))


# ---------------------------------------------------------------------- captures


def plain(k: int) -> Callable[..., Any]:
    return lambda x: x * k


def containers(k: int) -> Callable[..., Any]:
    table = {"k": k, "xs": [k, (k, [k])]}
    return lambda x: [x * table["k"], *table["xs"]]


def instances(k: int) -> Callable[..., Any]:
    class Local:
        def __init__(self) -> None:
            self.k = k

        def scale(self, x: torch.Tensor) -> torch.Tensor:
            self.k += 1
            return x * self.k

    thing = Local()
    return lambda x: thing.scale(x)


def breaking(k: int) -> Callable[..., Any]:
    def fn(x: torch.Tensor) -> Any:
        y = x * k
        stator.graph_break()
        return y + 1
    return fn


def raising(k: int) -> Callable[..., Any]:
    def fn(x: torch.Tensor) -> Any:
        raise ValueError(k)
    return fn


def modules(k: int) -> Callable[..., Any]:
    model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())
    return lambda x: model(x) * k


SUBJECTS = (plain, containers, instances, breaking, raising, modules)


def soak_captures(captures: int, subjects: tuple[Callable[[int], Callable[..., Any]], ...] = SUBJECTS) -> Growth:
    """A new function each time: compiled, called once, dropped."""
    def one_capture(i: int) -> None:
        compiled = stator.compile(subjects[i % len(subjects)](i % 5 + 2), backend="eager")
        try:
            compiled(torch.ones(4))
        except ValueError:
            pass  # the subject that raises

    return growth_of(one_capture, captures, max(captures // 10, 120))


def main(arguments: list[str]) -> None:
    calls, captures = (int(arguments[i]) if i < len(arguments) else full
                       for i, full in enumerate((FULL_CALLS, FULL_CAPTURES)))
    print("calls:   ", soak_calls(calls).text())
    print("captures:", soak_captures(captures).text())


if __name__ == "__main__":
    main(sys.argv[1:])
