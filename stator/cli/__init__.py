"""Shell commands.   python -m stator report script.py  ->  stator.cli.report.main(["script.py"])"""

from __future__ import annotations

import importlib
import sys

COMMANDS = {
    "run": "run a script with torch.compile going through Stator",
    "report": "run a script, and write a page about what was captured",
    "remedies": "try source changes for the breaks and recompiles of a script or model, and show those that work",
    "census": "graphs, breaks by cause, and the captured share of operators and time, of a script or model",
    "gate": "compare a census with a stored one: fails on a new break, a new recompile, or slower captures",
    "stability": "call a model again, and with one size changed at a time: which guards move",
    "symmetry": "compare the captures of several ranks",
    "code": "print the page of a break code, with programs before and after",
    "regions": "compile a model whole and in pieces: first call and steady state",
}


def main(words: list[str]) -> None:
    if not words or words[0] not in COMMANDS:
        lines = [f"  {name:10} {text}" for name, text in COMMANDS.items()]
        sys.exit("\n".join(["usage: python -m stator COMMAND ...", *lines]))
    importlib.import_module(f"stator.cli.{words[0]}").main(words[1:])
