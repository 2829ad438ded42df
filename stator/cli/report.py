"""Write a page about a run.   python -m stator report [--out FILE] [--json FILE] [--remedies] SCRIPT [args]

    torchrun --nproc-per-node 4 -m stator report SCRIPT        one page with the ranks side by side

In: an unmodified script and its arguments.  Out: one HTML file that needs no network, and the same facts as JSON.
Exit code: the script's own; 2 for a command that is not understood.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path

from stator.cli.kept_calls import kept_calls
from stator.cli.rank_files import put_beside, this_rank, write_whole
from stator.cli.recorded_run import watch_script
from stator.cli.remedies import tried
from stator.report.page import page


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m stator report", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="stator-report.html", help="the page (default: %(default)s)")
    parser.add_argument("--json", help="write the facts there, too; - is the standard output")
    parser.add_argument("--remedies", action="store_true", help="try source changes, and show those that work")
    parser.add_argument("--backend", help='instead of "inductor", where the script does not name another one')
    parser.add_argument("script", help="script.py")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="its arguments")
    chosen = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(kept_calls()) if chosen.remedies else {}
        done = watch_script([chosen.script, *chosen.rest], chosen.backend)
    data = done.data(" ".join([chosen.script, *chosen.rest]))
    data["remedies"] = [each.data() for each in tried(kept.values())]
    if (rank := this_rank()) is not None:
        data = put_beside(Path(chosen.out), data, rank, done.recorded.log)
    write_whole(Path(chosen.out), page(data))
    print(f"stator: {chosen.out}", file=sys.stderr)
    if chosen.json == "-":
        print(json.dumps(data, default=str))
    elif chosen.json:
        write_whole(Path(chosen.json), json.dumps(data, default=str))
    if done.error is not None:
        raise done.error
