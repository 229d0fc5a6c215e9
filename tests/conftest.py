"""What every test may ask for."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of material that users do not have; tests that need it skip without it."""
    folder = Path(os.environ.get("LATTE_SHARED", ROOT.parent / "shared"))
    if not (folder / "data" / "embeddings").is_dir():
        pytest.skip("needs the shared material (set LATTE_SHARED to its folder)")
    return folder


settings.register_profile("latte", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("latte")
