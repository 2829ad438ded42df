"""The C++ core built with its faults in it, and the tests that must notice.   python -m tests.mutation.faulty_core

In: csrc/ and the list of faults in core_faults.py.  Out: a copy of the tree under build/faults whose `stator._core` has
every fault, none of them on; then `python -m tests.mutation` there, whose mutants named `core.` turn on one fault each.
Variations, which must change nothing, are mutants named `variation.`, and no test may notice one.

Which tests there are and what was noticed is kept in build/faults: --minutes stops in time, --resume goes on there.

The number of the fault that is on is a variable of the library, `stator_fault`; the core that is shipped has none.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.mutation.core_faults import Fault, numbered
from tools.sanitize import drop_stale

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "faults"
PARTS = ["csrc", "tools", "stator", "tests", "docs", "setup.py", "pyproject.toml", "README.md", "LICENSE"]
TESTS = ["tests/unit/guards", "tests/unit/entry", "tests/unit/emit/test_rebuilt_objects.py",
         "tests/unit/shapes/test_shape_checks.py", "tests/unit/shapes/test_divisions.py", "tests/unit/interp/test_replay.py",
         "tests/resilience/test_interruptions.py", "tests/laws/test_laws.py"]  # fmt: skip
SWITCH = 'extern "C" int stator_fault;\n'
DEFINITION = 'extern "C" { __attribute__((visibility("default"))) int stator_fault = 0; }\n'


def patched(text: str, faults: list[tuple[int, Fault]]) -> str:
    """The source with its faults, and what says which is on."""
    for number, fault in faults:
        if text.count(fault.old) != 1:
            raise SystemExit(f"{fault.mutant}: its text occurs {text.count(fault.old)} times in csrc/{fault.file}")
        text = text.replace(fault.old, fault.new.replace("FAULT", f"(stator_fault == {number})"))
    return SWITCH + text


def copy_tree() -> None:
    """The sources under build/faults; files that are as they were keep their times, so that builds stay incremental."""
    by_file: dict[str, list[tuple[int, Fault]]] = defaultdict(list)
    for number, fault in numbered():
        by_file[fault.file].append((number, fault))
    for part in PARTS:
        source, target = ROOT / part, COPY / part
        if source.is_dir():
            changed = (Path(name).name for name in (*by_file, "core_module.cpp"))
            shutil.copytree(source, target, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("*.so", "__pycache__", *changed))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    texts = {name: patched((ROOT / "csrc" / name).read_text(), faults) for name, faults in by_file.items()}
    texts["core_module.cpp"] = (ROOT / "csrc" / "core_module.cpp").read_text() + DEFINITION
    drop_stale(ROOT / "csrc", COPY / "csrc")
    for name, text in texts.items():
        target = COPY / "csrc" / name
        if not target.exists() or target.read_text() != text:
            target.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.faulty_core", description=__doc__)
    parser.add_argument("tests", nargs="*", default=TESTS)
    parser.add_argument("--only", default="", help="faults and variations whose name matches this expression")
    parser.add_argument("--seconds", default="120", help="of tests that a fault or a variation meets at most")
    parser.add_argument("--minutes", default="0", help="start nothing after so many minutes; 0: no limit")
    parser.add_argument("--jobs", default="1", help="how many faults are tried at once")
    parser.add_argument("--resume", action="store_true", help="leave out what the last run has seen noticed")
    parser.add_argument("--result", default=str(COPY / "result.json"), help="where to write the result")
    options = parser.parse_args()
    copy_tree()
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=COPY, check=True)
    result = Path(options.result)
    tests = [test for test in options.tests if (COPY / test.partition("::")[0]).exists()]
    command = [sys.executable, "-m", "tests.mutation", "--jobs", options.jobs, "--seconds", options.seconds,
               "--minutes", options.minutes, "--only", f"^(core|variation)\\..*(?:{options.only})",
               "--learned", str(COPY / "learned.jsonl"), "--json", str(result)]  # fmt: skip
    again = ["--again", str(result)] if options.resume and result.exists() else []
    environment = dict(os.environ, PYTHONPATH=str(COPY), OMP_NUM_THREADS="1")
    return subprocess.run([*command, *again, *tests], cwd=COPY, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
