"""The picture of the house in docs/architecture.md, and the layers that import-linter holds, have every package."""

import pkgutil
import re

import latte
from waiting import ROOT


def test_every_package_has_its_layer():
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    packages = {module.name for module in pkgutil.iter_modules(latte.__path__) if module.ispkg}
    assert packages <= set(re.findall(r"[a-z]+", page.split("```text")[1].split("```")[0]))
    layers = (ROOT / "pyproject.toml").read_text("utf-8").split("layers = [")[1].split("]")[0]
    assert packages <= set(re.findall(r"[a-z]+", layers))
