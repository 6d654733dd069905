"""``python -m excite`` is the command ``excite``; so is ``torchrun -m excite``."""

from excite.cli import main

if __name__ == "__main__":  # workers that are begun anew import this file too
    main()
