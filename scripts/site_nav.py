"""The navigation of the site: ``nav`` of zensical.toml, held to the pages of docs/, both ways.

A page of docs/ that ``nav`` does not name ends the build, and so does a name without a page. Only the pages of PLANNED
may be missing: they are being written elsewhere, and their places are left free. Until such a page is there, ``nav`` is
used without it, and what links to it is plain text.
"""

import posixpath
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "zensical.toml"
PLANNED: tuple[str, ...] = ()
_MARKDOWN_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def awaited() -> set[str]:
    """Return the planned pages that are not there yet."""
    return {page for page in PLANNED if not (ROOT / "docs" / page).is_file()}


def config_text() -> str:
    """Return zensical.toml without the planned pages that are not there yet."""
    text = CONFIG.read_text(encoding="utf-8")
    for page in awaited():
        text = text.replace(f'    "{page}",\n', "")
    return text


def navigation() -> list[dict[str, Any]]:
    """Return ``nav``: sections by name."""
    entries: list[dict[str, Any]] = tomllib.loads(config_text())["project"]["nav"]
    return entries


def pages_of(entries: Iterable[Any]) -> Iterator[str]:
    """Yield the paths that a part of the navigation names, in order."""
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else pages_of(value)


def repository_pages() -> list[str]:
    """Return the files outside docs/ that the navigation names, by their paths in the repository."""
    return [page.removeprefix("repository/") for page in pages_of(navigation()) if page.startswith("repository/")]


def check_navigation() -> None:
    """End the build where the navigation and docs/ do not have the same pages."""
    named = {page for page in pages_of(navigation()) if not page.startswith(("repository/", "api/", "index.md"))}
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    for page in sorted(pages - named):
        raise SystemExit(f"docs/{page}: not in nav of zensical.toml; add it to the section where a reader would look")
    for page in sorted(named - pages):
        raise SystemExit(f"zensical.toml: nav names {page}, which docs/ does not have; correct or remove it")


def title_of(page: str) -> str:
    """Return the first heading of a page that the navigation names."""
    path = ROOT / (page.removeprefix("repository/") if page.startswith("repository/") else f"docs/{page}")
    heading = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    if heading is None:
        raise SystemExit(f"{path.relative_to(ROOT)}: no heading; a page begins with # and its title")
    return heading[1].strip()


def without_awaited(source: str, text: str) -> str:
    """Return the text of a file of the repository; a link to a planned page that is not there yet is plain text."""
    missing = {f"docs/{page}" for page in awaited()}

    def plain(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2].partition("#")[0]))
        return match[1] if path in missing else match[0]

    return _MARKDOWN_LINK.sub(plain, text)
