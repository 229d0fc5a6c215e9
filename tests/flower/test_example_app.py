"""The example app: what travels to the nodes is the app, and nothing that a deployment leaves beside it."""

import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from waiting import ROOT, run

pytest.importorskip("flwr", reason="needs the extra flower: pip install '.[flower]'")


def test_the_bundle_has_the_app_and_nothing_else(tmp_path):
    app = tmp_path / "app"
    shutil.copytree(ROOT / "examples" / "flower_app", app)
    installed = app / "deployment" / "flwr" / "apps" / "latte.latte-flower"
    installed.mkdir(parents=True)
    for path in (installed / "README.md", installed / "latte_flower.py", app / "deployment" / "config.toml"):
        path.write_text("")
    flwr = Path(sys.executable).with_name("flwr")
    run(flwr, "build", "--app", app, cwd=tmp_path, check=True, FLWR_HOME=str(tmp_path))
    (path,) = tmp_path.glob("*.fab")
    modules = {f"latte_flower/{name}.py" for name in ("__init__", "client_app", "server_app")}
    with zipfile.ZipFile(path) as bundle:
        assert set(bundle.namelist()) == {"pyproject.toml", "README.md", ".info/CONTENT", *modules}
