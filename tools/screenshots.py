"""Write the screenshots of the documentation: what ``latte report`` and ``latte demo`` show in a browser.

python tools/screenshots.py [report-page demo-page]

Run it after a change of these pages. Needs Chromium and pillow.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

ASSETS = Path(__file__).parent.parent / "docs" / "assets"
SIZE = (1280, 800)  # pixels: a laptop's window
COLOURS = 256  # of the palette, at a third of the bytes; with fewer, those of small dots change
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb",
    "--run-all-compositor-stages-before-draw",  # else a busy machine gives a picture with holes
)  # fmt: skip
METHODS = "clip,tda,latte,ristretto"
PAGES = {  # the commands that make each page, the last one as page.html; the first is that of the tutorial
    "report-page": (
        f"latte run --benchmark pacs-demo --methods {METHODS} --seeds 0-2 --set schedule.sync=doubling",
        "latte report runs --out page.html",
    ),
    "demo-page": ("latte demo --out page.html",),
}


def browser() -> str:
    """Return the path of a Chromium."""
    path = next((path for name in NAMES if (path := shutil.which(name))), None)
    if path is None:
        raise SystemExit(f"screenshots need one of {', '.join(NAMES)} on the path")
    return path


def take_screenshot(name: str) -> Path:
    """Make a page, photograph it, and return the picture."""
    with TemporaryDirectory() as folder:
        for command in PAGES[name]:
            subprocess.run([sys.executable, "-m", *shlex.split(command)], cwd=folder, check=True, capture_output=True)
        picture = Path(folder, "picture.png")
        place = [f"--screenshot={picture}", f"--window-size={SIZE[0]},{SIZE[1]}", f"--user-data-dir={folder}/profile"]
        page = Path(folder, "page.html").as_uri()
        subprocess.run([browser(), *FLAGS, *place, "--virtual-time-budget=5000", page], check=True, capture_output=True)
        with Image.open(picture) as image:
            small = image.convert("RGB").quantize(COLOURS)
        small.save(ASSETS / f"{name}.png", optimize=True)
    return ASSETS / f"{name}.png"


def main() -> None:
    parser = argparse.ArgumentParser(description="The screenshots of the documentation.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{' '.join(PAGES)} (default: all)")
    names = parser.parse_args().names or list(PAGES)
    for name in names:
        if name not in PAGES:
            parser.error(f"{name}: want one of {', '.join(PAGES)}")
    for path in map(take_screenshot, names):
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
