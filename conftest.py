"""The package is imported before pytest collects the doctests of its files: a module must not be loaded twice."""

from importlib.util import find_spec

import latte.methods  # noqa: F401  with all of core

collect_ignore_glob = [] if find_spec("flwr") else ["src/latte/flower/*.py"]  # which need the extra flower
