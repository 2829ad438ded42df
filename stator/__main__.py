"""`python -m stator COMMAND`.   run script.py  ->  the script, with torch.compile going through Stator; symmetry"""

from __future__ import annotations

import sys

from stator.cli import run, symmetry

COMMANDS = {"run": run.main, "symmetry": symmetry.main}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"usage: python -m stator {'|'.join(COMMANDS)} ...")
    COMMANDS[sys.argv[1]](sys.argv[2:])
