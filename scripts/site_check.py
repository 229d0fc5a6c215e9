"""What Zensical's strict mode does not see: links, anchors and images of the pages, and anything from elsewhere."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}  # without a click
RELATIONS = {"prev", "next", "canonical"}  # of <link>: pages, not files that are loaded


class Page(HTMLParser):
    """The anchors of one page, its links, and the files that it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.anchors, self.links, self.loaded = path, {"", "__skip"}, set[str](), set[str]()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        is_page = tag == "a" or values.get("rel") in RELATIONS
        if is_page and "href" in values:
            self.links.add(values["href"])
        elif not is_page and LOADED.get(tag) in values:
            self.loaded.add(values[LOADED[tag]])


def problems(site: Path) -> list[str]:
    """Return a line for each link that leads nowhere and each file that a page loads from elsewhere."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    return [problem for page in pages.values() for problem in _problems_of(page, pages, site)]


def _problems_of(page: Page, pages: dict[Path, Page], site: Path) -> Iterator[str]:
    name = page.path.relative_to(site)
    for url in sorted(page.loaded):
        if urlsplit(url).scheme not in ("", "data") or url.startswith("//"):
            yield f"{name}: loads {url}; the site has to work without a network"
        elif not _leads_somewhere(page, url, pages, site):
            yield f"{name}: loads {url}, which does not exist"
    for url in sorted(page.links):
        if not urlsplit(url).scheme and not _leads_somewhere(page, url, pages, site):
            yield f"{name}: links to {url}, which does not exist"


def _leads_somewhere(page: Page, url: str, pages: dict[Path, Page], site: Path) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "data":
        return True
    path, anchor = unquote(parts.path), unquote(parts.fragment)
    start = site if path.startswith("/") else page.path.parent  # 404.html is served for any address
    target = (start / path.lstrip("/")).resolve() if path else page.path
    if target.is_dir():
        target = target / "index.html"
    return target.is_file() and (target not in pages or anchor in pages[target].anchors)
