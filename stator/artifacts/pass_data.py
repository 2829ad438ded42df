"""Compiled graphs as data.   Inductor's code and libraries, AOTAutograd's graphs  ->  text, names, bytes

In: what a backend has returned.  Out: its passes (forward, backward, inference) as text of Python with the objects
that its names stand for, and the libraries of its kernels, for `pass_reader.py`.

A pass is called without AOTAutograd's own code around it.  Where that code does more than to call the pass (writes to
inputs after the graph, returned views), `backends/aot_wrappers.py` has its facts as data, and does the same.
"""

from __future__ import annotations

import ast
import base64
import functools
import hashlib
import types
from typing import Any

import torch
from torch import fx

from stator.artifacts.container import Json
from stator.artifacts.kernel_files import library_of, parts_of_kernel
from stator.artifacts.made_objects import is_empty
from stator.artifacts.object_writer import Describer
from stator.artifacts.pass_reader import LOADED, AlignedPass, BoxedPass
from stator.artifacts.raw_steps import Thing
from stator.artifacts.value_writer import NotPortable
from stator.backends.aot_wrappers import WrappedPasses, conditions_of, facts_of_wrappers
from stator.backends.autograd_passes import JoinedPasses
from stator.backends.inner_calls import Passes
from stator.graph.fx.graph_modules import TEXT
from stator.host.value_kinds import is_a

GENERATED = "torch._inductor.runtime.compile_tasks."
_SKIPPED = ("get_args", "benchmark_compiled_module")
_LARGEST_CONSTANT = 1 << 16  # elements of a tensor that is part of a compiled graph
_AROUND = "torch._functorch"
_LOOKED_AT = 5_000
_FOUND = ("ViewAndMutationMeta", "AOTAutogradResult", "BundledAOTAutogradResult")  # not looked into


# ---------------------------------------------------------------------- behind a compiled function


def passes_of(compiled: Thing) -> WrappedPasses | None:
    """The passes behind a function of AOTAutograd, with what is done around them; None for any other function."""
    if not is_a(compiled, types.FunctionType) or not str(compiled.__module__).startswith(_AROUND):
        return None
    try:
        around = facts_of_wrappers(compiled)
    except ValueError as why:
        raise NotPortable(str(why)) from None
    passes = Passes()
    for each in held_by(compiled):
        kind = type(each).__name__
        if kind == "CompiledFxGraph":
            passes.keep("backward" if each.fx_kwargs.get("is_backward") else "forward", 0, each)
        elif type(each) is types.FunctionType and each.__qualname__ == "run_as_is.<locals>.run":
            cells = dict(zip(each.__code__.co_freevars, each.__closure__ or (), strict=True))
            passes.keep(cells["kind"].cell_contents, 0, BoxedPass(each))
    first = "forward" if around.differentiable else "inference"
    found = {first if kind in ("forward", "inference") else kind: run for kind, (_, run) in passes.found.items()}
    if first not in found or passes.doubled:
        raise NotPortable("a compiled graph that AOTAutograd has wrapped otherwise")
    if around.differentiable and "backward" not in found:
        raise NotPortable("a backward pass that is compiled when backward() is first called")
    return WrappedPasses(around, found[first], found["backward"] if around.differentiable else None)


def held_by(compiled: object) -> list[Any]:
    """Objects that a compiled function holds, as far as AOTAutograd and its wrappers have put them together."""
    seen: dict[int, Any] = {id(compiled): compiled}
    waiting = [compiled]
    while waiting and len(seen) < _LOOKED_AT:
        for each in parts_of(waiting.pop()):
            if id(each) not in seen:
                seen[id(each)] = each
                waiting.append(each)
    return list(seen.values())


def parts_of(value: Thing) -> list[Any]:
    cls = type(value)
    if cls is types.FunctionType:
        cells = [cell.cell_contents for cell in value.__closure__ or () if not is_empty(cell)]
        return [*cells, *value.__dict__.values()]
    if cls is types.MethodType:
        return [value.__func__, value.__self__]
    if cls is functools.partial:
        return [value.func, *value.args, *value.keywords.values()]
    if is_a(value, type):  # the node of autograd, made for one graph
        return [each for name, each in vars(value).items() if name in ("compiled_fw", "compiled_bw", "metadata")]
    if cls.__module__.startswith((_AROUND, "torch._dynamo")) and cls.__name__ not in _FOUND:
        return list(getattr(value, "__dict__", {}).values())
    return []


# ---------------------------------------------------------------------- writing


class PassWriter(Describer):
    """Write entries with their compiled graphs; `blobs` gets each library once."""

    def __init__(self, root: types.FunctionType) -> None:
        super().__init__(root)
        self.blobs: dict[str, bytes] = {}
        for write in (self._generated, self._kernel, self._triton, self._aligned, self._autograd, self._joined,
                      self._graph, self._tensor):
            self._writers.insert(0, write)

    def number(self, value: Thing) -> int:
        found = super().number(value)
        conditions = conditions_of(value)
        if conditions is not None:
            self.rows[found][1] = ["conditions", conditions]
        return found

    def _autograd(self, value: Thing) -> Json:
        if type(value) is types.FunctionType and value.__qualname__ == "make_boxed_func.<locals>.g":
            return ["same", self.value(BoxedPass((value.__closure__ or ())[0].cell_contents))]
        found = value if type(value) is WrappedPasses else passes_of(value)
        if found is None:
            return None
        return ["wrapped", self.value(found.around), self.value(found.forward), self.value(found.backward)]

    def _joined(self, value: Thing) -> Json:
        if type(value) is not JoinedPasses:
            return None
        if value.recorded:
            raise NotPortable("a CUDA graph, which is recorded for addresses")
        return ["joined", value.inputs, value.count, self.value(value.steps), [*value.returned], [*value.unused],
                self.value(value.autocast)]

    def _generated(self, value: Thing) -> Json:
        """Inductor's `Runner.call`: the class as text, and what its names stand for."""
        if type(value) is not types.MethodType or value.__func__.__code__.co_filename != LOADED \
                and not str(value.__func__.__module__).startswith(GENERATED):
            return None
        if getattr(value.__self__, "partitions", ()):
            raise NotPortable("a graph that Inductor has cut into partitions")
        names = value.__func__.__globals__
        if TEXT in names:  # read from a file of ours
            text, used = generated_part(names[TEXT])
        else:
            with open(names["__file__"], encoding="utf-8") as file:
                text, used = generated_part(file.read())
        held = {name: self._named(names[name], text, name) for name in sorted(used) if name in names}
        return ["generated", text, held]

    def _named(self, value: Thing, text: str, name: str) -> Json:
        if type(value).__name__ not in ("KernelNamespace", "SimpleNamespace"):
            return self.value(value)
        tree = ast.walk(ast.parse(text))
        used = sorted({each.attr for each in tree if type(each) is ast.Attribute and type(each.value) is ast.Name
                       and each.value.id == name})
        return ["o", self._namespace(value, used)]

    def _namespace(self, value: Thing, used: list[str]) -> int:
        self.rows.append([["make", ["namespace", [[each, self.value(getattr(value, each))] for each in used]]], None])
        return len(self.rows) - 1

    def _kernel(self, value: Thing) -> Json:
        library = library_of(value) if type(value) is types.BuiltinFunctionType else None
        if library is None:
            return None
        name = hashlib.sha256(library).hexdigest()[:32]
        self.blobs[f"kernels/{name}"] = library
        return ["kernel", name]

    def _triton(self, value: Thing) -> Json:
        found = parts_of_kernel(value)
        if found is None:
            return None
        name = hashlib.sha256(found[1]).hexdigest()[:32]
        self.blobs[f"kernels/{name}"] = found[1]
        return ["triton", name, *found[0]]

    def _aligned(self, value: Thing) -> Json:
        if type(value) is AlignedPass:
            return ["aligned", self.value(value.run), [*value.places], [*value.written]]
        if type(value) is not types.FunctionType or value.__qualname__ != "align_inputs_from_check_idxs.<locals>.run":
            return None
        cells = {name: cell.cell_contents
                 for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)}
        return ["aligned", self.value(cells["model"]), [*cells["inputs_to_check"]], [*cells["mutated_input_idxs"]]]

    def _graph(self, value: Thing) -> Json:
        """A graph module that runs as it is: its nodes, with the dtypes that a pass under autocast casts to."""
        if type(value) is types.MethodType and is_a(value.__self__, fx.GraphModule):
            return ["method of graph", self.value(value.__self__), value.__func__.__name__]
        if not is_a(value, fx.GraphModule):
            return None
        numbers = {node: number for number, node in enumerate(value.graph.nodes)}
        inner = {name: self.value(each) for name, each in value.named_children() if is_a(each, fx.GraphModule)}
        held = sorted({node.target for node in value.graph.nodes if node.op == "get_attr"} - inner.keys())
        for name in held:
            if "." in name or (constant := self._tensor(getattr(value, name, None))) is None:
                raise NotPortable(f"a graph that holds {name}")
            inner[name] = ["constant", constant]
        return ["graph", [self._written(node, numbers) for node in numbers], inner]

    def _written(self, node: fx.Node, numbers: dict[fx.Node, int]) -> Json:
        def argument(value: Thing) -> Json:
            if type(value) is fx.Node:
                return ["node", numbers[value]]
            if is_a(value, (tuple, list)) and not hasattr(value, "_fields"):
                return ["tuple" if is_a(value, tuple) else "list", *map(argument, value)]
            if is_a(value, dict):
                return ["dict", *[[key, argument(item)] for key, item in value.items()]]
            if type(value) is slice:
                return ["slice", *map(argument, (value.start, value.stop, value.step))]
            return ["value", self.value(value)]

        target = self.value(node.target)
        return [node.op, node.name, target, argument(tuple(node.args)), argument(dict(node.kwargs)),
                dtypes_of(node.meta.get("val")), node.meta.get("stack_trace")]

    def _tensor(self, value: Thing) -> Json:
        """A small tensor that a compiler has made: a constant of the graph."""
        if type(value) is not torch.Tensor or value.requires_grad or value.device.type != "cpu" \
                or value.numel() > _LARGEST_CONSTANT or not value.is_contiguous():
            return None
        data = value.detach().flatten().view(torch.uint8).numpy().tobytes() if value.numel() else b""
        return ["tensor", self.value(value.dtype), list(value.shape), base64.b64encode(data).decode()]


def dtypes_of(value: Thing) -> Json:
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch.")
    return [dtypes_of(each) for each in value] if isinstance(value, (tuple, list)) else None


def generated_part(text: str) -> tuple[str, set[str]]:
    """Of a module that Inductor wrote, the part behind the kernels; and the names that it uses."""
    tree = ast.parse(text)
    kept = [each for each in tree.body
            if isinstance(each, (ast.ClassDef, ast.FunctionDef)) and each.name not in _SKIPPED
            or isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)
            and each.targets[0].id in ("runner", "call")]
    used = {each.id for part in kept for each in ast.walk(part) if isinstance(each, ast.Name)}
    used -= {getattr(part, "name", "") for part in kept} | {"runner", "call"}
    return "\n".join([ast.unparse(each) for each in kept]), used
