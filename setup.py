"""Build Stator from source against the torch that is installed.

    pip install --no-build-isolation -e .

Metadata is in pyproject.toml. What is wrong with the machine is said in one sentence, before anything else.
"""

import os
import sys

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools")
sys.path.insert(0, TOOLS)  # a build front end does not put the project's own folder on the path

import preflight  # noqa: E402

torch_folder, torch_version = preflight.installed_torch()
compiles = torch_folder is not None or not {"sdist", "egg_info"} & set(sys.argv)  # an archive of sources needs no torch
found = preflight.problem(interpreter_only=not compiles)
if found:
    sys.exit(found)

from setuptools import setup  # noqa: E402

from native_build import NativeBuild, extensions  # noqa: E402

if preflight.torch_warning(torch_version):
    print(preflight.torch_warning(torch_version), file=sys.stderr)
NativeBuild.torch_version = torch_version
NativeBuild.compilers = preflight.compiler_commands()
setup(
    ext_modules=extensions(torch_folder, torch_version) if compiles else [],
    cmdclass={"build_ext": NativeBuild},
)
