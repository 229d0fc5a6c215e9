"""What the server tells the owner of a fleet: who may ask, what it costs, and how much of it there can be."""

import json
import re
import time
import tracemalloc
from dataclasses import asdict
from itertools import pairwise

import httpx2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices import rows, small_task
from fleet_members import Member
from latte.edge.classify.evidence import Labelled, accuracies_of
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task, new_member
from latte.methods import create_exchange
from latte.server.dashboard.fleet import (
    MOST_MAPPED,
    MOST_POINTS,
    MOST_REFUSALS,
    MOST_TIMES,
    STEP,
    STEPS,
    CoursePoint,
    FleetLog,
    FleetQuery,
    FleetSource,
    FleetSums,
    ReportCourse,
    SyncLoad,
    fleet_table,
)
from latte.server.http.app import PAGE_FILES, SPECS, openapi_document
from latte.server.http.running import GRACE
from latte.server.hub.hub import Reports
from latte.server.store.tokens import new_token
from latte.wire.messages import DeviceReport, Problem
from serving import IMPATIENT, server_process, serving, task_file
from small_tasks import a_task
from waiting import DEADLINE, ROOT, wait_until

ROUTES = ("/v1/fleet", "/v1/fleet/events")


@pytest.fixture
def served(tmp_path):
    with serving(make_task(a_task(5, 16), "latte"), tmp_path) as server:
        yield server


@pytest.fixture
def admin(served):
    """The header of an admin; from now on the server asks everybody for a token."""
    text, stored = new_token(None)
    served.service.tokens.add(stored)
    return {"Authorization": f"Bearer {text}"}


# --- the routes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES)
def test_only_an_admin_may_look(served, admin, route):
    text, stored = new_token("camera 1")
    served.service.tokens.add(stored)
    refused = [httpx2.get(served.address + route, headers=headers) for headers in
               ({}, {"Authorization": "Bearer latte_x_y"}, {"Authorization": f"Bearer {text}"})]  # fmt: skip
    assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [
        (401, "unauthorized"), (401, "unauthorized"), (403, "forbidden"),
    ]  # fmt: skip


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "query", ["state=odd", "stale=0", "stale=nan", "stale=x", "limit=0", "limit=1001", f"find={'x' * 1025}"]
)
def test_odd_questions_are_refused(served, admin, route, query):
    answer = httpx2.get(f"{served.address}{route}?{query}", headers=admin)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_the_page_needs_no_token_and_has_a_policy(served, admin):
    for path, (_, kind) in PAGE_FILES.items():
        answer = httpx2.get(served.address + path)
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["x-content-type-options"] == "nosniff"


def events_of(lines):
    """Yield the events of a stream as (name, value)."""
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_the_stream_sends_what_changes_and_nothing_else(served, admin):
    with HttpExchange(served.address, tokens=admin["Authorization"].split()[1]) as exchange:
        task = exchange.shared_task
    served.service.tokens.add(new_token("camera 1")[1])
    with httpx2.stream("GET", f"{served.address}/v1/fleet/events", headers=admin, timeout=DEADLINE) as answer:
        events = events_of(answer.iter_lines())
        names = [next(events)[0] for _ in range(7)]
        assert names == ["task", "fleet", "load", "refusals", "client", "map", "beat"]
        quiet = {next(events)[0] for _ in range(4)}
        assert quiet <= {"beat", "load"}
        member = Member("camera 1", task).see(4)
        text, stored = new_token("camera 1")
        served.service.tokens.add(stored)
        with HttpExchange(served.address, tokens=text) as mine:
            member.sync(mine)
        sums = next(value["sums"] for name, value in events if name == "fleet")
        assert sums["clients"] == 1 and sums["images"] == 4


def test_a_long_pause_has_signs_of_life(served, admin, monkeypatch):
    monkeypatch.setattr("latte.server.http.app.QUIET", 0.0)
    monkeypatch.setattr("latte.server.dashboard.fleet.PAUSE", 10 * DEADLINE)
    with httpx2.stream("GET", f"{served.address}/v1/fleet/events", headers=admin, timeout=DEADLINE) as answer:
        lines = answer.iter_lines()
        comments = (line for line in lines if line.startswith(":"))
        assert next(comments) and next(comments), "between two looks"
        served.service.tokens.revoke(list(served.service.tokens.tokens()))
        assert sum(1 for _ in comments) >= 0, "the stream ends with the token, not with the pause"


def test_a_stream_ends_with_its_token_and_with_the_server(served, admin):
    with httpx2.stream("GET", f"{served.address}/v1/fleet/events", headers=admin, timeout=DEADLINE) as answer:
        tokens = served.service.tokens
        lines = answer.iter_lines()
        next(lines)
        tokens.revoke(list(tokens.tokens()))
        assert sum(1 for _ in lines) >= 0, "the stream has an end"
    text, stored = new_token(None)
    tokens.add(stored)
    with httpx2.stream(
        "GET", f"{served.address}/v1/fleet/events", headers={"Authorization": f"Bearer {text}"}
    ) as answer:
        lines = answer.iter_lines()
        next(lines)
        served.service.ready = False
        assert sum(1 for _ in lines) >= 0
    wait_until(lambda: not served.service.board._watchers, "nobody to be counted any more")


def test_a_server_with_watchers_stops_at_once(tmp_path):
    path = task_file(tmp_path, a_task(5, 16))
    with server_process(path, tmp_path / "data") as (address, process):
        with httpx2.stream("GET", f"{address}/v1/fleet/events", timeout=DEADLINE) as answer:
            lines = answer.iter_lines()
            next(lines)
            start = time.monotonic()
            process.process.terminate()
            assert sum(1 for _ in lines) >= 0
        done = process.finish()
        assert done.returncode == 0 and "Traceback" not in done.stderr
        assert time.monotonic() - start < GRACE, "it does not wait for those who look"


def test_a_large_fleet_is_bounded_and_helped_by_others(served):
    with HttpExchange(served.address) as exchange:
        task = exchange.shared_task
        upload = Member("any", task).see(20).method.summary()
        for number in range(MOST_MAPPED + 70):
            exchange.push(f"camera {number}", upload, DeviceReport(images=1))
    state = httpx2.get(f"{served.address}/v1/fleet?limit=50&client=camera%203").json()
    assert len(state["fleet"]["rows"]) == 50 and state["fleet"]["matching"] == MOST_MAPPED + 70
    assert state["fleet"]["sums"]["images"] == MOST_MAPPED + 70
    assert (
        len(state["map"]["clients"]) == len(state["map"]["amounts"]) == MOST_MAPPED and state["map"]["left_out"] == 70
    )
    total = [sum(row) + rest for row, rest in zip(state["map"]["amounts"], state["map"]["others"], strict=True)]
    slots = int(upload.seen.sum()) * task.params["k_e"]
    assert total == [slots] * MOST_MAPPED, "every slot is filled, by those on the map and by others"
    assert all(state["map"]["amounts"][i][i] == 0 for i in range(MOST_MAPPED))
    assert state["client"]["row"]["client"] == "camera 3"
    assert sum(one["amount"] for one in state["client"]["helpers"]) <= slots
    assert "camera 3" not in state["map"]["clients"] and state["client"]["helped"] is not None


@pytest.mark.parametrize("method", ["latte", "ristretto"])
def test_whom_a_client_helps_is_what_they_get_from_it(tmp_path, monkeypatch, method):
    monkeypatch.setattr("latte.server.dashboard.fleet.MOST_MAPPED", 3)
    names = [f"camera {number}" for number in range(5)]
    with serving(make_task(a_task(5, 16), method), tmp_path) as server, HttpExchange(server.address) as exchange:
        for name in names:
            Member(name, exchange.shared_task).see(20).sync(exchange)
        views = [httpx2.get(f"{server.address}/v1/fleet", params={"client": name}).json() for name in names]
    assert views[0]["map"]["clients"] == names[2:]
    gets = {view["client"]["row"]["client"]: view["client"]["helpers"] for view in views}
    for name, view in zip(names, views, strict=True):
        amounts = {other: one["amount"] for other in names[2:] for one in gets[other] if one["client"] == name}
        assert {one["client"]: one["amount"] for one in view["client"]["helped"]} == pytest.approx(amounts)


# --- the documents --------------------------------------------------------------------------------------------


def test_every_route_is_in_the_documents():
    page = (ROOT / "docs" / "protocol.md").read_text("utf-8")
    paths = openapi_document("0")["paths"]
    for spec in SPECS:
        assert spec.path in paths and spec.method.lower() in paths[spec.path]
        if spec.path not in PAGE_FILES or spec.path == "/":
            assert re.search(rf"`[^`]*{re.escape(spec.path)}[?`]", page), f"docs/protocol.md lacks {spec.path}"


# --- what is said of labels -----------------------------------------------------------------------------------


def test_accuracies_are_those_that_a_device_prints(served):
    labels = {"labelled": 50, "correct": 40, "correct_zero_shot": 32}
    with HttpExchange(served.address) as exchange:
        task = exchange.shared_task
        Member("new", task).see(5).sync(exchange, **labels, gained=9, lost=1)
        state = httpx2.get(f"{served.address}/v1/fleet").json()
        Member("earlier", task).see(5).sync(exchange, **labels)
        mixed = httpx2.get(f"{served.address}/v1/fleet?find=earlier").json()["fleet"]
    expected = json.loads(json.dumps(asdict(accuracies_of(Labelled(50, 40, 32, 9, 1)))))
    assert state["fleet"]["accuracies"] == state["fleet"]["rows"][0]["accuracies"] == expected
    assert mixed["rows"][0]["accuracies"] == {**expected, "gain_interval": None}
    assert mixed["accuracies"]["labelled"] == 100 and mixed["accuracies"]["gain_interval"] is None


COUNTS = st.one_of(st.integers(0, 12), st.integers(0, 2**63 - 1))


@given(st.lists(COUNTS, min_size=5, max_size=5))
def test_counts_that_cannot_be_true_are_not_shown(counts):
    names = ("labelled", "correct", "correct_zero_shot", "gained", "lost")
    reported = dict(zip(names, counts, strict=True))
    reports = Reports()
    reports.note("camera", DeviceReport(**reported))
    table = fleet_table(FleetSource({"camera": 1}, {}, {}, reports), FleetQuery(), now=0.0)
    total, correct, plain, gained, lost = counts
    possible = total > 0 and correct <= total and plain <= total
    assert (table.accuracies is not None) == (table.rows[0].accuracies is not None) == possible
    if table.accuracies is not None:
        both, neither = correct - gained, total - correct - lost
        paired = both >= 0 and neither >= 0 and both + lost == plain
        assert (table.accuracies.gain_interval is not None) == paired
        assert 0 <= table.accuracies.accuracy_interval[0] <= table.accuracies.accuracy_interval[1] <= 1


# --- reports outlive a server, and tell two devices of one name apart -----------------------------------------------


def test_reports_are_shown_after_a_restart_of_the_server(tmp_path):
    task, device = small_task(), new_member(small_task())
    device.predict_many(rows(12))
    for start in range(3):
        with serving(task, tmp_path) as server, HttpExchange(server.address, connection=IMPATIENT) as http:
            if not start:
                http.push("camera", device.summary(), DeviceReport(images=12, labelled=4, correct=3, instance="a"))
            fleet = httpx2.get(f"{server.address}/v1/fleet?client=camera").json()
            row, sums = fleet["fleet"]["rows"][0], fleet["fleet"]["sums"]
            assert (row["report"]["images"], sums["labelled"], sums["correct"]) == (12, 4, 3)
            assert row["accuracies"]["accuracy"] == 0.75 and fleet["client"]["row"]["report"] == row["report"]
    assert row["syncs"] == 0


def test_a_store_of_an_earlier_version_has_no_reports(tmp_path):
    task, device = small_task(), new_member(small_task())
    device.predict_many(rows(3))
    with serving(task, tmp_path) as server, HttpExchange(server.address, connection=IMPATIENT) as http:
        http.push("camera", device.summary())
    with serving(task, tmp_path) as server:
        fleet = httpx2.get(f"{server.address}/v1/fleet").json()["fleet"]
        assert fleet["rows"][0]["report"] is None and fleet["sums"]["reporting"] == 0


def test_two_devices_with_one_name_are_noticed_and_a_restart_is_not(tmp_path):
    task, device = small_task(), new_member(small_task())
    device.predict_many(rows(12))
    with serving(task, tmp_path) as server:

        def shared():
            return httpx2.get(f"{server.address}/v1/fleet").json()["fleet"]["rows"][0]["name_shared"]

        def sync(http, instance):
            http.push_pull("camera", device.summary(), DeviceReport(images=12, instance=instance))
            return http.name_is_shared("camera"), shared()

        starts = [HttpExchange(server.address, connection=IMPATIENT) for _ in range(4)]
        for number, start in enumerate(starts):  # one device that is started again and again
            assert sync(start, f"start {number}") == sync(start, f"start {number}") == (False, False)
        assert sync(starts[2], "start 2") == (True, True), "it was thought to be gone"
        assert sync(starts[3], "start 3") == (True, True)
        server.service.hub.reports._shared["camera"] -= 3601  # an hour later
        assert sync(starts[3], "start 3") == (False, False)
        for start in starts:
            start.close()


# --- what is noted of a sync ----------------------------------------------------------------------------------


def test_a_note_costs_next_to_nothing():
    log, report = FleetLog(), DeviceReport(images=3)
    names = [f"camera {number}" for number in range(1000)]
    start = time.process_time()
    for _ in range(100):
        for name in names:
            log.note_sync(name, report, 0.01)
    assert time.process_time() - start < 100_000 * 40e-6, "it takes about 1 µs; 40 is a broken machine"


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=300))
def test_a_course_has_the_whole_life_in_few_points(steps):
    log, images = FleetLog(), 0
    for more, agreement, entropy in steps:
        images += more
        report = DeviceReport(images=images, agreement=agreement, entropy=entropy)
        log.note_sync("camera", report, 0.1)
        log.note_sync("camera", report, 0.1)  # the same request again
        log.note_sync("camera", None, 0.1)
    points = log.traces["camera"].course.points()
    assert min(len(steps), MOST_POINTS // 2) <= len(points) <= MOST_POINTS
    assert points[-1].images == images
    assert all(one.images < other.images for one, other in pairwise(points))
    size = 1
    while -(-len(steps) // size) > MOST_POINTS:
        size *= 2
    parts = [steps[start : start + size] for start in range(0, len(steps), size)]
    assert [point.agreement for point in points] == pytest.approx(
        [np.mean([s[1] for s in part]) for part in parts], abs=1e-5
    )
    assert [point.entropy for point in points] == pytest.approx(
        [np.mean([s[2] for s in part]) for part in parts], abs=1e-5
    )


def test_the_course_of_a_device_that_begins_anew_does_too():
    course = ReportCourse()
    for images in (0, 10, 20, 5):
        course.add(DeviceReport(images=images, agreement=0.5, entropy=0.0))
    assert course.points() == [CoursePoint(5.0, 0.5, 0.0)]
    course.add(DeviceReport(images=6))
    assert course.points() == [CoursePoint(5.0, 0.5, 0.0)], "a client that adds noise says neither"


def test_a_client_that_adds_noise_does_not_count_as_one_that_agrees_with_zero_shot():
    sums = FleetSums()
    sums.add(DeviceReport(images=100, differing=25))
    sums.add(DeviceReport(images=900))
    assert (sums.images, sums.differing, sums.compared) == (1000, 25, 100)


def test_a_course_takes_less_than_800_bytes():
    reports = [DeviceReport(images, 0, 0.5, 0.5) for images in range(1, MOST_POINTS + 1)]
    tracemalloc.start()
    try:
        courses = [ReportCourse() for _ in range(100)]
        for course in courses:
            for report in reports:
                course.add(report)
        assert tracemalloc.get_traced_memory()[0] < 100 * 800
    finally:
        tracemalloc.stop()


def test_refusals_are_counted_and_bounded():
    log = FleetLog()
    for number in range(3 * MOST_REFUSALS):
        log.note_refusal(f"camera {number}", Problem("bad_upload", "x" * 10_000))
        log.note_refusal("the same", Problem("bad_upload", f"detail {number}"))
    refusals = log.refusals()
    assert len(refusals) == MOST_REFUSALS and max(len(one.detail) for one in refusals) <= 500
    assert refusals[0].client == "the same" and refusals[0].count == 3 * MOST_REFUSALS
    assert refusals[0].detail == f"detail {3 * MOST_REFUSALS - 1}"


def test_clients_that_others_removed_are_forgotten():
    log = FleetLog()
    for name in ("a", "b", "c"):
        log.note_sync(name, None, 0.1)
    log.trim({"b"})
    assert set(log.traces) == {"b"}


@given(st.lists(st.tuples(st.floats(0, 700), st.floats(1e-4, 10)), max_size=60))
def test_the_load_is_that_of_the_last_five_minutes(syncs):
    now = [0.0]
    load = SyncLoad(lambda: now[0])
    for at, seconds in sorted(syncs):
        now[0] = at
        load.add(seconds)
    now[0] = max([700.0, now[0]])
    summary = load.summary()
    last = int(now[0] / STEP)
    recent = [seconds for at, seconds in syncs if last - STEPS <= int(at / STEP) < last]
    assert len(summary.rates) == len(summary.p50s) == len(summary.p99s) == STEPS
    assert sum(summary.rates) * STEP == pytest.approx(len(recent))
    for p50, p99, rate in zip(summary.p50s, summary.p99s, summary.rates, strict=True):
        assert (p50 is None) == (rate == 0)
        assert p50 is None or min(recent) - 1e-5 <= p50 <= p99 <= max(recent) + 1e-5


def test_very_many_syncs_of_a_step_are_sampled_evenly():
    now = [0.0]
    load = SyncLoad(lambda: now[0])
    for number in range(20 * MOST_TIMES):
        load.add(number / (20 * MOST_TIMES))
    now[0] = STEP
    summary = load.summary()
    assert summary.rate == 20 * MOST_TIMES / STEP
    assert summary.p50 == pytest.approx(0.5, abs=0.15) and summary.p99 > 0.9


# --- rows -----------------------------------------------------------------------------------------------------


@given(
    st.dictionaries(st.text(min_size=1, max_size=3), st.floats(0, 1e6), max_size=20),
    st.sampled_from(["all", "fresh", "stale"]),
    st.text(max_size=1),
    st.integers(1, 10),
)
def test_the_rows_are_the_latest_that_match(updated, state, find, limit):
    query = FleetQuery(find, state, stale=1e5, limit=limit)
    table = fleet_table(FleetSource(dict.fromkeys(updated, 1), updated, {}), query, now=1e6)
    matching = [
        name for name, when in updated.items()
        if find.casefold() in name.casefold() and state in ("all", "stale" if when < 9e5 else "fresh")
    ]  # fmt: skip
    assert table.matching == len(matching) and table.sums.clients == len(updated)
    assert [row.client for row in table.rows] == sorted(matching, key=lambda name: (-updated[name], name))[:limit]
    assert table.sums.fresh == sum(when >= 9e5 for when in updated.values())


@pytest.mark.parametrize("method", ["latte", "ristretto"])
def test_exchanges_say_which_classes_were_seen(method):
    task = make_task(a_task(5, 16), method)
    exchange = create_exchange(method, task.zero_shot, task.params)
    uploads = {name: Member(name, task).see(40, classes).method.summary() for name, classes in (("all", 5), ("two", 2))}
    for name, upload in uploads.items():
        exchange.push(name, upload)
    covered = exchange.coverage(["two", "all", "two"])
    seen = [upload.seen if method == "latte" else upload.counts >= 0.5 for upload in uploads.values()]
    assert covered.dtype == np.bool_ and np.array_equal(covered, [seen[1], seen[0], seen[1]])
    assert covered[0].sum() < covered[1].sum() == 5
    with pytest.raises(ValueError, match="client"):
        exchange.coverage(["nobody"])
