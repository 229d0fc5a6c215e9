"""Run examples/quickstart.ipynb cell by cell, in this process, and write what the cells show into it.

python tools/make_notebook.py

Only numpy, matplotlib and this package are needed. What a cell shows is what it prints, the value of its last line, and
the figures that it draws.
"""

import ast
import base64
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "examples" / "quickstart.ipynb"


def run_cells(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells, run in order in the current folder."""
    import matplotlib

    matplotlib.use("agg")
    names: dict[str, Any] = {"__name__": "quickstart"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell = {**cell, "execution_count": count, "outputs": run_cell("".join(cell["source"]), count, names)}
        cells.append(cell)
    return {**notebook, "cells": cells}


def run_cell(source: str, count: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell and return its outputs in the form of the file."""
    from matplotlib import pyplot

    body = ast.parse(source)
    last = body.body.pop().value if isinstance(body.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(body, f"cell {count}", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last), f"cell {count}", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append(
            {"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)}
        )
    for number in pyplot.get_fignums():
        picture = io.BytesIO()
        pyplot.figure(number).savefig(picture, format="png", dpi=80)
        data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    pyplot.close("all")
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        outputs.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data})
    return outputs


def main() -> None:
    notebook = run_cells(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
