"""What importing costs, and that the layers hold in a running interpreter."""

import importlib
import sys
from pathlib import Path

import pytest

import latte
from waiting import ROOT as CHECKOUT
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
PUBLIC = [name for name in PACKAGES if name != "latte.cli" and hasattr(importlib.import_module(name), "__all__")]


def test_a_public_name_stands_for_one_thing():
    homes = {}
    for package in map(importlib.import_module, PUBLIC):
        for name in package.__all__:
            assert homes.setdefault(name, getattr(package, name)) is getattr(package, name), name


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_has_a_docstring(name):
    assert importlib.import_module(name).__doc__


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_exist_and_are_no_modules(name):
    package = importlib.import_module(name)
    for public in package.__all__:
        assert getattr(package, public) is not None
    assert set(package.__all__) <= set(dir(package))
    if hasattr(package, "lazy_names"):
        assert dir(package) == sorted(package.__all__)
    assert not set(package.__all__) & {path.stem for path in Path(package.__file__).parent.iterdir()}


@pytest.mark.parametrize("name", [name for name in PUBLIC if hasattr(importlib.import_module(name), "lazy_names")])
def test_lazy_names_are_public_and_others_are_refused(name):
    package = importlib.import_module(name)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nonsense'"):
        _ = package.nonsense


def test_public_packages_are_light():
    statement = "import latte.data, latte.edge, latte.files; dir(latte.data)"
    assert not loaded_by(statement) & {*HEAVY, "numpy", "msgspec"}


def test_a_release_with_placeholders_is_refused():
    """Drop this test with the first release."""
    done = run("bash", CHECKOUT / "scripts" / "release-check", "--publish")
    assert done.returncode == 1
    for reason in ("placeholder addresses", "no date for this version", "relative links", "there is no release"):
        assert reason in done.stderr, (reason, done.stderr)
