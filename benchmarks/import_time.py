"""CPU time of imports, until the first capture: `python -m benchmarks.import_time [--rounds 3]`.

In: nothing.  Out: for each step of a program the median CPU seconds beyond `import torch`, the modules it loads, and
whether torch._dynamo is among them.  Each measurement is a process of its own; the steps are measured in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

CASES = {
    "import stator": "import stator",
    "stator.compile(f)": "import stator; f = stator.compile(lambda x: x + 1, backend='eager')",
    "first call, eager": "import stator; f = stator.compile(lambda x: x + 1, backend='eager'); f(torch.ones(2))",
    "import torch._dynamo": "import torch._dynamo",
    "torch.compile, first call, eager": "f = torch.compile(lambda x: x + 1, backend='eager'); f(torch.ones(2))",
}
TEXT = """
import json, sys, time
import torch
before, modules = time.process_time(), len(sys.modules)
{}
print(json.dumps([time.process_time() - before, len(sys.modules) - modules, "torch._dynamo" in sys.modules]))
"""


def measure(statement: str) -> tuple[float, int, bool]:
    """CPU seconds, new modules, and whether torch._dynamo is loaded, behind `import torch` in a new process."""
    command = [sys.executable, "-c", TEXT.format(statement)]
    seconds, modules, peer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return float(seconds), int(modules), bool(peer)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    found: dict[str, list[tuple[float, int, bool]]] = {name: [] for name in CASES}
    for _ in range(rounds):
        for name, statement in CASES.items():
            found[name].append(measure(statement))
            print(f"{name}: {found[name][-1][0]:.2f} s", file=sys.stderr, flush=True)
    print("| beyond `import torch` | CPU seconds | modules | torch._dynamo |\n|---|---|---|---|")
    for name, samples in found.items():
        _, modules, peer = samples[0]
        seconds = statistics.median(each[0] for each in samples)
        print(f"| {name} | {seconds:.2f} | {modules:,} | {'yes' if peer else 'no'} |")


if __name__ == "__main__":
    main()
