"""Draw the figures of the results page anew.

    python tools/make_figures.py [--seeds 0-4] [--benchmark NAME --data DIR]

Writes docs/figures/*.svg with the numbers beside them (*.csv), and docs/figures/captions.json: what each shows. Without
options it needs nothing but the package: the benchmark is the bundled one.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from latte.experiment.config import parse_seeds
from latte.experiment.plan import open_benchmark
from latte.paper.figures.make import FIGURES, make_figures
from latte.paper.studies import make_setup

DOCS = Path(__file__).parents[1] / "docs" / "figures"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", default="cifar10c-mini")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--out", type=Path, default=DOCS)
    options = parser.parse_args()
    setup = make_setup(open_benchmark(options.benchmark, options.data), parse_seeds(options.seeds))
    with tempfile.TemporaryDirectory() as folder:
        pictures = make_figures(FIGURES, setup, Path(folder))
        for picture in pictures:
            for ending in ("svg", "csv"):
                shutil.copy(picture.path(ending), options.out)
    captions = {picture.name: {"title": picture.title, "caption": picture.caption} for picture in pictures}
    (options.out / "captions.json").write_text(json.dumps(captions, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
