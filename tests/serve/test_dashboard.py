"""The dashboard in a real browser: what it shows, that it stays up to date, and that names are only ever text."""

import json
import re
import shutil
import sys
from contextlib import contextmanager
from urllib.parse import quote

import pytest

from fleet_members import Member
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task
from latte.server.store.tokens import new_token
from serving import IMPATIENT, serving
from small_tasks import a_task
from waiting import SUPPORT, running, wait_until

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for name in NAMES if (path := shutil.which(name))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs a Chromium browser on the path"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:playwright"),
]
PATIENCE = 120_000  # milliseconds: far above what anything takes on a busy machine
HOSTILE = (
    "<img src=x onerror=\"window.hit=1\">",
    "\"><script>window.hit=2</script>",
    "'-javascript:window.hit=3//",
    "bad\u202eeman\x1b[31m\nline",
    "__proto__",
    "#/client/x?&=%00%zz/../../",
    "long " + 200 * "name",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as program:
        chromium = program.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield chromium
        chromium.close()


class Fleet:
    """A server with members and an admin, and pages that look at it."""

    def __init__(self, server, browser):
        self.server, self._browser = server, browser
        self.exchange = HttpExchange(server.address, connection=IMPATIENT)
        self.task, self.errors = self.exchange.shared_task, []
        self.token, stored = new_token(None)
        self.server.service.tokens.add(stored)

    def member(self, name, kind=0):
        """Return a client with a token of its own."""
        text, stored = new_token(name)
        self.server.service.tokens.add(stored)
        self.exchange._calls._tokens = {**(self.exchange._calls._tokens or {}), name: text}
        return Member(name, self.task, kind)

    def client_token(self, name):
        return self.exchange._calls._tokens[name]

    def open(self, where="", width=1280, scheme="light", sign_in=True):
        page = self._browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.goto(f"{self.server.address}/{f'#token={self.token}' if sign_in else where}")
        if sign_in:
            page.wait_for_selector("html[data-ready]")
        if sign_in and where:
            page.goto(f"{self.server.address}/{where}")
        return page


@contextmanager
def open_fleet(folder, browser, method="latte", **params):
    with serving(make_task(a_task(5, 16), method, params), folder) as server:
        fleet = Fleet(server, browser)
        try:
            yield fleet
        finally:
            fleet.exchange.close()
            for page in [page for context in browser.contexts for page in context.pages]:
                page.close()


@pytest.fixture
def fleet(tmp_path, browser):
    with open_fleet(tmp_path, browser) as opened:
        yield opened
        assert opened.errors == []


def cell(page, client, key):
    row = page.locator("#clients tbody tr").filter(has=page.get_by_role("link", name=client, exact=True))
    return row.locator(f"td[data-key={key}]")


def shows(page, locator, text):
    playwright.expect(locator).to_have_text(text, timeout=PATIENCE)


def counts(locator, number):
    playwright.expect(locator).to_have_count(number, timeout=PATIENCE)


# --- who may look ---------------------------------------------------------------------------------------------


def test_the_page_asks_for_a_token_and_forgets_a_wrong_one(fleet):
    fleet.member("camera 1").see(3).sync(fleet.exchange)
    page = fleet.open(sign_in=False)
    page.get_by_label("Admin token").fill("latte_no_such")
    page.get_by_role("button", name="Show the fleet").click()
    shows(page, page.locator("#login-problem"), "This token is not valid.")
    page.get_by_label("Admin token").fill(fleet.client_token("camera 1"))
    page.keyboard.press("Enter")
    shows(page, page.locator("#login-problem"), "This token is not an admin's.")
    assert "camera 1" not in page.inner_text("body")
    page.get_by_label("Admin token").fill(fleet.token)
    page.keyboard.press("Enter")
    page.get_by_role("link", name="camera 1").wait_for()
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    fleet.errors[:] = [error for error in fleet.errors if "401" not in error and "403" not in error]


def test_a_link_with_a_token_signs_in_and_hides_it(fleet):
    page = fleet.open()
    assert page.url == f"{fleet.server.address}/#/"
    assert fleet.token not in page.content()


def test_a_revoked_token_ends_the_view(fleet):
    fleet.member("camera 1").see(3).sync(fleet.exchange)
    page = fleet.open()
    page.get_by_role("link", name="camera 1").wait_for()
    tokens = fleet.server.service.tokens
    tokens.revoke([one.id for one in tokens.tokens().values() if one.role == "admin"])
    page.locator("#login").wait_for()
    assert "camera 1" not in page.inner_text("body")
    fleet.errors[:] = [error for error in fleet.errors if "401" not in error]


def test_nothing_comes_from_elsewhere_and_no_script_is_inline(fleet, browser):
    page = browser.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto(fleet.server.address)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
    page.locator("#login").wait_for()
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.hit = 1'}))")
    assert page.evaluate("window.hit") is None, "the policy forbids inline scripts"
    assert all(url.startswith((fleet.server.address, "data:")) for url in asked)


def test_a_token_with_hidden_characters_is_refused_by_the_page(fleet):
    page = fleet.open(sign_in=False)
    page.get_by_label("Admin token").fill(f"{fleet.token[:9]}\u200b{fleet.token[9:]}")
    page.keyboard.press("Enter")
    shows(page, page.locator("#login-problem"), re.compile("characters that no token has"))
    assert page.locator("#login").is_visible()
    page.get_by_label("Admin token").fill(f" {fleet.token}\n")
    page.keyboard.press("Enter")
    shows(page, page.locator("#status"), "live")
    fleet.errors[:] = [error for error in fleet.errors if "401" not in error]


def test_a_page_too_many_says_so(fleet, monkeypatch):
    monkeypatch.setattr("latte.server.dashboard.state.MOST_WATCHERS", 0)
    page = fleet.open(sign_in=False, where=f"#token={fleet.token}")
    shows(page, page.locator("#status"), "too many dashboards are open, trying again")
    monkeypatch.undo()
    shows(page, page.locator("#status"), "live")
    fleet.errors[:] = [error for error in fleet.errors if "503" not in error]


# --- what is shown --------------------------------------------------------------------------------------------


def test_the_fleet_is_shown_and_follows_without_a_reload(fleet):
    one, two = fleet.member("camera 1"), fleet.member("camera 2")
    one.differing = 3
    one.see(12, classes=2).sync(fleet.exchange)
    page = fleet.open()
    page.evaluate("window.marker = 'same page'")
    shows(page, cell(page, "camera 1", "images"), "12")
    shows(page, cell(page, "camera 1", "changed"), "25.0 %")
    shows(page, cell(page, "camera 1", "classes"), "2 of 5")
    shows(page, cell(page, "camera 1", "accuracy"), "–")
    shows(page, page.locator("#tiles [data-name=Clients] span"), "1")
    one.see(8).sync(fleet.exchange, labelled=10, correct=7, correct_zero_shot=5)
    two.see(5).sync(fleet.exchange)
    shows(page, cell(page, "camera 1", "images"), "20")
    shows(page, cell(page, "camera 1", "accuracy"), "70.0 %39.7 to 89.2")
    shows(page, cell(page, "camera 1", "gain"), "+20.0")
    shows(page, cell(page, "camera 1", "syncs"), "2")
    shows(page, cell(page, "camera 2", "images"), "5")
    shows(page, page.locator("#tiles [data-name=Images] span"), "25")
    shows(page, page.locator("#tiles [data-name=Clients] span"), "2")
    assert page.evaluate("window.marker") == "same page"


def test_a_client_that_leaves_is_gone(fleet):
    for name in ("camera 1", "camera 2"):
        fleet.member(name).see(5).sync(fleet.exchange)
    page = fleet.open()
    page.get_by_role("link", name="camera 2").wait_for()
    fleet.exchange.leave("camera 2")
    page.get_by_role("link", name="camera 2").wait_for(state="detached")
    counts(page.get_by_role("link", name="camera 1"), 1)
    assert set(fleet.server.service.log.traces) == {"camera 1"}


@pytest.mark.parametrize(("method", "params"), [("latte", {"k_e": 2}), ("ristretto", {})])
def test_the_heat_map_shows_who_helps_whom(tmp_path, browser, method, params):
    with open_fleet(tmp_path, browser, method, **params) as fleet:
        names = [f"{kind}-{number}" for kind in ("day", "night") for number in range(3)]
        members = [fleet.member(name, kind=int(name.startswith("night"))).see(30) for name in names]
        for _ in range(2):
            for member in members:
                member.sync(fleet.exchange)
        page = fleet.open(scheme="light")
        shows(page, page.locator(".heat-rows"), "".join(names))
        pixels = page.evaluate(
            "[...document.querySelector('.heat canvas').getContext('2d').getImageData(0,0,6,6).data]"
        )
        size = page.evaluate("document.querySelector('.heat canvas').width")
        assert size == 6
        red = [[pixels[4 * (6 * i + j)] for j in range(6)] for i in range(6)]  # the darker, the more
        visible = [[pixels[4 * (6 * i + j) + 3] for j in range(6)] for i in range(6)]
        assert all((visible[i][j] == 0) == (i == j) for i in range(6) for j in range(6))
        inside = [red[i][j] for i in range(6) for j in range(6) if i != j and i // 3 == j // 3]
        between = [red[i][j] for i in range(6) for j in range(6) if i // 3 != j // 3]
        assert sum(inside) / len(inside) < sum(between) / len(between) - 20, "those of a kind help each other"
        page.locator(".heat canvas").focus()
        for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
            page.keyboard.press(key)
        playwright.expect(page.locator(".readout")).to_contain_text("gets", timeout=PATIENCE)
        shows(page, page.locator(".readout"), re.compile("^day-[01]"))  # the keys move the cell
        page.locator(".heat canvas").hover(
            position={"x": 3, "y": page.locator(".heat canvas").bounding_box()["height"] - 3}
        )
        shows(page, page.locator(".readout"), re.compile("^night-2 gets .*from day-0$"))
        assert fleet.errors == []


def test_a_page_of_a_client(fleet):
    one, two = fleet.member("camera 1"), fleet.member("camera 2")
    two.see(30).sync(fleet.exchange)
    one.see(9, classes=2).sync(fleet.exchange)
    page = fleet.open()
    page.get_by_role("link", name="camera 1").focus()
    page.keyboard.press("Enter")
    shows(page, page.locator("#client h2").first, "camera 1")
    counts(page.locator(".classes .seen"), 2)
    counts(page.locator(".classes .unseen"), 3)
    assert page.locator("#overview").is_hidden()
    page.locator(".bars").first.get_by_role("link", name="camera 2").wait_for()
    one.see(4).sync(fleet.exchange)
    playwright.expect(page.locator("#client .facts")).to_contain_text("13", timeout=PATIENCE)
    page.get_by_role("link", name="all clients").click()
    page.locator("#overview").wait_for()
    page.goto(f"{fleet.server.address}/#/client/{quote('nobody')}")
    playwright.expect(page.locator("#client")).to_contain_text("knows no client of this name", timeout=PATIENCE)


def fact(page, name):
    return page.locator(f"#client .facts dt:text-is('{name}') + dd")


def test_accuracies_have_intervals(fleet):
    labels = {"labelled": 50, "correct": 40, "correct_zero_shot": 32}
    fleet.member("camera 1").see(60).sync(fleet.exchange, **labels, gained=9, lost=1)
    page = fleet.open()
    tiles = page.locator("#tiles")
    shows(page, tiles.locator("[data-name=Accuracy] dd"), "80.0 %67.0 to 88.8")
    shows(page, tiles.locator("[data-name='Zero-shot accuracy'] dd"), "64.0 %50.1 to 75.9")
    shows(page, tiles.locator("[data-name=Gain] dd"), "+16.0+3.6 to +27.2 points")
    shows(page, cell(page, "camera 1", "gain"), "+16.0+3.6 to +27.2")
    assert "up" in cell(page, "camera 1", "gain").get_attribute("class")
    page.get_by_role("link", name="camera 1").click()
    shows(page, fact(page, "Accuracy"), "80.0 % of 50 labelled images, 95 % interval 67.0 to 88.8")
    shows(page, fact(page, "Zero-shot accuracy"), "64.0 %, 95 % interval 50.1 to 75.9")
    shows(page, fact(page, "Gain"), "+16.0 points, 95 % interval +3.6 to +27.2")


def test_an_earlier_device_has_a_gain_without_an_interval(fleet):
    fleet.member("camera 1").see(60).sync(fleet.exchange, labelled=50, correct=40, correct_zero_shot=32)
    page = fleet.open()
    shows(page, page.locator("#tiles [data-name=Gain] dd"), "+16.0interval not known")
    shows(page, cell(page, "camera 1", "gain"), "+16.0")
    assert cell(page, "camera 1", "gain").get_attribute("class") == ""
    page.get_by_role("link", name="camera 1").click()
    shows(page, fact(page, "Gain"), "+16.0 points, interval not known")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_course_of_a_client(fleet, width):
    member = fleet.member("camera 1").see(10)
    member.sync(fleet.exchange, agreement=1.0, entropy=0.5)
    page = fleet.open("#/client/camera%201", width=width)
    playwright.expect(page.locator("#client")).to_contain_text("before the second report", timeout=PATIENCE)
    member.see(30).sync(fleet.exchange, agreement=0.75, entropy=0.25)
    plot = page.locator(".course .plot")
    plot.wait_for()
    assert re.search(
        "10 to 40 images.* from 0.0 % to 25.0 %.* from 50.0 % to 25.0 %", plot.get_attribute("aria-label")
    )
    lines = page.locator(".course .plot .line").evaluate_all("lines => lines.map(line => line.getAttribute('d'))")
    assert lines == ["M0.00 100.00h0L100.00 75.00", "M0.00 50.00h0L100.00 75.00"]
    shows(page, fact(page, "Changed by the memory"), re.compile("of the latest images, 25.0 %$"))
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_whom_a_client_outside_the_map_helps(fleet, monkeypatch):
    monkeypatch.setattr("latte.server.dashboard.state.MOST_MAPPED", 2)
    for name in ("old", "new 1", "new 2"):
        fleet.member(name).see(20).sync(fleet.exchange)
    page = fleet.open("#/client/old")
    section = page.locator("#client section").last
    shows(page, section.locator("a"), ["new 1", "new 2"])
    shows(page, section.locator(".caption"), "Of the 2 clients that synced last, at most twenty are shown.")


# --- the keyboard ---------------------------------------------------------------------------------------------


def has_focus(page, locator):
    playwright.expect(locator).to_be_focused(timeout=PATIENCE)


def test_the_readout_of_the_map_keeps_the_focus(fleet):
    for name in ("camera 1", "camera 2"):
        fleet.member(name).see(20).sync(fleet.exchange)
    page = fleet.open()
    page.locator(".heat canvas").focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    page.keyboard.press("Tab")
    link = page.locator(".readout a").first
    name = link.inner_text()
    has_focus(page, link)
    page.evaluate("window.link = document.activeElement")
    fleet.member("another camera").see(20).sync(fleet.exchange)  # before the others, by name
    playwright.expect(page.locator(".heat canvas")).to_have_attribute("width", "3", timeout=PATIENCE)
    assert page.evaluate("document.activeElement === window.link"), "nothing was replaced"
    assert page.locator(".readout a").first.inner_text() == name, "the cell is still that of the same clients"
    fleet.exchange.leave("camera 1")
    has_focus(page, page.locator(".heat canvas"))


def test_a_list_of_a_client_keeps_the_focus(fleet):
    for name in ("camera 1", "camera 2"):
        fleet.member(name).see(20).sync(fleet.exchange)
    page = fleet.open("#/client/camera%201")
    helped = page.locator("#client section").last
    helped.get_by_role("link", name="camera 2").focus()
    fleet.member("a camera").see(20).sync(fleet.exchange)
    helped.get_by_role("link", name="a camera").wait_for()
    has_focus(page, helped.get_by_role("link", name="camera 2"))
    fleet.exchange.leave("camera 2")
    helped.get_by_role("link", name="camera 2").wait_for(state="detached")
    has_focus(page, helped.get_by_role("link", name="a camera"))


def test_tables_keep_the_focus(fleet):
    members = [fleet.member(f"camera {number}").see(5).sync(fleet.exchange) for number in (1, 2)]

    def provoke(member):
        upload = member.method.summary()
        with pytest.raises(ValueError, match="bad_upload"):
            fleet.exchange.push(member.name, type(upload)(-upload.vectors, upload.seen, upload.task))

    provoke(members[0])
    page = fleet.open()
    refused = page.locator("#refused")
    refused.get_by_role("link", name="camera 1").focus()
    provoke(members[1])
    counts(refused.locator("tbody tr"), 2)
    has_focus(page, refused.get_by_role("link", name="camera 1"))
    page.get_by_role("button", name="Images").click()
    clients = page.locator("#clients tbody")
    clients.get_by_role("link", name="camera 2").focus()
    members[1].see(5).sync(fleet.exchange)
    shows(page, clients.locator("a"), ["camera 2", "camera 1"])
    has_focus(page, clients.get_by_role("link", name="camera 2"))


def test_a_client_that_dies_is_shown_as_stale(fleet):
    fleet.member("survivor").see(5).sync(fleet.exchange)
    fleet.member("mortal")
    page = fleet.open()
    page.get_by_label("Stale after").select_option("10")
    alive = fleet.member("survivor")
    module = SUPPORT / "fleet_members.py"
    device = (sys.executable, module, fleet.server.address, "mortal", fleet.client_token("mortal"))
    with running(*device) as process:
        wait_until(lambda: "mortal" in fleet.server.service.log.traces, "the first sync of the device", process)
        page.get_by_role("link", name="mortal").wait_for()
        process.kill()
    badge = page.locator("tr").filter(has=page.get_by_role("link", name="mortal")).locator(".badge")

    def is_stale():
        alive.see(1).sync(fleet.exchange)
        return badge.is_visible()

    wait_until(is_stale, "the device to count as stale")
    shows(page, page.locator("#tiles [data-name=Clients] small"), "1 stale")
    counts(page.locator(".badge:visible"), 1)
    page.get_by_label("Show", exact=True).select_option("stale")
    page.get_by_role("link", name="survivor").wait_for(state="detached")
    counts(page.locator("#clients tbody tr"), 1)


def test_refused_uploads_and_their_reasons(fleet):
    member = fleet.member("camera 1").see(5).sync(fleet.exchange)
    upload = member.method.summary()
    for _ in range(3):
        with pytest.raises(ValueError, match="bad_upload"):
            fleet.exchange.push("camera 1", type(upload)(-upload.vectors, upload.seen, upload.task))
    page = fleet.open()
    row = page.locator("#refused tbody tr")
    row.wait_for()
    assert "bad_upload" in row.inner_text() and "camera 1" in row.inner_text()
    assert row.locator("td").nth(1).inner_text() == "3"
    assert len(row.locator(".detail").inner_text()) > 20


def test_hostile_names_are_text(fleet):
    page = fleet.open()
    for name in HOSTILE:
        fleet.member(name).see(4).sync(fleet.exchange)
    counts(page.locator("#clients tbody tr"), len(HOSTILE))
    shown = page.locator("#clients tbody th a").all_inner_texts()
    assert {HOSTILE[0], HOSTILE[1], HOSTILE[2], "__proto__", "bad\\u202eeman\\x1b[31m\\x0aline"} <= set(shown)
    for name in HOSTILE:
        page.goto(f"{fleet.server.address}/#/client/{quote(name, safe='')}")
        page.locator("#client .classes").wait_for()
        assert page.locator("#client h2").first.inner_text() in shown
    assert page.evaluate("[window.hit, document.images.length, document.scripts.length]") == [None, 0, 1]


# --- where it is read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits(fleet, width):
    for name in ("camera 1", "camera 2", HOSTILE[-1]):
        fleet.member(name).see(9).sync(fleet.exchange)
    page = fleet.open(width=width)
    page.locator(".heat").wait_for()
    for where in ("#/", f"#/client/{quote(HOSTILE[-1])}"):
        page.goto(f"{fleet.server.address}/{where}")
        page.locator("#overview .heat:visible, #client .classes").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, where


def test_long_names_are_cut_at_their_end(fleet):
    for name in ("camera 1", HOSTILE[-1]):
        fleet.member(name).see(9).sync(fleet.exchange)
    page = fleet.open(width=390)
    page.locator(".heat").wait_for()
    outside = """labels => labels.map(label => {
        const [inner, outer] = [label.getBoundingClientRect(), label.parentElement.getBoundingClientRect()]
        return Math.max(outer.left - inner.left, inner.bottom - outer.bottom)
    })"""
    for axis in (".heat-rows", ".heat-columns"):
        distances = page.locator(f"{axis} bdi").evaluate_all(outside)
        assert len(distances) == 2 and max(distances) < 1, "a label begins where it can be read"
    heights = page.locator("#clients tbody tr").evaluate_all("rows => rows.map(row => row.offsetHeight)")
    assert max(heights) < 4 * min(heights), "a long name does not fill the page"


def test_light_and_dark(fleet):
    inks = [
        fleet.open(scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    assert inks == ["rgb(255, 255, 255)", "rgb(21, 24, 29)"]


def test_headings_sort_and_names_are_found(fleet):
    for number in (1, 2, 3):
        fleet.member(f"camera {number}").see(10 * (number % 3) + 5).sync(fleet.exchange)
    page = fleet.open()
    page.get_by_role("link", name="camera 3").wait_for()
    page.get_by_role("button", name="Images").click()
    names = page.locator("#clients tbody th a")
    shows(page, names, ["camera 2", "camera 1", "camera 3"])
    page.keyboard.press("Enter")
    shows(page, names, ["camera 3", "camera 1", "camera 2"])
    page.get_by_label("Name contains").fill("RA 2")
    page.get_by_role("link", name="camera 3").wait_for(state="detached")
    shows(page, names, ["camera 2"])


def test_a_server_that_stops_is_noticed_and_does_not_wait_for_the_page(tmp_path, browser):
    with open_fleet(tmp_path, browser) as fleet:
        page = fleet.open()
        shows(page, page.locator("#status"), "live")
        fleet.server.service.ready = False
        shows(page, page.locator("#status"), "connection lost, trying again")
        fleet.server.service.ready = True
        shows(page, page.locator("#status"), "live")


def test_the_numbers_are_those_of_the_route(fleet):
    fleet.member("camera 1").see(7).sync(fleet.exchange)
    page = fleet.open()
    page.get_by_role("link", name="camera 1").wait_for()
    answer = page.request.get(f"{fleet.server.address}/v1/fleet", headers={"Authorization": f"Bearer {fleet.token}"})
    state = json.loads(answer.body())
    assert state["fleet"]["sums"]["images"] == 7
    assert set(state) == {"time", "task", "fleet", "load", "refusals", "client", "map"}
