"""Each law's probe: equal to eager on every call, captured where it says so, and without a trace of the tracing."""

from __future__ import annotations

import aliases_and_moves  # noqa: F401  (register probes)
import effects_before_errors  # noqa: F401
import effects_in_order  # noqa: F401
import effects_of_filters  # noqa: F401
import effects_of_output  # noqa: F401
import facts_of_ancestors  # noqa: F401
import facts_of_arrays  # noqa: F401
import facts_of_asked_iterators  # noqa: F401
import facts_of_attribute_dicts  # noqa: F401
import facts_of_caches  # noqa: F401
import facts_of_choices  # noqa: F401
import facts_of_classes  # noqa: F401
import facts_of_comparisons  # noqa: F401
import facts_of_containers  # noqa: F401
import facts_of_contexts  # noqa: F401
import facts_of_copies  # noqa: F401
import facts_of_deep_copies  # noqa: F401
import facts_of_dict_views  # noqa: F401
import facts_of_files  # noqa: F401
import facts_of_functions  # noqa: F401
import facts_of_hashes  # noqa: F401
import facts_of_held_items  # noqa: F401
import facts_of_identity  # noqa: F401
import facts_of_iterators  # noqa: F401
import facts_of_kinds  # noqa: F401
import facts_of_lifetimes  # noqa: F401
import facts_of_locks  # noqa: F401
import facts_of_memory  # noqa: F401
import facts_of_module_classes  # noqa: F401
import facts_of_modules  # noqa: F401
import facts_of_names  # noqa: F401
import facts_of_objects  # noqa: F401
import facts_of_outside_pipelines  # noqa: F401
import facts_of_patches  # noqa: F401
import facts_of_protocols  # noqa: F401
import facts_of_randomness  # noqa: F401
import facts_of_results  # noqa: F401
import facts_of_sets  # noqa: F401
import facts_of_tensors  # noqa: F401
import facts_of_the_library  # noqa: F401
import facts_of_the_process  # noqa: F401
import facts_of_torch_settings  # noqa: F401
import facts_of_two_names  # noqa: F401
import facts_of_views  # noqa: F401
import facts_of_writers  # noqa: F401
import facts_that_decide  # noqa: F401
import pytest
from probing import CAPTURED, PROBES, Probe, ending_in_a_break, judge, world_changed_by_tracing

every_probe = pytest.mark.parametrize("probe", PROBES.values(), ids=str)


@every_probe
def test_equals_eager(probe: Probe) -> None:
    verdict = judge(probe.make)
    assert not verdict.failures
    assert not verdict.differences, "\n".join(verdict.differences[:8])
    if probe.expected == CAPTURED:
        assert not verdict.gave_up()
    else:
        assert set(verdict.breaks) <= set(probe.expected.split())


@every_probe
def test_tracing_changes_nothing(probe: Probe) -> None:
    assert not world_changed_by_tracing(probe.make)


@every_probe
def test_a_break_at_the_end_repeats_nothing(probe: Probe) -> None:
    verdict = judge(ending_in_a_break(probe.make))
    assert not verdict.failures
    assert not verdict.differences, "\n".join(verdict.differences[:8])
