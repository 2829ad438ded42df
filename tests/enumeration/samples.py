"""Sample arguments for an overload, found by trial.

In: a subject.  Out: a sample on which the eager call succeeds, or the reason why there is none. Candidates come from
hand-written families, from torch's own OpInfo samples, and from the types of the schema, in this order; a sample whose
call changes the written tensor is preferred.
"""

from __future__ import annotations

import functools
import itertools
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.enumeration import more_families  # noqa: F401  (registers its families)
from tests.enumeration.families import candidates_of_family, excluded
from tests.enumeration.opinfo_samples import SEED, copied, opinfo_values
from tests.enumeration.overloads import FUNCTION, INPLACE, Subject, overload_of, writes

REFUSED: list[str] = []  # why functional calls of the present subject failed
Path = tuple[Any, ...]  # ("args", 0), ("kwargs", "out"), ("args", 1, 0) for an item of a list


@dataclass
class Sample:
    args: list[Any]
    kwargs: dict[str, Any]
    written: list[Path]
    place: int = 0  # the element of the first written tensor that a program observes

    def fresh(self) -> Sample:
        """A copy that shares no memory with this one, nor within itself."""
        args, kwargs = pytree.tree_map_only(torch.Tensor, copied, (self.args, self.kwargs))
        return Sample(args, kwargs, self.written, self.place)

    def at(self, path: Path) -> Any:
        found: Any = getattr(self, path[0])
        for key in path[1:]:
            found = found[key]
        return found

    def put(self, path: Path, value: Any) -> None:
        held = self.at(path[:-1]) if len(path) > 1 else None
        if isinstance(held, tuple):
            changed = list(held)
            changed[path[-1]] = value
            self.put(path[:-1], tuple(changed))
        else:
            held[path[-1]] = value  # type: ignore[index]

    def tensors(self) -> Iterator[tuple[Path, torch.Tensor]]:
        for key, value in [*((("args", i), v) for i, v in enumerate(self.args)), *((("kwargs", k), v) for k, v in self.kwargs.items())]:
            if isinstance(value, torch.Tensor):
                yield key, value
            elif isinstance(value, (list, tuple)):
                yield from (((*key, i), item) for i, item in enumerate(value) if isinstance(item, torch.Tensor))

    def first_written(self) -> tuple[Path, torch.Tensor] | None:
        """The first written tensor that has elements."""
        inside = [(path, tensor) for path, tensor in self.tensors() if any(path[: len(each)] == each for each in self.written)]
        return next((pair for pair in inside if pair[1].numel()), inside[0] if inside else None)


def attempt(subject: Subject, sample: Sample) -> tuple[bool, str]:
    """Whether the eager call succeeds and changes a written tensor; a text when it fails."""
    torch.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            copy = sample.fresh()
            subject.call(*copy.args, **copy.kwargs)
        except Exception as error:  # no sample: the next candidate is tried
            return False, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    before, after = sample.first_written(), copy.first_written()
    if before is None or after is None:
        return False, ""
    return not same(before[1], after[1]), ""


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype or left.layout != right.layout:
        return False
    try:
        return torch.equal(left, right)
    except RuntimeError:  # a layout without equality
        return True


def find_sample(subject: Subject) -> tuple[Sample | None, str]:
    """A sample, or why there is none."""
    reason = excluded(subject)
    if reason:
        return None, reason
    fallback: Sample | None = None
    refusals = REFUSED
    refusals.clear()
    for candidate in candidates(subject):
        changed, refusal = attempt(subject, candidate)
        if changed:
            return candidate, ""
        if refusal:
            refusals.append(refusal)
        elif fallback is None:
            fallback = candidate
    if fallback is not None:
        return fallback, ""
    return None, summary(refusals)


def summary(refusals: list[str]) -> str:
    for pattern, reason in ((r"unexpected keyword argument 'out'|invalid combination of arguments - got .*out=", "the public function takes no out="), (r"Could not run .* with arguments from", "no kernel for the CPU"), (r"not compiled with|not linked|requires? CUDA|only .*CUDA", "needs a device or a library")):
        if any(re.search(pattern, each) for each in refusals):
            return reason
    return "no sample: " + (refusals[0][:160] if refusals else "no candidate")


def candidates(subject: Subject) -> Iterator[Sample]:
    if subject.form == INPLACE:
        for shape, dtype in TENSORS:
            x = filled(shape, dtype) - 0.5 if dtype.is_floating_point else filled(shape, dtype)
            yield Sample([x, *((0.1, 20.0) if subject.name.endswith("threshold") else ())], {"inplace": True}, [("args", 0)])
        return
    schema = subject.schema
    for values in itertools.chain(candidates_of_family(subject), opinfo_values(schema), typed_values(schema)):
        for sample in with_outputs(schema, values):
            yield as_public(schema, sample) if subject.form == FUNCTION else sample


def as_public(schema: Any, sample: Sample) -> Sample:
    """Public functions take all outputs as out=."""
    names = [each.name for each in outputs(schema)]
    if not names:
        return sample
    made = [sample.kwargs[name] for name in names]
    kwargs = {name: value for name, value in sample.kwargs.items() if name not in names}
    return Sample(sample.args, kwargs | {"out": made[0] if len(made) == 1 else tuple(made)}, [("kwargs", "out")])


# ---- from a list of values to a sample

def outputs(schema: Any) -> list[Any]:
    return [argument for argument in schema.arguments if argument.is_out]


def with_outputs(schema: Any, values: dict[str, Any]) -> Iterator[Sample]:
    """The sample of named values; tensors for out= have the sizes of the functional result, or those that eager resizes to."""
    missing = [argument.name for argument in outputs(schema) if argument.name not in values]
    if not missing:
        yield bound(schema, values)
        return
    for results in (functional_results(schema, values), *resized_results(schema, values, missing)):
        if results is not None and len(results) == len(missing):
            yield bound(schema, values | {name: other_contents(each) for name, each in zip(missing, results, strict=True)})


def bound(schema: Any, values: dict[str, Any]) -> Sample:
    args = [values[each.name] for each in schema.arguments if not each.kwarg_only and each.name in values]
    kwargs = {each.name: values[each.name] for each in schema.arguments if each.kwarg_only and each.name in values}
    written: list[Path] = []
    for position, each in enumerate(schema.arguments):
        if writes(each) and each.name in values:
            written.append(("kwargs", each.name) if each.kwarg_only else ("args", position))
    return Sample(args, kwargs, written)


def other_contents(result: Any) -> Any:
    def filled_anew(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided or tensor.is_quantized:
            return tensor
        return torch.zeros_like(tensor) if tensor.dtype is torch.bool else torch.full_like(tensor, 5)

    return pytree.tree_map_only(torch.Tensor, filled_anew, result)


@functools.lru_cache(maxsize=None)
def functional_of(name: str, inputs: tuple[str, ...]) -> Any:
    """The overload with the same inputs that writes nothing."""
    namespace, _, short = name.partition("::")
    for other in dict.fromkeys((short, short.removesuffix("_out"), short.removesuffix("_outf"), short.replace("_out", ""))):
        packet = getattr(getattr(torch.ops, namespace), other, None)
        for overload in packet.overloads() if packet is not None else ():
            found = getattr(packet, overload)
            if any(writes(each) for each in found._schema.arguments):
                continue
            if tuple(each.name for each in found._schema.arguments) == inputs:
                return found
    return None


def functional_results(schema: Any, values: dict[str, Any]) -> list[Any] | None:
    inputs = [each for each in schema.arguments if not each.is_out]
    overload = functional_of(schema.name, tuple(each.name for each in inputs))
    if overload is None:
        return None
    copy = bound(schema, pytree.tree_map_only(torch.Tensor, copied, values))
    torch.manual_seed(SEED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = overload(*copy.args, **copy.kwargs)
    except Exception as error:  # no sample: the call with these values fails
        REFUSED.append(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        return None
    if len(outputs(schema)) == 1:
        return [list(result) if isinstance(result, (list, tuple)) else result]
    return list(result) if isinstance(result, (list, tuple)) else None


DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64, torch.float64, torch.int32, torch.uint8)


def resized_results(schema: Any, values: dict[str, Any], missing: list[str]) -> Iterator[list[Any] | None]:
    overload = overload_of(schema)
    lists = {each.name for each in outputs(schema) if str(each.type).startswith("List")}
    choices = [(dtype,) * len(missing) for dtype in DTYPES] + ([(torch.float32, torch.int64)] if len(missing) == 2 else [])
    for dtypes in choices:
        copy = pytree.tree_map_only(torch.Tensor, copied, values)
        made = {name: [torch.empty(0, dtype=dtype) for _ in range(2)] if name in lists else torch.empty(0, dtype=dtype)
                for name, dtype in zip(missing, dtypes, strict=True)}
        sample = bound(schema, copy | made)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                overload(*sample.args, **sample.kwargs)
        except Exception:  # the next choice of dtypes
            continue
        yield [made[name] for name in missing]
        return


# ---- from the types of the schema

TENSORS: tuple[tuple[tuple[int, ...], torch.dtype], ...] = (
    ((3, 3), torch.float32), ((4,), torch.float32), ((2, 3, 4, 4), torch.float32), ((2, 3, 4), torch.float32), ((3, 3), torch.int64),
    ((3, 3), torch.bool), ((3, 3), torch.complex64), ((2, 3, 4, 4, 4), torch.float32), ((), torch.float32), ((4,), torch.int64), ((4,), torch.float64),
)  # fmt: skip
INDEX_NAMES = re.compile(r"ind(ex|ices)|idx|offsets|target|_sizes?$|lengths")
INTEGERS = {"dim": 0, "dim0": 0, "dim1": 1, "dim2": 1, "start_dim": 0, "end_dim": -1, "axis": 0, "groups": 1, "correction": 1, "diagonal": 0, "offset": 0, "padding_idx": -1,
            "ignore_index": -100, "reduction": 1, "upscale_factor": 1, "k": 1, "n": 2, "zero_point": 0, "quant_min": 0, "quant_max": 255, "axis0": 0, "axis1": 1, "storage_offset": 0}
LISTS = {"size": (3, 3), "kernel_size": 2, "stride": 1, "padding": 0, "dilation": 1, "output_padding": 0, "output_size": 2, "dim": (0,), "dims": (0, 1), "pad": (1, 1),
         "sizes": (3, 3), "repeats": (2, 2), "shape": (3, 3), "scale_factors": 2.0}
TEXTS = {"rounding_mode": "floor", "reduce": "sum", "mode": "sum", "indexing": "ij", "uplo": "L", "approximate": "none", "UPLO": "L", "driver": "gelsd", "norm_type": "fro"}


def filled(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Distinct values in (0, 2) for floats, small ones for integers; a square matrix has full rank."""
    count = 1
    for size in shape:
        count *= size
    steps = torch.arange(count)
    if dtype is torch.bool:
        return (steps % 3 == 0).view(shape)
    if not dtype.is_floating_point and not dtype.is_complex:
        return (steps % 3).view(shape).to(dtype)
    values = ((steps * 7) % (count + 1) + 1).to(dtype).view(shape) / (count + 2)
    return values + torch.eye(shape[0], dtype=dtype) if len(shape) == 2 and shape[0] == shape[1] else values


def typed_values(schema: Any) -> Iterator[dict[str, Any]]:
    for (shape, dtype), (indexed, number, optional) in itertools.product(TENSORS, ((True, 2, False), (False, 2, False), (True, 0.5, True), (False, 0.5, False))):
        values: dict[str, Any] = {}
        for each in schema.arguments:
            wanted = not each.has_default_value() or (optional and str(each.type) in ("Optional[number]", "Optional[Tensor]", "Optional[int]"))
            if not each.is_out and wanted:
                values[each.name] = typed_value(each, shape, dtype, indexed, number, optional)
        yield values


SCALARS: dict[str, Any] = {"float": 0.5, "bool": False, "List[number]": [1.5, 2.0], "complex": 1j, "Device": torch.device("cpu")}


def typed_value(argument: Any, shape: tuple[int, ...], dtype: torch.dtype, indexed: bool, number: Any, optional: bool) -> Any:
    name, kind = argument.name, str(argument.type)
    if kind.startswith("Optional["):
        if not optional:
            return None
        kind = kind.removeprefix("Optional[").removesuffix("]")
    if kind == "Tensor":
        if indexed and INDEX_NAMES.search(name):
            return filled(shape, torch.int64)
        if "mask" in name or name == "condition":
            return filled(shape, torch.bool)
        return filled(shape, dtype) if name == "self" or number == 2 else filled(shape, dtype) * 2
    if kind == "List[Tensor]":
        return [filled(shape, dtype), filled(shape, dtype) * 2 if dtype is not torch.bool else filled(shape, dtype)]
    if kind == "List[Optional[Tensor]]":
        return [torch.tensor([0, 1])]
    if name == "dtype" or "ScalarType" in str(argument.real_type):
        return torch.float32
    if kind == "int":
        return INTEGERS.get(name, 1)
    if kind == "number":
        return number
    if kind == "str":
        return TEXTS.get(name, "sum")
    if kind in ("List[int]", "List[float]", "List[bool]"):
        given: Any = LISTS.get(name, 1)
        return list(given) if isinstance(given, tuple) else [given if kind != "List[bool]" else True] * (argument.N or 1)
    return SCALARS.get(kind)
