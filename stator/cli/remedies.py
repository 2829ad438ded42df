"""Try source changes for breaks.   python -m stator remedies [--json] [--backend NAME] SCRIPT [args] | MODEL

In: a script, or a model as `module:factory` or `file.py:factory`; the factory gives (model, args[, kwargs]).
Out: for each compiled function the changes that were tried and work, as diffs, with what they save.
Exit codes: 0 where no break or recompile is left after the proposals; 1 where one is; 2 for a command that is not
understood; 3 where the script or model fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable

from stator.cli.census import FAILED
from stator.cli.kept_calls import Kept, kept_calls
from stator.cli.recorded_run import is_model, load_model, watch_script
from stator.remedies.proposals import Proposals
from stator.remedies.recorded_calls import Call
from stator.remedies.search import propose

LEFT = 1


def tried(kept: Iterable[Kept]) -> list[Proposals]:
    """Proposals for every function; one whose calls cannot be repeated is left out with a line on the error stream."""
    found = []
    for each in kept:
        try:
            found.append(propose(each.fn, each.calls, name=each.name))
        except Exception as error:
            print(f"stator: {each.name}: its calls cannot be repeated: {error!r}", file=sys.stderr)
    return found


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m stator remedies", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the proposals as JSON")
    parser.add_argument("--backend", help='for the run of a script, instead of "inductor"')
    parser.add_argument("subject", help="script.py, or module:factory")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="the arguments of the script")
    chosen = parser.parse_args(arguments)
    found, failed = _model(chosen.subject) if is_model(chosen.subject) else _script(
        [chosen.subject, *chosen.rest], chosen.backend)
    print(json.dumps([each.data() for each in found]) if chosen.json else "\n\n".join(map(str, found)))
    sys.exit(FAILED if failed else LEFT if any(each.failures for each in found) else 0)


def _script(words: list[str], backend: str | None) -> tuple[list[Proposals], bool]:
    with kept_calls() as kept:
        done = watch_script(words, backend)
    failed = isinstance(done.error, Exception)
    if failed:
        print(f"stator: the script fails: {done.error!r}", file=sys.stderr)
    return tried(kept.values()), failed


def _model(word: str) -> tuple[list[Proposals], bool]:
    try:
        model = load_model(word)
        model.call()
    except Exception as error:
        print(f"stator: the model fails: {error!r}", file=sys.stderr)
        return [], True
    return tried([Kept(word, model.fn, [Call(model.args, model.kwargs)])]), False
