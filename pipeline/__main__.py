"""``python -m pipeline``: the command line, also for ``spark-submit``."""

import sys

from pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main())
