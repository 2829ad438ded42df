"""Decode and re-encode the running interpreter's whole standard library.   python roundtrip.py [--quick]

Needs neither torch nor pytest, so it runs under every interpreter at hand. Each .py file of the standard library
is compiled and every code object in it must come back byte for byte, verify, and need the stack that CPython
gave it. `--quick` takes an even slice of the files, compares with `dis` as well, and calls the test functions of
the neighbouring test_code_*.py, which keep to plain asserts for that reason. Exits 1 on any difference.
"""

from __future__ import annotations

import dis
import importlib
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType

QUICK_FILES = 200

# The real package's __init__ imports torch; a bare package of the same name gives access to stator.code alone.
ROOT = Path(__file__).resolve().parents[3]
_bare = ModuleType("stator")
_bare.__path__ = [str(ROOT / "stator")]
sys.modules["stator"] = _bare
sys.path.append(str(ROOT))  # neighbouring tests import one another by their full names


def build_hook(folder: str) -> None:
    """Compile stator._hook, which reads instructions, for this interpreter: it is built for one."""
    include = sysconfig.get_paths()["include"]
    target = f"{folder}/_hook{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run(["cc", "-shared", "-fPIC", "-std=gnu11", "-O1", "-DPy_BUILD_CORE_MODULE=1",
                    '-DSTATOR_TORCH_VERSION="none"', f"-I{ROOT / 'csrc'}", f"-I{include}", f"-I{include}/internal",
                    *map(str, sorted((ROOT / "csrc" / "hook").glob("*.c"))), "-o", target], check=True)
    _bare.__path__ = [*_bare.__path__, folder]


try:
    importlib.import_module("stator._hook")
except ImportError:
    _built = tempfile.TemporaryDirectory()
    build_hook(_built.name)
decoder = importlib.import_module("stator.code.decode")
encoder = importlib.import_module("stator.code.encode")
liveness = importlib.import_module("stator.code.flow")
stack = importlib.import_module("stator.code.stack_effects")
verifier = importlib.import_module("code_verifier")


def stdlib_files(quick: bool) -> list[Path]:
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts)
    return files[:: max(1, len(files) // QUICK_FILES)] if quick else files


def nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


def differences(code: CodeType, counts: Counter[str]) -> list[str]:
    """Differences after the round trip of one code object."""
    unit = decoder.decode(code)
    again = encoder.encode_parts(unit.code, unit.instructions, unit.exception_table)
    wrong = [
        field
        for field in ("co_code", "co_exceptiontable", "co_consts", "co_names", "co_varnames", "co_freevars")
        if getattr(code, field) != getattr(again, field)
    ]
    if list(code.co_positions()) != list(again.co_positions()):
        wrong.append("co_positions")
    counts["co_linetable identical"] += code.co_linetable == again.co_linetable
    # CPython also counts handlers that nothing reaches; elsewhere a frame that is smaller than its own is overrun.
    unreached = None in stack.depths(unit)
    if again.co_stacksize > code.co_stacksize or (again.co_stacksize < code.co_stacksize and not unreached):
        wrong.append(f"co_stacksize {again.co_stacksize}, CPython's is {code.co_stacksize}")
    wrong += verifier.verify(code)
    slots = tuple(code._varname_from_oparg(slot) for slot in range(unit.nlocalsplus))  # type: ignore[attr-defined]
    if slots != unit.local_names:
        wrong.append(f"slots {unit.local_names} are {slots}")
    if code.co_flags & 2 and not liveness.live_locals(unit, 0) <= set(range(unit.nlocalsplus)):
        wrong.append("live slots out of range")
    counts["instructions"] += len(unit.instructions)
    for instruction in unit.instructions:
        counts["op " + instruction.opname] += 1
    return wrong


def differences_from_dis(code: CodeType) -> list[str]:
    """Compare with the standard disassembler, which reads the same bytes by other means."""
    ours = decoder.decode(code).instructions
    theirs = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    if len(ours) != len(theirs):
        return [f"{len(ours)} instructions, dis has {len(theirs)}"]
    jumps = {code for code in [*dis.hasjrel, *dis.hasjabs] if dis.opname[code] != "END_ASYNC_FOR"}
    starts = decoder.decode(code).index_of_offset
    wrong = []
    for mine, reference in zip(ours, theirs, strict=True):
        same = (mine.written, mine.offset, mine.arg) == (reference.opname, reference.offset, reference.arg)
        same = same and (mine.positions or (None,) * 4) == tuple(reference.positions or ())
        if reference.opcode in jumps:
            same = same and mine.target == starts[reference.argval]
        elif reference.opcode in dis.hasname:
            same = same and mine.argval == reference.argval
        elif reference.opcode in dis.hasconst:  # 3.11's dis does not resolve KW_NAMES
            same = same and mine.argval is code.co_consts[reference.arg]
        if not same:
            wrong.append(f"{mine} is {reference} to dis")
    return wrong


def run_plain_tests(counts: Counter[str]) -> None:
    """Call every test function beside this file but the one that started this process."""
    here = Path(__file__).resolve().parent
    sys.path.insert(0, str(here))
    for path in sorted(here.glob("test_code_*.py")):
        if path.stem == "test_code_roundtrip":
            continue
        module = importlib.import_module(path.stem)
        for name, test in sorted(vars(module).items()):
            if not name.startswith("test_"):
                continue
            try:
                test()
                counts["plain tests passed"] += 1
            except Exception:
                traceback.print_exc()
                counts["different"] += 1


def main() -> int:
    quick = "--quick" in sys.argv[1:]
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    started = time.perf_counter()
    for path in stdlib_files(quick):
        try:
            module = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):  # the test suite keeps files that must not compile
            counts["not compilable"] += 1
            continue
        counts["files"] += 1
        for code in nested(module):
            counts["code objects"] += 1
            wrong = differences(code, counts) + (differences_from_dis(code) if quick else [])
            if wrong:
                counts["different"] += 1
                print(f"{path}:{code.co_firstlineno} {code.co_qualname}: {'; '.join(wrong)[:600]}")
    if quick:
        run_plain_tests(counts)
    opnames = {name[3:] for name in counts if name.startswith("op ")}
    print(f"python {sys.version.split()[0]} in {time.perf_counter() - started:.1f} s")
    for name in sorted(counts):
        if not name.startswith("op "):
            print(f"{name}: {counts[name]}")
    unseen = importlib.import_module("stator.code.opcodes").DECODED_OPNAMES - opnames
    print(f"opcodes seen: {len(opnames)}; never seen: {' '.join(sorted(unseen)) or 'none'}")
    return 1 if counts["different"] or not counts["code objects"] else 0


if __name__ == "__main__":
    sys.exit(main())
