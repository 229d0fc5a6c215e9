"""What importing costs, and that the layers hold in a running interpreter."""

import ast
import importlib
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

import latte
from waiting import run

HEAVY = (
    "torch",
    "onnxruntime",
    "matplotlib",
    "sklearn",
    "scipy",
    "flwr",
    "starlette",
    "pandas",
    "PIL",
    "jinja2",
    "rich",
)


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    output = run(sys.executable, "-c", code, check=True).stdout
    return {name.partition(".")[0] for name in output.split()}


def test_import_latte_is_light():
    assert not loaded_by("import latte; latte.Latte") & set(HEAVY)


def test_import_cli_is_light():
    assert not loaded_by("import latte.cli") & {*HEAVY, "numpy"}


def test_core_needs_numpy_only():
    """Import core with every other third-party name blocked."""
    code = """
import sys
allowed = set(sys.stdlib_module_names) | {"numpy", "latte"}
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
import latte.core
from latte import Latte
"""
    run(sys.executable, "-c", code, check=True)


ROOT = Path(latte.__file__).parent
PACKAGES = sorted(".".join(path.parent.relative_to(ROOT.parent).parts) for path in ROOT.rglob("__init__.py"))
PUBLIC = [name for name in PACKAGES if name not in ("latte.cli", "latte.report.figures")]  # commands and drawings


def test_no_two_modules_share_a_name():
    counts = Counter(path.stem for path in ROOT.rglob("*.py") if path.stem not in ("__init__", "__main__"))
    assert [name for name, count in counts.items() if count > 1] == []


NO_NAMES = {"found", "told", "asked", "kept", "given", "who", "one", "wanted", "drawn", "rendered"}


def top_level_types(path: Path) -> list[str]:
    """Return the classes of a module, and what else has a name in CamelCase."""
    types = []
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            types.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            types += [name for name in names if re.fullmatch(r"_?[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*", name)]
    return types


def test_no_two_types_share_a_name():
    counts = Counter(name for path in ROOT.rglob("*.py") for name in top_level_types(path))
    assert [name for name, count in counts.items() if count > 1] == []


def bound_names(tree: ast.AST) -> list[tuple[str, int]]:
    """Return the names of functions, classes, parameters, attributes and variables, with their lines."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append((node.name, node.lineno))
        elif isinstance(node, ast.arg):
            names.append((node.arg, node.lineno))
        elif isinstance(node, ast.Attribute):
            names.append((node.attr, node.lineno))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append((node.id, node.lineno))
    return names


def test_names_say_what_they_stand_for():
    bad = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted(ROOT.rglob("*.py"))
        for name, line in bound_names(ast.parse(path.read_text("utf-8")))
        if name.lstrip("_") in NO_NAMES
    ]
    assert bad == []


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_has_a_docstring(name):
    assert importlib.import_module(name).__doc__


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_exist_and_are_no_modules(name):
    package = importlib.import_module(name)
    for public in package.__all__:
        assert getattr(package, public) is not None
    assert set(package.__all__) <= set(dir(package))
    assert not set(package.__all__) & {path.stem for path in Path(package.__file__).parent.iterdir()}


@pytest.mark.parametrize("name", [name for name in PUBLIC if hasattr(importlib.import_module(name), "_HOMES")])
def test_lazy_names_are_public_and_others_are_refused(name):
    package = importlib.import_module(name)
    assert {public for names in package._HOMES.values() for public in names} <= set(package.__all__)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nonsense'"):
        _ = package.nonsense


def test_public_packages_are_light():
    statement = "import latte.data, latte.edge, latte.files; dir(latte.data)"
    assert not loaded_by(statement) & {*HEAVY, "numpy", "cattrs"}
