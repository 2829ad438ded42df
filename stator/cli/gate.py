"""Fail where captures got worse.   python -m stator gate --baseline FILE [--update] SCRIPT [args] | MODEL

In: a stored census, and a script or model as `stator census` takes it.  Out: what is new, one line each; on GitHub, as
annotations on the lines of the program.
Exit codes: 0 nothing is worse; 1 a new break, recompile or eager call, or slower captures; 2 a command that is not
understood, or no baseline; 3 the script or model fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from stator.cli.census import FAILED, take

WORSE, NO_BASELINE = 1, 2


class Finding(NamedTuple):
    title: str
    text: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.title}: {self.text}{f', at {self.file}:{self.line}' if self.file else ''}"

    def annotation(self) -> str:
        """GitHub's form: its own separators are escaped in the texts."""
        place = f"file={_escaped(self.file, ':,')},line={self.line}," if self.file else ""
        return f"::error {place}title={_escaped(self.title, ':,')}::{_escaped(self.text)}"


def _escaped(text: str | None, more: str = "") -> str:
    made = str(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    for letter in more:
        made = made.replace(letter, f"%{ord(letter):02X}")
    return made


def worse(old: dict[str, Any], new: dict[str, Any], slower: float) -> list[Finding]:
    """New breaks and recompiles by cause and function, so that moved lines are not new; slower captures by time."""
    known = {_break_key(each) for each in old["breaks"]}
    found = [Finding("new graph break", f"{each['code']} {each['cause']} in {each['function']}; remedy: "
                     f"{each['remedy']}", each["file"], each["line"])
             for each in new["breaks"] if _break_key(each) not in known]
    left = [(each["name"], _subject(each["cause"])) for each in old["recompiles"]]
    for each in new["recompiles"]:
        key = (each["name"], _subject(each["cause"]))
        if key in left:
            left.remove(key)
        else:
            found.append(Finding("new recompile", f"{each['name']}: {each['cause']}", each["file"], each["line"]))
    eager = [(each["name"], each["why"]) for each in old["eager"]]
    found += [Finding("new eager call", f"{each['name']}: {each['why']}") for each in new["eager"]
              if (each["name"], each["why"]) not in eager]
    before, now = old["capture_seconds"], new["capture_seconds"]
    if now > before * slower + 0.5:  # half a second of noise
        found.append(Finding("slower captures", f"{before:.2f} s before, {now:.2f} s now"))
    return found


def _break_key(row: dict[str, Any]) -> tuple[str, ...]:
    return row["code"], row["cause"], os.path.basename(row["file"] or ""), row["function"]


def _subject(cause: str) -> str:
    """`x` of `x was float32[3], is float32[4]`: sizes differ from run to run."""
    return re.split(r" (?:was|were|had|no longer holds)\b", cause)[0]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m stator gate", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baseline", required=True, help="the stored census")
    parser.add_argument("--update", action="store_true", help="store the census of this run as the baseline")
    parser.add_argument("--slower", type=float, default=1.5, help="accepted factor of capture time (default: 1.5)")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument("subject", help="script.py or module:factory")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="arguments of the script")
    chosen = parser.parse_args(arguments)
    baseline = Path(chosen.baseline)
    if not chosen.update and not baseline.exists():
        print(f"stator gate: {baseline} does not exist; --update writes it", file=sys.stderr)
        sys.exit(NO_BASELINE)
    try:
        new = take([chosen.subject, *chosen.rest])
    except Exception as error:  # of the factory, or of loading it
        print(f"stator gate: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(FAILED)
    if new["error"]:
        print(f"stator gate: the run failed: {new['error']}", file=sys.stderr)
        sys.exit(FAILED)
    if chosen.update:
        baseline.write_text(json.dumps(new, indent=1), encoding="utf-8")
        return
    found = worse(json.loads(baseline.read_text(encoding="utf-8")), new, chosen.slower)
    if chosen.json:
        print(json.dumps([each._asdict() for each in found], indent=1))
    else:
        print("\n".join(map(str, found)) or "stator gate: nothing is worse")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        print("\n".join(each.annotation() for each in found))
    sys.exit(WORSE if found else 0)
