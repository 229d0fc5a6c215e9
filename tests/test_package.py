"""What importing costs, and that the layers hold in a running interpreter."""

import sys

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


def test_public_names_exist():
    import latte

    for name in latte.__all__:
        assert getattr(latte, name) is not None
    assert set(latte.__all__) <= set(dir(latte))
