"""Compare or rewrite the stage goldens.   python -m tests.golden [--update] [names]"""

from __future__ import annotations

import argparse
import sys

from tests.golden.stages import FOLDER, IS_REFERENCE, PROGRAMS, REFERENCE, stages


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the files that differ")
    parser.add_argument("names", nargs="*", default=PROGRAMS)
    options = parser.parse_args()
    if not IS_REFERENCE:
        print(f"the goldens are those of {REFERENCE}")
        return 2
    differing = 0
    for name in options.names:
        for stage, text in stages(name).items():
            path = FOLDER / name / stage
            if path.exists() and path.read_text() == text:
                continue
            differing += 1
            print(f"{'wrote' if options.update else 'differs:'} {name}/{stage}")
            if options.update:
                path.write_text(text)
    return int(differing > 0 and not options.update)


if __name__ == "__main__":
    sys.exit(main())
