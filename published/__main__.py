"""The command `python -m published`: memory and speed that others published, beside what the planner says."""

import sys

from published.readings import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
