"""Pictures arrive in folders and lists: each comes once, when it is complete, and a share may take its time."""

import os
import threading
import time
from pathlib import Path

import pytest

from latte.edge import feeds, watch_folder
from latte.edge.device_file import Source, absolute_name
from latte.edge.feeds import NamedFiles, PictureFeed, WatchedFolder
from latte.edge.latest_frames import LatestFrames
from latte.edge.watch_folder import FolderWatch, file_source, file_source
from latte.encoders import BadImageError
from waiting import wait_until

LONG_AGO = (1_700_000_000,) * 2


def write(path, content="whole", old=True):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    if old:
        os.utime(path, LONG_AGO)
    return path


def prepare(path):
    """A picture is complete when it says so."""
    content = path.read_text()
    if content != "whole":
        raise BadImageError(f"{path}: not a picture")
    return content


def never(source):
    return False


class Clock:
    """The monotonic clock of the watch, moved by hand."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(watch_folder.time, "monotonic", lambda: self.now)


def names(sources):
    return [source.name.rpartition("/")[2] for source in sources]


def test_a_backlog_is_ready_at_once_and_each_picture_comes_once(tmp_path):
    for number, name in enumerate(("b.png", "a.jpg", "deep/er/c.gif")):
        write(tmp_path / name)
        os.utime(tmp_path / name, (LONG_AGO[0] + number,) * 2)
    for name in (".hidden.png", ".hidden/d.png", "notes.txt"):
        write(tmp_path / name)
    watch = FolderWatch(tmp_path, lambda source: source.name.endswith("a.jpg"))
    assert names(watch.look()) == ["b.png", "c.gif"], "the oldest first, and none that is done"
    assert watch.look() == []


def test_a_picture_that_grows_is_waited_for(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    watch = FolderWatch(tmp_path, never)
    assert watch.look() == []
    for content in ("w", "who", "whole"):
        write(tmp_path / "a.png", content, old=False)
        assert watch.look() == []
        clock.now += 0.9
    assert watch.look() == []
    clock.now += 0.2
    assert names(watch.look()) == ["a.png"]


def test_the_clock_of_a_share_does_not_matter(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    watch = FolderWatch(tmp_path, never)
    watch.look()
    write(tmp_path / "past.png")  # it is being written now, and its time is of years ago
    write(tmp_path / "future.png")
    os.utime(tmp_path / "future.png", (4_000_000_000,) * 2)
    assert watch.look() == []
    clock.now += watch_folder.SETTLED_SECONDS
    assert names(watch.look()) == ["past.png", "future.png"]


def test_an_unreadable_picture_is_given_back_until_it_has_been_quiet_for_long(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    watch = FolderWatch(tmp_path, never)
    watch.look()
    write(tmp_path / "a.png", "half")
    watch.look()
    clock.now += watch_folder.SETTLED_SECONDS
    (source,) = watch.look()
    assert watch.give_back(source) and watch.look() == [], "not at once"
    clock.now += 0.5
    assert watch.look() == [source], "it comes again"
    clock.now += watch_folder.WRITING_PATIENCE
    assert not watch.give_back(source) and watch.look() == [], "nobody writes it any more"
    write(tmp_path / "a.png")
    watch.look()
    clock.now += watch_folder.SETTLED_SECONDS
    assert names(watch.look()) == ["a.png"], "another content is another picture"
    (tmp_path / "a.png").unlink()
    watch.look()
    assert watch.give_back(source), "a picture that is gone is no problem"


def test_a_watched_folder_yields_what_arrives(tmp_path):
    write(tmp_path / "a.png")
    write(tmp_path / "bad.png", "rubbish")
    feed = PictureFeed(WatchedFolder(FolderWatch(tmp_path, never, settled=0.0), every=0.01), prepare)
    arrivals = (arrival for arrival in feed if arrival is not None)
    first, second = next(arrivals), next(arrivals)
    assert names([first.source, second.source]) == ["a.png", "bad.png"]
    assert first.picture == "whole" and isinstance(second.picture, BadImageError)
    write(tmp_path / "c.png")
    assert names([next(arrivals).source]) == ["c.png"]
    feed.close()


def test_a_share_that_hangs_keeps_nobody_from_what_is_there(tmp_path, monkeypatch):
    """The folder is listed once; the second look hangs. All pictures of the first one come, and then ticks."""
    for number in range(10):
        write(tmp_path / f"{number}.png")
    hangs, looks = threading.Event(), []
    listed = [file_source(path) for path in tmp_path.iterdir()]

    def slow(watch, folder, complain):
        looks.append(folder)
        if len(looks) > 1:
            hangs.wait()
        return listed

    monkeypatch.setattr(FolderWatch, "_below", slow)
    monkeypatch.setattr("latte.edge.feeds.HEARD_SECONDS", 0.0)
    feed = PictureFeed(WatchedFolder(FolderWatch(tmp_path, never), every=0.0), prepare)
    arrivals = iter(feed)
    came = [next(arrivals) for _ in range(10)]
    assert len({arrival.source for arrival in came if arrival}) == 10 - came.count(None)
    while len(looks) < 2:  # the feed has limited room: it looks again once this is taken
        next(arrivals)
    while next(arrivals) is not None:
        pass
    hangs.set()
    feed.close()


def test_a_folder_that_cannot_be_read_is_a_problem_until_it_is_back(tmp_path):
    folder = tmp_path / "share"
    folder.mkdir()
    place = WatchedFolder(FolderWatch(folder, never), every=0.01)
    feed = PictureFeed(place, prepare)
    arrivals = iter(feed)
    folder.rmdir()
    wait_until(lambda: next(arrivals) is None and place.problem, "the problem")
    assert "share: No such file" in place.problem
    write(folder / "a.png")
    arrival = wait_until(lambda: next(arrivals), "the picture")
    assert names([arrival.source]) == ["a.png"] and not place.problem
    feed.close()


def test_what_cannot_be_looked_at_is_left_out_and_named(tmp_path, monkeypatch):
    for name in ("a.png", "locked/b.png", "c.png"):
        write(tmp_path / name)
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    scandir = os.scandir

    def refuse_locked(folder):
        if str(folder).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(watch_folder.os, "scandir", refuse_locked)
    watch = FolderWatch(tmp_path, never)
    assert sorted(names(watch.look())) == ["a.png", "c.png"]
    assert "locked: Permission denied" in watch.problem or "loop.png: Too many levels" in watch.problem
    monkeypatch.undo()
    (tmp_path / "loop.png").unlink()
    watch.look()
    assert watch.problem == ""


def test_a_picture_that_is_deleted_while_it_waits_is_not_unreadable(tmp_path):
    path = write(tmp_path / "a.png")
    watch = FolderWatch(tmp_path, never)
    place = WatchedFolder(watch)
    (source,) = watch.look()
    path.unlink()
    assert place.read(source, prepare) is None


def test_a_name_with_a_nul_byte_is_unreadable(tmp_path):
    place = NamedFiles([], never)
    arrival = place.read(tmp_path / "a\0b.png", prepare)
    assert isinstance(arrival.picture, BadImageError) and "null byte" in str(arrival.picture)


def test_a_camera_that_fails_is_heard_of_after_its_frames():
    def camera():
        yield from range(2)
        raise OSError("unplugged")

    frames = iter(LatestFrames(camera()))
    assert [next(frames), next(frames)] == [0, 1]
    with pytest.raises(OSError, match="unplugged"):
        next(frames)


def test_a_file_has_one_name_from_wherever_it_is_named(tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    (tmp_path / "other" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "other" / "deep")
    picture = write(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path / "inner")
    assert absolute_name(Path("../a.png")) == str(picture)
    monkeypatch.chdir(tmp_path)
    assert absolute_name(Path("a.png")) == absolute_name(Path("inner/../a.png")) == str(picture)
    assert absolute_name(Path("link/../b.png")) == str(tmp_path / "other" / "b.png"), "as the system reads it"
    assert absolute_name(Path("link/b.png")) == str(tmp_path / "link" / "b.png"), "a link stays"


def test_names_wait_in_a_queue_of_limited_room(tmp_path):
    for number in range(50):
        write(tmp_path / f"{number:02}.png")
    feed = PictureFeed(WatchedFolder(FolderWatch(tmp_path, never), every=0.01, room=3), prepare, ahead=2)
    arrivals = (arrival for arrival in feed if arrival is not None)
    came = [next(arrivals)]
    wait_until(lambda: feed.waiting == 5, "full queues")
    came += [next(arrivals) for _ in range(49)]
    assert names(arrival.source for arrival in came) == [f"{number:02}.png" for number in range(50)], "none is dropped"
    feed.close()


def test_named_files_skip_what_is_done_and_report_what_is_missing(tmp_path):
    done, new = write(tmp_path / "done.png"), write(tmp_path / "new.png")
    files = NamedFiles([done, tmp_path / "missing.png", new], lambda source: source == file_source(done))
    missing, good = [arrival for arrival in PictureFeed(files, prepare) if arrival is not None]
    assert missing.source == Source(str(tmp_path / "missing.png")) and "No such file" in str(missing.picture)
    assert good.picture == "whole" and files.skipped == 1


def test_a_named_file_that_is_being_written_is_waited_for(tmp_path, monkeypatch):
    path, reads = write(tmp_path / "a.png", "half", old=False), []

    def read(place):
        reads.append(place)
        if len(reads) == 3:
            write(path, "whole", old=False)
        return prepare(place)

    feed = PictureFeed(NamedFiles([path], never), read)
    (arrival,) = [arrival for arrival in feed if arrival is not None]
    assert arrival.picture == "whole" and arrival.source == file_source(path)


def test_a_named_file_that_stays_unreadable_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(feeds, "WRITING_PATIENCE", 0.3)
    path = write(tmp_path / "a.png", "half", old=False)
    (arrival,) = [arrival for arrival in PictureFeed(NamedFiles([path], never), prepare) if arrival is not None]
    assert isinstance(arrival.picture, BadImageError)
    before = time.monotonic()
    write(path, "rubbish")
    next(iter(PictureFeed(NamedFiles([path], never), prepare)))
    assert time.monotonic() - before < feeds.WRITING_PATIENCE * 1000, "one that is old is not waited for"


def test_an_error_of_the_reading_thread_reaches_who_asks():
    feed = PictureFeed(NamedFiles([None], never), prepare)
    with pytest.raises(TypeError):
        list(feed)
