"""Print what pyproject.toml requires, one requirement a line, for `pip install -r`.

    python tools/requirements.py          the run-time dependencies and what the build needs
    python tools/requirements.py dev      and those of the extra `dev`
    python tools/requirements.py --keep-torch   the installed torch, for `pip install -c`

The core is built for one torch. Without the constraint, a library that requires torchvision installs its newest
release, and the torch of that release.
"""

import sys
import tomllib
from importlib.metadata import version
from pathlib import Path


def requirements(extras: list[str]) -> list[str]:
    project = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())
    optional = project["project"]["optional-dependencies"]
    return [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *(line for extra in extras for line in optional[extra]),
    ]


if __name__ == "__main__":
    given = sys.argv[1:]
    print(f"torch=={version('torch')}" if given == ["--keep-torch"] else "\n".join(requirements(given)))
