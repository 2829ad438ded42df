"""Run one subject under every pattern and observation, eagerly and compiled, and list the differences.

In: a subject, backends and observations.  Out: a verdict: the pairs (subject, pattern) and calls that were compared, the
differences, what could not be arranged and why, and whether the writer was captured.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy
import torch

import stator
from stator import events
from tests.comparison import Call, Checks, Snapshot, Surroundings, differences, observe_call
from tests.enumeration.observations import OBSERVATIONS, Program
from tests.enumeration.opinfo_samples import SEED
from tests.enumeration.overloads import FUNCTION, METHOD, Subject
from tests.enumeration.patterns import NEEDS, ORDERS, PATTERNS, is_plain
from tests.enumeration.samples import Sample, find_sample

USED_BLOCKS = 24  # of one size: more than allocators keep for a thread
BACKENDS = ("eager", "aot_eager")
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
HOME = "tests.enumeration.observations"
CHECKS = Checks(tolerance=1e-4, exception="class", warnings="none", gradients="none", seed=SEED)
# A public name reaches the operator that runs under every observation; its own way there is seen under these.
OF_PUBLIC_NAMES = ("value", "item", "alias", "failure")


@dataclass
class Verdict:
    subject: str
    reason: str = ""  # why there is no sample
    patterns: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # pattern -> why the sample cannot be arranged so
    undefined: dict[str, str] = field(default_factory=dict)  # "pattern | observation" -> why eager has no result
    raising: list[str] = field(default_factory=list)  # patterns under which eager raises
    stopped: dict[str, str] = field(default_factory=dict)  # backend -> why the first call is not one graph; empty where it is
    calls: dict[str, int] = field(default_factory=dict)  # backend -> compiled calls
    found: list[str] = field(default_factory=list)  # "pattern | observation | backend | first pattern: difference"
    seconds: float = 0.0  # of processor time

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def arrange(sample: Sample, pattern: str) -> tuple[Sample, Any] | None:
    return PATTERNS[pattern](sample.fresh())


def seen(program: Program, sample: Sample, observed: Any) -> Snapshot:
    """One call: the observed name is the first argument, so its sharing of memory with the others is compared."""
    inputs = Call((observed, *sample.args), sample.kwargs)
    return observe_call(program, inputs, Surroundings(HOME), CHECKS)


def crossing(subject: Subject, sample: Sample) -> tuple[int, float]:
    """An element of the written tensor and a limit between its values before and after the write."""
    before = sample.first_written()
    copy = sample.fresh()
    torch.manual_seed(SEED)
    subject.call(*copy.args, **copy.kwargs)
    after = copy.first_written()
    assert before is not None and after is not None
    if before[1].shape != after[1].shape or before[1].is_quantized or before[1].layout is not torch.strided:
        return 0, 0.5
    old, new = (magnitudes(each[1]) for each in (before, after))
    gaps = torch.where((old - new).isfinite(), (old - new).abs(), 0)
    if not gaps.numel():
        return 0, 0.5
    at = int(gaps.argmax())
    return at, float((old[at] + new[at]) / 2)


def magnitudes(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1)
    return (flat.abs() if flat.is_complex() else flat).to(torch.float64).abs()


def used_memory(sample: Sample, filler: int) -> None:
    """Leave freed memory of the sizes of the sample behind, all of whose bytes are one: what eager leaves unwritten shows it."""
    sizes = {(tensor.numel() + more) * tensor.element_size() for _, tensor in sample.tensors() for more in (0, 1)}
    for size in sizes:
        held: list[Any] = [torch.full((max(size, 8),), filler, dtype=torch.uint8) for _ in range(USED_BLOCKS)]
        held += [numpy.full(max(size, 8), filler, "uint8") for _ in range(USED_BLOCKS)]
        del held


def reaches_beyond(sample: Sample) -> bool:
    """Whether a tensor is left with sizes that its storage does not hold: a resize that failed half-way."""
    return any(tensor.numel() and end_of(tensor) > tensor.untyped_storage().nbytes() for _, tensor in sample.tensors() if is_plain(tensor))


def end_of(tensor: torch.Tensor) -> int:
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (tensor.storage_offset() + last + 1) * tensor.element_size()


def expected_of(program: Program, sample: Sample, pattern: str) -> tuple[Snapshot | None, str]:
    """The outcome in eager; the reason where that is not defined."""
    found = []
    for filler in (0, 255):
        arranged = arrange(sample, pattern)
        assert arranged is not None
        used_memory(sample, filler)
        found.append(seen(program, *arranged))
        if reaches_beyond(arranged[0]):
            return None, "eager raises and leaves sizes beyond the storage"
    if list(differences(*found, "", CHECKS.tolerance)) or unwritten(program, *arrange(sample, pattern)) > fillers(found[0]):
        return None, "eager leaves memory uninitialised, or runs differ"
    return found[0], ""


def unwritten(program: Program, sample: Sample, *arranged: Any) -> int:
    """Numbers of a run in which torch fills new memory with NaN, or the largest integer, that show the filler."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fillers(seen(program, sample, *arranged))
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def fillers(snapshot: Snapshot) -> int:
    """How many numbers of a snapshot are the filler of their dtype."""
    numbers, own = snapshot.numbers, 0
    if numbers is not None and (numbers.dtype.is_floating_point or numbers.dtype.is_complex):
        own = int(numbers.to(torch.complex128).isnan().sum())
    elif numbers is not None and numbers.dtype in INTEGERS:
        own = int((numbers == torch.iinfo(numbers.dtype).max).sum())
    return own + sum(map(fillers, snapshot.parts.values()))


def observed_by(subject: Subject) -> tuple[str, ...]:
    return OF_PUBLIC_NAMES if subject.form in (METHOD, FUNCTION) else tuple(OBSERVATIONS)


def judge(subject: Subject, backends: tuple[str, ...] = BACKENDS, observations: tuple[str, ...] = (),
          compiler: Callable[..., Any] = stator.compile) -> Verdict:
    """Compare under the observations, or under those that the form of the subject is worth."""
    started = time.process_time()
    verdict = Verdict(str(subject))
    sample, verdict.reason = find_sample(subject)
    if sample is None:
        return verdict
    at, limit = crossing(subject, sample)
    sample.place = at
    chosen = observations or observed_by(subject)
    wanted = {pattern for name in chosen for order in orders_of(name) for pattern in order}
    verdict.patterns = [name for name in PATTERNS if name in wanted and arrange(sample, name) is not None]
    verdict.refused = {name: NEEDS[name] for name in PATTERNS if name in wanted and name not in verdict.patterns}
    for name in chosen:
        program = OBSERVATIONS[name](subject.call, at, limit)
        expected: dict[str, Snapshot] = {}
        for pattern in verdict.patterns:
            snapshot, reason = expected_of(program, sample, pattern)
            if snapshot is None:
                verdict.undefined[f"{pattern} | {name}"] = reason
            else:
                expected[pattern] = snapshot
        if name == chosen[0]:
            verdict.raising = [pattern for pattern, snapshot in expected.items() if "raised" in snapshot.parts]
        for backend in backends:
            for order in orders_of(name):
                verdict.found.extend(differing(verdict, sample, name, program, backend, order, expected, compiler))
    verdict.patterns = [each for each in verdict.patterns if not all(f"{each} | {name}" in verdict.undefined for name in chosen)]
    verdict.reason = "" if verdict.patterns else next(iter(verdict.undefined.values()), "")
    verdict.seconds = round(time.process_time() - started, 3)
    return verdict


def orders_of(observation: str) -> list[tuple[str, ...]]:
    return [patterns for patterns, only_for in ORDERS if not only_for or observation in only_for]


def all_arranged(sample: Sample, patterns: list[str]) -> Iterator[tuple[str, tuple[Sample, Any]]]:
    for pattern in patterns:
        arranged = arrange(sample, pattern)
        assert arranged is not None
        yield pattern, arranged


def differing(verdict: Verdict, sample: Sample, name: str, program: Program, backend: str, order: tuple[str, ...],
              expected: dict[str, Snapshot], compiler: Callable[..., Any]) -> Iterator[str]:
    """One compiled function, called with the patterns of an order in turn."""
    stator.reset()
    compiled = compiler(program, backend=backend)
    present = [pattern for pattern in order if pattern in expected]
    for pattern, arranged in all_arranged(sample, present):
        verdict.calls[backend] = verdict.calls.get(backend, 0) + 1
        if backend not in verdict.stopped:  # its first call
            with events.record() as log:
                snapshot = seen(compiled, *arranged)
            verdict.stopped[backend] = why_stopped(log)
        else:
            snapshot = seen(compiled, *arranged)
        for difference in differences(expected[pattern], snapshot, "", CHECKS.tolerance):
            yield f"{pattern} | {name} | {backend} | first {present[0]}: {difference}"
            break


def why_stopped(log: list[events.Event]) -> str:
    """The first graph break or eager call of a capture; empty where the capture is whole."""
    for event in log:
        if isinstance(event, events.GraphBreak):
            return f"{event.code}: {event.cause}"[:200]
        if isinstance(event, (events.EagerFallback, events.ProgramRaised, events.InternalFailure)):
            return f"{type(event).__name__}: {getattr(event, 'why', '') or getattr(event, 'error', '')}"[:200]
    return ""
