"""The documentation site; ``scripts/docs`` calls this.

python tools/make_site.py [build|serve] [--folder build/docs] [--address 127.0.0.1:8000]

Zensical builds a copy of docs/ to which this adds what it has no way to make: the landing page from README.md, the API
pages from ``__all__``, Markdown of the docstrings (an extension of griffe), and a page for each file of the repository
that a page links to, so that the site needs no network. A block of code gets the name that the highlighter knows.
Then every link of what was built is followed. The navigation is ``nav`` of zensical.toml, held to docs/ both ways.
"""

import argparse
import ast
import os
import posixpath
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import griffe

ROOT = Path(__file__).parents[1]
POLL = 1.0  # seconds between two looks at the sources while serving
LANDING_ENDS = "\n## For research\n"  # the first part of README.md: what it is, the demo, the results, the API
LARGEST_SHOWN = 100_000  # bytes: a larger file of the repository is linked as it is, not shown as a page
LANGUAGES = {".py": "python", ".cff": "yaml", ".toml": "toml", ".json": "json", ".css": "css", ".js": "javascript"}
SECTIONS = {  # what the landing page says of each section of the navigation
    "Tutorials": "Learn by doing, on data that is bundled.",
    "How to": "Reach a goal.",
    "Explanation": "Understand how and why it works, and when it does not.",
    "Reference": "Look it up.",
    "For developers": "Take part.",
}
HIDDEN = "---\nsearch:\n  exclude: true\n---\n\n"
LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}  # without a click
FENCE = re.compile(r"(^( *)(`{3,})[^\n`]*\n.*?^\2\3 *$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"`[^`\n]+`|(?<=\]\()[^)\s]+(?=\))|(?<=\]: )\S+")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//|#|`")
ROLE = re.compile(r":(?:class|data|func|meth|mod|attr):`~?([^`]+)`")
PAGE = re.compile(r"(?<![\w/`\[(])docs/([\w-]+)\.md(?!`)")
RULE = re.compile(r"=+( +=+)+ *")


# --- the navigation


def navigation() -> list[dict[str, Any]]:
    """Return ``nav``: sections by name."""
    entries: list[dict[str, Any]] = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"][
        "nav"
    ]
    return entries


def pages_of(entries: Iterable[Any]) -> Iterator[str]:
    """Yield the paths that a part of the navigation names, in order."""
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else pages_of(value)


def check_navigation() -> None:
    """End the build where the navigation and docs/ do not have the same pages."""
    named = {page for page in pages_of(navigation()) if not page.startswith(("repository/", "api/", "index.md"))}
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    for page in sorted(pages - named):
        raise SystemExit(f"docs/{page}: not in nav of zensical.toml; add it to the section where a reader would look")
    for page in sorted(named - pages):
        raise SystemExit(f"zensical.toml: nav names {page}, which docs/ does not have; correct or remove it")


def landing_page() -> str:
    """Return the first part of README.md, and an overview of the sections."""
    cards = [card(section, pages) for entry in navigation() for section, pages in entry.items() if section in SECTIONS]
    overview = "\n".join(['\n## Where to go\n\n<div class="grid cards" markdown>\n', *cards, "\n</div>\n"])
    return site_text("README.md", first_part()) + overview


def first_part() -> str:
    head, end, _ = (ROOT / "README.md").read_text(encoding="utf-8").partition(LANDING_ENDS)
    if not end:
        raise SystemExit(f"README.md: no heading {LANDING_ENDS.strip()!r}, where the landing page ends")
    return head


def card(section: str, pages: list[Any]) -> str:
    links = []
    for page in pages:
        if isinstance(page, dict):
            links += [f"[{name}]({folder}latte.md)" for name, folder in page.items()]
            continue
        path = ROOT / (page.removeprefix("repository/") if page.startswith("repository/") else f"docs/{page}")
        heading = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        if heading is None:
            raise SystemExit(f"{path.relative_to(ROOT)}: no heading; a page begins with # and its title")
        links.append(f"[{heading[1].strip()}]({page})")
    return f"-   **{section}.** {SECTIONS[section]}\n\n    " + "  \n    ".join(links) + "\n"


# --- pages


def write_sources(folder: Path) -> None:
    """Make ``folder`` the project that Zensical builds; what has not changed is left alone."""
    check_navigation()
    pages = {f"docs/{path}": data for path, data in site_files().items()}
    for path, data in {"zensical.toml": (ROOT / "zensical.toml").read_bytes(), **pages}.items():
        target = folder / path
        if not target.is_file() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    for old in (folder / "docs").rglob("*"):
        if old.is_file() and old.relative_to(folder).as_posix() not in pages:
            old.unlink()


def site_files() -> dict[str, bytes]:
    """Return every file of the site's source by its path: pages, figures, and the pages of linked files."""
    files = {path: text.encode() for path, text in {**api_pages(), "index.md": landing_page()}.items()}
    wanted = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*") if path.is_file())
    wanted += [page.removeprefix("repository/") for page in pages_of(navigation()) if page.startswith("repository/")]
    wanted += links_out("README.md", first_part())
    for source in wanted:  # grows: a file of the repository may link to others
        path, place = ROOT / source, staged(source)
        if place in files:
            continue
        if path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            files[place] = site_text(source, text).encode()
            wanted += links_out(source, text)
        else:
            files[place] = shown(source).encode() if place.endswith(".md") else path.read_bytes()
    return files


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
    as_it_is = path.suffix == ".md" or path.stat().st_size > LARGEST_SHOWN or b"\0" in path.read_bytes()
    return f"repository/{source}" + ("" if as_it_is else ".md")


def shown(source: str) -> str:
    """Return the page that shows a folder or a file of the repository."""
    path = ROOT / source
    if path.is_dir():
        names = sorted(one.name + "/" * one.is_dir() for one in path.iterdir() if one.name[0] not in "._")
        return f"# {source}/\n\nThis folder of the repository has\n\n" + "".join(f"- `{name}`\n" for name in names)
    code = path.read_text(encoding="utf-8", errors="replace")
    fence = "`" * (2 + max(map(len, re.findall(r"`{2,}", code)), default=1))
    language = LANGUAGES.get(path.suffix, "bash" if code.startswith("#!") else "text")
    return f"{HIDDEN}# {source}\n\n{fence}{language}\n{code.rstrip()}\n{fence}\n"


def parts_of(text: str) -> Iterator[tuple[bool, str]]:
    """Yield a Markdown text in parts, and whether each is prose; the others are blocks of code."""
    end = 0
    for match in FENCE.finditer(text):
        yield from [(True, text[end : match.start()]), (False, match[0])]
        end = match.end()
    yield True, text[end:]


def site_text(source: str, text: str) -> str:
    """Return a Markdown file as the site has it."""

    def relinked(match: re.Match[str]) -> str:
        if ELSEWHERE.match(match[0]):
            return match[0]
        place = posixpath.relpath(staged(target_of(source, match[0])), posixpath.dirname(staged(source)) or ".")
        return place + "".join(match[0].partition("#")[1:])

    def named(block: str) -> str:
        block = re.sub(r"\A( *`{3,})console", r"\1bash", block)
        return re.sub(r"\A( *`{3,})python(?=[^\n]*\n *>>> )", r"\1pycon", block)

    return "".join(LINK.sub(relinked, part) if prose else named(part) for prose, part in parts_of(text))


def links_out(source: str, text: str) -> list[str]:
    """Return the files and folders outside docs/ that a Markdown file links to, by their paths in the repository."""
    links = [match[0] for prose, part in parts_of(text) if prose for match in LINK.finditer(part)]
    targets = [target_of(source, link) for link in links if not ELSEWHERE.match(link)]
    return [target for target in targets if not target.startswith("docs/") and target != "README.md"]


def target_of(source: str, link: str) -> str:
    """Return the path in the repository that a relative link means."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link.partition("#")[0]))
    if target.startswith("..") or not (ROOT / target).exists():
        raise SystemExit(f"{source}: links to {link}, which does not exist; correct the link")
    return target


# --- the API: one page per package with ``__all__``; what ``latte`` exports is documented there


def public_names() -> dict[str, tuple[str, ...]]:
    """Return what each package exports, ``latte`` first; the files are read, nothing is imported."""
    packages = {}
    for path in sorted((ROOT / "src" / "latte").rglob("__init__.py"), key=lambda path: path.parent.parts):
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
                names = tuple(name for name in ast.literal_eval(statement.value) if not name.startswith("__"))
                if names:
                    packages[".".join(path.parent.relative_to(ROOT / "src").parts)] = names
    return packages


def homes() -> dict[str, str]:
    """Return where each public name is documented: ``latte.NAME`` where latte exports it, else in its package."""
    found: dict[str, str] = {}
    for package, names in public_names().items():
        for name in names:
            found.setdefault(name, f"{package}.{name}")
    return found


def api_pages() -> dict[str, str]:
    """Return the pages by their path in the site."""
    packages, places, pages = public_names(), homes(), {}
    for package, names in packages.items():
        own = [name for name in names if places[name] == f"{package}.{name}"]
        others = ", ".join(f"[`{name}`][{places[name]}]" for name in names if name not in own)
        also = f"\nAlso here, documented where it is exported first: {others}.\n" if others else ""
        pages[f"api/{package}.md"] = f"# {package}\n\n::: {package}\n    options:\n      members: {own}\n{also}"
    summary = "".join(f"- [{package}]({package}.md)\n" for package in packages)
    return {**pages, "api/SUMMARY.md": HIDDEN + summary}


class MarkdownDocstrings(griffe.Extension):
    """The little reStructuredText of our docstrings becomes Markdown when griffe has read an object."""

    def __init__(self) -> None:
        self.homes = homes()

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value, self.homes)


def as_markdown(text: str, homes: Mapping[str, str]) -> str:
    """Return a docstring as Markdown.

    A doctest becomes a block of code, a simple table a table, ``::`` before an indented block a colon,
    ``docs/files.md`` a link to that page, and ``:class:`Encoder` `` a link where the name is public.
    """

    def linked(match: re.Match[str]) -> str:
        name = match[1].rpartition(".")[2]
        return f"[`{name}`][{homes[name]}]" if name in homes else f"`{match[1].lstrip('.')}`"

    lines, found, i = text.splitlines(), list[str](), 0
    while i < len(lines):
        end = i + 1
        if lines[i].lstrip().startswith(">>> "):
            while end < len(lines) and lines[end].strip():
                end += 1
            indent = lines[i][: len(lines[i]) - len(lines[i].lstrip())]
            found += ["", f"{indent}```pycon", *lines[i:end], f"{indent}```", ""]
        elif RULE.fullmatch(lines[i]):  # rule, head, rule, rows, rule
            end = [j for j in range(i, len(lines)) if RULE.fullmatch(lines[j])][2] + 1
            starts = [match.start() for match in re.finditer(r"=+", lines[i])]
            spans = [*pairwise(starts), (starts[-1], None)]
            head, *rows = [[line[a:b].strip() for a, b in spans] for line in lines[i:end] if not RULE.fullmatch(line)]
            cells = [head, ["---"] * len(spans), *rows]
            found += ["", *("| " + " | ".join(row) + " |" for row in cells), ""]
        else:
            found.append(lines[i])
        i = end
    text = re.sub(r"::$", ":", "\n".join(found), flags=re.MULTILINE)
    return ROLE.sub(linked, PAGE.sub(r"[docs/\1.md](../\1.md)", text))


# --- the check: what Zensical's strict mode does not see


class Page(HTMLParser):
    """The anchors of one page, its links, and the files that it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.anchors, self.links, self.loaded = path, {"", "__skip"}, set[str](), set[str]()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        is_page = tag == "a" or values.get("rel") in ("prev", "next", "canonical")
        if is_page and "href" in values:
            self.links.add(values["href"])
        elif not is_page and LOADED.get(tag) in values:
            self.loaded.add(values[LOADED[tag]])


def problems(site: Path) -> list[str]:
    """Return a line for each link that leads nowhere and each file that a page loads from elsewhere."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}

    def leads_somewhere(page: Page, url: str) -> bool:
        path, anchor = unquote(urlsplit(url).path), unquote(urlsplit(url).fragment)
        start = site if path.startswith("/") else page.path.parent  # 404.html is served for any address
        target = (start / path.lstrip("/")).resolve() if path else page.path
        target = target / "index.html" if target.is_dir() else target
        return target.is_file() and (target not in pages or anchor in pages[target].anchors)

    found = []
    for page in pages.values():
        name = page.path.relative_to(site)
        for url in sorted(page.loaded):
            if urlsplit(url).scheme not in ("", "data") or url.startswith("//"):
                found.append(f"{name}: loads {url}; the site has to work without a network")
            elif urlsplit(url).scheme != "data" and not leads_somewhere(page, url):
                found.append(f"{name}: loads {url}, which does not exist")
        for url in sorted(page.links):
            if not urlsplit(url).scheme and not leads_somewhere(page, url):
                found.append(f"{name}: links to {url}, which does not exist")
    return found


# --- Zensical


def zensical(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start Zensical on ``folder``; it imports the extension of griffe from here, and latte from this checkout."""
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
