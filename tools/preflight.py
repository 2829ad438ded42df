"""Say in one sentence why Stator cannot be built here.

In: this interpreter, the torch it can import, the compilers on the path.  Out: nothing and exit status 0, or
one sentence on stderr and exit status 1.

    python tools/preflight.py [--interpreter-only]

`setup.py` and `build_backend.py` ask the same questions before they do anything else. The file must parse on
Pythons that are too old to build Stator, so that they get the sentence rather than a SyntaxError.
"""

import importlib.util
import os
import re
import shlex
import shutil
import sys
import sysconfig

OLDEST_PYTHON = (3, 11)
FIRST_PYTHON_TOO_NEW = (3, 15)
OLDEST_TORCH = (2, 11)
NEWEST_TESTED_TORCH = (2, 15)  # as in stator/host/installed_torch.py
TORCH_REQUIREMENT = "torch>=%d.%d" % OLDEST_TORCH  # as in pyproject.toml
OLDEST_SETUPTOOLS = 77


def dotted(version):
    return ".".join(str(part) for part in version[:2])


def interpreter_problem(version, free_threaded, platform):
    """The defect of the interpreter, or None."""
    accepted = "CPython %s to %s" % (dotted(OLDEST_PYTHON), dotted((3, FIRST_PYTHON_TOO_NEW[1] - 1)))
    if not platform.startswith("linux"):
        return "Stator builds on Linux only, and this is %s." % platform
    if not OLDEST_PYTHON <= tuple(version[:2]) < FIRST_PYTHON_TOO_NEW:
        return "Stator needs %s, and this is Python %s (make PYTHON=/path/to/python chooses another)." % (
            accepted,
            dotted(version),
        )
    if free_threaded:
        return "Stator needs %s with the GIL, and this is a free-threaded build." % accepted
    return None


def torch_problem(version):
    """The defect of the torch of that version (None: there is no torch), or None."""
    accepted = "torch %s or later" % dotted(OLDEST_TORCH)
    if version is None:
        return (
            "Stator builds against the torch that is installed, and this Python has none: install %s first, "
            "then run pip with --no-build-isolation." % accepted
        )
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or tuple(map(int, numbers.groups())) < OLDEST_TORCH:
        return "Stator needs %s, and torch %s is installed." % (accepted, version)
    return None


def torch_warning(version):
    """One sentence about a torch that no test has seen, or None."""
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    if numbers is None or tuple(map(int, numbers.groups())) <= NEWEST_TESTED_TORCH:
        return None
    return "Stator is tested with torch up to %s; torch %s is newer, and the build is tried." % (
        dotted(NEWEST_TESTED_TORCH),
        version,
    )


def setuptools_problem(version):
    """The defect of the setuptools of that version (None: there is none), or None."""
    if version is not None and int(version.split(".")[0]) >= OLDEST_SETUPTOOLS:
        return None
    return "Stator needs setuptools %d or later to build, and %s: run pip install -U setuptools first." % (
        OLDEST_SETUPTOOLS,
        "there is none" if version is None else "%s is installed" % version,
    )


def compiler_problem(commands):
    """The defect of the compilers `{"C": "gcc -pthread", "C++": "g++"}`, or None."""
    for language, command in sorted(commands.items()):
        words = shlex.split(command or "")
        if not words or shutil.which(words[0]) is None:
            name = words[0] if words else ""
            variable = {"C": "CC", "C++": "CXX"}[language]
            return "Stator needs a %s compiler, and %r was not found (install gcc and g++, or set %s)." % (
                language,
                name,
                variable,
            )
    return None


def header_problem(include):
    """The missing header of CPython, or None."""
    for header in ("Python.h", os.path.join("internal", "pycore_frame.h")):
        if not os.path.exists(os.path.join(include, header)):
            return "Stator needs CPython's headers to build, and %s is not in %s (install python3-dev)." % (
                header,
                include,
            )
    return None


def installed_torch():
    """The folder and the version of the torch to build against; (None, None) without one.

    It is the torch that this interpreter would import, else that of the environment it belongs to: an isolated
    build hides that one from `import`. Read from its files, because importing torch takes seconds and `make`
    asks often.
    """
    spec = importlib.util.find_spec("torch")
    beside = [os.path.join(sysconfig.get_paths()[kind], "torch") for kind in ("platlib", "purelib")]
    folders = list(spec.submodule_search_locations or ()) if spec else []
    folder = next(iter(folders + [each for each in beside if os.path.isdir(each)]), None)
    if folder is None:
        return None, None
    path = os.path.join(folder, "version.py")
    if not os.path.exists(path):
        return folder, "of unknown version"
    with open(path, encoding="utf-8") as stream:
        found = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", stream.read(), re.MULTILINE)
    return folder, found.group(1) if found else "of unknown version"


def installed_setuptools():
    """The version of the setuptools this interpreter would import; None without one."""
    spec = importlib.util.find_spec("setuptools")
    if spec is None or not spec.submodule_search_locations:
        return None
    beside = os.path.dirname(list(spec.submodule_search_locations)[0])
    names = [re.match(r"setuptools-(\d[\d.]*)\.(dist|egg)-info", name) for name in os.listdir(beside)]
    return next((name.group(1) for name in names if name), None)


def compiler_commands():
    """The commands that compile C and C++: CC and CXX if set, else what CPython itself was built with."""
    return {
        "C": os.environ.get("CC") or sysconfig.get_config_var("CC") or "gcc",
        "C++": os.environ.get("CXX") or sysconfig.get_config_var("CXX") or "g++",
    }


def problem(interpreter_only=False):
    """The first thing that keeps Stator from being built here, as one sentence, or None."""
    found = interpreter_problem(
        sys.version_info, bool(sysconfig.get_config_var("Py_GIL_DISABLED")), sys.platform
    )
    if found or interpreter_only:
        return found
    return (
        torch_problem(installed_torch()[1])
        or setuptools_problem(installed_setuptools())
        or compiler_problem(compiler_commands())
        or header_problem(sysconfig.get_paths()["include"])
    )


if __name__ == "__main__":
    sys.exit(problem(interpreter_only="--interpreter-only" in sys.argv[1:]))
