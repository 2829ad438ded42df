"""Run one subject under every pattern and observation, eagerly and compiled, and list the differences.

In: a subject, backends and observations.  Out: a verdict: the pairs (subject, pattern) and calls that were compared, the
differences, and the reason when no sample can be made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

import stator
from tests.comparison import Call, Checks, Snapshot, Surroundings, differences, observe_call
from tests.enumeration.observations import OBSERVATIONS, Program
from tests.enumeration.opinfo_samples import SEED
from tests.enumeration.overloads import Subject
from tests.enumeration.patterns import ORDERS, PATTERNS
from tests.enumeration.samples import Sample, find_sample

BACKENDS = ("eager", "aot_eager")
HOME = "tests.enumeration.observations"
CHECKS = Checks(tolerance=1e-4, exception="class", warnings="none", gradients="none", seed=SEED)


@dataclass
class Verdict:
    subject: str
    reason: str = ""  # why there is no sample
    patterns: list[str] = field(default_factory=list)
    calls: int = 0
    found: list[str] = field(default_factory=list)

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


def is_deterministic(program: Program, sample: Sample) -> bool:
    first, second = (seen(program, *arranged) for arranged in (arrange(sample, "distinct"), arrange(sample, "distinct")) if arranged)
    return not list(differences(first, second, "", CHECKS.tolerance))


def judge(subject: Subject, backends: tuple[str, ...] = BACKENDS, observations: tuple[str, ...] = tuple(OBSERVATIONS),
          compiler: Callable[..., Any] = stator.compile) -> Verdict:
    verdict = Verdict(str(subject))
    sample, verdict.reason = find_sample(subject)
    if sample is None:
        return verdict
    at, limit = crossing(subject, sample)
    sample.place = at
    if not is_deterministic(OBSERVATIONS["value"](subject.call, at, limit), sample):
        verdict.reason = "results differ between two eager calls"
        return verdict
    verdict.patterns = [name for name in PATTERNS if arrange(sample, name) is not None]
    for name in observations:
        expected: dict[str, Snapshot] = {}
        program = OBSERVATIONS[name](subject.call, at, limit)
        for pattern in verdict.patterns:
            arranged = arrange(sample, pattern)
            assert arranged is not None
            expected[pattern] = seen(program, *arranged)
        for backend in backends:
            for order in (patterns for patterns, only_for in ORDERS if not only_for or name in only_for):
                verdict.found.extend(differing(verdict, sample, name, program, backend, order, expected, compiler))
    return verdict


def differing(verdict: Verdict, sample: Sample, name: str, program: Program, backend: str, order: tuple[str, ...],
              expected: dict[str, Snapshot], compiler: Callable[..., Any]) -> Iterator[str]:
    """One compiled function, called with the patterns of an order in turn."""
    stator.reset()
    compiled = compiler(program, backend=backend)
    first = next((pattern for pattern in order if pattern in expected), "")
    for pattern in order:
        if pattern not in expected:
            continue
        arranged = arrange(sample, pattern)
        assert arranged is not None
        verdict.calls += 1
        for difference in differences(expected[pattern], seen(compiled, *arranged), "", CHECKS.tolerance):
            yield f"{pattern} | {name} | {backend} | first {first}: {difference}"
            break
