"""Requests that no honest client sends: each gets its documented refusal, changes nothing, and the server goes on."""

import gzip
import json
import struct
from contextlib import closing

import httpx2
import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latte.checks.material import a_zero_shot, an_upload
from latte.edge.joining import make_task
from latte.server.http.service import Access, RequestRate
from latte.server.store.tokens import TokenFile, new_token
from latte.wire.blocks import encode
from latte.wire.messages import CODES, MEDIA_TYPE, Have, SyncReply, SyncRequest, pack, unpack
from serving import serving

TYPE = {"Content-Type": MEDIA_TYPE}


@pytest.fixture(scope="module")
def task():
    return make_task(a_zero_shot(), "latte", {"k_e": 3})


@pytest.fixture(scope="module")
def server(task, tmp_path_factory):
    """A server without tokens, and one honest client."""
    with serving(task, tmp_path_factory.mktemp("open")) as running:
        assert post(running.address, request(task, "honest")).status_code == 200
        yield running


@pytest.fixture(scope="module")
def guarded(task, tmp_path_factory):
    """A server with tokens: of the clients a and b, a revoked one of b, and an admin's."""
    folder = tmp_path_factory.mktemp("guarded")
    tokens = {}
    with closing(TokenFile(folder)) as file:
        for name, client in (("a", "a"), ("b", "b"), ("revoked", "b"), ("admin", None)):
            tokens[name], stored = new_token(client)
            file.add(stored)
            if name == "revoked":
                file.revoke([stored.id])
    with serving(task, folder, access=Access(rate=RequestRate(0))) as running:
        yield running.address, tokens


def request(task, client="a", seed=1, **changes):
    fields = {"version": seed, "upload": encode(an_upload(seed), "fp32", task.zero_shot.dim), "precision": "fp32"}
    return SyncRequest(task.fingerprint, client, **{**fields, **changes})


def post(address, body, path="/v1/sync", **headers):
    content = body if isinstance(body, bytes) else pack(body)
    return httpx2.post(f"{address}{path}", content=content, headers={**TYPE, **headers})


def with_array(upload, array, **changes):
    """Return the blocks of an upload with one of them changed."""
    return tuple(msgspec.structs.replace(b, **changes) if b.name == array else b for b in upload)


def refused(answer, code):
    """Check a refusal: status, type and code."""
    assert answer.status_code == CODES[code][0], answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == code, answer.text
    return answer.json()


# --- bodies -------------------------------------------------------------------------------------------------


def test_bodies_that_are_no_message(server, task):
    whole = pack(request(task))
    for body in (b"", b"\xc1", b"[]", whole[:-1], whole[: len(whole) // 2], whole + b"\x00", b"\x81" * 10_000):
        refused(post(server.address, body), "bad_message")
    refused(post(server.address, b"\x91" * 100_000), "bad_message")  # lists in lists


def test_too_large_compressed_and_other_types(server, task):
    whole = pack(request(task))
    most = server.service.most_body
    refused(post(server.address, bytes(most + 1)), "too_large")
    refused(httpx2.post(f"{server.address}/v1/sync", content=iter([bytes(1 << 20)] * 8), headers=TYPE), "too_large")
    refused(post(server.address, gzip.compress(whole), **{"Content-Encoding": "gzip"}), "unsupported_media")
    refused(post(server.address, whole, **{"Content-Type": "application/json"}), "unsupported_media")
    refused(
        httpx2.post(f"{server.address}/v1/join", content=b"{", headers={"Content-Type": "application/json"}),
        "bad_message",
    )


def test_arrays_that_cannot_be(server, task):
    good = request(task).upload
    vectors = np.frombuffer(good[0].data, np.float32).reshape(good[0].shape)
    nan, long, other = vectors.copy(), vectors * 3, -vectors
    nan[0, 0] = np.nan
    bad = {
        "another dtype": with_array(good, "vectors", dtype="f8"),
        "an unknown dtype": with_array(good, "vectors", dtype="O8"),
        "another shape": with_array(good, "vectors", shape=(1, 2)),
        "a shape beyond memory": with_array(good, "vectors", shape=(2**40, 2**40)),
        "a negative shape": with_array(good, "vectors", shape=(-1, 8)),
        "another coding": with_array(good, "vectors", coding="zip"),
        "too few bytes": with_array(good, "vectors", data=good[0].data[:-1]),
        "too many bytes": with_array(good, "vectors", data=good[0].data + b"0"),
        "sources out of range": with_array(good, "vectors", source=struct.pack("<i", 10**9) * len(vectors)),
        "NaN": with_array(good, "vectors", data=nan.tobytes()),
        "long": with_array(good, "vectors", data=long.tobytes()),
        "of another class": with_array(good, "vectors", data=other.tobytes()),
        "twice the same": (*good, good[0]),
        "none": (),
        "a name of another": with_array(good, "vectors", name="../../etc/passwd"),
    }
    for what, upload in bad.items():
        document = refused(post(server.address, request(task, "odd", upload=upload)), "bad_upload")
        assert document["detail"], what
    assert "odd" not in server.service.hub.versions
    assert post(server.address, request(task, "honest", seed=2, version=2)).status_code == 200


def test_lists_of_rows_that_cannot_be_are_harmless(server, task):
    for ids in (b"1", bytes(8), bytes(80_000)):
        have = (Have("vectors", 2**62, ids), Have("no such array", 0, ids))
        answer = post(server.address, request(task, "lister", 1, version=1, key=b"k" * 16, have=have))
        assert answer.status_code == 200
        assert unpack(answer.content, SyncReply).download is not None


# --- versions and names ---------------------------------------------------------------------------------------


def test_replayed_stale_and_reused(server, task):
    first = request(task, "versions", version=5, key=b"first key")
    assert post(server.address, first).status_code == 200
    again = post(server.address, first)
    assert again.status_code == 200
    assert unpack(again.content, SyncReply).version == 5
    document = refused(
        post(server.address, request(task, "versions", 2, version=5, key=b"second key")), "stale_version"
    )
    assert document["stored_version"] == 5
    refused(post(server.address, request(task, "versions", 2, version=6, key=b"first key")), "key_reused")
    partial = request(task, "versions", 2, version=7, base=4)
    assert refused(post(server.address, partial), "unknown_base")["stored_version"] == 5


def test_another_task_and_another_protocol(server, task):
    other = make_task(a_zero_shot(), "latte", {"k_e": 2})
    document = refused(post(server.address, request(other)), "other_task")
    assert (document["server_task"], document["client_task"]) == (task.fingerprint, other.fingerprint)
    assert "parameters" in document["differs"]
    refused(post(server.address, request(task, protocol=2)), "unsupported_protocol")


@pytest.mark.parametrize("name", ["", "x" * 1025])
def test_names_that_cannot_be(server, task, name):
    refused(post(server.address, request(task, name)), "bad_message")


def test_names_with_paths_and_quotes_are_just_names(server, task, tmp_path):
    before = sorted(path.name for path in server.service.hub.store._path.parent.iterdir())
    for number, name in enumerate(["../../etc/passwd", "'; DROP TABLE clients; --", "a\x00b", "<script>", "\u202e"]):
        assert post(server.address, request(task, name, version=number + 1)).status_code == 200
        assert name in server.service.hub.versions
    assert sorted(path.name for path in server.service.hub.store._path.parent.iterdir()) == before


def test_paths_that_lead_nowhere(server):
    for path in ("/../../etc/passwd", "/v1/../../task", "/v1/%2e%2e/%2e%2e/etc/passwd", "/v2/sync", "/.git/config"):
        refused(httpx2.get(f"{server.address}{path}"), "not_found")
    answer = httpx2.request("TRACE", f"{server.address}/v1/sync")
    refused(answer, "method_not_allowed")


def test_a_query_that_cannot_be(server):
    for limit in ("0", "-1", "1e9", "99999999999999999999", "²", "0000000010", "0" * 5000):
        refused(httpx2.get(f"{server.address}/v1/clients?limit={limit}"), "bad_request")
        refused(httpx2.get(f"{server.address}/v1/fleet?limit={limit}"), "bad_request")
    for query in ("", "client=", "client=" + "x" * 2000):
        refused(httpx2.delete(f"{server.address}/v1/clients?{query}"), "bad_request")


# --- tokens ---------------------------------------------------------------------------------------------------


def test_tokens(guarded, task):
    address, tokens = guarded
    asked = request(task, "a")
    for header in (None, "", "Bearer", "Bearer x", f"Basic {tokens['a']}", f"Bearer {tokens['a']}x", "Bearer é"):
        answer = post(address, asked, **({} if header is None else {"Authorization": header.encode()}))
        refused(answer, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
    for name in ("b", "admin"):  # forged names: the token of another
        refused(post(address, asked, Authorization=f"Bearer {tokens[name]}"), "forbidden")
    refused(post(address, request(task, "b"), Authorization=f"Bearer {tokens['revoked']}"), "unauthorized")
    assert post(address, asked, Authorization=f"Bearer {tokens['a']}").status_code == 200
    for path in ("/v1/clients", "/metrics"):
        refused(httpx2.get(f"{address}{path}", headers={"Authorization": f"Bearer {tokens['a']}"}), "forbidden")
        assert httpx2.get(f"{address}{path}", headers={"Authorization": f"Bearer {tokens['admin']}"}).status_code == 200


def test_downloads_name_nobody(guarded, task):
    address, tokens = guarded
    for name in ("a", "b"):
        answer = post(address, request(task, name, seed=9, version=9), Authorization=f"Bearer {tokens[name]}")
        assert answer.status_code == 200
    reply = unpack(answer.content, SyncReply)
    assert {block.name for block in reply.download} == {"vectors", "entropy", "valid"}


# --- anything ---------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_of_a_message_is_answered(server, task, data):
    body = bytearray(pack(request(task, "fuzz", data.draw(st.integers(1, 9)), base=data.draw(st.sampled_from([0, 3])))))
    for place, value in data.draw(st.lists(st.tuples(st.integers(0, len(body) - 1), st.integers(0, 255)), max_size=6)):
        body[place] = value
    answer = post(server.address, bytes(body[: data.draw(st.integers(0, len(body)))] or b"x"))
    assert answer.status_code < 500, answer.text


def test_an_abusive_client_is_slowed_down_alone(task, tmp_path):
    """After its allowance, a client gets 429 with the time to wait; another one is served."""
    with closing(TokenFile(tmp_path)) as file:
        keys = {}
        for client in ("good", "abusive"):
            keys[client], stored = new_token(client)
            file.add(stored)
    with serving(task, tmp_path, access=Access(rate=RequestRate(1.0, 3))) as running:
        head = {client: {"Authorization": f"Bearer {key}"} for client, key in keys.items()}
        answers = [httpx2.get(f"{running.address}/v1/task", headers=head["abusive"]) for _ in range(6)]
        late = [answer for answer in answers if answer.status_code != 200]
        assert late
        for answer in late:
            refused(answer, "too_many_requests")
            assert int(answer.headers["retry-after"]) >= 1
        assert httpx2.get(f"{running.address}/v1/task", headers=head["good"]).status_code == 200


def test_the_openapi_document_is_the_code(server):
    document = json.loads(httpx2.get(f"{server.address}/v1/openapi.json").content)
    assert document["openapi"] == "3.1.0"
    for path, operations in document["paths"].items():
        for method in operations:
            with httpx2.stream(method.upper(), f"{server.address}{path}") as answer:  # one of them has no end
                assert str(answer.status_code) in operations[method]["responses"], (method, path)
