"""Run the notebook of examples/ and store it with its outputs: `python -m docs.notebook`.

Outputs are printed text, the value of a cell's last line, and figures as PNG. Jupyter is not needed.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any

from docs.markdown import page

NOTEBOOK = Path(__file__).parents[1] / "examples" / "fedcap_on_digits.ipynb"
DOTS = 96
"""Dots per inch of the figures."""


def read(path: Path = NOTEBOOK) -> dict[str, Any]:
    """Return the stored notebook."""
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def source(cell: dict[str, Any]) -> str:
    """Return the text of a cell."""
    return "".join(cell["source"])


def run(notebook: dict[str, Any]) -> None:
    """Run all code cells in order, in one namespace, and put their outputs into the notebook."""
    import matplotlib

    matplotlib.use("Agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = _outputs(source(cell), names, count)


def _outputs(text: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run a cell; return its printed text, its value and its figures."""
    tree = ast.parse(text)
    has_value = isinstance(tree.body[-1], ast.Expr) and not text.rstrip().endswith(";")
    last = tree.body.pop() if has_value else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        outputs.append(
            {"output_type": "execute_result", "execution_count": count, "data": data, "metadata": {}}
        )
    return [*outputs, *_figures()]


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _figures() -> list[dict[str, Any]]:
    """Return the open figures, and close them."""
    from matplotlib import pyplot

    found = []
    for number in pyplot.get_fignums():
        picture = io.BytesIO()
        figure = pyplot.figure(number)
        figure.savefig(picture, dpi=DOTS, format="png", bbox_inches="tight", metadata={"Software": None})
        pyplot.close(figure)
        data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
        found.append({"output_type": "display_data", "data": data, "metadata": {}})
    return found


def pages() -> dict[str, str | bytes]:
    """Return the notebook as a page of the site, and its pictures."""
    parts: list[str] = []
    pictures: dict[str, str | bytes] = {}
    for cell in read()["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(source(cell))
            continue
        parts.append(f"```python\n{source(cell)}\n```")
        for shown in cell["outputs"]:
            if "text" in shown or "text/plain" in shown["data"]:
                text = "".join(shown["text"] if "text" in shown else shown["data"]["text/plain"])
                parts.append(f"```text\n{text.rstrip()}\n```")
            else:
                name = f"notebook-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(shown["data"]["image/png"])
                parts.append(f"![The figure of the cell above]({name})")
    return {"notebook.md": page(*parts), **pictures}


def main() -> None:
    """Run the notebook, and store it with its outputs."""
    import tempfile

    from fedcap.files import write_aside

    notebook = read()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run(notebook)
    write_aside(NOTEBOOK, json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
