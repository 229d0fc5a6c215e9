"""What is refused is noted, in few bytes and under the name of whose token it was; and what fails is counted."""

import json
from contextlib import closing

import httpx2
import msgspec
import pytest

from latte.checks.material import a_zero_shot, an_upload
from latte.edge.joining import make_task
from latte.server.http.limits import problem_response
from latte.server.http.service import Buckets, RequestRate
from latte.server.store.audit import Audit
from latte.server.store.tokens import TokenFile, new_token
from latte.wire.blocks import encode
from latte.wire.messages import LONGEST_DETAIL, MEDIA_TYPE, Problem, SyncRequest, pack
from serving import serving

LONG = "x" * 100_000


@pytest.fixture(scope="module")
def task():
    return make_task(a_zero_shot(), "latte", {"k_e": 3})


@pytest.fixture
def guarded(task, tmp_path):
    """A server with tokens of the client a and of an admin; its folder, and the headers of each."""
    heads = {}
    with closing(TokenFile(tmp_path)) as file:
        for client in ("a", None):
            text, stored = new_token(client)
            file.add(stored)
            heads[client or "admin"] = {"Authorization": f"Bearer {text}", "Content-Type": MEDIA_TYPE}
    with serving(task, tmp_path) as server:
        yield server, tmp_path, heads


def post(server, body, headers, path="/v1/sync"):
    content = body if isinstance(body, bytes) else pack(body)
    return httpx2.post(f"{server.address}{path}", content=content, headers=headers)


def events(folder):
    lines = (folder / "audit.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if "refused" in line]


def request(task, client="a", **changes):
    return SyncRequest(task.fingerprint, client, **changes)


def test_long_names_are_no_message(guarded, task):
    server, folder, heads = guarded
    block = encode(an_upload(1), "fp32", task.zero_shot.dim)[0]
    odd = [request(task, LONG)] + [
        request(task, version=1, upload=(msgspec.structs.replace(block, **{field: value}),))
        for field, value in (("name", LONG), ("dtype", LONG), ("coding", LONG), ("shape", (1,) * 1000))
    ]
    for message in odd:
        answer = post(server, message, heads["a"])
        assert answer.json()["code"] == "bad_message" and len(answer.content) < 1000
    for path in ("/v1/join", "/v1/leave"):
        body = json.dumps({"client": "x" * 2000, "task": task.fingerprint}).encode()
        answer = post(server, body, {**heads["a"], "Content-Type": "application/json"}, path)
        assert answer.json()["code"] == "bad_message" and len(answer.content) < 1000
    assert (folder / "audit.jsonl").stat().st_size < 5000


def test_names_that_a_token_does_not_have_are_noted_once(guarded, task):
    server, folder, heads = guarded
    for number in range(20):
        answer = post(server, request(task, f"{number}" + "é" * 500), heads["a"])
        assert answer.json()["code"] == "forbidden" and len(answer.json()["detail"]) <= LONGEST_DETAIL
    assert [(entry["event"], entry["client"]) for entry in events(folder)] == [("refused: forbidden", "a")]
    assert (folder / "audit.jsonl").stat().st_size < 5000
    fleet = httpx2.get(f"{server.address}/v1/fleet", headers=heads["admin"]).json()
    assert [(refusal["client"], refusal["count"]) for refusal in fleet["refusals"]] == [("a", 20)]


def test_every_kind_of_refused_upload_is_in_the_audit_log(guarded, task):
    server, folder, heads = guarded
    other = make_task(a_zero_shot(), "latte", {"k_e": 2})
    most = server.service.most_body
    for body, headers in (
        (b"", {**heads["a"], "Authorization": "Bearer nonsense"}),
        (b"\xc1", heads["a"]),
        (bytes(most + 1), heads["a"]),
        (b"{}", {**heads["a"], "Content-Type": "application/json"}),
        (request(task, protocol=2), heads["a"]),
        (request(task, "b"), heads["a"]),
        (request(other), heads["a"]),
        (request(task, version=1, upload=()), heads["a"]),
    ):
        assert post(server, body, headers).status_code >= 400
    codes = [entry["event"].removeprefix("refused: ") for entry in events(folder)]
    assert codes == [
        "unauthorized", "bad_message", "too_large", "unsupported_media", "unsupported_protocol", "forbidden",
        "other_task", "bad_upload",
    ]  # fmt: skip
    assert [entry.get("client") for entry in events(folder)] == [None, *["a"] * 7]


def test_callers_that_nobody_knows_share_one_limit(tmp_path):
    audit = Audit(tmp_path)
    for number in range(50):
        audit.note("refused: bad_upload", f"name {number}", "d" * 10_000, known=False)
    (entry,) = events(tmp_path)
    assert entry["client"] == "name 0" and len(entry["detail"]) == LONGEST_DETAIL


def test_a_failure_is_counted_and_timed(guarded, task, monkeypatch):
    server, _, heads = guarded
    monkeypatch.setattr(server.service, "sync", None)  # a fault of the server
    assert post(server, request(task), heads["a"]).json()["code"] == "internal"
    page = httpx2.get(f"{server.address}/metrics", headers=heads["admin"]).text
    assert 'latte_requests_total{outcome="internal",route="sync"} 1.0' in page
    assert 'latte_request_seconds_count{route="sync"} 1.0' in page


@pytest.mark.parametrize("path", ["/v1/sync/", "/v1/clients/", "/livez/"])
def test_a_path_with_a_slash_too_many_is_not_found(guarded, path):
    server, _, heads = guarded
    for answer in (post(server, b"", heads["a"], path), httpx2.get(f"{server.address}{path}")):
        assert answer.status_code == 404 and answer.json()["code"] == "not_found"


# --- rates ----------------------------------------------------------------------------------------------------


def test_a_small_rate_lets_a_request_pass():
    buckets = Buckets(RequestRate.of(0.1))
    assert buckets.take("a") == 0.0 and 9.0 < buckets.take("a") <= 10.0


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -1.0])
def test_rates_that_cannot_be(rate):
    with pytest.raises(ValueError, match=r"rate: got .*, want requests per second"):
        RequestRate.of(rate)


@pytest.mark.parametrize(("wait", "header"), [(0.1, "1"), (1.0, "1"), (2.4, "3")])
def test_the_time_to_wait_is_never_too_short(wait, header):
    assert problem_response(Problem("too_many_requests", "", retry_after=wait)).headers["retry-after"] == header
