"""The pages of the API reference: one per package that says what is public, generated from ``__all__`` and docstrings.

What ``latte`` itself exports is documented there; the page of the package where it lives links to it.
"""

import ast
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"


def public_names(source: Path = SOURCE) -> dict[str, tuple[str, ...]]:
    """Return what each package exports, ``latte`` first; the files are read, nothing is imported."""
    files = sorted((source / "latte").rglob("__init__.py"), key=lambda path: path.parent.parts)
    packages = {".".join(path.parent.relative_to(source).parts): exported(path) for path in files}
    return {package: names for package, names in packages.items() if names}


def exported(path: Path) -> tuple[str, ...]:
    """Return the names in ``__all__`` of a file, without those of the module itself such as ``__version__``."""
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            names = ast.literal_eval(statement.value)
            return tuple(name for name in names if not name.startswith("__"))
    return ()


def homes(packages: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return where each public name is documented: ``latte.NAME`` where latte exports it, else in its package."""
    found = {name: f"latte.{name}" for name in packages["latte"]}
    for package, names in packages.items():
        for name in names:
            found.setdefault(name, f"{package}.{name}")
    return found


def api_pages() -> dict[str, str]:
    """Return the pages by their path in the site."""
    packages = public_names()
    places = homes(packages)
    pages = {f"api/{package}.md": _page(package, names, places) for package, names in packages.items()}
    lines = [f"- [{package}]({package}.md)" for package in packages]
    hidden = "---\nsearch:\n  exclude: true\n---\n\n"  # a list for the navigation, which nobody wants to find
    return {**pages, "api/SUMMARY.md": hidden + "\n".join(lines) + "\n"}


def _page(package: str, names: tuple[str, ...], places: Mapping[str, str]) -> str:
    own = [name for name in names if places[name] == f"{package}.{name}"]
    others = [f"[`{name}`][{places[name]}]" for name in names if name not in own]
    also = f"\nAlso here, documented where it is exported first: {', '.join(others)}.\n" if others else ""
    return f"# {package}\n\n::: {package}\n    options:\n      members: {own}\n{also}"
