"""Run the notebooks of examples/ and store them with their outputs: `python -m docs.notebook [FILE...]`.

Outputs are printed text, the value of a cell's last line, and figures as PNG. Jupyter is not needed.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docs.markdown import page

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))
DOTS = 96
"""Dots per inch of the figures."""


def read(path: Path) -> dict[str, Any]:
    """Return a stored notebook."""
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
    """Return the notebooks as pages of the site with their pictures, and the list of them."""
    found: dict[str, str | bytes] = {}
    entries = []
    for path in NOTEBOOKS:
        name = path.stem.replace("_", "-")
        text, pictures = notebook_page(read(path), name)
        title = text.partition("\n")[0].removeprefix("# ")
        entries.append(f"- [{title}]({name}.md)\n")
        found |= {f"{name}.md": text, **pictures}
    return found | {"SUMMARY.md": "".join(entries)}


def notebook_page(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as a page, and its pictures, whose names begin with `name`."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(source(cell))
            continue
        parts.append(f"```python\n{source(cell)}\n```")
        for output in cell["outputs"]:
            if "text" in output or "text/plain" in output["data"]:
                text = "".join(output["text"] if "text" in output else output["data"]["text/plain"])
                parts.append(f"```text\n{text.rstrip()}\n```")
            else:
                picture = f"{name}-{len(pictures) + 1}.png"
                pictures[picture] = base64.b64decode(output["data"]["image/png"])
                parts.append(f"![The figure of the cell above]({picture})")
    return page(*parts), pictures


def main(paths: Sequence[Path]) -> None:
    """Run notebooks, and store them with their outputs."""
    import tempfile

    from fedcap.files import write_aside

    for path in paths:
        notebook = read(path)
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            run(notebook)
        write_aside(path, json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main([Path(name).resolve() for name in sys.argv[1:]] or NOTEBOOKS)
