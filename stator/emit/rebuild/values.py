"""Rebuild values.   a stand-in or fresh object of the trace  ->  an expression of the residual program

Outside objects are read from their sources; tensors are graph outputs; fresh containers and instances are made
anew, once per object (aliases stay aliases), allocated before they are filled where they refer to themselves.
"""

from __future__ import annotations

import collections
import enum
import functools
import random
import re
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from stator import _core
from stator.breaks import Break, Strategy
from stator.emit.rebuild.deferred_texts import write_text
from stator.emit.rebuild.returned_iterators import rebuild_generator, rebuild_iterator
from stator.emit.rebuild.returned_objects import (
    rebuild_class,
    rebuild_exception,
    rebuild_holder,
    rebuild_token,
)
from stator.emit.rebuild.shown_addresses import write_shown
from stator.emit.source_writer import Writer
from stator.graph.record.recorder import Recorder
from stator.heap.heap import Heap
from stator.heap.pure_readers import plain_value
from stator.heap.raw_access import (
    CONSTANT_TYPES,
    IDENTITY_TYPES,
    instance_dict,
    is_member_of_pybind,
    items_in_order,
    namespace_of,
    new_shell,
    raw_members,
    set_instance_dict,
    slot_values,
)
from stator.heap.tracker import Box, ShadowKind
from stator.host.suspended_patches import original
from stator.host.value_kinds import is_a, module_of
from stator.interp.key_effects import dict_with_hashes, known_hashes, runs_python
from stator.interp.objects.native_attributes import is_outside
from stator.interp.objects.process_facts import note_hashes, note_order
from stator.interp.objects.set_order import members_as_added
from stator.interp.tensors.tensor_copies import copied_by_memo
from stator.interp.vm import VM
from stator.library.asynchronous.loop_tasks import OF_LOOPS
from stator.library.autograd.autograd_hooks import removed_handle
from stator.library.process.made_files import File
from stator.library.python.random_states import remade_stream, state_of
from stator.library.torch.attention_records import FIELDS, PARAMETERS
from stator.ranks.option_records import RECORDS, copy_options
from stator.shapes.symbolic_values import GRAPH_SCALARS, SYMBOLIC, UNREAD, DeferredText, is_ragged
from stator.source import Drawn, Source


class Rebuilder:
    """Turns values of the trace into expressions; collects graph outputs and outside values as it goes."""

    def __init__(self, writer: Writer, heap: Heap, recorder: Recorder, vm: VM) -> None:
        self.writer, self.heap, self.recorder, self.vm = writer, heap, recorder, vm
        self.memo: dict[int, str] = {}
        self.kept: list[Any] = []
        self.outputs: list[Any] = []  # fake tensors the graph must return
        self.output_index: dict[int, int] = {}
        self.choices: dict[int, str] = {}  # of tensors that came out of a captured branch -> their variable
        self.wanted: dict[Source, str] = {}  # outside values the entry hands over -> parameter name
        self.drawn: dict[Source, str] = {}  # what the residual draws or copies before the graph -> its variable
        self.literals: dict[str, Any] = {}  # text -> the constant that it stands for
        self.raised: dict[str, dict[int, dict[str, Any]]] = {}  # of exceptions -> locals of their tracebacks, by number
        self.afterwards: list[str] = []  # statements that follow the write-backs

    def outside(self, source: Source) -> str:
        names, hint = (self.drawn, "drawn") if isinstance(source, Drawn) else (self.wanted, "")
        if source not in names:
            names[source] = self.writer.fresh(hint or source.text())
        return names[source]

    def tensor(self, fake: FakeTensor) -> str:
        tracker = self.heap.by_standin.get(id(fake))
        if tracker is not None:
            return self.outside(tracker.source)
        if id(fake) in self.recorder.copies:
            return self.outside(self.recorder.copies[id(fake)][1])
        made = self.output(fake, fake)
        choice = self.recorder.uncertain.choices.get(id(fake))
        return made if choice is None else self.chosen(fake, choice, made)

    def output(self, key: object, value: object) -> str:
        """An output of the graph, once for each `key`."""
        index = self.output_index.get(id(key))
        if index is None:
            index = self.output_index[id(key)] = len(self.outputs)
            self.outputs.append(value)
        return f"out[{index}]"

    def chosen(self, fake: FakeTensor, choice: Any, made: str) -> str:
        """A tensor that a captured branch may have left as it was: that very tensor, or the one it made."""
        name = self.choices.get(id(fake))
        if name is None:
            name = self.choices[id(fake)] = self.writer.fresh("chosen")
            ways = [made if each is None else self.tensor(each) for each in (choice.when_true, choice.when_false)]
            self.writer.line(f"{name} = {ways[0]} if {self.value(choice.condition)} else {ways[1]}")
        return name

    def value(self, value: Any) -> str:
        cls = type(value)
        if cls in CONSTANT_TYPES and value == value:
            if cls is int and value in self.vm.identity.addresses:
                raise Break("SB007", "the address of a tuple or a memo that was made inside")
            if cls is int:  # the object will be another one, elsewhere
                for name, noted in (("id", self.vm.identity.ids), ("hash", self.vm.identity.hashes)):
                    if (refer := noted.get(value)) is not None:
                        if (seen := refer()) is None:
                            raise Break("SB007", f"the {name} of an object that was made inside, and let go")
                        return f"{name}({self.value(seen)})"
            if cls is str and self.vm.identity.shown and (shown := write_shown(self, value)) is not None:
                return shown
            text = self.scalar(value)
            # Two equal texts or numbers stay two objects; the first one is written out.
            return text if self.literals.setdefault(text, value) is value else self.writer.held(value)
        if cls is FakeTensor:
            return self.fresh_tensor(value)
        if cls in SYMBOLIC:
            return self.symbol(value)
        if cls is Box:
            return self.value(value.value) if value.forced else self.outside(value.source())
        known = self.memo.get(id(value))
        if known is not None:
            return known
        tracker = self.heap.by_standin.get(id(value))
        if tracker is not None:
            text = self.outside(tracker.source)
        elif id(value) in self.heap.sources:
            text = self.outside(self.heap.sources[id(value)])
        elif (source := self.heap.constants.source_of(value)) is not None:
            text = self.outside(source)
        elif (refer := self.heap.dicts.owners.get(id(value))) is not None and (owner := refer()) is not None:
            text = f"{self.writer.constant(namespace_of, 'vars')}({self.value(owner)})"
        elif cls in CONSTANT_TYPES:  # a NaN, which containers find by identity: one object in all places
            text = self.variable(value, "nan", self.scalar(value))
        else:
            text = self.made(value, cls)
        self.memo[id(value)] = text
        self.kept.append(value)
        return text

    def method(self, name: str) -> str:
        """Torch's own method of tensors, past one that the program puts in its place."""
        return self.writer.constant(original(name), name)

    def numpy_of(self, tensor: torch.Tensor) -> str:
        return f"{self.method('numpy')}({self.value(tensor)})"

    def symbol(self, value: Any) -> str:
        if type(value) is DeferredText:
            return write_text(self, value)
        if type(value) in GRAPH_SCALARS and id(value) not in self.heap.by_standin:
            return self.variable(value, "scalar", f"{self.numpy_of(value.tensor)}[()]")
        if type(value) in UNREAD or id(value) in self.heap.by_standin:
            return self.outside(self.heap.by_standin[id(value)].source)
        if type(value) is torch.SymInt and is_ragged(value):
            return self.ragged_size(value)
        number = self.recorder.symbols.numbers.get(value.node.expr)
        if number is not None:
            return self.outside(number[1])
        node = self.recorder.symbols.node_of(value)
        if not is_a(node, fx.Node):
            return self.scalar(node)
        if type(value) is torch.SymFloat:  # compilers return tensors and integers
            known = self.memo.get(id(node))
            if known is None:
                with self.recorder.fake_mode:
                    # Not torch.full, which needs the number.
                    one = self.recorder.call(torch.ones, ((),), {"dtype": torch.float64, "device": "cpu"})
                    boxed = self.recorder.call(torch.mul, (one, value), {})
                known = self.memo[id(node)] = f"{self.method('item')}({self.tensor(boxed)})"
            return known
        return self.output(node, value)

    def ragged_size(self, value: torch.SymInt) -> str:
        """The size of a jagged tensor, or a multiple of it: only a tensor itself tells which one it is."""
        symbols = self.recorder.symbols
        [symbol] = value.node.expr.free_symbols & symbols.shape_env.ragged.keys()
        node, path = symbols.definitions[symbol]
        outer = self.recorder.wrappers.outers[id(node.meta["example_value"])]
        text = f"{self.tensor(outer)}.size({path[1].idx})"
        factor = value.node.expr / symbol
        if factor == 1:
            return text
        number = int(factor) if factor.is_number else symbols.shape_env.create_symintnode(factor, hint=None)
        return f"({text} * {self.value(number)})"

    def scalar(self, value: object) -> str:
        if type(value) is float:
            return repr(value) if abs(value) < float("inf") else f"float('{value!r}')"
        return self.writer.constant(value)

    def fresh_tensor(self, fake: FakeTensor) -> str:
        cls, made = self.recorder.classes.get(id(fake)), id(fake) not in self.heap.by_standin
        if cls is not None and made and id(fake) not in self.recorder.wrappers.behind:
            return self.subclass(fake, cls)
        text = self.tensor(fake)
        attributes = self.vm.tensors.attributes.get(id(fake))
        if attributes and id(fake) not in self.memo and made:
            self.memo[id(fake)] = text
            for name, value in attributes.items():
                self.writer.line(f"{text}.{name} = {self.value(value)}")
        return text

    def subclass(self, fake: FakeTensor, cls: type) -> str:
        """A tensor that the program sees as an object of a subclass: made of the graph's plain one."""
        if id(fake) in self.memo:
            return self.memo[id(fake)]
        kind = self.value(cls)
        name = self.variable(fake, cls.__name__.lower(),
                             f"{self.writer.constant(as_class, 'as_class')}({self.tensor(fake)}, {kind})")
        for key, value in self.vm.tensors.attributes.get(id(fake), {}).items():
            self.writer.line(f"{self.writer.constant(set_attribute, 'set_attribute')}({name}, {key!r}, "
                             f"{self.value(value)})")
        return name

    def made(self, value: Any, cls: type) -> str:
        if cls is dict and id(value) in self.vm.residual.copy_memos and self.vm.residual.copy_memos[id(value)].storages:
            raise copied_by_memo("a memo of copy.deepcopy() that is used after tensors were copied")
        if cls is torch.Generator and id(value) in self.recorder.nodes:
            return self.tensor(value)
        if id(value) in self.vm.autograd.hooks:
            hook = self.vm.autograd.hooks[id(value)][1]
            if hook is None:
                return self.variable(value, "hook", f"{self.writer.constant(removed_handle)}()")
            if not self.recorder.backend.in_order or hook.node is None:
                raise Break("SB016", "the handle of a hook on a tensor of the graph")
            self.outputs.append(hook.node)
            return f"out[{len(self.outputs) - 1}]"
        if id(value) in self.vm.autograd.watches:
            self.outputs.append(self.vm.autograd.watches[id(value)].node)
            return f"out[{len(self.outputs) - 1}]"
        if id(value) in self.vm.random.known:
            if cls is random.Random and list(vars(value)) != ["gauss_next"]:
                raise Break("SB007", "a random stream with attributes of its own")
            state = self.writer.constant(state_of(value), "stream_state")
            return self.variable(value, "stream", (
                f"{self.writer.constant(remade_stream)}({self.writer.constant(cls)}, {state})"))
        if is_a(value, torch.Tensor):
            raise Break("SB017", f"a {cls.__name__} made inside the trace")
        if cls is tuple or cls is list or cls is set or cls is frozenset or cls is dict:
            return self.container(value, cls)
        if cls is types.FunctionType:
            if id(value) in self.vm.functions.callbacks:
                return self.value(self.vm.functions.callbacks[id(value)])
            if id(value) in self.vm.fresh:
                return self.function(value)
        if id(value) in self.vm.functions.compiled_inside:
            return self.compiled(self.vm.functions.compiled_inside[id(value)])
        if id(value) in self.vm.generators:
            return rebuild_generator(self, value)
        if cls in _MAKERS:
            return _MAKERS[cls](self, value)
        if is_a(value, type) and id(value) in self.vm.fresh:
            return rebuild_class(self, value)
        text = rebuild_holder(self, value, cls) or rebuild_iterator(self, value, cls) or rebuild_token(self, value, cls)
        if text is not None:
            return text
        if cls in IDENTITY_TYPES or is_a(value, (type, types.ModuleType, types.FunctionType, types.TracebackType)) \
                or is_a(value, enum.Enum) and is_outside(self.vm, value) or is_member_of_pybind(cls):
            return self.writer.constant(value)
        if is_a(value, BaseException):
            return rebuild_exception(self, value)
        if is_a(value, tuple) and module_of(type(value)) == "torch.return_types":
            return f"{self.writer.constant(cls)}(({', '.join(self.value(v) for v in value)},))"
        if cls in OF_LOOPS or cls is File:
            raise Break("SB018", "a file, a task, a future or an event loop that leaves the call", whole_call=True)
        if new_shell(cls) is not None:
            return self.instance(value, cls)
        if id(value) in self.vm.autograd.nodes:
            raise Break("SB016", "Tensor.grad_fn", turn_off=Strategy.GRAD_FN)
        made = cls if id(cls) not in self.vm.fresh else None
        raise Break("SB007", f"a {module_of(cls)}.{cls.__qualname__}", not_rebuilt=made)

    def variable(self, value: object, hint: str, expression: str) -> str:
        """Name an object before its parts are built, so that parts may refer to it."""
        name = self.writer.fresh(hint)
        self.writer.line(f"{name} = {expression}")
        self.memo[id(value)] = name
        self.kept.append(value)
        return name

    def container(self, value: Any, cls: type) -> str:
        if cls is tuple:
            parts = [self.value(item) for item in value]
            if id(value) in self.memo:  # a cycle through a list built it already
                return self.memo[id(value)]
            text = f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
            return self.variable(value, "t", text) if parts else "()"
        if cls is list:
            name = self.variable(value, "xs", "[]")
            parts = [self.value(item) for item in value]
            return self._fill(name, "[]", f"[{', '.join(parts)}]", parts, f"{name}.extend")
        if cls is dict:
            name = self.variable(value, "d", "{}")
            pairs = [(self.value(key), self.value(item)) for key, item in value.items()]
            return self._fill(name, "{}", self.literal(value, pairs), pairs, f"{name}.update")
        added = members_as_added(self.vm, value)
        parts = [self.value(item) for item in (value if added is None else added)]
        return self.variable(value, "s", self.members(value, cls, cls.__name__, ", ".join(parts), added is not None))

    def literal(self, value: dict[Any, Any], pairs: list[tuple[str, str]]) -> str:
        """The text of a dict; keys with a `__hash__` in Python are not hashed again."""
        if not any(map(runs_python, dict.__iter__(value))):
            return f"{{{', '.join([f'{key}: {item}' for key, item in pairs])}}}"
        note_hashes(self.vm)
        hashes = known_hashes(value)
        given = [f"[{', '.join(parts)}]" for parts in zip(*pairs, strict=True)]
        numbers = [hashes[id(key)] for key in dict.__iter__(value)]
        return f"{self.writer.constant(dict_with_hashes)}({numbers}, {', '.join(given)})"

    def members(self, value: object, cls: type, target: str, parts: str, as_added: bool) -> str:
        """A set with the members in the order of this one, which the sizes it had decide as much as the members."""
        if as_added:
            return f"{target}([{parts}])" if target == cls.__name__ else f"set.update({target}, [{parts}])"
        note_order(self.vm, value, is_read=False)
        layout = _core.set_layout(value)
        if all(type(item) in CONSTANT_TYPES for item in raw_members(value)) \
                and _core.set_layout(set(list(raw_members(value)))) == layout:
            return f"{target}([{parts}])" if target == cls.__name__ else f"set.update({target}, [{parts}])"
        fill = self.writer.constant(_core.fill_set, "fill_set")
        known = tuple([number for number, item in enumerate(raw_members(value)) if runs_python(item)])
        if known:
            note_hashes(self.vm)
        return f"{fill}({target}, {self.writer.constant(layout, 'layout')}, [{parts}]{f', {known}' if known else ''})"

    def _fill(self, name: str, empty: str, full: str, parts: Sequence[object], fill: str) -> str:
        """Write the literal at once where the object was not needed in between, else fill it later."""
        if not parts:
            return name
        if self.writer.lines[-1] == f"{name} = {empty}" and not re.search(rf"\b{name}\b", full):
            self.writer.lines[-1] = f"{name} = {full}"
        else:
            self.writer.line(f"{fill}({full})")
        return name

    def deque(self, value: collections.deque[Any]) -> str:
        name = self.variable(value, "q", f"{self.writer.constant(collections.deque, 'deque')}(maxlen={value.maxlen!r})")
        parts = [self.value(item) for item in value]
        self.writer.line(f"{name}.extend([{', '.join(parts)}])")
        return name

    def function(self, value: types.FunctionType) -> str:
        make = self.writer.constant(types.FunctionType, "function")
        cells = f"({', '.join(map(self.value, value.__closure__))},)" if value.__closure__ else "None"
        defaults, made = self.value(value.__defaults__), id(value.__globals__) in self.vm.heap.dicts.made_scopes
        scope = self.value(value.__globals__) if made else self.writer.constant(value.__globals__, "globals")
        if id(value) in self.memo:  # it refers to itself through a cell, which built it already
            return self.memo[id(value)]
        code = self.writer.constant(value.__code__, "code")
        name = self.variable(value, value.__name__, f"{make}({code}, {scope}, {value.__name__!r}, {defaults}, {cells})")
        self.writer.line(f"{name}.__qualname__ = {value.__qualname__!r}")
        own_doc = value.__doc__ == (value.__code__.co_consts[0] if value.__code__.co_consts else None)
        set_later = {"__annotate__": (computed := getattr(value, "__annotate__", None) is not None),  # since 3.14
                     "__annotations__": not computed and bool(value.__annotations__), "__doc__": not own_doc,
                     "__kwdefaults__": bool(value.__kwdefaults__),
                     "__module__": value.__module__ != value.__globals__.get("__name__"),
                     "__type_params__": bool(getattr(value, "__type_params__", ()))}  # since 3.12
        for key in (key for key, differs in set_later.items() if differs):
            self.writer.line(f"{name}.{key} = {self.value(getattr(value, key))}")
        for key, item in value.__dict__.items():
            self.writer.line(f"{name}.__dict__[{key!r}] = {self.value(item)}")
        return name

    def compiled(self, making: Any) -> str:
        """A function that the program compiled: compiled anew, as each call of the program does."""
        given = [self.value(each) for each in making.args]
        if id(making.compiled) in self.memo:  # the function refers to its compiled form, which built it already
            return self.memo[id(making.compiled)]
        given += [f"{name}={self.value(each)}" for name, each in making.kwargs.items()]
        made = self.variable(making.compiled, "compiled", f"{self.writer.constant(making.maker)}({', '.join(given)})")
        now = vars(making.compiled)
        if making.attributes.keys() - now.keys():
            raise Break("SB007", "a compiled function without attributes that it was made with")
        for key, item in now.items():
            if key not in making.attributes or making.attributes[key] is not item:
                self.writer.line(f"{made}.__dict__[{key!r}] = {self.value(item)}")
        return made

    def cell(self, value: types.CellType) -> str:
        name = self.variable(value, "cell", f"{self.writer.constant(types.CellType, 'cell_type')}()")
        if value != types.CellType():
            self.writer.line(f"{name}.cell_contents = {self.value(value.cell_contents)}")
        return name

    def partial(self, value: Any) -> str:
        parts = [self.value(value.func), *(self.value(arg) for arg in value.args)]
        parts += [f"{key}={self.value(item)}" for key, item in value.keywords.items()]
        if id(value) in self.memo:
            return self.memo[id(value)]
        make = self.writer.constant(functools.partial, "partial")
        name = self.variable(value, "partial", f"{make}({', '.join(parts)})")
        self.attributes(value, name)
        return name

    def instance(self, value: Any, cls: type) -> str:
        shell = new_shell(cls)
        assert shell is not None
        base = self.writer.constant(shell.base, shell.base.__name__)
        given = self.value(cls)
        if id(value) not in self.memo and shell.shape is ShadowKind.TUPLE:
            given += f", [{', '.join(self.value(item) for item in tuple.__iter__(value))}]"
        elif shell.base is frozenset:
            items = list(raw_members(value))
            if not all(type(item) in CONSTANT_TYPES for item in items) \
                    or _core.set_layout(frozenset(items)) != _core.set_layout(value):
                raise Break("SB007", f"a {cls.__qualname__} whose order its members do not decide")
            given += f", {self.value(items)}"
        if id(value) in self.memo:  # a class attribute, or an item, refers to its instance
            return self.memo[id(value)]
        if shell.shape is ShadowKind.VALUE:
            given += f", {self.value(plain_value(value))}"
        name = self.variable(value, cls.__name__.lower(), f"{base}.__new__({given})")
        if shell.shape is ShadowKind.LIST:
            parts = ", ".join(self.value(item) for item in shell.base.__iter__(value))
            self.writer.line(f"{base}.extend({name}, [{parts}])")
        elif shell.base is set:
            added = members_as_added(self.vm, value)
            parts = ", ".join(self.value(item) for item in (set.__iter__(value) if added is None else added))
            self.writer.line(self.members(value, cls, name, parts, added is not None))
        elif shell.shape is ShadowKind.DICT:
            if shell.base is collections.defaultdict:
                self.writer.line(f"{name}.default_factory = {self.value(value.default_factory)}")
            pairs = list(items_in_order(value))
            if all(type(key) is str for key, _ in pairs):  # whose hash is nobody's code
                parts = ", ".join([f"{self.value(key)}: {self.value(item)}" for key, item in pairs])
                self.writer.line(f"{self.writer.constant(_core.set_items, 'set_items')}({name}, {{{parts}}})")
                pairs = []
            elif shell.base is not collections.OrderedDict and any(runs_python(key) for key, _ in pairs):
                parts = self.literal(value, [(self.value(key), self.value(item)) for key, item in pairs])
                self.writer.line(f"{base}.update({name}, {parts})")
                pairs = []
            for key, item in pairs:
                self.writer.line(f"{base}.__setitem__({name}, {self.value(key)}, {self.value(item)})")
        self.attributes(value, name)
        return name

    def attributes(self, value: object, name: str) -> None:
        own = instance_dict(value)
        given = self.heap.dicts.given.get(id(value))
        if given is not None and given[1] is own:
            self.writer.line(f"{self.writer.constant(set_instance_dict, 'set_dict')}({name}, {self.value(own)})")
        elif own:
            parts = [f"{self.value(key)}: {self.value(item)}" for key, item in own.items()]
            self.writer.line(f"{self.writer.constant(_core.set_vars, 'set_vars')}({name}, {{{', '.join(parts)}}})")
        for member, item in slot_values(value).items():
            self.writer.line(f"{self.slot(member)}.__set__({name}, {self.value(item)})")

    def slot(self, member: types.MemberDescriptorType) -> str:
        """The descriptor of a slot; that of a class made inside the trace is found on the class made anew."""
        owner = member.__objclass__
        if id(owner) not in self.vm.fresh:
            return self.writer.constant(member, f"slot_{member.__name__}")
        key = next(key for key, entry in owner.__dict__.items() if entry is member)
        return f"{self.value(owner)}.__dict__[{key!r}]"


def as_class(tensor: torch.Tensor, cls: type) -> Any:
    """The graph's tensor as an object of a subclass.  Whether it takes part in autograd, the graph has settled; without
    grad mode torch gives the object the flag of the tensor, and no history."""
    with torch.set_grad_enabled(tensor.grad_fn is not None):
        return tensor.as_subclass(cls)


set_attribute = object.__setattr__
_MAKERS: dict[type, Callable[[Rebuilder, Any], str]] = {
    **dict.fromkeys(RECORDS, lambda self, value: f"{self.writer.held(copy_options)}({self.writer.held(value)})"),
    PARAMETERS: lambda self, value: self.variable(value, "parameters", (
        f"{self.writer.constant(PARAMETERS)}({', '.join([self.value(getattr(value, name)) for name in FIELDS])})")),
    types.CellType: Rebuilder.cell, functools.partial: Rebuilder.partial, collections.deque: Rebuilder.deque,
    slice: lambda self, value: f"slice({self.value(value.start)}, {self.value(value.stop)}, {self.value(value.step)})",
    torch.Size: lambda self, value: (
        f"{self.writer.constant(torch.Size, 'Size')}([{', '.join(self.value(item) for item in value)}])"),
}



