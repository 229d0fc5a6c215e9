"""The pages of the site: those of docs/, and what is generated beside them.

A page is the file of docs/ with two changes. A link that leaves docs/ leads, on a code host, to a file of the
repository; here it leads to a page that shows this file, so that the site needs no network. And a block of code gets
the name under which the highlighter knows it.
"""

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from site_api import api_pages
from site_nav import ROOT, check_navigation, config_text, navigation, repository_pages, title_of, without_awaited

LANDING_ENDS = "\n## Where to start\n"  # the first part of README.md: what it is, the demo, the results
LARGEST_SHOWN = 100_000  # bytes: a larger file of the repository is linked as it is, not shown as a page
LANGUAGES = {".py": "python", ".cff": "yaml", ".toml": "toml", ".json": "json", ".css": "css", ".js": "javascript"}
SECTIONS = {  # what the landing page says of each section of the navigation
    "Tutorials": "Learn by doing, on data that is bundled.",
    "How to": "Reach a goal.",
    "Explanation": "Understand how and why it works, and when it does not.",
    "Reference": "Look it up.",
    "Project": "Take part.",
}
_FENCE = re.compile(r"^( *)(`{3,})([^\n`]*)\n(.*?)^\1\2 *$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"`[^`\n]+`|(?<=\]\()[^)\s]+(?=\))|(?<=\]: )\S+")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//|#")


def site_files() -> dict[str, bytes]:
    """Return every file of the site's source by its path: pages, figures, and the pages of linked files."""
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*") if path.is_file()}
    files = {path: text.encode() for path, text in api_pages().items()}
    files["index.md"] = landing_page().encode()
    wanted = [*sorted(sources), *repository_pages(), *links_out("README.md", _landing_text())]
    for source in wanted:  # grows: a file of the repository may link to others
        if (place := staged(source)) not in files:
            files[place], more = _staged_file(source)
            wanted += more
    return files


def _staged_file(source: str) -> tuple[bytes, list[str]]:
    """Return what the site has in the place of a file of the repository, and which files that links to."""
    path = ROOT / source
    if path.is_dir():
        return _folder_page(source).encode(), []
    if path.suffix == ".md":
        text = without_awaited(source, path.read_text(encoding="utf-8"))
        return site_text(source, text).encode(), list(links_out(source, text))
    shown = staged(source).endswith(".md")
    return (_code_page(source).encode() if shown else path.read_bytes()), []


def staged(source: str) -> str:
    """Return the path in the site's source of a file or folder of the repository.

    >>> [staged(path) for path in ("docs/cli.md", "README.md", "CONTRIBUTING.md", "scripts/docs", "examples")]
    ['cli.md', 'index.md', 'repository/CONTRIBUTING.md', 'repository/scripts/docs.md', 'repository/examples/index.md']
    """
    path = ROOT / source
    if source == "README.md":
        return "index.md"
    if source.startswith("docs/"):
        return source.removeprefix("docs/")
    if path.is_dir():
        return f"repository/{source}/index.md"
    return f"repository/{source}" + ("" if path.suffix == ".md" or not _is_shown(path) else ".md")


def _is_shown(path: Path) -> bool:
    return path.stat().st_size <= LARGEST_SHOWN and b"\0" not in path.read_bytes()


def site_text(source: str, text: str) -> str:
    """Return a Markdown file as the site has it."""
    return _map_prose(text, lambda prose: _LINK.sub(lambda match: _relinked(source, match[0]), prose), _named_block)


def _map_prose(text: str, prose: Callable[[str], str], block: Callable[[re.Match[str]], str]) -> str:
    """Return a Markdown text with its prose and its blocks of code changed by two functions."""
    parts, end = [], 0
    for match in _FENCE.finditer(text):
        parts += [prose(text[end : match.start()]), block(match)]
        end = match.end()
    return "".join([*parts, prose(text[end:])])


def _named_block(match: re.Match[str]) -> str:
    """Name sessions of Python and commands without prompts as the highlighter does."""
    indent, fence, name, code = match.groups()
    word, *title = name.split(maxsplit=1)[:2] or [""]
    if word == "python" and code.lstrip().startswith(">>> "):
        word = "pycon"
    return f"{indent}{fence}{' '.join(['bash' if word == 'console' else word, *title])}\n{code}{indent}{fence}"


def links_out(source: str, text: str) -> Iterator[str]:
    """Yield the files and folders outside docs/ that a Markdown file links to, by their paths in the repository."""
    prose: list[str] = []
    _map_prose(text, lambda part: prose.append(part) or part, lambda match: "")
    for match in _LINK.finditer("\n".join(prose)):
        if _is_relative(match[0]):
            target = _target(source, match[0])
            if not target.startswith("docs/") and target != "README.md":
                yield target


def _is_relative(link: str) -> bool:
    return not link.startswith("`") and not _ELSEWHERE.match(link)


def _target(source: str, link: str) -> str:
    """Return the path in the repository that a relative link means."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link.partition("#")[0]))
    if target.startswith("..") or not (ROOT / target).exists():
        raise SystemExit(f"{source}: links to {link}, which does not exist; correct the link")
    return target


def _relinked(source: str, link: str) -> str:
    if not _is_relative(link):
        return link
    anchor = "".join(link.partition("#")[1:])
    return posixpath.relpath(staged(_target(source, link)), posixpath.dirname(staged(source)) or ".") + anchor


def _code_page(source: str) -> str:
    code = (ROOT / source).read_text(encoding="utf-8", errors="replace")
    fence = "`" * (2 + max(map(len, re.findall(r"`{2,}", code)), default=1))
    language = LANGUAGES.get(Path(source).suffix, "bash" if code.startswith("#!") else "text")
    return f"---\nsearch:\n  exclude: true\n---\n\n# {source}\n\n{fence}{language}\n{code.rstrip()}\n{fence}\n"


def _folder_page(source: str) -> str:
    names = sorted(path.name + "/" * path.is_dir() for path in (ROOT / source).iterdir() if path.name[0] not in "._")
    return f"# {source}/\n\nThis folder of the repository has\n\n" + "".join(f"- `{name}`\n" for name in names)


def _landing_text() -> str:
    head, end, _ = without_awaited("README.md", (ROOT / "README.md").read_text(encoding="utf-8")).partition(
        LANDING_ENDS
    )
    if not end:
        raise SystemExit(f"README.md: no heading {LANDING_ENDS.strip()!r}, where the landing page ends")
    return head


def landing_page() -> str:
    """Return the first part of README.md, and an overview of the sections."""
    cards = [_card(section, pages) for entry in navigation() for section, pages in entry.items() if section in SECTIONS]
    overview = "\n".join(['\n## Where to go\n\n<div class="grid cards" markdown>\n', *cards, "\n</div>\n"])
    return site_text("README.md", _landing_text()) + overview


def _card(section: str, pages: list[Any]) -> str:
    links = [f"[{title_of(page)}]({page})" for page in pages if isinstance(page, str)]
    links += [f"[{name}]({page}latte.md)" for entry in pages if isinstance(entry, dict) for name, page in entry.items()]
    return f"-   **{section}.** {SECTIONS[section]}\n\n    " + "  \n    ".join(links) + "\n"


def write_sources(folder: Path) -> None:
    """Make ``folder`` the project that Zensical builds; what has not changed is left alone."""
    check_navigation()
    files = {"zensical.toml": config_text().encode(), **{f"docs/{path}": data for path, data in site_files().items()}}
    for path, data in files.items():
        target = folder / path
        if not target.is_file() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    for path in (folder / "docs").rglob("*"):
        if path.is_file() and f"docs/{path.relative_to(folder / 'docs').as_posix()}" not in files:
            path.unlink()
