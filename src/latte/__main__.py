"""``python -m latte``."""

from .cli import main

main()
