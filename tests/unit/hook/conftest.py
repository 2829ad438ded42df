"""Let test_hook.py import the files that standalone.py shares with it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
