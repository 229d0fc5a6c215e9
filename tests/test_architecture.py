"""The page that shows the house names modules that exist, and every package that there is."""

import ast
import importlib
import pkgutil
import re

import pytest

import latte
from waiting import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
MODULES = sorted(set(re.findall(r"`(latte(?:\.[a-z_]+)+)`", PAGE)))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_exists(name):
    if name.startswith("latte.encoders.hf"):
        pytest.importorskip("torch", reason="transformers models need torch")
    if name.startswith("latte.flower."):
        pytest.importorskip("flwr", reason="needs the extra flower: pip install '.[flower]'")
    importlib.import_module(name)


def test_every_package_has_its_layer():
    picture = PAGE.split("```text")[1].split("```")[0]
    packages = {module.name for module in pkgutil.iter_modules(latte.__path__) if module.ispkg}
    assert packages <= set(re.findall(r"[a-z]+", picture))
    layers = (ROOT / "pyproject.toml").read_text("utf-8").split("layers = [")[1].split("]")[0]
    assert packages <= set(re.findall(r"[a-z]+", layers))


def test_the_page_names_enough():
    assert len(MODULES) > 40


CLASSES_ARE_NAMES = {"data/embeddings.py"}  # the key in an embedding file


def variables(path):
    """Yield the name and the annotation of every parameter and variable."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.arg):
            yield node.arg, ast.unparse(node.annotation) if node.annotation else ""
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, ast.unparse(node.annotation)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, ""


def sources(package=""):
    return sorted((ROOT / "src" / "latte" / package).rglob("*.py"))


def test_classes_are_a_count_and_classnames_are_names():
    lists = {
        path.relative_to(ROOT / "src" / "latte").as_posix()
        for path in sources()
        for name, annotation in variables(path)
        if (name == "classes" and "str" in annotation) or name == "class_names"
    }
    assert lists <= CLASSES_ARE_NAMES
