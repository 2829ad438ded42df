"""Hold what the code base has reached.   sizes of classes, files and of the whole; annotations of `Any`; names of files

    python tools/ratchets.py            prints broken rules, and exits with 1 if there are any
    python tools/ratchets.py --update   lowers the stored numbers to what the tree has; never raises one

In: the texts of `stator/` and `csrc/`, `docs/glossary.md`, and `tools/ratchets.json` with the stored numbers.
Out: one line for each broken rule:

- a class has at most 15 attributes: names assigned on `self` in its body, and annotated fields;
- the number of annotations that are just `Any` only falls, and so does the number of lines outside LATER_ROOMS;
- a file has at most 500 lines; one that is longer is stored, and only shrinks;
- every word of a file name in `stator/` is in the glossary, in torch's or CPython's vocabulary, or plain English.

How many files a folder may have is checked by `tools/layers.py`.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STORE = ROOT / "tools" / "ratchets.json"
GOAL_LINES = 47_000
LATER_ROOMS = {  # capabilities that were built after the goal was set, with the chapter that describes each
    "stator/backends/regions/": "docs/regions.md",
    "stator/backends/background/": "docs/eager-start.md",
    "stator/artifacts/": "docs/artifacts.md",
    "stator/backends/aot_wrappers.py": "docs/artifacts.md",
    "stator/capture/first_call.py": "docs/artifacts.md",
    "stator/host/lazy_imports.py": "docs/artifacts.md",
    "stator/ranks/": "docs/ranks.md",
    "stator/capture/rank_agreement.py": "docs/ranks.md",
    "stator/library/distributed/": "docs/ranks.md",
    "stator/report/": "docs/report.md",
    "stator/cli/": "docs/report.md",
    "stator/remedies/": "docs/remedies.md",
    "stator/installation/": "docs/from-torch-compile.md",
    "stator/contracts/": "docs/contract.md",
    "stator/dumps/": "docs/report.md",
    "stator/guards/guard_filter.py": "docs/from-torch-compile.md",
    "stator/backends/kernel_launches.py": "docs/performance.md",
    "stator/backends/symbol_inputs.py": "docs/from-torch-compile.md",
    "stator/interp/calls/module_copies.py": "docs/interpreter.md",  # step 17: C modules that are imported afresh
    "stator/interp/objects/weak_access.py": "docs/interpreter.md",  # step 17: weakref.proxy
    "stator/interp/recorded_warnings.py": "docs/interpreter.md",  # step 17: warnings in lists and as exceptions
    "stator/interp/objects/class_views.py": "docs/interpreter.md",  # step 17: `__dict__` of a class that is changed
    "stator/heap/adopt/decimal_state.py": "docs/heap.md",  # step 17: contexts of decimals
    "stator/emit/rebuild/decimal_contexts.py": "docs/heap.md",  # step 17: contexts of decimals
    "stator/interp/objects/function_attributes.py": "docs/interpreter.md",  # step 17: f.__name__ = "g"
    "stator/interp/objects/shown_values.py": "docs/heap.md",  # step 17: texts of objects of C code
    "stator/library/namespaces/": "docs/interpreter.md",  # step 17: dir() of what the trace has changed
    "stator/library/python/lifetimes.py": "docs/interpreter.md",  # step 17: weakref.proxy, gc.collect
    "stator/emit/rebuild/shown_addresses.py": "docs/heap.md",  # step 17: texts with addresses
    "stator/library/python/pickling.py": "docs/interpreter.md",  # step 17: pickles of objects
    "stator/interp/generators/async_opcodes.py": "docs/interpreter.md",  # step 17: answers of __await__ and __anext__
    "stator/library/python/random_states.py": "docs/heap.md",  # step 17: states of streams as facts
    "stator/interp/number_warnings.py": "docs/interpreter.md",  # step 17: warnings of conversions
    "stator/library/python/descriptor_methods.py": "docs/interpreter.md",  # step 17: descriptors called by hand
    "stator/library/python/asserted_warnings.py": "docs/interpreter.md",  # step 17: assertWarns
    "stator/library/python/exception_groups.py": "docs/interpreter.md",  # step 17: groups from outside
    "stator/library/python/small_types.py": "docs/interpreter.md",  # step 17: pack_into, modules made by hand
    "stator/library/asynchronous/": "docs/interpreter.md",  # step 17: asyncio.run, tasks, anext
    "stator/library/python/finalizers.py": "docs/interpreter.md",  # step 17: __del__ of classes made inside
    "stator/library/process/": "docs/interpreter.md",  # step 17: files, environment, hooks
    "stator/library/python/patterns.py": "docs/interpreter.md",  # step 17: patterns that print or warn
    "stator/library/python/runtime_code.py": "docs/interpreter.md",  # step 17: eval, exec and compile
    "stator/backends/graph_key.py": "docs/regions.md",  # step 11: pieces of equal content
    "stator/backends/inner_calls.py": "docs/regions.md",  # step 11: passes of pieces, called directly
    "stator/backends/autograd_passes.py": "docs/regions.md",  # step 11: one node of autograd over all pieces
    "stator/backends/compiled_graphs.py": "docs/regions.md",  # step 11: one compilation for equal graphs
    "stator/capture/code_memory.py": "docs/regions.md",  # step 11: numbers that differ between compile() calls
    "stator/graph/metadata/write_layouts.py": "docs/capture-time.md",  # step 11: writes and reshapes without FakeTensor
    "stator/interp/calls/named_regions.py": "docs/regions.md",  # step 11: calls that the user names as pieces
    "stator/interp/objects/process_facts.py": "docs/artifacts.md",  # step 12: facts that no entry is stored with
    "stator/host/shown_names.py": "docs/report.md",  # step 15: names that users give
    "stator/capture/eager_start.py": "docs/eager-start.md",  # step 11: calls that run while another process compiles
    "stator/backends/write_counts.py": "docs/training.md",  # step 16: versions and inference tensors behind compilers
    "stator/backends/step_gradients.py": "docs/training.md",  # step 13: gradients between pieces of a step
    "stator/library/torch/attention_records.py": "docs/graph-breaks.md",  # step 16: SDPAParams
    "stator/library/torch/variables.py": "docs/graph-breaks.md",  # step 16: torch.autograd.Variable, Module.to()
    "stator/interp/calls/function_mode_stack.py": "docs/subclasses.md",  # step 16: modes entered or left for good
    "stator/emit/effects/mode_stack.py": "docs/subclasses.md",  # step 16: modes entered or left for good
    "stator/interp/pure_kernels.py": "docs/memory.md",  # step 16: custom operators without effects
    "stator/interp/calls/composite_kernels.py": "docs/memory.md",  # step 16: operators made of others
    "stator/library/autograd/backward.py": "docs/training.md",  # step 13: backward() in the graph
    "stator/library/python/random_functions.py": "docs/training.md",  # step 13: masks from numpy's random numbers
    "stator/library/autograd/leaf_hooks.py": "docs/training.md",  # step 13: hooks on leaves
    "stator/interp/key_effects.py": "docs/heap.md",  # step 17: what filling a stand-in must not repeat
    "stator/graph/values/branch_guards.py": "docs/training.md",  # step 13, 16: values computed again
    "stator/library/autograd/module_hooks.py": "docs/training.md",  # step 13: full backward hooks in the graph
    "stator/library/autograd/gradient_scaler.py": "docs/training.md",  # step 13: GradScaler
    "stator/library/torch/ctc_loss.py": "docs/training.md",  # step 13: the CTC loss
    "stator/library/autograd/backward_code.py": "docs/training.md",  # step 13: code that a captured pass runs
    "stator/library/autograd/gradient_checks.py": "docs/training.md",  # step 13: anomaly mode, hooks on saved tensors
    "stator/graph/analysis/step_functions.py": "docs/training.md",  # step 13: gradients beside hooks of modules
    "stator/host/hook_handles.py": "docs/training.md",  # step 13: handles of hooks on fakes
    "stator/interp/outside_exceptions.py": "docs/interpreter.md",  # step 17: exceptions that the caller handles
    "stator/interp/backward_ahead.py": "docs/training.md",  # step 13: branches before a backward pass
    "stator/emit/residual/kept_inputs.py": "docs/training.md",  # step 13: copies for a graph that fails
    "stator/backends/number_checks.py": "docs/training.md",  # step 13: checks of step counts
    "stator/interp/draws_ahead.py": "docs/training.md",  # step 13: branches on random numbers
    "stator/interp/branches/branch_gradients.py": "docs/training.md",  # step 13: gradients through branches
    "stator/library/torch/tensor_values.py": "docs/graph-breaks.md",  # step 16: torch.equal
    "stator/interp/tensors/data_in_graph.py": "docs/graph-breaks.md",  # step 16: `x.data = y` of a tensor that is used
    "stator/library/torch/packed_sequences.py": "docs/graph-breaks.md",  # step 16: packed sequences
    "stator/graph/record/item_layouts.py": "docs/graph-breaks.md",  # step 16: strides that only kernels know
    "stator/graph/record/tensor_index.py": "docs/graph-breaks.md",  # step 16: masks of bytes
    "stator/library/autograd/node_hooks.py": "docs/graph-breaks.md",  # step 16: hooks on nodes of autograd
    "stator/capture/checkpoint_keys.py": "docs/from-torch-compile.md",  # step 16: keys of torch.compile's modules
    "stator/host/installed_torch.py": "docs/support.md",
    "stator/interp/opcodes/opcodes_since_313.py": "docs/support.md",  # step 16: Python 3.13
    "stator/interp/opcodes/opcodes_since_314.py": "docs/support.md",  # step 16: Python 3.14
    "stator/code/opcodes_since_314.py": "docs/support.md",  # step 16: Python 3.14
}
LONGEST_FILE = 500
MOST_ATTRIBUTES = 15
MOST_EXCEPTIONS = 5
LARGE_CLASSES = {
    "stator/interp/frame.py:Frame": "mirrors CPython's frame, one attribute for each of its fields",
    "stator/native/rows_declare.py:Row": "every fact about a C function, one field for each",
    "stator/settings/options.py:Settings": "the options of compile(), one attribute for each that a user may give",
}

# Words of torch's and CPython's documentation.
VOCABULARY = frozenset("""dataclass fields
abstract aot api argument arithmetic array assert assertion assignment async attention attribute autograd backend
backward binding builtin cache call callable checkpoint class compilation compile compiled compiler cond constant
container context copied copies copying cuda data decimal decode default delegation deprecation descriptor device
dimension dispatch distributed double dropout eager effect encode environment error exception fake file filter flag
float flow forward frame frozen func function generator global grad gradient graph guard hashing hook identity
immutable import index inductor inherited input instance instantiation instruction intrinsic introspection io item
iteration iterator joins kernel layer layout lazy leaf library list local lock logging lookup membership memory meta
metadata method mode model module mutation name namespace naming nested node noted number numpy object op opcode
operation operator optimiser option optree output package partition patch pickling pieces polyfill printing propagation
protocol random range raw recompile record recorded recurrent reference repro returned rng runtime scalar scope set
setting shape signal size stack state static statistics stream subclass subgraph sum suspended symbol symbolic system
table tensor text torch trace traceback traced transform transformed type unittest value variable varying view vm vmap
warning weak wrapper
""".split())

# Plain English, as few as there are.
PLAIN = frozenset("""
access address advance ahead algorithm allowed and asserted auditor blank bodies bookkeeping boundaries branch
building captured catcher change check config content count declare decomposed deferred demo docs dropped event
explanation exposure fail failed failing family finding follow forced form formatting generation group handled
handler handover held hidden higher histories idle init installation installed interpreter kept keypath kind known
length lifetime likeness line liveness llama located lower machine made main maker mark marked may miss named new
open order original overlapping own owner pattern peekable place plain policies policy probe process profile
progress pure queries quiet reach reader recorder recording refused registered registry remade render repeat
replaced replayed run running saved search semantics shared sharing shown since small stance stator step straight
suspend template trial uncertain unread verify writer
""".split())


# ---------------------------------------------------------------------- measures


def python_sources(root: Path) -> dict[str, str]:
    """The package's modules, by path."""
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted((root / "stator").rglob("*.py"))}


def native_sources(root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted((root / "csrc").rglob("*.c*"))}


@functools.lru_cache(maxsize=None)
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(text)))


def attributes_of(cls: ast.ClassDef) -> set[str]:
    """Names assigned on `self`, and annotated fields."""
    fields = [each.target for each in cls.body if isinstance(each, ast.AnnAssign)]
    found = {target.id for target in fields if isinstance(target, ast.Name)}
    for node in ast.walk(cls):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) \
                and isinstance(node.value, ast.Name) and node.value.id == "self":
            found.add(node.attr)
    return found


def annotations(text: str) -> Iterator[ast.expr | None]:
    for node in nodes_of(text):
        if isinstance(node, (ast.arg, ast.AnnAssign)):
            yield node.annotation
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.returns


def count_any(sources: Mapping[str, str]) -> int:
    """Annotations that are just `Any`."""
    return sum(isinstance(each, ast.Name) and each.id == "Any"
               for text in sources.values() for each in annotations(text))


def count_lines(sources: Mapping[str, str]) -> int:
    return sum(text.count("\n") for path, text in sources.items() if not path.startswith(tuple(LATER_ROOMS)))


def long_files(sources: Mapping[str, str]) -> dict[str, int]:
    return {path: text.count("\n") for path, text in sources.items() if text.count("\n") > LONGEST_FILE}


def glossary_words(text: str) -> set[str]:
    """Words that the table of the glossary defines."""
    rows = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
    return {word for row in rows for word in re.split(r"[\s-]+", row.lower().strip("` "))}


# ---------------------------------------------------------------------- rules


def large_classes(sources: Mapping[str, str], exceptions: Mapping[str, str]) -> Iterator[str]:
    if len(exceptions) > MOST_EXCEPTIONS:
        yield f"{len(exceptions)} classes are excepted, more than {MOST_EXCEPTIONS}"
    large = set()
    for path, text in sources.items():
        for node in nodes_of(text):
            if isinstance(node, ast.ClassDef) and len(attributes_of(node)) > MOST_ATTRIBUTES:
                large.add(name := f"{path}:{node.name}")
                if not exceptions.get(name):
                    yield f"{name} has {len(attributes_of(node))} attributes, more than {MOST_ATTRIBUTES}"
    for name in sorted(set(exceptions) - large):
        yield f"{name} is no exception any more"


def too_many_any(sources: Mapping[str, str], stored: int) -> Iterator[str]:
    if (count := count_any(sources)) > stored:
        yield f"{count} annotations are Any, more than the {stored} that there were"


def too_many_lines(sources: Mapping[str, str], stored: int) -> Iterator[str]:
    if (count := count_lines(sources)) > max(stored, GOAL_LINES):
        yield f"stator/ has {count:,} lines outside later rooms, more than the {stored:,} that it had"


def too_long_files(sources: Mapping[str, str], stored: Mapping[str, int]) -> Iterator[str]:
    for path, count in long_files(sources).items():
        if count > stored.get(path, LONGEST_FILE):
            yield f"{path} has {count} lines, more than {stored.get(path, LONGEST_FILE)}"


def unknown_words(paths: Iterator[str] | list[str], glossary: set[str]) -> Iterator[str]:
    known = glossary | VOCABULARY | PLAIN
    for path in paths:
        for word in re.findall(r"[a-z]+", Path(path).stem):
            if not {word, word.removesuffix("s"), word.removesuffix("es")} & known:
                yield f"{path}: `{word}` is in no list of words; define it in docs/glossary.md or use the field's word"


def problems(root: Path, stored: Mapping[str, Any]) -> list[str]:
    """All broken rules of a tree."""
    sources = python_sources(root)
    return [*large_classes(sources, LARGE_CLASSES), *too_many_any(sources, stored["any"]),
            *too_many_lines(sources, stored["lines"]),
            *too_long_files({**sources, **native_sources(root)}, stored["long_files"]),
            *unknown_words(list(sources), glossary_words((root / "docs" / "glossary.md").read_text()))]


def lowered(stored: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """The stored numbers, each replaced by a smaller measured one; a file that is short enough is dropped."""
    lengths, now = stored["long_files"], measured["long_files"]
    return {"any": min(stored["any"], measured["any"]), "lines": min(stored["lines"], measured["lines"]),
            "long_files": {path: min(lengths[path], now[path]) for path in lengths if path in now}}


def measure(root: Path) -> dict[str, Any]:
    sources = python_sources(root)
    return {"any": count_any(sources), "lines": count_lines(sources),
            "long_files": long_files({**sources, **native_sources(root)})}


def main(arguments: list[str]) -> int:
    stored = json.loads(STORE.read_text())
    if "--update" in arguments:
        stored = lowered(stored, measure(ROOT))
        STORE.write_text(json.dumps(stored, indent=2) + "\n")
    found = problems(ROOT, stored)
    print("\n".join(found) or f"{stored['any']} annotations of Any, {stored['lines']:,} lines "
          f"(goal {GOAL_LINES:,}), {len(LARGE_CLASSES)} large classes, {len(stored['long_files'])} long files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
