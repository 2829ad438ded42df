"""Sample values from torch's own OpInfo database: those that an OpInfo names, and those that operators meet below it.

In: a schema.  Out: values by argument name. `record_all` runs every OpInfo forward and backward and keeps the arguments
of each operator that it reaches, so that backward operators and internal ones have samples.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

SEED = 11
MOST_SAMPLES = 6
MOST_ELEMENTS = 4000
KEPT = 4  # argument lists for each overload
Values = dict[str, Any]
RECORDED: dict[str, list[Values]] = {}


def copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


@functools.lru_cache(maxsize=1)
def opinfos() -> dict[str, list[Any]]:
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, list[Any]] = {}
    for each in op_db:
        names = {each.aten_name, each.name, each.name.replace(".", "_"), each.name.rpartition(".")[2], *(alias.name for alias in each.aliases)}
        for name in names:
            found.setdefault(name, []).append(each)
    return found


def distinct(infos: Iterable[Any]) -> list[Any]:
    return list({id(each): each for each in infos}.values())


def base_name(schema: Any) -> str:
    return schema.name.partition("::")[2].strip("_").removesuffix("_out")


class Recorder(TorchDispatchMode):
    """Record the arguments of operators by base name: of one of them, or of all."""

    def __init__(self, name: str | None, into: dict[str, list[Values]]) -> None:
        super().__init__()
        self.name, self.into = name, into

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        base = base_name(func._schema)
        if self.name in (None, base):
            kept = self.into.setdefault(base, [])
            if len(kept) < KEPT and small((args, kwargs)):
                values = dict(zip([each.name for each in func._schema.arguments], args, strict=False)) | dict(kwargs or {})
                kept.append(pytree.tree_map_only(torch.Tensor, lambda each: each.detach().clone(), values))
        return func(*args, **(kwargs or {}))


def elements(tree: Any) -> int:
    return sum(each.numel() for each in pytree.tree_leaves(tree) if isinstance(each, torch.Tensor))


def small(tree: Any) -> bool:
    return 0 < elements(tree) < MOST_ELEMENTS


def opinfo_values(schema: Any) -> Iterator[Values]:
    short, base = schema.name.partition("::")[2], base_name(schema)
    names = [each.name for each in schema.arguments if not each.is_out]
    known = opinfos()
    for info in distinct([*known.get(short, ()), *known.get(short.removesuffix("_"), ()), *known.get(base, ())])[:3]:
        for sample in samples_of(info):
            values = dict(zip(names, (sample.input, *sample.args), strict=False))
            yield values | {name: value for name, value in sample.kwargs.items() if name in names}
            seen: dict[str, list[Values]] = {}
            run(info, sample, Recorder(base, seen), backward=False)
            yield from (only(names, each) for each in seen.get(base, ()))
    yield from (only(names, each) for each in RECORDED.get(base, ()))


def only(names: list[str], values: Values) -> Values:
    return {name: value for name, value in values.items() if name in names}


def run(info: Any, sample: Any, recorder: Recorder, backward: bool) -> None:
    try:
        with recorder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = info.op(sample.input, *sample.args, **sample.kwargs)
            leaves = [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor) and each.requires_grad]
            if backward and leaves:
                torch.autograd.backward([each.sum() if not each.is_complex() else each.abs().sum() for each in leaves])
    except Exception:  # what was recorded before it serves
        return


def samples_of(info: Any, requires_grad: bool = False, most: int = MOST_SAMPLES) -> list[Any]:
    for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64, torch.float64):
        if dtype not in info.dtypes:
            continue
        torch.manual_seed(SEED)
        grad = requires_grad and info.supports_autograd and dtype.is_floating_point
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = list(itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=grad), 4 * MOST_SAMPLES))
        except Exception:  # samples of some operators need a library
            continue
        sized = [(elements((each.input, each.args, each.kwargs)), i) for i, each in enumerate(found)]
        chosen = sorted((abs(size - 30), i) for size, i in sized if 0 < size < MOST_ELEMENTS)[:most]
        if chosen:
            return [found[i] for _, i in chosen]
    return []


def record_all() -> None:
    """Fill `RECORDED`, which children inherit."""
    recorder = Recorder(None, RECORDED)
    for info in distinct(itertools.chain.from_iterable(opinfos().values())):
        if info.name.startswith(("ops.", "_refs", "sparse.")):
            continue
        for sample in samples_of(info, requires_grad=True, most=2):
            run(info, sample, recorder, backward=True)
