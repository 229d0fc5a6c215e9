"""``python -m latte.cli``."""

from . import main

main()
