"""Changes of torch's settings that change nothing.   no_grad() where gradients are off already  ->  no node

In: a finished graph and the settings its trace found.  Out: the graph without the calls of setters that the next call
overwrites before any operation runs, or that set what is set.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from stator.graph.state.torch_state import SETTINGS, Setting, TorchState

_SETTING_OF = {setting.setter: setting for setting in SETTINGS}
# These change the grad mode themselves, and bring it back.
_CHANGE_OTHERS = frozenset({torch.autograd.grad_mode._enter_inference_mode,
                            torch.autograd.grad_mode._exit_inference_mode})
Place = tuple[int, tuple[Any, ...]]


def drop_idle_settings(graph: fx.Graph, state: TorchState) -> int:
    """Erase them; how many there were."""
    if not state.before:
        return 0
    current: dict[Place, tuple[Any, ...]] = {place: value for place, (_, _, value) in state.before.items()}
    pending: dict[Place, fx.Node] = {}
    dropped: list[fx.Node] = []
    for node in list(graph.nodes):
        setting = _SETTING_OF.get(node.target) if node.op == "call_function" else None
        if setting is not None and not node.kwargs:
            place = _place_of(setting, node)
            overwritten = pending.pop(place, None)
            if overwritten is not None:
                dropped.append(overwritten)
            pending[place] = node
        elif node.op not in ("placeholder", "get_attr"):
            _settle(pending, current, dropped)
            if setting is not None or node.target in _CHANGE_OTHERS:
                current.clear()  # from here on nothing is known
    _settle(pending, current, dropped)
    for node in dropped:
        graph.erase_node(node)
    return len(dropped)


def _place_of(setting: Setting, node: fx.Node) -> Place:
    return id(setting.setter), node.args[:setting.keys]


def _settle(pending: dict[Place, fx.Node], current: dict[Place, tuple[Any, ...]], dropped: list[fx.Node]) -> None:
    """An operation runs: what is set by now counts."""
    for place, node in pending.items():
        value = node.args[len(place[1]):]
        if current.get(place) == value:
            dropped.append(node)
        current[place] = value
    pending.clear()


def only_settings(graph: fx.Graph) -> bool:
    """Whether no operation is left: what the program leaves set is set without the graph."""
    return all(node.op == "call_function" and node.target in _SETTING_OF for node in graph.nodes
               if node.op not in ("placeholder", "get_attr", "output"))
