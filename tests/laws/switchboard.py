"""The mechanisms behind the laws, each with a switch that turns it off.

In:  pytest's monkeypatch.  Out: an engine that lacks one mechanism, and the probes of which at least one must fail.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stator.capture import call_site, miss, stages, trace
from stator.capture.trace import Trace
from stator.emit.effects import write_back
from stator.emit.rebuild import decimal_contexts, returned_objects, values
from stator.emit.rebuild.local_owners import Owners
from stator.emit.residual import failing_calls, residual
from stator.graph.analysis import mutation
from stator.graph.analysis.mutation import Observation
from stator.graph.fx import graph_modules
from stator.guards.guard import Kind
from stator.guards.guard_set import GuardSet
from stator.heap import exposure, raw_access, shared_state
from stator.heap.adopt import outside_sets
from stator.heap.adopt import small_holders as holders_of_heap
from stator.heap.adopt.outside_arrays import Arrays
from stator.heap.heap import Heap
from stator.heap.identity_facts import Constants
from stator.heap.iterators import outside_iterators, peekable_iterators
from stator.heap.shared_state import Faces
from stator.heap.tracker import ShadowKind
from stator.interp import noted_effects
from stator.interp.arrays import native_numpy
from stator.interp.branches import assertions
from stator.interp.calls import allowed_calls, native_calls
from stator.interp.iteration import IteratorOf
from stator.interp.objects import assignment, set_order
from stator.interp.opcodes import exception_opcodes, name_opcodes
from stator.interp.tensors import leaf_flags, tensor_copies
from stator.interp.vm import VM
from stator.library.python import (
    caches_and_locks,
    context_variables,
    lifetimes,
    random_numbers,
    types_and_classes,
)


@dataclass(frozen=True)
class Switch:
    """A mechanism: how to turn it off, and who must notice."""

    name: str
    off: Callable[[Any], None]
    noticed_by: tuple[str, ...]

    def __repr__(self) -> str:
        return self.name


def nothing(*args: Any, **kwargs: Any) -> None:
    return None


def without_guards_of(kind: Kind) -> Callable[[Any], None]:
    def off(patch: Any) -> None:
        keep = GuardSet.add
        patch.setattr(GuardSet, "add", lambda self, guard: guard.kind is not kind and keep(self, guard))
    return off


def without(owner: Any, name: str, replacement: Any = nothing) -> Callable[[Any], None]:
    return lambda patch: patch.setattr(owner, name, replacement)


def without_item(table: dict[Any, Any], key: Any) -> Callable[[Any], None]:
    return lambda patch: patch.setitem(table, key, nothing)


def without_denial(patch: Any) -> None:
    patch.setattr(native_calls, "admit", lambda vm, fn, found, args: found)
    patch.setattr(allowed_calls, "runnable_row", lambda fn, row: row)


def without_originals(patch: Any) -> None:
    patch.setattr(graph_modules, "method_of_node", nothing)
    patch.setattr(residual, "fix_targets", nothing)


def forgetting(forget: Callable[[Any], None]) -> Callable[[Any], None]:
    """Write the effects back without those that `forget` drops from the machine."""
    def off(patch: Any) -> None:
        write = write_back.write_effects

        def write_less(build: Any) -> int:
            forget(build.vm)
            return write(build)

        patch.setattr(residual, "write_effects", write_less)
    return off


def forget_globals(vm: Any) -> None:
    for scope in vm.heap.scopes.values():
        scope.overlay.clear()


def the_object_itself(self: Any, value: Any, source: Any) -> Any:
    """Adopt without a stand-in and without a guard."""
    return value


@contextlib.contextmanager
def no_context(vm: Any) -> Any:
    yield


def drawn_at_once(vm: Any, function: Any, args: Any, kwargs: Any) -> Any:
    stream, *rest = args
    return function(vm.heap.original_of(stream), *rest, **kwargs)


def adopted_as(name: str) -> Callable[[Any], None]:
    return without(Heap, name, the_object_itself)


ALWAYS: dict[type, Any] = {}
_mro_of = raw_access.mro_of

_KINDS: dict[Kind, tuple[str, ...]] = {
    Kind.TYPE: ("class_reassigned", "tensor_or_number"),
    Kind.ID: ("code_replaced", "code_of_the_root_replaced", "enum_member_chosen"),
    Kind.EQUALS: ("attribute", "global_read", "closure_cell"),
    Kind.TENSOR: ("dtype_changed", "requires_grad_flipped"),
    Kind.LEN: ("list_truth", "list_grown"),
    Kind.KEYS: ("dict_iterated", "dict_order"),
    Kind.ABSENT: ("attribute_that_appears", "dict_get_with_default", "global_that_hides_a_builtin"),
    Kind.TYPE_ATTR: ("class_attribute", "monkeypatched_method"),
    Kind.ALIAS: ("two_tensors_after_one_twice", "identity_of_two_attributes"),
    Kind.NOT_ALIAS: ("two_texts_that_become_one", "unequal_objects_as_keys"),
    Kind.CELL_EMPTY: ("cell_that_is_empty",),
    Kind.SLOT_EMPTY: ("slot",),
    Kind.GLOBAL_STATE: ("branch_on_grad_mode", "deterministic_flag"),
    Kind.PARTITION: ("truth_read_after_an_operator_wrote_elsewhere",),
    Kind.FRESH_CALL: ("recursion_limit_asked", "abstract_class_registered"),
    Kind.SET_EQUALS: ("set_member",),
    Kind.PRESENT: ("key_searched_before_it_is_read",),
    Kind.NOT_ID: ("text_that_is_not_the_literal",),
    Kind.SHAPE: ("branch_on_an_open_size",),
    Kind.VALUES: ("buffer_that_decides", "grid_that_decides"),
    Kind.TYPE_FIELD: ("instance_of_a_new_ancestor", "bases_of_a_class", "name_of_a_class"),
    Kind.PARTITION: ("identity_of_two_attributes_that_meet", "dict_that_becomes_an_objects_own"),
}

SWITCHES = [
    *(Switch(f"guards of kind {kind.name}", without_guards_of(kind), probes) for kind, probes in _KINDS.items()),
    Switch("changes of locks, streams and flags", without(Heap, "note_handled"),
           ("lock_that_is_taken_under_another_name", "stream_that_is_seeded_under_another_name",
            "flag_that_is_set_under_another_name")),
    Switch("views of leaves", without(leaf_flags, "guard_bases"), ("flag_that_is_set_on_the_base_of_a_view",)),
    Switch("dicts that are parts of objects", without(shared_state, "instance_dict"), ("dict_that_becomes_an_objects_own",)),
    Switch("lists written back", without_item(write_back._CONTENTS, ShadowKind.LIST), ("list_written_back", "list_sorted_in_place")),
    Switch("dicts written back", without_item(write_back._CONTENTS, ShadowKind.DICT), ("order_of_keys_written_back", "defaultdict_written")),
    Switch("sets written back", without_item(write_back._CONTENTS, ShadowKind.SET), ("set_written",)),
    Switch("cells written back", without_item(write_back._CONTENTS, ShadowKind.CELL), ("closure_cell_written",)),
    Switch("attributes written back", without(write_back, "_diff_attributes"), ("list_written_back",)),
    Switch("slots written back", without(write_back, "_diff_slots"), ("slot_written",)),
    Switch("order of attributes", without(write_back, "put_back", lambda before, now: set()), ("attribute_order_written_back",)),
    Switch("globals written back", forgetting(forget_globals), ("global_written",)),
    Switch("class attributes written back", forgetting(lambda vm: vm.classes.overlays.clear()), ("class_attribute_written",)),
    Switch("text replayed", forgetting(lambda vm: vm.effects.noted.clear()), ("printed_text", "warnings_and_text_interleaved")),
    Switch("text before the changes", forgetting(lambda vm: setattr(vm.effects, "early", 0)), ("text_before_mutations",)),
    Switch("watched text breaks", without(noted_effects, "anything_changed", lambda heap: False), ("text_between_mutations",)),
    Switch("warnings that raise", without(noted_effects, "warnings_can_raise", lambda: False),
           ("warning_turned_into_an_error",)),
    Switch("stand-ins of lists", adopted_as("_adopt_list"), ("list_sorted_in_place", "list_changed_while_iterated")),
    Switch("stand-ins of dicts", adopted_as("_adopt_dict"), ("order_of_keys_written_back",)),
    Switch("stand-ins of sets", adopted_as("_adopt_set"), ("set_written",)),
    Switch("stand-ins of instances", adopted_as("_adopt_instance"), ("attribute_order_written_back", "setter_with_an_effect")),
    Switch("order of sets", without(exposure, "expose_order"), ("set_of_ints_in_table_order",)),
    Switch("order of frozensets", without(Constants, "guard_order"), ("frozenset_with_another_history",)),
    Switch("tables of sets", without(outside_sets, "guard_layout"), ("set_copied_with_another_history",)),
    Switch("what is done to sets", without(set_order, "note_operation"), ("set_merged_in_place", "set_written")),
    Switch("how sets made inside were filled", without(values, "members_as_added", lambda vm, value: None),
           ("set_filled_by_additions",)),
    Switch("sets that change under an iterator", without(outside_sets, "is_under_way", lambda iterator: False),
           ("set_of_plain_objects_changed_while_iterated",)),
    Switch("instance dicts are one object", without(Heap, "note_namespace"), ("instance_dict_as_a_value",)),
    Switch("what a raise changes", without(assertions, "MutationCheck", lambda vm: types.SimpleNamespace(changed=str)),
           ("raise_after_a_note", "raise_with_a_text_that_has_effects")),
    Switch("bases may change", without(raw_access, "mro_of", lambda cls: ALWAYS.setdefault(cls, _mro_of(cls))),
           ("bases_reassigned",)),
    Switch("groups from outside", without(outside_iterators, "refuse_unsettled"), ("group_that_is_invalid_once_its_groupby_moves",)),
    Switch("`__iter__` gives an iterator", without(IteratorOf, "returned", lambda self, vm, frame, value: vm.give(value, self.cont)),
           ("class_that_becomes_an_iterator",)),
    Switch("bases of objects", without(types_and_classes, "bases_of"), ("bases_of_an_object",)),
    Switch("registrations decide patterns", without(exception_opcodes, "collection_flags", lambda cls: 0),
           ("class_registered_as_a_sequence",)),
    Switch("setters that are other methods", without(assignment, "call_special", lambda vm, method, obj, args, cont:
                                                     assignment.store_generic(vm, obj, *args, cont)),
           ("setattr_that_is_setitem_outside",)),
    Switch("default deny", without_denial, ("clock", "random_module")),
    Switch("decimals on a context of their own", without(trace, "own_context", no_context),
           ("decimals_under_a_context",)),
    Switch("settings of decimals", without(context_variables, "same_thread_context"), ("decimals_under_a_context",)),
    Switch("flags of decimals", without(decimal_contexts, "raised_flags", lambda thread: ()), ("decimals_under_a_context",)),
    Switch("calls of a cache made again", forgetting(lambda vm: vm.effects.noted.clear()), ("lru_cache_hit",)),
    Switch("a cache is looked into", without(caches_and_locks, "kept_result", lambda wrapper, key: caches_and_locks.ABSENT),
           ("lru_cache_of_a_fact_that_changed",)),
    Switch("keys of a cache are not asked", without(caches_and_locks, "_unasked", lambda key: key),
           ("lru_cache_with_a_key_that_collides",)),
    Switch("a full cache breaks", without(caches_and_locks, "_guard_age", lambda vm, call, kept, fills: None),
           ("lru_cache_that_is_full_in_another_order", "lru_cache_that_forgets_its_own_results")),
    Switch("contents of arrays", without(Arrays, "expose"), ("numpy_array_changed_in_place",)),
    Switch("arrays written back", without_item(write_back._WRITTEN_WHOLE, ShadowKind.ARRAY), ("numpy_array_written_inside",)),
    Switch("arrays that overlap", without(Faces, "guard_overlaps"), ("arrays_that_come_to_share_memory",)),
    Switch("dead locals", without(Owners, "kept_alive", lambda self, value: self._unbound()),
           ("weak_reference_to_a_dead_local",)),
    Switch("numpy warns", without(native_numpy, "warnings_raise", contextlib.nullcontext), ("numpy_warning",)),
    Switch("iterators that others use", without(peekable_iterators, "is_upcoming", lambda iterator: True),
           ("outside_zip_of_one_iterator_twice",)),
    Switch("iterators from outside are not copied", without(native_calls, "refuse_copies"), ("outside_tee_over_a_generator_copied",)),
    Switch("buffers that have views", without(holders_of_heap._hook, "is_exported", lambda buffer: False),
           ("buffer_resized_under_a_view", "buffer_that_comes_to_have_a_view")),
    Switch("lists under iterators", without(peekable_iterators, "refuse_changed"), ("outside_iterator_over_a_list_that_changes",)),
    Switch("modules of the program load in order", without(name_opcodes, "is_installed", lambda name: True),
           ("module_loaded_inside",)),
    Switch("constants are one object", without(Constants, "note"), ("one_text_that_becomes_two", "identity_of_a_tuple")),
    Switch("cached functions are pure", without(caches_and_locks, "fingerprint", lambda heap: []), ("lru_cache",)),
    Switch("deaths that are seen", without(write_back, "refuse_watched_deaths"),
           ("callback_between_two_changes", "finalizer_of_a_part_that_dies_with_it")),
    Switch("references after letting go", without(lifetimes, "anything_let_go", lambda heap: False),
           ("weak_reference_asked_after_letting_go",)),
    Switch("memory that C code reads", without(exposure, "shows_memory", lambda value: False), ("memory_of_ctypes",)),
    Switch("methods of super", without(returned_objects, "receiver_split", lambda bound: (bound, None)),
           ("method_of_super_as_a_value",)),
    Switch("random numbers are drawn later", without(random_numbers, "draw", drawn_at_once), ("random_number_in_arithmetic",)),
    Switch("streams of a call that is made again", without(failing_calls, "restore_streams"),
           ("random_number_before_a_graph_that_fails",)),
    Switch("writes of operators", without(mutation, "declared_writes", lambda *call: []),
           ("truth_read_after_an_operator_wrote_elsewhere",)),
    Switch("writes that are observed", without(Observation, "written", lambda self: []),
           ("truth_read_after_a_function_of_the_graph_wrote_elsewhere",)),
    Switch("calls that must not run twice", without(failing_calls, "is_repeatable", lambda node: True),
           ("error_after_a_custom_operator_with_an_effect",)),
    Switch("order of calls that must not run twice", without(call_site, "keep_order"),
           ("effects_around_a_custom_operator_with_an_effect",)),
    Switch("copies of what was written", without(tensor_copies, "refuse_written"), ("module_written_and_copied",)),
    Switch("what a copied tensor takes along", without(tensor_copies, "layouts", lambda *tensors: ()),
           ("copied_part_that_comes_to_have_a_gradient",)),
    Switch("tensors are inputs", without(residual, "handed_over", lambda build, each: build.writer.constant(each.tensor)),
           ("parameter_replaced",)),
    Switch("iterators moved on", without_item(write_back._CONTENTS, ShadowKind.PEEKABLE), ("outside_iterator",)),
    Switch("generators moved on", without_item(write_back._WRITTEN_WHOLE, ShadowKind.OPAQUE), ("outside_generator",)),
    Switch("attributes of tensors written back", forgetting(lambda vm: vm.tensors.attributes.clear()),
           ("attribute_set_on_a_tensor",)),
    Switch("torch's stream of a call that is made again", without(failing_calls, "draws_inside", lambda module: False),
           ("error_after_draws", "error_after_draws_alone")),
    Switch("identities of originals", without(VM, "guard_identity", lambda self, value: value),
           ("identity_as_a_number", "hash_as_a_number")),
    Switch("locks left as the program leaves them", forgetting(lambda vm: vm.locks.used.clear()), ("lock_left_held",)),
    Switch("a trace lets go of objects", without(Trace, "release"), ("finalizer_of_an_outside_object",)),
    Switch("finalizers break", without(Heap, "_adopt_finalized", Heap._adopt_opaque), ("finalizer_of_an_outside_object",)),
    Switch("special methods of tensors are guarded", without(stages, "guard_slots"), ("length_of_tensors_patched",)),
    Switch("graphs call methods by object", without(graph_modules, "method_of_node"),
           ("original_called_past_a_later_patch",)),
    Switch("graphs call originals behind patches", without_originals, ("original_called_in_its_patch",)),
    Switch("patches are taken off", without(miss, "find_patches", list),
           ("patch_that_counts_what_a_capture_would_call",)),
]
