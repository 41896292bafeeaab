"""`python -m statehold` is `statehold`."""

import sys

from .shell.entry import main

if __name__ == "__main__":
    sys.exit(main())
