"""Imports point one way, and each rule of tools/layers.py finds its own violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.layers import LAYERS, PACKAGE, RANK, folder_problems, read_package, violations

ROOT = Path(__file__).resolve().parents[2]


def rules_broken(sources: dict[str, str]) -> list[str]:
    return [found.rule for found in violations(sources)]


def test_package_keeps_its_layers():
    found = violations(read_package(ROOT))
    assert not found, "\n" + "\n".join(map(str, found))


def test_every_folder_states_its_input_and_output():
    found = [*folder_problems(read_package(ROOT))]
    assert not found, "\n" + "\n".join(map(str, found))


@pytest.mark.parametrize(("text", "rule"), [
    (None, "a folder without __init__.py"),
    ("", "__init__.py states no input and output"),
    ('"""The heap."""', "__init__.py states no input and output"),
    ('"""In: a\n\n\n\n\nOut: b"""', "__init__.py states input and output in more than 5 lines"),
    ('"""values -> stand-ins"""', None),
    ('"""The heap.\n\nIn: values.  Out: stand-ins."""', None),
])
def test_folder_without_summary_is_found(text: str | None, rule: str | None):
    sources = {"stator.heap.box": ""} | ({} if text is None else {"stator.heap.__init__": text})
    assert [found.rule for found in folder_problems(sources)] == ([] if rule is None else [rule])


def test_package_was_read():
    modules = read_package(ROOT)
    assert "stator.errors" in modules and "stator.events" in modules


def test_every_folder_and_module_has_a_layer():
    names = {path.stem for path in (ROOT / PACKAGE).iterdir() if path.suffix == ".py"}
    names |= {path.name for path in (ROOT / PACKAGE).iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert names - set(RANK) - {"report"} == set()


def test_order_is_the_design():
    order = "cli api capture emit library interp native heap graph shapes guards source code events".split()
    assert [RANK[layer] for layer in order] == sorted((RANK[layer] for layer in order), reverse=True)
    assert {"emit", "cache", "backends"} in [set(layers) for layers in LAYERS]


def test_every_layer_exists():
    extensions = {"_core", "_hook"}  # built, and described by stubs
    named = {layer for layers in LAYERS for layer in layers}
    there = {path.stem for path in (ROOT / PACKAGE).iterdir()}
    assert named - extensions <= there


@pytest.mark.parametrize(
    ("sources", "rule"),
    [
        ({"stator.heap.box": "from stator.interp import loop", "stator.interp.loop": ""}, "heap imports interp"),
        ({"stator.source": "import stator.guards.guard", "stator.guards.guard": ""}, "source imports guards"),
        ({"stator.heap.box": "from ..interp.loop import run", "stator.interp.loop": ""}, "heap imports interp"),
        ({"stator.emit.code": "from stator import cache", "stator.cache.__init__": ""}, "beside it"),
        ({"stator.api": "from stator.cli import demo", "stator.cli.demo": ""}, "api imports cli"),
        ({"stator.guards.g": "import stator"}, "guards imports __init__"),
        ({"stator.report.text": "from stator.guards import g", "stator.guards.g": ""}, "events alone"),
        ({"stator.heap.box": "from stator.report import text", "stator.report.text": ""}, "only these may: __init__, __main__, api"),
        ({"stator.helpers": ""}, "says what it owns"),
        ({"stator.odd": "import stator.errors", "stator.errors": ""}, "is in no layer"),
        (
            {"stator.interp.loop": "def run():\n    from stator.heap import box", "stator.heap.box": ""},
            "inside a function",
        ),
        ({"stator.interp.loop": "import torch._dynamo"}, "torch._dynamo outside"),
        ({"stator.interp.loop": "from torch import _dynamo"}, "torch._dynamo outside"),
        ({"stator.interp.loop": "import torch\ntorch._C._dynamo.eval_frame"}, "torch._C._dynamo outside"),
        ({"stator.interp.loop": "import_module('torch._dynamo.utils')"}, "torch._dynamo outside"),
        ({"stator.interp.loop": "import sys\nif sys.version_info >= (3, 12): pass"}, "sys.version_info outside"),
        ({"stator.interp.loop": "import sys\nminor = sys.version_info.minor"}, "sys.version_info outside"),
        ({"stator.interp.loop": "import sys\nNEW = sys.version_info[:2] > (3, 11)"}, "sys.version_info outside"),
        ({"stator.interp.loop": "from sys import version_info"}, "sys.version_info outside"),
        (
            {"stator.heap.a": "from stator.heap import b", "stator.heap.b": "from .a import f"},
            "import cycle: stator.heap.a -> stator.heap.b -> stator.heap.a",
        ),
        ({"stator.errors": "import stator.breaks", "stator.breaks": "import stator.errors"}, "import cycle"),
        (
            {"stator.heap.box": "if TYPE_CHECKING:\n    from stator.interp.vm import VM", "stator.interp.vm": ""},
            "heap imports interp",
        ),
    ],
)
def test_violation_is_found(sources: dict[str, str], rule: str):
    assert any(rule in found for found in rules_broken(sources)), rules_broken(sources)


@pytest.mark.parametrize(
    "sources",
    [
        {"stator.interp.loop": "from stator.heap.box import Box", "stator.heap.box": ""},
        {"stator.cli.demo": "import stator", "stator.__init__": "from stator.api import compile", "stator.api": ""},
        {"stator.events": "from stator.breaks import Break", "stator.breaks": "import stator.errors", "stator.errors": ""},
        {"stator.graph.record.recorder": "from stator import _hook"},
        {"stator.backends.inductor": "import torch._dynamo.backends"},
        {"stator.code.opcodes": "import sys\nsys.version_info"},
        {"stator.native.rows": "import sys\nfor record in (sys.version_info, sys.flags): pass"},
        {"stator.report.text": "from stator import events", "stator.events": ""},
        {"stator.heap.a": "from stator.heap import b", "stator.heap.b": "", "stator.heap.__init__": ""},
        {"stator.interp.loop": "def run():\n    import math"},
        {"stator.heap.services": "if TYPE_CHECKING:\n    from stator.heap.heap import Heap",
         "stator.heap.heap": "from stator.heap.services import Heap"},
    ],
)
def test_lawful_import_is_accepted(sources: dict[str, str]):
    assert rules_broken(sources) == []


def test_rooms_import_one_way():
    sources = {"stator.graph.fx.a": "from stator.graph.state import b", "stator.graph.state.b": "",
               "stator.graph.state.c": "from stator.graph.fx import d", "stator.graph.fx.d": ""}
    assert rules_broken(sources) == ["rooms import one another: graph.fx -> graph.state -> graph.fx"]


def test_modules_beside_rooms_are_rooms_of_their_own():
    sources = {"stator.interp.frame": "", "stator.interp.vm": "from stator.interp.objects import items",
               "stator.interp.objects.items": "from stator.interp.frame import Frame"}
    assert rules_broken(sources) == []


def test_rooms_stay_small():
    assert rules_broken({f"stator.heap.m{n}": "" for n in range(26)}) == ["26 files in one folder, more than 25"]
