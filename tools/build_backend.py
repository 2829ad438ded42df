"""setuptools as the build backend, after the machine has been checked.

In: a front end's hook call (pip, build).  Out: setuptools' answer, or one sentence and exit status 1.
"""

import sys

import preflight

found = preflight.problem()
if found:
    sys.exit(found)

from setuptools.build_meta import *
