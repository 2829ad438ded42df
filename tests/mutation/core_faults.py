"""Faults of the C++ core: one fact that it no longer compares, one step that it leaves out.

In: the sources in csrc/.  Out: FAULTS, each a name, a file, a text that occurs there once, and what stands there instead
in a core that was built to be faulty; FAULT is true while that fault is on. `python -m tests.mutation.faulty_core` builds
such a core and lets the tests meet each fault.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Fault(NamedTuple):
    """`old` becomes `new`, in which FAULT says whether the fault is on."""

    name: str
    file: str
    old: str
    new: str

    @property
    def mutant(self) -> str:
        return f"{'variation' if self in VARIATIONS else 'core'}.{Path(self.file).stem} without {self.name}"


def never(name: str, file: str, condition: str) -> Fault:
    """A reason to look again that is not seen."""
    return Fault(name, file, condition, f"(!FAULT && ({condition}))")


def always(name: str, file: str, condition: str) -> Fault:
    """A comparison that always holds."""
    return Fault(name, file, condition, f"(FAULT || ({condition}))")


def skipped(name: str, file: str, statement: str) -> Fault:
    return Fault(name, file, statement, f"if (!FAULT) {statement}")


SEAL, CERTIFICATE, PROGRAM = "guards/tensor_seal.cpp", "guards/certificate.cpp", "guards/guard_program.cpp"
TENSOR, STATE, READ = "guards/tensor_check.cpp", "guards/state_check.cpp", "guards/raw_read.cpp"
SHAPE, PARTITION = "guards/shape_check.cpp", "guards/partition_check.cpp"
BINDING, CALL, FUNCTION = "entry/argument_binding.cpp", "entry/trampoline.cpp", "entry/compiled_function.cpp"
DISPATCH, REBUILT, ORIGIN = "entry/dispatch.cpp", "rebuilt_objects.cpp", "provenance.cpp"

FAULTS = [
    # Tensors proven again by the words of their metadata.
    never("a sealed tensor of another class", SEAL, "Py_TYPE(seal.object) != seal.type"),
    never("a sealed tensor around another TensorImpl", SEAL,
          "reinterpret_cast<const char*>(tensor.unsafeGetTensorImpl()) != seal.impl"),
    always("the words of sealed tensors", SEAL, "(differing[0] | differing[1] | differing[2] | differing[3]) == 0"),
    Fault("the last words of sealed tensors", SEAL, "    found |= *reinterpret_cast<const Quad*>(expected + first)",
          "    if (!FAULT || first != 11) found |= *reinterpret_cast<const Quad*>(expected + first)"),
    never("requires_grad of sealed tensors", SEAL, "requires_grad_of(seal.autograd) != seal.requires_grad"),
    never("a sealed tensor that gets a record of autograd's", SEAL, "autograd_of(seal.impl) != seal.autograd"),
    always("what wide words compare", SEAL, "has_wide_words ? compare_wide() : compare()"),
    never("views are not sealed", SEAL, "meta && autograd_meta(meta)->is_view_"),
    never("tensors of many dimensions are not sealed", SEAL, "impl->sizes_default().size() > 5"),
    # What was proven, proven again.
    always("words of the certificate", CERTIFICATE, "*words[i].place == words[i].expected"),
    always("new numbers at old addresses", CERTIFICATE, "held_[check.node] || value == check.payload.get()"),
    always("items left of an iterator", "guards/raw_read.cpp", "number >= count"),
    always("versions of classes", CERTIFICATE, "*version.place == version.expected"),
    always("arguments that a certificate leans on", CERTIFICATE, "frame_slot(frame, argument.node) == argument.object"),
    Fault("what is asked after the words", CERTIFICATE, "certificate.tensors.hold() ? run_listed(certificate.late, frame)",
          "certificate.tensors.hold() ? FAULT ? -1 : run_listed(certificate.late, frame)"),
    skipped("what is asked before the words", CERTIFICATE,
            "if (failed < 0) failed = run_listed(certificate.early, frame);"),
    always("what readers say", CERTIFICATE, "certificate_->calls.empty()"),
    Fault("facts of a dict that was written to", CERTIFICATE, "Py_ssize_t failed = run_dict_group(group, frame);",
          "Py_ssize_t failed = FAULT ? -1 : run_dict_group(group, frame);"),
    never("a dict that holds other objects", CERTIFICATE, "failed < 0 && slot != before[i]"),
    skipped("the length of a list that shrank", CERTIFICATE,
            "certificate_.expect(node.parent, length_place(base), static_cast<uint64_t>(PyList_GET_SIZE(base)));"),
    skipped("where the items of a list are", CERTIFICATE,
            "certificate_.expect(node.parent, &list->ob_item, list->ob_item);"),
    skipped("the class that a slot belongs to", CERTIFICATE,
            "if (place) certificate_.expect(node.parent, &base->ob_type, Py_TYPE(base));"),
    always("dicts that are watched", CERTIFICATE, "certificate.watch.is_quiet()"),
    never("a watched dict that died", CERTIFICATE, "certificate.watch.has_lost()"),
    skipped("a dict is watched once it was written to", CERTIFICATE,
            "certificate.watch.note(number, false);  // it is about to be written to"),
    Fault("memory that moves behind tensors that stay", CERTIFICATE, "return check.partition->is_about_objects() &&",
          "return (FAULT || check.partition->is_about_objects()) &&"),
    Fault("places of a partition that change", CERTIFICATE, "[&](int node) { return fixed_[node]; }",
          "[&](int node) { return FAULT || fixed_[node]; }"),
    # Which places share an address.
    never("places that come to hold one object", PARTITION, "met != 1"),
    never("places that come to share memory", PARTITION,
          "ranges[other].begin < mine.end && mine.begin < ranges[other].end"),
    always("groups of places", PARTITION, "std::equal(groups.begin(), groups.end(), groups_.begin())"),
    Fault("where shared memory begins", PARTITION, "(expected.in_group != found.in_group ||",
          "!FAULT && (expected.in_group != found.in_group ||"),
    Fault("groups that are only read", PARTITION, "bool written = written_[order[first]];",
          "bool written = FAULT || written_[order[first]];"),
    # Facts that are remembered by the version of a dict or class.
    Fault("versions of dicts", PROGRAM, "version == group.version && dict == group.dict",
          "(FAULT ? group.version != 0 : version == group.version) && dict == group.dict"),
    always("the dict that a version is of", PROGRAM, "dict == group.dict"),
    Fault("versions of classes in a first run", PROGRAM, "if (version != 0 && version == group.version) return -1;",
          "if (version != 0 && (FAULT ? group.version != 0 : version == group.version)) return -1;"),
    always("OrderedDicts keep their version when they are reordered", PROGRAM,
           "!(group.ordered && PyODict_Check(dict))"),
    never("programs that were cleared", PROGRAM, "cleared_"),
    Fault("inputs that are handed over together", PROGRAM, "PyTuple_SET_ITEM(tuple.get(), i, value_of(i));",
          "PyTuple_SET_ITEM(tuple.get(), i, value_of(FAULT ? packed - 1 - i : i));"),
    never("sets of another size", PROGRAM, "PySet_GET_SIZE(object) != expected.size"),
    # The facts of a tensor.
    Fault("dispatch keys", TENSOR, "impl->key_set().raw_repr() != keys_ ||",
          "(!FAULT && impl->key_set().raw_repr() != keys_) ||"),
    Fault("dtypes", TENSOR, "|| c10::typeMetaToScalarType(impl->dtype()) != dtype_)",
          "|| (!FAULT && c10::typeMetaToScalarType(impl->dtype()) != dtype_))"),
    never("devices", TENSOR, "Peek::device(impl) != device_"),
    Fault("sizes", TENSOR, "if (!sizes_.match(impl->sizes_default()))",
          "if (!FAULT && !sizes_.match(impl->sizes_default()))"),
    never("strides", TENSOR, "has_strides_ && !strides_.match(impl->strides_default())"),
    never("layouts", TENSOR, "layout_ != c10::kStrided && !layout_matches(impl)"),
    never("offsets", TENSOR, "has_offset_ && impl->storage_offset() != offset_"),
    always("requires_grad", TENSOR, "impl->requires_grad() == requires_grad_"),
    never("the contents of small tensors, item by item", TENSOR, "std::memcmp(at, expected, item_size_) != 0"),
    never("the contents of small tensors, row by row", TENSOR,
          "std::memcmp(at, expected, sizes[dim] * item_size_) != 0"),
    # The settings of torch around a call.
    Fault("grad mode", STATE, "c10::GradMode::is_enabled() != grad_", "(!FAULT && c10::GradMode::is_enabled() != grad_)"),
    never("inference mode", STATE, "c10::InferenceMode::is_enabled() != inference_"),
    never("autocast", STATE, "at::autocast::is_autocast_enabled(expected.device) != expected.enabled"),
    never("autocast's dtype", STATE, "at::autocast::get_autocast_dtype(expected.device) != expected.dtype"),
    never("autocast's cache", STATE, "at::autocast::is_autocast_cache_enabled() != cache_"),
    never("the default dtype", STATE, "c10::get_default_dtype_as_scalartype() != default_dtype_"),
    never("deterministic algorithms", STATE, "context.deterministicAlgorithms() != deterministic_"),
    never("deterministic algorithms that warn", STATE, "context.deterministicAlgorithmsWarnOnly() != warn_only_"),
    never("whether __torch_function__ is off", STATE,
          "static_cast<int64_t>(at::impl::PythonTorchFunctionTLS::get_disabled_state()) != disabled_"),
    never("modes of dispatch", STATE, "c10::impl::TorchDispatchModeTLS::stack_len() != dispatch_modes_"),
    never("torch.jit.trace", STATE, "c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Tracer)"),
    Fault("transforms of torch.func", STATE, "return functorch_matches() &&", "return (FAULT || functorch_matches()) &&"),
    Fault("modes of functions", STATE, "&& modes_match();", "&& (FAULT || modes_match());"),
    never("how many modes of functions", STATE, "TLS::stack_len() != static_cast<int64_t>(modes_.size())"),
    # Results that are built in C.
    Fault("attributes of a rebuilt object", REBUILT, "PyDict_Update(own.get(), args[1]) < 0",
          "(!FAULT && PyDict_Update(own.get(), args[1]) < 0)"),
    Fault("items of a rebuilt dict", REBUILT, "while (PyDict_Next(args[1]", "while (!FAULT && PyDict_Next(args[1]"),
    never("the order of a rebuilt OrderedDict", REBUILT, "PyODict_Check(args[0])"),
    never("members of a set that hash otherwise", REBUILT, "has != had"),
    Fault("what pop of a set takes next", REBUILT, "set->finger = finger;", "set->finger = FAULT ? 0 : finger;"),
    Fault("places of members that were removed", REBUILT, "if (!entry.key) continue;",
          "if (!entry.key || (FAULT && entry.hash == -1)) continue;"),
    # Names of places.
    Fault("families of sources", ORIGIN, "int equal = are_of_one_family(left, right);",
          "int equal = FAULT ? 1 : are_of_one_family(left, right);"),
    never("what tells sources of a family apart", ORIGIN, "equal > 0"),
    Fault("what a source starts from", ORIGIN, "left = provenance_of(left)->base.get();",
          "if (FAULT) return 1;\n    left = provenance_of(left)->base.get();"),
    # Constants and keys.
    never("types of constants", READ, "type != Py_TYPE(right)"),
    Fault("the sign of zero", READ, "return same_float(PyFloat_AS_DOUBLE(left), PyFloat_AS_DOUBLE(right));",
          "return FAULT ? PyFloat_AS_DOUBLE(left) == PyFloat_AS_DOUBLE(right)\n"
          "                 : same_float(PyFloat_AS_DOUBLE(left), PyFloat_AS_DOUBLE(right));"),
    never("lengths of tuples", READ, "size != PyTuple_GET_SIZE(right)"),
    never("how many keys", READ, "raw_length(dict) != size"),
    never("which keys, in which order", READ, "!same_constant(key, PyTuple_GET_ITEM(keys, i))"),
    Fault("the order of an OrderedDict", READ, "    if (PyODict_Check(dict)) {\n      key = ordered_key_at(dict, i);",
          "    if (!FAULT && PyODict_Check(dict)) {\n      key = ordered_key_at(dict, i);"),
    # Arguments, entries, shapes.
    Fault("which default belongs to which parameter", BINDING, "Py_ssize_t place = i - (positional - default_count);",
          "Py_ssize_t place = FAULT ? default_count - 1 : i - (positional - default_count);"),
    Fault("arguments behind *", BINDING, "PyObject* item = argument(positional + i);",
          "PyObject* item = argument(FAULT ? given - 1 : positional + i);"),
    skipped("an argument given twice", BINDING, "if (slots_[place]) return false;"),
    skipped("guesses of the dispatcher are forgotten with their entry", FUNCTION,
            "compiled_of(object)->dispatcher->forget();"),
    Fault("threads that run eagerly", CALL, "eager_reasons != 0 ?", "(!FAULT && eager_reasons != 0) ?"),
    never("a debugger steps through", CALL, "is_stepped()"),
    Fault("relations of sizes", SHAPE, "return stack.size() == 1 && !stack[0].is_float && stack[0].integer != 0;",
          "return FAULT || (stack.size() == 1 && !stack[0].is_float && stack[0].integer != 0);"),
    Fault("sums that pass 64 bits", SHAPE, "return !__builtin_add_overflow(a, b, &result.integer);",
          "return !__builtin_add_overflow(a, b, &result.integer) || FAULT;"),
    Fault("divisions of negative sizes", SHAPE, "remainder != 0 && (remainder < 0) != (right < 0)",
          "!FAULT && remainder != 0 && (remainder < 0) != (right < 0)"),
    never("numbers that are no ordinary floats", SHAPE, "!PyFloat_CheckExact(object)"),
]

# Ways that the core may go as well: a machine without wide words, guesses that are all the same, nothing remembered.
# Results stay what they are.
VARIATIONS = [
    Fault("no wide words", SEAL, "has_wide_words ? compare_wide()", "has_wide_words && !FAULT ? compare_wide()"),
    Fault("no seals", SEAL, "if (!layout_is_known ||", "if (FAULT || !layout_is_known ||"),
    Fault("no certificates", CERTIFICATE, "if (!certificate_ || !certificate_->valid) return unproven;",
          "if (FAULT || !certificate_ || !certificate_->valid) return unproven;"),
    Fault("calls that all look alike to the dispatcher", DISPATCH, "*fingerprint = mixed;",
          "*fingerprint = FAULT ? 7 : mixed;"),
    Fault("sources that all hash alike", ORIGIN, "self->hash = hash;", "self->hash = FAULT ? 7 : hash;"),
]


def numbered() -> list[tuple[int, Fault]]:
    """Every fault and variation with the number that turns it on."""
    return list(enumerate([*FAULTS, *VARIATIONS], start=1))
