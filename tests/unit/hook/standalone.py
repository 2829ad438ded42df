"""Build the hook for the interpreter that runs this file, check it, and prove that it does not leak.

    python3.12 tests/unit/hook/standalone.py [--frames 100000]

No torch, no pytest. Exit status 0: every check held, nothing leaked, and a build that leaks on purpose
(-DSTATOR_HOOK_TEST_LEAK) was caught by every kind of witness.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parents[1])]

import hook_checks  # noqa: E402
import hook_switch_checks  # noqa: E402
from hook_build import compile_hook, load_hook  # noqa: E402
from hook_leaks import leaks  # noqa: E402

Check = Callable[..., None]
TWO_HOOKS = {"check_another_hook_over_and_under_ours"}


def all_checks() -> dict[str, Check]:
    found = {**vars(hook_checks), **vars(hook_switch_checks)}
    return {name: check for name, check in found.items() if name.startswith("check_")}


def run_check(name: str, check: Check, hook: ModuleType, other: ModuleType) -> None:
    check(hook, other) if name in TWO_HOOKS else check(hook)


def leak_lines(library: Path, frames: int) -> list[str]:
    """Measure in a process of its own: resident memory and counts start clean."""
    command = [sys.executable, __file__, "--measure", str(library), "--frames", str(frames)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def measure(library: Path, frames: int) -> None:
    intercepted, found = leaks(load_hook(library), frames)
    print(intercepted)
    print("\n".join(found))


def unseen_faults(found: list[str]) -> list[str]:
    """The kinds of witness that missed the leak of the build that leaks on purpose."""
    kinds = ("references to shared", "live arguments", "objects", "resident memory")
    return [kind for kind in kinds if not any(line.startswith(kind) for line in found)]


def main(frames: int) -> int:
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        library = compile_hook(Path(folder) / "hook")
        hook, other = load_hook(library), load_hook(compile_hook(Path(folder) / "other"))
        for name, check in all_checks().items():
            try:
                run_check(name, check, hook, other)
            except AssertionError as error:
                failures += 1
                print(f"FAILED {name}: {error!r}")
        count, *found = leak_lines(library, frames)
        leaky = compile_hook(Path(folder) / "leaky", "STATOR_HOOK_TEST_LEAK")
        _, *planted = leak_lines(leaky, frames)
    found = [line for line in found if line]
    version = sys.version.split()[0]
    print(f"{version}: {len(all_checks()) - failures} of {len(all_checks())} checks held")
    print(f"{version}: {count} intercepted frames, leaked: {found or 'nothing'}")
    print(f"{version}: planted leak seen as {[line for line in planted if line][-3:]}")
    for kind in unseen_faults(planted):
        failures += 1
        print(f"FAILED the planted leak was not seen by: {kind}")
    return 1 if failures or found or int(count) < frames else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.frames)
    else:
        sys.exit(main(options.frames))
