"""Text and values of a moment, in the residual program.   f"x={x}"  ->  ''.join(['x=', show_tensor(out[0], ...)])"""

from __future__ import annotations

from typing import Any

import torch
from torch._tensor_str import PRINT_OPTS

from stator.breaks import Break
from stator.emit.rebuild.shown_addresses import write_shown
from stator.emit.services import Rebuilder
from stator.interp.noted_effects import Moment
from stator.shapes.symbolic_values import UNREAD, DeferredText


def write_text(build: Rebuilder, text: Any) -> str:
    if type(text) is str:
        return write_shown(build, text) or repr(text)
    parts = []
    for part in text.parts:
        if type(part) is str:
            parts.append(write_shown(build, part) or repr(part))
            continue
        if type(part) in UNREAD:
            parts.append(build.value(part))
            continue
        held, spec = part.value, write_text(build, part.spec)
        if type(held) is Moment:
            suffix, parameter = _autograd_text(build, held)
            shown = build.writer.constant(show_tensor, "show_tensor")
            parts.append(f"{shown}({write_moment(build, held)}, {part.conversion!r}, {spec}, {suffix!r}, {parameter})")
        else:
            value = write_text(build, held) if type(held) is DeferredText else build.value(held)
            parts.append(f"{build.writer.constant(show, 'show')}({value}, {part.conversion!r}, {spec})")
    return f"''.join([{', '.join(parts)}])"


def write_moment(build: Rebuilder, moment: Moment) -> str:
    """The tensor itself, or a copy made by the graph at that place: of one that may have been changed since, and of one
    whose memory is exchanged after the graph (see interp/tensors/tensor_bookkeeping)."""
    if _is_unchanged(build, moment):
        return build.value(moment.fake)
    if id(moment) not in build.output_index:
        graph = build.recorder.graph
        source = moment.node
        with graph.inserting_after(moment.position):
            detached = graph.call_method("detach", (source,))
        with graph.inserting_after(detached):
            copy = graph.call_method("clone", (detached,))
        for node in (detached, copy):
            node.meta["example_value"] = moment.fake.detach()
            node.meta["stack_trace"] = source.meta.get("stack_trace")
        build.output(moment, copy)
        build.recorder.scope.calls += 1
        build.kept.append(moment)
    return build.output(moment, None)


def _autograd_text(build: Rebuilder, moment: Moment) -> tuple[str | None, bool]:
    """None where the real tensor's own text is right: the user's own object, unchanged."""
    if _is_unchanged(build, moment) and build.heap.by_standin.get(id(moment.fake)) is not None \
            and id(moment.fake) not in build.vm.tensors.flags:
        return None, False
    return moment.suffix, moment.parameter


def _is_unchanged(build: Rebuilder, moment: Moment) -> bool:
    return build.recorder.log.changes == moment.changes and id(moment.fake) not in build.vm.tensors.data


def _write_frozen_tensor(build: Rebuilder, moment: Moment) -> str:
    suffix, parameter = _autograd_text(build, moment)
    if suffix is not None and suffix.startswith("grad_fn") and not _is_unchanged(build, moment):
        raise Break("SB015", "a tensor with a history that is logged and then changed", whole_call=True)
    tensor = write_moment(build, moment)
    if not parameter and (suffix is None or suffix.startswith("grad_fn")):
        return tensor
    return f"{build.writer.constant(leaf_of, 'leaf_of')}({tensor}, {bool(suffix)}, {parameter})"


def write_frozen(build: Rebuilder, value: Any) -> str:
    cls = type(value)
    if cls is Moment:
        return _write_frozen_tensor(build, value)
    if cls is DeferredText:
        return write_text(build, value)
    if cls is list:
        return f"[{', '.join(write_frozen(build, item) for item in value)}]"
    if cls is tuple:
        return f"({''.join(write_frozen(build, item) + ', ' for item in value)})"
    if cls is dict:
        return f"{{{', '.join(f'{write_frozen(build, k)}: {write_frozen(build, v)}' for k, v in value.items())}}}"
    return build.value(value)


def leaf_of(tensor: torch.Tensor, wants_grad: bool, parameter: bool) -> torch.Tensor:
    tensor = tensor.detach()
    return torch.nn.Parameter(tensor, wants_grad) if parameter else tensor.requires_grad_(wants_grad)


def show(value: object, conversion: str, spec: str) -> str:
    if conversion:
        convert: Any = {"s": str, "r": repr, "a": ascii}[conversion]
        value = convert(value)
    return format(value, spec)


def show_tensor(tensor: torch.Tensor, conversion: str, spec: str, suffix: str | None, parameter: bool) -> str:
    """A tensor as eager would show it: a compiled graph gives it another grad_fn, and a copy has none."""
    if suffix is None or tensor.dim() == 0 and not conversion:
        return show(tensor, conversion, spec)
    text = repr(tensor.detach())
    if suffix:
        last_line = len(text) - 1 - text.rfind("\n")
        separator = ",\n" + " " * len("tensor(") if last_line + len(suffix) + 3 > PRINT_OPTS.linewidth else ", "
        text = f"{text[:-1]}{separator}{suffix})"
    if parameter:
        text = "Parameter containing:\n" + text
    return format(text, spec)
