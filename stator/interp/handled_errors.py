"""Whether the program would go on after an error of an operation.   try: y = x[i]  except IndexError: ...  ->  "any"

In: the frames that stand where a node is recorded.  Out: the node's metadata: where it stands, and what might catch its
error.  The program then says nothing when its graph fails, and an error of the graph cannot be raised instead of its
own: where the call cannot be made again, what may fail there breaks (see emit/residual/failing_calls).
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Container
from typing import Any

import torch
from torch import fx

from stator.breaks import Break
from stator.code.catchers import catchers
from stator.graph.analysis.may_fail import ANY, CAUGHT, CLEANUP, NAMED, Memory, node_may_fail
from stator.interp.frame import Frame
from stator.interp.services import VM

NOTHING = 0

# Of the exceptions that programs name, those that no kernel of torch's raises.
_OTHERS = frozenset({"AttributeError", "FileNotFoundError", "ImportError", "KeyError", "KeyboardInterrupt",
                     "ModuleNotFoundError", "NameError", "OSError", "StopIteration", "TypeError"})  # fmt: skip
_TORCH = torch.__file__.rpartition("/")[0] + "/"
_NULL_EXIT = contextlib.nullcontext.__exit__
_GENERATOR_EXIT = contextlib._GeneratorContextManager.__exit__


def caught_in(frame: Frame, generators: Any, outside: Container[int] = ()) -> int:
    """What this frame alone does with an error of the instruction it stands at, as bits; `generators`: by id;
    `outside`: the ids of stand-ins."""
    index = frame.ip - 1 if frame.ip else 0
    if frame.unit.instructions[index].handler is None:
        return NOTHING
    found = NOTHING
    for each in catchers(frame.unit, index):
        if each.manager is not None:
            leave = frame.stack[each.manager]
            found |= ANY if may_suppress(leave, generators) else CLEANUP if has_code(leave, outside) else NOTHING
        elif each.reraises:
            found |= CLEANUP
        elif each.name in _OTHERS and each.name not in frame.scope.namespace:
            found |= NAMED
        else:
            return found | ANY
    return found


def any_cleans_up(generators: Any) -> bool:
    """Whether a generator waits where code of its own runs when it is closed: an error that drops it does that."""
    return any(body.started and not body.done and not body.running and body.frame is not None
               and caught_in(body.frame, generators) for body in list(dict.values(generators)))


def has_code(leave: object, outside: Container[int]) -> bool:
    """Whether code that the graph does not run is run where a context manager is left, known by its __exit__: code of
    the program, or that of a manager which was entered before the trace (torch.no_grad() before a break)."""
    return type(leave) is types.MethodType and (leave.__func__ is _GENERATOR_EXIT or id(leave.__self__) in outside)


def may_suppress(leave: object, generators: Any) -> bool:
    """Whether a context manager, known by its __exit__, may end an exception; those of torch and of C code do not,
    nor does a generator that has yielded inside `finally` alone."""
    if type(leave) is types.BuiltinMethodType:
        return False
    if type(leave) is not types.MethodType or type(leave.__func__) is not types.FunctionType:
        return True
    if leave.__func__ is _GENERATOR_EXIT:
        fields = object.__getattribute__(leave.__self__, "__dict__")
        body = generators.get(id(fields.get("gen")))  # its function was deleted when it was entered
        return body is None or body.frame is None or caught_in(body.frame, generators) & (NAMED | ANY) != NOTHING
    return leave.__func__ is not _NULL_EXIT and not leave.__func__.__code__.co_filename.startswith(_TORCH)


def leaves_settings(vm: VM) -> bool:
    """Whether an error leaves settings of torch changed; blocks of torch that it leaves restore what they found."""
    state = vm.torch_state
    if not state.by_program:
        return False
    blocks = []
    frame = vm.frame
    while frame is not None:  # the outermost block last
        index = frame.ip - 1 if frame.ip else 0
        blocks += [frame.stack[each.manager] for each in catchers(frame.unit, index) if each.manager is not None]
        frame = frame.caller()
    inside = [leave for leave in blocks if type(leave) is types.MethodType and not may_suppress(leave, vm.generators)
              and leave.__func__ is not _NULL_EXIT and id(leave.__self__) not in vm.heap.by_standin]
    return id(inside[-1]) in state.changed_blocks if inside else bool(state.left_behind())


def note(node: fx.Node, caught: int, breaks: bool) -> None:
    """Tell a recorded node what might catch its error; or break there."""
    node.meta[CAUGHT] = node.meta.get(CAUGHT, NOTHING) | caught
    if breaks and node_may_fail(node, Memory(frozenset())):
        raise Break("SB002", "an operation that may fail where the program handles it, after large writes in place")
