"""A headless Chromium for tests of pages; the test skips where there is none."""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path

import pytest

from waiting import run

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_BROWSER = next((path for name in _NAMES if (path := shutil.which(name))), None)
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1400,1000",
)  # fmt: skip


def read_element(page: Path, element: str, *flags: str, milliseconds: int = 5000) -> str:
    """Open ``page``, let so much virtual time pass, and return the text of the ``<pre>`` whose id is ``element``."""
    if _BROWSER is None:
        pytest.skip("needs a Chromium browser on the path")
    profile = f"--user-data-dir={page.parent / 'profile'}"
    command = [_BROWSER, *_FLAGS, *flags, profile, f"--virtual-time-budget={milliseconds}", "--dump-dom", page.as_uri()]
    done = run(*command, check=True)
    match = re.search(rf'<pre id="{element}">(.*?)</pre>', done.stdout, re.S)
    assert match and match[1], done.stderr[-2000:]
    return html.unescape(match[1])
