"""What a graph relies on of sizes that no guard asks about.   mark_unbacked(x, 0); x + y  ->  x.size(0) == 3, or eager

In: relations that operations, or the program, have asserted of sizes of inputs.  Out: a test before the graph is run,
whatever a compiler makes of the graph's own assertions.  A call that fails it is made as the program says: it raises
what it raises, or the graph was not made for it (a size of 1 that is broadcast), and a warning names the size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
from torch import fx
from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP
from torch.utils import _pytree as pytree
from torch.utils._sympy.printers import PythonPrinter

from stator import events
from stator.emit.residual.eager_calls import run_as_it_is
from stator.emit.services import Rebuilder
from stator.shapes.symbol_printing import UserPrinter


def require_sizes(build: Rebuilder, inputs: list[Any], asserted: dict[fx.Node, Any], names: Callable[[Any], str]
                  ) -> list[str]:
    """The lines of the residual that look at the sizes; `names` tells what an input is called there."""
    symbols = build.vm.recorder.symbols
    unbacked = {symbol for found in asserted.values() for symbol in found}
    by_node = {each.node: each for each in inputs}
    said = [each.expr for asserts in symbols.shape_env.deferred_runtime_asserts.values() for each in asserts]
    kept = [expression for expression in dict.fromkeys(said) if expression.free_symbols & unbacked and all(
        symbols.definitions.get(symbol, (None,))[0] in by_node for symbol in expression.free_symbols)]
    if not kept:
        return []
    wanted = sorted({symbol for expression in kept for symbol in expression.free_symbols}, key=str)
    places = {symbol: (by_node[symbols.definitions[symbol][0]], symbols.definitions[symbol][1]) for symbol in wanted}
    given = ", ".join(f"{names(each)}{spelled(path)}" for each, path in places.values())
    texts = {symbol: f"{each.source.text()}{spelled(path)}" for symbol, (each, path) in places.items()}
    check = SizesHold(kept, wanted, texts, unbacked)
    return [f"unmet = {build.writer.constant(check, 'unmet_sizes')}({given})", "if unmet is not None:",
            f"    return {build.writer.constant(made_for_others)}(unmet)"]


def spelled(path: Any) -> str:
    """Of a tensor: `.size(0)`."""
    index = [part.idx for part in path[1:] if isinstance(part, pytree.SequenceKey)]
    return f".{path[0].name}({', '.join(map(str, index))})"


class SizesHold:
    """A function of sizes: None where every relation holds, else words about the first that does not."""

    __name__ = "unmet_sizes"

    def __init__(self, relations: list[Any], symbols: list[sympy.Symbol], texts: dict[Any, str], marked: set[Any]
                 ) -> None:
        arguments = ", ".join(map(str, symbols))
        self.relations = [eval(f"lambda {arguments}: {PythonPrinter().doprint(each)}", dict(SYMPY_INTERP))
                          for each in relations]
        shown = {symbol: sympy.Symbol(text, integer=True) for symbol, text in texts.items()}
        self.words = [UserPrinter().doprint(each.xreplace(shown)) for each in relations]
        self.marked = " and ".join(texts[symbol] for symbol in symbols if symbol in marked)

    def __call__(self, *sizes: int) -> str | None:
        for holds, words in zip(self.relations, self.words, strict=True):
            if not holds(*sizes):
                return f"{self.marked} is marked unbacked, and the graph was made for sizes such that {words}"
        return None


def made_for_others(unmet: str) -> Any:
    events.emit(events.EagerFallback("a compiled graph", unmet))
    return run_as_it_is(f"stator: {unmet}. A call with other sizes (one that is broadcast, for instance) was made "
                        "eagerly instead, as every such call will be; mark the size dynamic to have them compiled.")
