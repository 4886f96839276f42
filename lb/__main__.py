"""``python -m lb`` is the same as ``lb``."""

from lb.cli import main

if __name__ == "__main__":
    main()
