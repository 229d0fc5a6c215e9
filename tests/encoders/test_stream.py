"""Files to embeddings in batches: order, bad files, resuming to the same bytes, and the ordered map below it."""

import threading

import numpy as np
import pytest

from latte.encoders import BadImageError
from latte.encoders.base import encode_files, map_in_order
from tiny_models import make_photo

pytest.importorskip("onnxruntime")


@pytest.fixture
def files(tmp_path):
    paths = []
    for number in range(11):
        paths.append(tmp_path / f"{number}.jpg")
        make_photo(10 + 5 * number, 40).save(paths[-1])
    return paths


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_same_as_all_at_once(tiny, files, workers):
    batches = list(encode_files(tiny, files, batch_size=4, workers=workers))
    assert [(batch.start, batch.stop) for batch in batches] == [(0, 4), (4, 8), (8, 11)]
    assert np.concatenate([batch.index for batch in batches]).tolist() == list(range(11))
    assert np.array_equal(np.concatenate([batch.rows for batch in batches]), tiny.images(files, batch_size=4))


def test_resuming_gives_the_same_bytes(tiny, files):
    files[2].write_bytes(b"broken")
    whole = b"".join(batch.rows.tobytes() for batch in encode_files(tiny, files, 3, skip_bad=True))
    for stop in (3, 6, 9):
        head = [batch for batch in encode_files(tiny, files, 3, skip_bad=True) if batch.stop <= stop]
        tail = list(encode_files(tiny, files, 3, skip_bad=True, start=stop))
        assert b"".join(batch.rows.tobytes() for batch in head + tail) == whole


def test_bad_files_are_listed_or_stop_everything(tiny, files):
    files[5].write_text("not a picture")
    batches = list(encode_files(tiny, files, 4, skip_bad=True))
    assert [number for number, _ in batches[1].bad] == [5] and "5.jpg" in batches[1].bad[0][1]
    assert batches[1].index.tolist() == [4, 6, 7]
    stream = encode_files(tiny, files, 4)
    assert next(stream).stop == 4
    with pytest.raises(BadImageError, match=r"5\.jpg"):
        next(stream)


def test_a_batch_of_bad_files_only_and_no_files_at_all(tiny, tmp_path):
    batch = next(encode_files(tiny, [tmp_path / "a", tmp_path / "b"], skip_bad=True))
    assert batch.rows.shape == (0, tiny.dim) and len(batch.bad) == 2
    assert list(encode_files(tiny, [])) == []


def test_the_map_keeps_the_order_and_does_not_run_far_ahead():
    started = []
    results = map_in_order(lambda job: (started.append(job), job)[1], iter(range(100)), workers=3, ahead=5)
    assert next(results) == 0
    assert max(started) <= 6
    assert list(results) == list(range(1, 100))


def test_the_map_stops_its_threads_when_left_early():
    results = map_in_order(abs, iter(range(1000)), workers=2)
    next(results)
    results.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("latte")]


def test_an_error_comes_at_its_place():
    results = map_in_order(lambda job: 1 // job, [1, 1, 0, 1], workers=2)
    assert [next(results), next(results)] == [1, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)
