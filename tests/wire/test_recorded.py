"""Old clients with this server and this client with old servers, by messages that were recorded."""

import json

import httpx2
import msgspec
import numpy as np
import pytest

from latte.edge.clients.calls import RefusedError
from latte.edge.clients.http import HttpExchange
from latte.wire.messages import MEDIA_TYPE
from latte.wire.task import parse_task
from playback import playing
from recorded_messages import FOLDER, METHODS, PRECISIONS, TASK, Call, OldClient, plain, read_conversation, talk
from serving import IMPATIENT, serving

FILES = sorted(FOLDER.glob("v*/*.json"))
TYPES = {"/v1/join": "application/json", "/v1/leave": "application/json"}
# Uploads that need not be the same bytes: the last bits of float64 sums depend on the processor, and the encoder of
# int4 may choose other scales.
LOOSE = {"exact": 1e-12, "int4": 0.3}
CLOSE = {"int8": 0.02, "int4": 0.3}  # a step of the rounding; the others are the same but for the last bits


@pytest.fixture(params=FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def recorded(request):
    """A conversation, and its precision."""
    return read_conversation(request.param), request.param.stem.rpartition("-")[2]


def task_of(calls):
    return parse_task(next(call.answer for call in calls if call.route == TASK))


def repeat(address, call):
    verb, _, path = call.route.partition(" ")
    headers = {"Content-Type": TYPES.get(path, MEDIA_TYPE)} if verb == "POST" else {}
    return httpx2.request(verb, f"{address}{path}", content=call.request, headers=headers)


def same_download(one, other, precision):
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype and one[name].shape == other[name].shape
        assert np.allclose(one[name], other[name], atol=CLOSE.get(precision, 1e-6)), name


def test_both_methods_in_all_precisions_were_recorded():
    names = {f"{method}-{precision}" for method in METHODS for precision in PRECISIONS}
    assert {path.stem for path in FOLDER.glob("v1/*.json")} == names


def test_an_old_client_understands_this_server(recorded, tmp_path):
    """Requests are sent as they were; the answers are read by code that knows nothing of this version."""
    calls, precision = recorded
    then, now = OldClient(), OldClient()
    with serving(task_of(calls), tmp_path) as server:
        for call in calls:
            answer = repeat(server.address, call)
            assert answer.status_code == call.status, (call.route, answer.text[:200])
            if call.route == TASK:
                assert answer.content == call.answer
            elif call.is_json:
                mine, theirs = answer.json(), json.loads(call.answer)
                texts = ("detail", "title")  # for people
                assert {key: mine[key] for key in theirs if key not in texts} == {
                    key: value for key, value in theirs.items() if key not in texts
                }
            else:
                mine, theirs = plain(answer.content), plain(call.answer)
                assert all(mine[key] == theirs[key] for key in ("task", "protocol", "version"))
                if theirs["download"] is not None:
                    same_download(now.read(mine), then.read(theirs), precision)


def test_this_client_understands_an_old_server(recorded):
    """The server plays what it answered then; it names no versions of the protocol, as early servers did not."""
    calls, precision = recorded
    reader = OldClient()
    expected = [reader.read(plain(call.answer)) for call in calls if plain_download(call)]
    with playing(calls) as server:
        with HttpExchange(server.address, precision=precision, connection=IMPATIENT) as http:
            downloads = talk(http, http.shared_task)
            assert http.leave("bob")
        asked = [(route, body) for route, body in server.asked if route != TASK]
    for download, arrays in zip(downloads, expected, strict=True):
        same_download({name: getattr(download, name) for name in arrays}, arrays, precision)
    sent = [
        call for call in calls if call.status == 200 and call.route not in (TASK, "GET /v1/whoami", "POST /v1/join")
    ]
    assert [route for route, _ in asked] == [call.route for call in sent]
    readers = {}
    for (route, body), call in zip(asked[:-1], sent[:-1], strict=True):
        mine, theirs = without_random(plain(body)), without_random(plain(call.request))
        if precision in LOOSE:  # what the rows say has to stay; in the others, every byte
            uploads = [one.pop("upload", None) for one in (mine, theirs)]
            assert (uploads[0] is None) == (uploads[1] is None), route
            if uploads[0] is not None:
                blocks = [[block[:4] for block in upload] for upload in uploads]  # name, type, shape, encoding
                assert blocks[0] == blocks[1], route
                pair = readers.setdefault(mine["client"], (OldClient(), OldClient()))  # rows that stayed are left out
                one, other = (reader.read({"download": upload}) for reader, upload in zip(pair, uploads, strict=True))
                assert one.keys() == other.keys()
                assert all(np.allclose(one[name], other[name], rtol=0, atol=LOOSE[precision]) for name in one), route
        assert mine == theirs, route


def plain_download(call):
    return not call.is_json and call.route != TASK and plain(call.answer)["download"] is not None


def without_random(message):
    """Return a request without what is drawn at random; of the rows that the client has, their number."""
    lists = [(have["array"], len(have["ids"])) for have in message["have"]]
    return {**{key: value for key, value in message.items() if key not in ("key", "have")}, "have": lists}


# --- later versions ------------------------------------------------------------------------------------------------


@pytest.fixture
def latte_calls():
    return read_conversation(FOLDER / "v1" / "latte-fp32.json")


def first(calls, route):
    return next(call for call in calls if call.route == route and call.status == 200)


def test_this_server_takes_fields_that_it_does_not_know(latte_calls, tmp_path):
    upload = first(latte_calls, "POST /v1/upload")
    message = plain(upload.request)
    message |= {"colour": {"of": ["a", 1]}, "report": {**message["report"], "mood": 0.5}}
    message["upload"] = [[*block, b"", "more"] for block in message["upload"]]  # a block with a seventh place
    with serving(task_of(latte_calls), tmp_path) as server:
        call = Call(upload.route, msgspec.msgpack.encode(message), 200, b"")
        assert repeat(server.address, call).status_code == 200
        joining = {**json.loads(first(latte_calls, "POST /v1/join").request), "colour": "red"}
        assert (
            repeat(server.address, Call("POST /v1/join", json.dumps(joining).encode(), 200, b"")).json()["version"] == 0
        )


def test_this_client_takes_fields_that_it_does_not_know(latte_calls):
    def with_more(call):
        if call.status != 200 or call.route == TASK:
            return call
        if call.is_json:
            return Call(call.route, call.request, 200, json.dumps({**json.loads(call.answer), "colour": 1}).encode())
        answer = {**plain(call.answer), "colour": [1, {"x": b"y"}]}
        return Call(call.route, call.request, 200, msgspec.msgpack.encode(answer))

    with playing(list(map(with_more, latte_calls)), Latte_Protocol="1, 2") as server:
        with HttpExchange(server.address, connection=IMPATIENT) as http:
            assert len(talk(http, http.shared_task)) == 4 and http.leave("bob")
        assert all(plain(body)["protocol"] == 1 for route, body in server.asked if route == "POST /v1/sync")


def test_a_task_file_with_a_field_that_is_not_known(latte_calls):
    content = first(latte_calls, TASK).answer
    place = content.index(b'\\"scale\\"')
    more = b'\\"colour\\": \\"red\\", '
    size = int.from_bytes(content[:8], "little")
    padded = content[8:place] + more + content[place : 8 + size]
    padded += b" " * (-len(padded) % 8)
    changed = len(padded).to_bytes(8, "little") + padded + content[8 + size :]
    assert parse_task(changed).fingerprint == parse_task(content).fingerprint
    with pytest.raises(ValueError, match="a newer latte wrote it"):
        parse_task(content.replace(b"latte-task/1", b"latte-task/2"))


@pytest.mark.parametrize("change", [{"protocol": 2}, {"protocol": 2, "version": "seven"}, {"protocol": 0}])
def test_this_server_refuses_another_version_with_a_code(latte_calls, tmp_path, change):
    upload = first(latte_calls, "POST /v1/upload")
    body = msgspec.msgpack.encode({**plain(upload.request), **change})
    with serving(task_of(latte_calls), tmp_path) as server:
        answer = repeat(server.address, Call(upload.route, body, 400, b""))
        document = answer.json()
        assert answer.status_code == 400 and answer.headers["content-type"] == "application/problem+json"
        assert document["code"] == "unsupported_protocol" and document["protocols"] == [1]
        for path in ("/readyz", "/v1/task", "/v1/whoami"):
            assert httpx2.get(f"{server.address}{path}").headers["Latte-Protocol"] == "1"


def test_this_client_says_what_to_upgrade(latte_calls):
    with playing(latte_calls, Latte_Protocol="2, 3") as server, pytest.raises(RefusedError) as caught:
        HttpExchange(server.address, connection=IMPATIENT)
    assert caught.value.code == "unsupported_protocol"
    assert "speaks protocol 2 and 3, this program 1: upgrade latte on this device" in str(caught.value)
    with playing(latte_calls, Latte_Protocol="0") as server, pytest.raises(RefusedError, match="latte on the server"):
        HttpExchange(server.address, connection=IMPATIENT)
    later = [
        call if call.route != "POST /v1/upload" else Call(call.route, b"", 200, msgspec.msgpack.encode({"protocol": 2}))
        for call in latte_calls
    ]
    with playing(later) as server, HttpExchange(server.address, connection=IMPATIENT) as http:
        task = http.shared_task
        with pytest.raises(RefusedError, match="protocol 2, this program 1"):
            talk(http, task)
