"""Regions that the user names.   options={"regions": [Block]}, nested_compile_region  ->  marks on the nodes of a call

In: the frame that records a node.  Out: the innermost call around it that is to be a piece of its own: name and number.
The backend cuts where the mark changes (`backends/regions/plan.py`).
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.invoke_subgraph import mark_compile_region

from stator.graph.fx.graph_modules import NAMED_REGION
from stator.interp.frame import Frame
from stator.interp.services import VM

Call = tuple[str, int] | tuple[()]
_MODULE_CALL = torch.nn.Module.__dict__["__call__"].__code__
_MARKED_CALL = mark_compile_region(lambda: None).__code__


class NamedRegions:
    """The calls of one trace."""

    def __init__(self, wanted: tuple[Any, ...] = ()) -> None:
        self.classes = tuple([each for each in wanted if isinstance(each, type)])
        self.modules = {id(each) for each in wanted} - set(map(id, self.classes))
        self.numbers = itertools.count()

    def around(self, vm: VM, frame: Frame | None) -> Call:
        if frame is None:
            return ()
        if frame.region is None:
            name = self.begun_by(vm, frame)
            frame.region = (name, next(self.numbers)) if name else self.around(vm, frame.caller())
        return frame.region  # type: ignore[no-any-return]

    def begun_by(self, vm: VM, frame: Frame) -> str:
        if frame.code is _MARKED_CALL:
            return getattr(vars(frame.func).get("__marked_compile_region_fn__"), "__qualname__", "a marked function")
        if frame.code is not _MODULE_CALL:
            return ""
        module = vm.heap.original_of(frame.locals[0])
        return type(module).__qualname__ if id(module) in self.modules or issubclass(type(module), self.classes) else ""

    def mark(self, vm: VM, node: fx.Node) -> None:
        if call := self.around(vm, vm.frame):
            node.meta[NAMED_REGION] = call

    def renumber(self, vm: VM, copies: list[fx.Node], before: Call) -> None:
        """Mark nodes that were copied from another call: `before` was around that one."""
        known = {before: self.around(vm, vm.frame)}
        for node in copies:
            call = node.meta.pop(NAMED_REGION, ())
            if call not in known:
                known[call] = call[0], next(self.numbers)
            if known[call]:
                node.meta[NAMED_REGION] = known[call]
