"""`python -m stator COMMAND`.   run script.py  ->  the script, with torch.compile going through Stator"""

import sys

from stator.cli import main

if __name__ == "__main__":
    main(sys.argv[1:])
