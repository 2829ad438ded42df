"""Run an unmodified script with torch.compile going through Stator.

    python -m stator run [--backend NAME] [--report] script.py [args]
    python -m stator run [--backend NAME] [--report] -m module [args]

In: a script or module, and its own arguments.  Out: what it does by itself; with --report, what was captured, on the
error stream at the end.  Stator takes its place when the script imports torch; a script that never does pays nothing.
"""

from __future__ import annotations

import argparse
import collections
import runpy
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import stator
from stator import events


class AfterTorch(MetaPathFinder):
    """An import hook: calls `then` once, right after `import torch` has run, before the importer goes on."""

    def __init__(self, then: Callable[[], object]) -> None:
        self.then = then

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _LoaderThen(spec.loader, self.then)
        return spec


class _LoaderThen(Loader):
    """torch's own loader, and then a call."""

    def __init__(self, loader: Loader, then: Callable[[], object]) -> None:
        self.loader, self.then = loader, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader  # the module must not show that it was watched
        self.loader.exec_module(module)
        self.then()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def install_with_torch(backend: str | Callable[..., object] | None = None) -> None:
    """`stator.install()` now if torch is there, else as soon as it is imported."""
    if "torch" in sys.modules:
        stator.install(backend)
    else:
        sys.meta_path.insert(0, AfterTorch(lambda: stator.install(backend)))


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Options of ours come before the script; everything behind it is the script's own."""
    parser = argparse.ArgumentParser(prog="python -m stator run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", help='instead of "inductor", where the script does not name another one')
    parser.add_argument("--report", action="store_true", help="say at the end what was captured")
    parser.add_argument("-m", dest="module", help="run a module, as python -m does")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="script.py and its arguments")
    end = next((i + 2 for i, word in enumerate(arguments) if word == "-m"), None)
    if end is not None and not any(word.endswith(".py") for word in arguments[:end - 2]):
        return parser.parse_args(arguments[:end]), arguments[end:]
    chosen = parser.parse_args(arguments)
    if not chosen.rest:
        parser.error("give a script or -m module")
    return chosen, chosen.rest


def main(arguments: list[str]) -> None:
    chosen, rest = parse(arguments)
    install_with_torch(chosen.backend)
    with events.record() as log:
        try:
            if chosen.module is not None:
                sys.argv = [chosen.module, *rest]
                sys.path.insert(0, "")
                runpy.run_module(chosen.module, run_name="__main__", alter_sys=True)
            else:
                sys.argv = rest
                sys.path.insert(0, str(Path(rest[0]).resolve().parent))
                runpy.run_path(rest[0], run_name="__main__")
        finally:
            if chosen.report:
                report(log)


def report(log: list[events.Event]) -> None:
    """Print captures and breaks, one line each."""
    captured = [event for event in log if isinstance(event, events.CaptureFinished)]
    nodes = sum(event.graph_nodes for event in captured)
    seconds = sum(event.seconds for event in captured)
    print(f"stator: {len(captured)} captures, {nodes} nodes, {seconds:.1f} s", file=sys.stderr)
    stops = collections.Counter((event.code, event.cause) for event in log if isinstance(event, events.GraphBreak))
    for (code, cause), count in stops.most_common():
        print(f"stator: {count} x {code} {cause.splitlines()[0]}", file=sys.stderr)
