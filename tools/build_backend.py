"""setuptools as the build backend, after the machine has been checked.

In: a front end's hook call (pip, build).  Out: setuptools' answer, or one sentence and exit status 1.

An isolated build compiles against the torch of the environment that it is made for. Where that has none, the
newest one is a requirement of the build, as it is one of Stator.
"""

import sys

import preflight

found = preflight.problem(interpreter_only=True)
if found:
    sys.exit(found)

from setuptools.build_meta import *


def get_requires_for_build_wheel(config_settings=None):
    return [] if preflight.installed_torch()[0] else [preflight.TORCH_REQUIREMENT]


get_requires_for_build_editable = get_requires_for_build_wheel


def get_requires_for_build_sdist(config_settings=None):
    return []
