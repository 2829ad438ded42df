"""Rules for code made at run time.   exec("y = x + 1", names)  ->  the code is interpreted, its names are those given

In: a text or a code object, and namespaces.  Out: the value; writes to the namespaces are effects like any other.  A
text is a constant of the trace, so its code is one too.  Code runs in a frame of its own: a break in it is a break at
the call, which then runs natively.  A dict made inside the trace may be the globals of functions: `made_scopes` of the
heap has it, and no resume function can take it over, so a break behind it turns these rules off.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib
import inspect
import sys
import types
import warnings

from stator.breaks import Break, Strategy
from stator.graph.state.quiet_logging import Heard, warnings_can_raise
from stator.heap.raw_access import CONSTANT_TYPES, instance_dict
from stator.heap.records import Scope
from stator.heap.tracker import unbox
from stator.host.value_kinds import is_a
from stator.interp.frame import Raised
from stator.interp.lookup import MISSING, find
from stator.interp.machine import is_own
from stator.interp.noted_effects import (
    PlainCall,
    are_warnings_read_by,
    list_of_warnings,
    note,
    warning_readers,
)
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.opcodes.name_opcodes import import_module
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.library.python.object_functions import names_in
from stator.source import Pinned

_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_TEXT = (str, bytes)


class MadeScope(Scope):
    """A dict of the trace that the program gives to exec() or eval() as globals."""

    __slots__ = ()

    def view(self) -> dict[str, object]:
        return self.namespace

    def read(self, name: str) -> object:
        return unbox(self.namespace.get(name, MISSING))

    def write(self, name: str, value: object) -> None:
        if value is MISSING:
            del self.namespace[name]
        else:
            self.namespace[name] = value


def _refused(why: str) -> Break:
    # Names and the `from __future__` flags are those of the frame that asks.
    return Break("SB001", f"eval(), exec() or compile() {why}", whole_frame=True)


def compiled(vm: VM, source: object, filename: object, mode: object, flags: int, optimize: object) -> object:
    """Code of a text; warnings of the compiler point into the text."""
    given = source, filename, mode, flags, True, optimize
    code, wrong = None, None
    with Heard() as heard:
        try:
            code = vm.native_unhooked(compile, given)
        except Raised as error:
            wrong = error
    for each in heard:
        if warnings_can_raise():
            raise _refused(f"of code that the compiler warns of ({each.message})")
        vm.heap.guard_call(warnings_can_raise, False)
        _note_warning(vm, str(each.message), each.category, each.filename, each.lineno, given)
    if wrong is not None:
        raise wrong
    return code


def _note_warning(vm: VM, text: str, category: type[Warning], filename: str, line: int,
                  given: tuple[object, ...]) -> None:
    """Keep a warning of the compiler for replay; one that a filter of the program makes an error is a SyntaxError."""
    readers: tuple[object, ...] = ()
    if vm.warnings.recordings:
        recording = vm.warnings.recordings[-1]
        action = recording.action_for(vm, text, category, filename.removesuffix(".py") or "<unknown>", line)
        if action == "error":
            with warnings.catch_warnings():
                warnings.simplefilter("error", category)
                vm.native_unhooked(compile, given)
        if action not in ("always", "default", "ignore"):
            raise _refused(f"of code that the compiler warns of ({text}), under the filter {action!r}")
        if action != "ignore":
            shown = vm.call_sync(category, (text,)), category, filename, line, None, None, None
            recording.log.append(vm.call_sync(warnings.WarningMessage, shown))
    else:
        scope = vm.heap.scopes.get(id(vars(warnings)))
        if list_of_warnings(vm) is not None or scope is not None and (scope.shadow is not None or scope.overlay):
            raise _refused(f"of code that the compiler warns of ({text}), where the program reads warnings")
        readers = warning_readers()
        vm.heap.guard_call(are_warnings_read_by, True, *[Pinned(getattr(each, "__code__", each)) for each in readers])
    note(vm, PlainCall(warnings.warn_explicit, (text, category, filename, line), {}), readers, warnings)  # type: ignore[arg-type]


@rule(compile)
def _compile(vm: VM, source: object, filename: object, mode: object, flags: object = 0, dont_inherit: object = False,
             optimize: object = -1, *, _feature_version: object = -1) -> object:
    if Strategy.CODE_FROM_TEXT in vm.turned_off or is_own(vm.running):
        raise _refused("in a program that breaks")
    source, flags, dont_inherit, optimize = specialise_deep(vm, (source, flags, dont_inherit, optimize))
    plain = (type(source) in _TEXT or _is_made_tree(vm, source)) and type(filename) in _TEXT and type(mode) is str
    if not plain or type(dont_inherit) not in (bool, int) or not isinstance(flags, int) \
            or _feature_version != -1:
        raise _refused("of something else than a text")
    return compiled(vm, source, filename, mode, flags if dont_inherit else flags | _inherited(vm), optimize)


def _is_made_tree(vm: VM, source: object) -> bool:
    """Whether a syntax tree was made inside, and so were all its parts."""
    if not is_a(source, ast.AST):
        return False
    todo: list[object] = [source]
    while todo:
        value = todo.pop()
        known = is_a(value, ast.AST) or type(value) is list or type(value) in CONSTANT_TYPES
        if vm.heap.tracker_of(value) is not None or not known:
            return False
        todo += value if type(value) is list else (instance_dict(value) or {}).values() if is_a(value, ast.AST) else ()
    return True


def _inherited(vm: VM) -> int:
    return vm.running.code.co_flags & _FUTURE


def _scope_of(vm: VM, names: dict[str, object]) -> Scope:
    """The scope whose namespace is a dict that the program gives."""
    tracker = vm.heap.by_standin.get(id(names))
    if tracker is not None:
        if tracker.part_of is not None:
            raise _refused("in the __dict__ of an object from outside")
        return vm.heap.scope(vm.guard_identity(names))
    made = vm.heap.dicts.made_scopes.get(id(names))
    if made is None:
        made = vm.heap.dicts.made_scopes[id(names)] = MadeScope(vm.heap, names)
    return made


def _run(vm: VM, what: str, source: object, names: object, local_names: object, named: dict[str, object]) -> object:
    frame = vm.running
    if named:
        raise _refused("with named arguments")
    if Strategy.CODE_FROM_TEXT in vm.turned_off or is_own(frame):
        raise _refused("in a program that breaks")
    if names is not None and not is_a(names, dict) \
            or local_names is not None and find(vm, type(local_names), "__getitem__") is MISSING:
        given = {} if names is None or is_a(names, dict) else names
        vm.native_unhooked(eval if what == "eval" else exec, ("0", given, local_names))  # raises what eager raises
        raise AssertionError(f"{what}() took namespaces that are none")
    source = specialise_deep(vm, source)
    if not isinstance(source, (str, bytes, types.CodeType)) or type(source) not in (str, bytes, types.CodeType):
        raise _refused("of something else than a text or code")
    if names is None:
        scope = frame.scope
        if local_names is None and _is_function(frame.code):
            local_names = names_in(frame)
        elif local_names is None:
            local_names = frame.names
    elif type(names) is dict:
        scope = _scope_of(vm, names)
        _set_builtins(vm, scope)
    else:
        raise _refused(f"with globals of the class {type(names).__name__}")
    code: object = source
    if isinstance(code, (str, bytes)):
        text = (code.lstrip(" \t") if isinstance(code, str) else code.lstrip(b" \t")) if what == "eval" else code
        code = compiled(vm, text, "<string>", what, _inherited(vm), -1)
    assert isinstance(code, types.CodeType)
    if code.co_freevars:
        raise Raised(TypeError(f"code object passed to {what}() may not contain free variables"))
    if code.co_flags & _SUSPENDED:
        raise _refused("of code that can be suspended")
    function = types.FunctionType(code, scope.namespace)
    vm.fresh[id(function)] = function
    inner = vm.frame_for(function, (), None)
    inner.scope = scope
    if not _is_function(code):
        inner.names = None if local_names is names and names is not None else local_names
    try:
        value: object = vm.run(inner)
    except Break as stop:
        raise Break(stop.code, stop.detail, whole_frame=True) from None
    except Exception as error:
        raise Raised(error) from None
    return value if what == "eval" else None


def _is_function(code: types.CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


def _set_builtins(vm: VM, scope: Scope) -> None:
    found = scope.read("__builtins__")
    if found is MISSING:
        scope.write("__builtins__", vm.heap.adopt(builtins.__dict__, Pinned(builtins.__dict__)))
    elif found is not builtins and vm.heap.original_of(found) is not builtins.__dict__:
        raise _refused("with builtins of its own")


@rule(eval)
def _eval(vm: VM, source: object, globals: object = None, locals: object = None, /, **named: object) -> object:
    return _run(vm, "eval", source, globals, locals, named)


@rule(exec)
def _exec(vm: VM, source: object, globals: object = None, locals: object = None, /, **named: object) -> object:
    return _run(vm, "exec", source, globals, locals, named)


@rule(builtins.__import__)
def _import(vm: VM, name: object, globals: object = None, locals: object = None, fromlist: object = (),
            level: object = 0) -> object:
    if type(name) is not str or not isinstance(fromlist, (tuple, list, types.NoneType)) or level != 0:
        raise Break("SB001", "__import__() of a relative name")
    return import_module(vm, vm.running, name, tuple(fromlist or ()), 0)


@rule(importlib.import_module)
def _import_by_name(vm: VM, name: object, package: object = None) -> object:
    """The module itself, where `import a.b` gives the outermost package."""
    if type(name) is not str or name.startswith("."):
        raise Break("SB001", "importlib.import_module() of a relative name")
    found = import_module(vm, vm.running, name, (), 0)
    return found if "." not in name else sys.modules[name]
