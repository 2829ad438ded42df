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
import re
import sys
import types
import warnings

from stator.breaks import Break, Strategy
from stator.graph.state.quiet_logging import Heard
from stator.heap.raw_access import CONSTANT_TYPES, instance_dict
from stator.heap.records import Scope
from stator.heap.tracker import unbox
from stator.host.value_kinds import is_a
from stator.interp.frame import Raised
from stator.interp.lookup import MISSING, find
from stator.interp.machine import is_own
from stator.interp.noted_effects import PlainCall, note, note_shown, warnings_can_raise
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.opcodes.name_opcodes import builtins_of, import_module
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.library.python.object_functions import hidden_names, names_in

_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag
_TEXT = (str, bytes)
_OF_FUNCTIONS = tuple(inspect.signature(types.FunctionType).parameters)  # and "kwdefaults" since 3.13
_BUFFERS = (bytearray, memoryview)
_NO_SOURCES = frozenset({int, float, complex, bool, type(None), tuple, list, dict, set, frozenset})
_SOURCES = (str, bytes, bytearray, memoryview, types.CodeType)


class MadeScope(Scope):
    """A dict of the trace that the program gives to exec() or eval() as globals."""

    __slots__ = ()

    def view(self) -> dict[str, object]:
        return self.namespace

    def read(self, name: str) -> object:
        return unbox(dict.get(self.namespace, name, MISSING))

    def write(self, name: str, value: object) -> None:
        if value is MISSING:
            dict.__delitem__(self.namespace, name)
        else:
            dict.__setitem__(self.namespace, name, value)


def _refused(why: str) -> Break:
    # Names and the `from __future__` flags are those of the frame that calls it.
    return Break("SB001", f"eval(), exec() or compile() {why}", whole_frame=True)


def compiled(vm: VM, source: object, filename: object, mode: object, flags: int, optimize: object) -> object:
    """Code of a text; warnings of the compiler are effects, or exceptions where a filter makes them so."""
    args = (source, filename, mode, flags, True, optimize)
    failure: Raised | None = None
    code: object = None
    with Heard() as heard:
        try:
            code = vm.native_unhooked(compile, args)
        except Raised as raised:
            failure = raised
    for each in heard:
        text = str(each.message)
        if not note_compiler_warning(vm, text, each.category, each.filename, each.lineno):
            with Heard():  # the error has the place in the text
                warnings.filters = [("error", re.compile(re.escape(text)), each.category, None, each.lineno),
                                    ("ignore", None, Warning, None, 0)]
                vm.native_unhooked(compile, args)
            raise _refused(f"of code that the compiler warns of once ({text})")
    if failure is not None:
        raise failure
    return code


@rule(compile)
def _compile(vm: VM, source: object, filename: object, mode: object, flags: object = 0, dont_inherit: object = False,
             optimize: object = -1, *, _feature_version: object = -1) -> object:
    if Strategy.CODE_FROM_TEXT in vm.turned_off or is_own(vm.running):
        raise _refused("in a program that breaks")
    source, flags, dont_inherit, optimize = specialise_deep(vm, (source, flags, dont_inherit, optimize))
    if type(source) in _BUFFERS and vm.heap.tracker_of(source) is None:
        source = bytes(source)  # type: ignore[call-overload]
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


def _run(vm: VM, what: str, source: object, names: object, local_names: object, closure: object = None) -> object:
    frame = vm.running
    native = eval if what == "eval" else exec
    if Strategy.CODE_FROM_TEXT in vm.turned_off or is_own(frame):
        raise _refused("in a program that breaks")
    source = specialise_deep(vm, source)
    if names is not None and not is_a(names, dict) \
            or local_names is not None and find(vm, type(local_names), "__getitem__") is MISSING \
            or type(source) in _NO_SOURCES \
            or closure is not None and not _closure_fits(source, closure):
        given = {} if names is None or is_a(names, dict) else names
        keywords = {} if closure is None else {"closure": closure}
        vm.native_unhooked(native, (source if closure is not None or not is_a(source, _SOURCES) else "0", given,
                                    None if is_a(local_names, dict) else local_names), keywords)
        raise AssertionError(f"{what}() took what CPython refuses")  # raises what eager raises
    if type(source) in _BUFFERS and vm.heap.tracker_of(source) is None:
        source = bytes(source)  # type: ignore[call-overload]
    if not isinstance(source, (str, bytes, types.CodeType)) or type(source) not in (str, bytes, types.CodeType):
        raise _refused("of something else than a text or code")
    if names is None:
        scope = frame.scope
        if local_names is None:
            around = _is_function(frame.code) or hidden_names(frame)
            local_names = names_in(vm, frame) if around else frame.names
    elif type(names) is dict or is_a(names, dict) and vm.heap.tracker_of(names) is None:
        scope = _scope_of(vm, names)  # type: ignore[arg-type]
        _set_builtins(vm, scope)
        if type(names) is not dict and local_names is None:
            local_names = names  # whose own `__setitem__` gets the names
    else:
        raise _refused(f"with globals of the class {type(names).__name__}")
    code: object = source
    if isinstance(code, (str, bytes)):
        text = (code.lstrip(" \t") if isinstance(code, str) else code.lstrip(b" \t")) if what == "eval" else code
        code = compiled(vm, text, "<string>", what, _inherited(vm), -1)
    assert isinstance(code, types.CodeType)
    if code.co_freevars and closure is None:
        if what == "exec":
            vm.native_unhooked(exec, (code, {}))  # raises
        raise Raised(TypeError(f"code object passed to {what}() may not contain free variables"))
    function = types.FunctionType(code, scope.namespace, None, None, closure)  # type: ignore[arg-type]
    vm.fresh[id(function)] = function
    inner = vm.frame_for(function, (), None)
    inner.scope = scope
    if not _is_function(code):
        same = local_names is names and names is not None and type(names) is dict
        inner.names = None if same else local_names
    try:
        value: object = vm.run(inner)
    except Break as stop:
        raise Break(stop.code, stop.detail, whole_frame=True) from None
    except Exception as error:
        raise Raised(error) from None
    return value if what == "eval" else None


def _closure_fits(source: object, closure: object) -> bool:
    return type(source) is types.CodeType and type(closure) is tuple and len(closure) == len(source.co_freevars) > 0 \
        and all(type(cell) is types.CellType for cell in closure)


@rule(types.FunctionType)
def _make_function(vm: VM, /, *args: object, **named: object) -> object:
    """A function of the trace. CPython checks the arguments, on a namespace of ours."""
    given = {**dict(zip(_OF_FUNCTIONS, args, strict=False)), **named}
    if len(given) != len(args) + len(named) or not given.keys() <= {*_OF_FUNCTIONS}:
        return vm.native_unhooked(types.FunctionType, args, named)  # raises
    names = given.get("globals")
    trial = {**given, "globals": {}} if is_a(names, dict) else given
    vm.native_unhooked(types.FunctionType, (), trial)
    if Strategy.CODE_FROM_TEXT in vm.turned_off or is_own(vm.running):
        raise _refused("in a program that breaks")
    if any(vm.heap.tracker_of(given.get(name)) is not None for name in ("code", "argdefs", "kwdefaults")):
        raise _refused("through types.FunctionType of code or defaults from outside")
    scope = _scope_of(vm, names)  # type: ignore[arg-type]
    own = builtins_of(vm, vm.running) if scope.read("__builtins__") is MISSING else None
    if own is not None:  # CPython takes them from the frame that asks, which is not ours
        scope.write("__builtins__", own)
    made: object = vm.native_unhooked(types.FunctionType, (), {**given, "globals": scope.namespace})
    if own is not None:
        scope.write("__builtins__", MISSING)
    vm.fresh[id(made)] = made
    return made


def _is_function(code: types.CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


def _set_builtins(vm: VM, scope: Scope) -> None:
    if scope.read("__builtins__") is MISSING:
        frame = vm.running
        scope.write("__builtins__", builtins_of(vm, frame) or vm.heap.scope(builtins.__dict__).view())


_OF_EVAL = ("source", "globals", "locals")


@rule(eval)
def _eval(vm: VM, /, *args: object, **named: object) -> object:
    """The namespaces have names since 3.13."""
    given = dict(zip(_OF_EVAL, args, strict=False), **named)
    return _run(vm, "eval", given.get("source"), given.get("globals"), given.get("locals"))


@rule(exec)
def _exec(vm: VM, /, *args: object, closure: object = None, **named: object) -> object:
    given = dict(zip(_OF_EVAL, args, strict=False), **named)
    return _run(vm, "exec", given.get("source"), given.get("globals"), given.get("locals"), closure)


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


def note_compiler_warning(vm: VM, text: str, category: type, filename: str, line: int) -> bool:
    """Keep a warning of the compiler, which points into a text; False: a filter makes an exception of it."""
    if warnings_can_raise():
        raise Break("SB013", "a warning while a filter turns warnings into errors")
    vm.heap.guard_call(warnings_can_raise, False)
    effect = PlainCall(warnings.warn_explicit, (text, category, filename, line), {})
    if vm.warnings.recordings:
        if vm.warnings.recordings[-1].compiler_warned(vm, text, category, filename, line) == "error":
            return False
        if vm.warnings.recordings[-1].log is not None:
            note(vm, effect, False, warnings)
            return True
    note_shown(vm, effect)
    return True
