"""Write docs/causes.md: messages of Stator and of torch for programs with known causes.

    python -m tools.causes_page        runs the programs of tests/unit/report/test_*first_lines.py on both sides

In: programs with one break or recompile each.  Out: for each its source, the first line that Stator prints, and the
first record of TORCH_LOGS=graph_breaks,recompiles of torch.compile.  Each side runs in a process of its own.
"""

from __future__ import annotations

import inspect
import io
import json
import logging
import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "causes.md"
LONGEST = 7  # lines of a record of torch
SIDES = ("stator", "torch")


class Records(logging.Handler):
    """Keep the texts of records."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def text_by_stator(program: Callable[[], None], streams: dict[str, io.StringIO]) -> str:
    from stator import report

    stream = streams["stream"] = io.StringIO()
    stop = report.follow(("graph_breaks", "recompiles"), stream)
    program()
    text = stream.getvalue().partition("\n")[0]
    stop()
    return text.partition("] ")[2]


def text_by_torch(program: Callable[[], None], streams: dict[str, io.StringIO]) -> str:
    import torch

    streams["stream"] = io.StringIO()
    torch._dynamo.reset()
    records = Records()
    for name in ("torch._dynamo.symbolic_convert.__graph_breaks", "torch._dynamo.guards.__recompiles",
                 "torch._dynamo.convert_frame.__graph_breaks"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [records], False
        logger.setLevel(logging.DEBUG)
    try:
        program()
    except Exception as error:  # the program runs under Stator: the refusal is the message
        records.texts.append(f"{type(error).__name__}: {error}")
    lines = records.texts[0].strip().splitlines() if records.texts else ["(nothing)"]
    return "\n".join([*lines[:LONGEST], *(["..."] if len(lines) > LONGEST else [])])


def texts(side: str) -> dict[str, str]:
    """The message for each program."""
    import torch
    import torch._dynamo

    import stator
    from tests.unit.report import test_first_lines as programs
    from tests.unit.report import test_more_first_lines as more

    if side == "torch":
        torch._logging.set_logs(graph_breaks=True, recompiles=True)
        programs.compiled = more.compiled = lambda fn: torch.compile(fn, backend="eager", dynamic=False)
        stator.disable = torch.compiler.disable  # type: ignore[assignment]
        stator.graph_break = torch._dynamo.graph_break  # type: ignore[assignment]
    found = {}
    warnings.simplefilter("ignore")
    for program, _ in (*programs.PROGRAMS, *more.MORE):
        text_of = text_by_stator if side == "stator" else text_by_torch
        found[program.__name__] = text_of(program, programs.FIRST)
    return found


def both() -> dict[str, dict[str, str]]:
    found = {}
    for side in SIDES:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, "-m", "tools.causes_page", side], cwd=ROOT, capture_output=True,
                              text=True, check=True, env=env)
        found[side] = json.loads(done.stdout.splitlines()[-1])
    return found


def plain(text: str) -> str:
    """A message without the folders of this machine and addresses."""
    for folder in {str(ROOT), os.path.dirname(os.path.dirname(os.__file__)), sys.prefix}:
        text = text.replace(f"{folder}/", "")
    return text


def page() -> str:
    from tests.unit.report.test_first_lines import PROGRAMS
    from tests.unit.report.test_more_first_lines import MORE

    found = both()
    lines = ["# Causes, as both sides print them", "", "Written by `python -m tools.causes_page` from the programs of "
             "`tests/unit/report/test_first_lines.py` and `test_more_first_lines.py`: the first line that Stator "
             "prints, which these tests check, and the first record of `TORCH_LOGS=graph_breaks,recompiles` of "
             "torch.compile for the same program. The line of each is marked `# here`.", ""]
    for program, _ in (*PROGRAMS, *MORE):
        name = program.__name__
        source = textwrap.dedent("".join(inspect.getsourcelines(program)[0][2:])).rstrip()
        lines += [f"## {name.replace('_', ' ')}", "", "```", source, "```", "", "Stator:", "", "```",
                  plain(found["stator"][name]), "```", "", "torch.compile:", "", "```", plain(found["torch"][name]),
                  "```", ""]
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    if arguments and arguments[0] in SIDES:
        print(json.dumps(texts(arguments[0])))
        return
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
