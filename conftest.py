"""The package is imported before pytest collects the doctests of its files: a module must not be loaded twice."""

import latte.methods  # noqa: F401  with all of core
