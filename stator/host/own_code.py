"""Stator's own folder.   a code object's filename  ->  whether it is Stator's own code"""

from __future__ import annotations

OWN_FOLDER = __file__.rsplit("/", 2)[0]
