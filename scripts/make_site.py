"""Build or serve the documentation site; ``scripts/docs`` calls this.

python scripts/make_site.py [build|serve] [--folder build/docs] [--address 127.0.0.1:8000]
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from site_check import problems
from site_nav import ROOT
from site_pages import write_sources

POLL = 1.0  # seconds between two looks at the sources while serving


def zensical(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start Zensical on ``folder``; it imports ``site_docstrings`` from here, and latte from this checkout."""
    path = os.pathsep.join([str(Path(__file__).parent), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "zensical", *arguments, "--config-file", str(folder / "zensical.toml")]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)})


def build(folder: Path) -> int:
    """Build anew, in strict mode, then check every link of what was built; return the exit code."""
    shutil.rmtree(folder, ignore_errors=True)
    write_sources(folder)
    if code := zensical(folder, "build", "--strict", "--clean").wait():
        return code
    found = problems(folder / "site")
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    print(f"{folder / 'site' / 'index.html'}: {len(list((folder / 'site').rglob('*.html')))} pages")
    return 1 if found else 0


def serve(folder: Path, address: str) -> int:
    """Serve, and follow the sources until Zensical ends."""
    write_sources(folder)
    process = zensical(folder, "serve", "--dev-addr", address)
    try:
        while process.poll() is None:
            time.sleep(POLL)
            write_sources(folder)
    except KeyboardInterrupt:
        process.terminate()
    return process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description="The documentation site.")
    parser.add_argument("action", nargs="?", choices=("build", "serve"), default="build")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "docs", help="where to build")
    parser.add_argument("--address", default="127.0.0.1:8000", help="where to serve")
    options = parser.parse_args()
    folder = options.folder.resolve()
    return build(folder) if options.action == "build" else serve(folder, options.address)


if __name__ == "__main__":
    sys.exit(main())
