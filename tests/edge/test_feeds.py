"""Pictures arrive in folders and lists: each comes once, when it is complete, and a share may take its time."""

import os
import threading
import time
from pathlib import Path

import pytest

from latte.edge.classify.classify import absolute_name
from latte.edge.device import feeds
from latte.edge.device import watch as watch_folder
from latte.edge.device.feeds import LatestFrames, NamedFiles, PictureFeed, WatchedFolder
from latte.edge.device.record import Source
from latte.edge.device.watch import FolderWatch, file_source
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
    monkeypatch.setattr("latte.edge.device.feeds.HEARD_SECONDS", 0.0)
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


# --- folders that go away, and errors that pass ------------------------------------------------------------------


class Watching:
    """A watched folder, and what has ``come`` from it."""

    def __init__(self, folder, prepare=prepare, settled=0.05, is_done=never):
        self.place = WatchedFolder(FolderWatch(folder, is_done, settled), every=0.02)
        self.feed = PictureFeed(self.place, prepare)
        self.arrivals, self.come = iter(self.feed), []

    def step(self):
        arrival = next(self.arrivals)
        self.come += [arrival] if arrival is not None else []
        return arrival

    def until(self, count, what):
        wait_until(lambda: self.step() is None and len(self.come) >= count, what)

    def names(self):
        return sorted(names([arrival.source for arrival in self.come]))


def failing(monkeypatch, folder, error):
    """Let everything below a folder fail."""

    def fails(really):
        def call(path, *rest, **more):
            if str(path).startswith(str(folder)):
                raise error
            return really(path, *rest, **more)

        return call

    for name in ("scandir", "stat", "lstat", "open"):
        monkeypatch.setattr(os, name, fails(getattr(os, name)))


def read(path):
    with os.fdopen(os.open(path, os.O_RDONLY)) as file:
        return file.read()


@pytest.mark.parametrize("way", ["renamed", "empty", 5, 107, 116])  # EIO, ENOTCONN, ESTALE
def test_pictures_of_a_folder_that_was_away_come_when_it_is_back(tmp_path, monkeypatch, way):
    """Their names wait in the queue as the folder goes."""
    monkeypatch.setattr(feeds, "HEARD_SECONDS", 0.1)
    folder = tmp_path / "share"
    for number in range(40):
        write(folder / f"{number:02}.png")
    watching = Watching(folder, read)
    wait_until(lambda: watching.step() and watching.place.waiting > 20, "names in the queue")
    if isinstance(way, int):
        failing(monkeypatch, folder, OSError(way, os.strerror(way), str(folder)))
    else:
        folder.rename(tmp_path / "gone")
        if way == "empty":
            folder.mkdir()
    wait_until(lambda: watching.step() is None and not watching.place.waiting, "the end of the queue")
    wait_until(lambda: watching.step() is None and (watching.place.problem or way == "empty"), "the problem")
    assert len(watching.come) < 40
    monkeypatch.undo()
    if not isinstance(way, int):
        folder.rmdir() if way == "empty" else None
        (tmp_path / "gone").rename(folder)
    wait_until(lambda: watching.step() is None and len(set(watching.names())) == 40, "all pictures")
    assert set(watching.names()) == {f"{number:02}.png" for number in range(40)}  # the record knows those that it has
    assert all(arrival.picture == "whole" for arrival in watching.come) and not watching.place.problem
    watching.feed.close()


def test_a_file_that_may_not_be_read_is_tried_again(tmp_path, monkeypatch):
    clock, tries = Clock(monkeypatch), []
    locked = OSError(13, "Permission denied")

    def prepare(path):
        tries.append(clock.now)
        raise locked

    path = write(tmp_path / "a.png")
    watch = FolderWatch(tmp_path, never)
    place = WatchedFolder(watch)
    given = watch.look()
    begin = clock.now
    while given and (arrival := place.read(given[0], prepare)) is None:
        while not (given := watch.look()):
            clock.now += 0.5
    assert [round(at - begin) for at in tries] == [0, 1, 3, 7, 15, 31, 63, 127], "ever more seldom"
    assert arrival.source == Source(str(path)) and arrival.picture.passing, "of no version: the next start tries again"
    assert "Permission denied" in str(arrival.picture)
    assert watch.look() == []
    for _ in range(3):
        clock.now += 3600.0
        (again,) = watch.look()
        assert place.read(again, prepare) is None, "it was reported"
    assert [clock.now - at for at in tries[-3:]] == [7200.0, 3600.0, 0.0] and watch.look() == []
    watch._files[str(path)].tries = 1024  # after six weeks
    clock.now += 3600.0
    assert place.read(watch.look()[0], prepare) is None
    watch.forget(str(path))
    watch.look()
    clock.now += watch_folder.SETTLED_SECONDS
    assert names(watch.look()) == ["a.png"], "after latte edge retry"


def test_memory_that_runs_out_and_a_disk_that_fails_are_no_fault_of_the_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(feeds, "_TICK", 0.0)
    problems = iter([MemoryError(), OSError(5, "Input/output error"), None])

    def prepare(path):
        if error := next(problems):
            raise error
        return "whole"

    place = NamedFiles([write(tmp_path / "a.png")], never)
    (file,) = place
    assert place.read(file, prepare).picture == "whole" and not place.failed
    problems = iter([MemoryError()] * feeds.NAMED_TRIES)
    arrival = place.read(file, prepare)
    assert arrival.picture.passing and arrival.source == Source(str(file)) and place.failed == 1


def test_open_picture_tells_what_may_pass_from_what_is_in_the_file(tmp_path, monkeypatch):
    from latte.encoders import open_picture, pictures

    path = write(tmp_path / "a.png")
    with pytest.raises(BadImageError) as rubbish:
        open_picture(path)
    assert not rubbish.value.passing
    with pytest.raises(BadImageError) as missing:
        open_picture(tmp_path / "b.png")
    assert not missing.value.passing
    failing(monkeypatch, path, PermissionError(13, "Permission denied"))
    with pytest.raises(BadImageError, match="Permission denied") as locked:
        open_picture(path)
    assert locked.value.passing
    monkeypatch.undo()
    monkeypatch.setattr(pictures, "_open_header", lambda *_: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(BadImageError, match="not enough memory") as full:
        open_picture(path)
    assert full.value.passing


def test_a_file_that_may_be_read_again_is_noticed(tmp_path):
    """The system tells of a changed permission, long after the device has given up."""
    path, may = write(tmp_path / "a.png"), []

    def prepare(path):
        if not may:
            raise PermissionError(13, "Permission denied")
        return "whole"

    watching = Watching(tmp_path, prepare)
    watch = watching.place._watch
    if not watch.hears_all:
        pytest.skip("needs a file system whose events are heard")
    wait_until(lambda: watching.step() is None and watch._files, "the first try")
    with watch._lock:
        watch._files[str(path)].tries = watch_folder.MOST_TRIES - 1
    wait_until(lambda: watching.step(), "the end of the tries")
    may.append(True)
    path.chmod(0o640)
    wait_until(lambda: watching.step(), "the picture")
    assert [isinstance(arrival.picture, BadImageError) for arrival in watching.come] == [True, False]
    watching.feed.close()


# --- what must not end the watching -------------------------------------------------------------------------------


@pytest.mark.parametrize("year", [1500, 2262, 2400, 9999])
def test_a_file_of_any_date_is_a_picture(tmp_path, year):
    from devices import small_task
    from latte.edge.classify.classify import Answer
    from latte.edge.device.record import DeviceRecord

    path = write(tmp_path / "a.png")
    try:
        os.utime(path, ((year - 1970) * 31_556_952,) * 2)
    except OSError:
        pytest.skip("a file system without such dates")
    record = DeviceRecord(tmp_path / "state", small_task().fingerprint)
    watch = FolderWatch(tmp_path, record.is_done)
    for source in watch.look() or [file_source(path)]:
        record.add(source, Answer(source.name, "cat"), None)
        record.flush()
    record.close()
    record = DeviceRecord(tmp_path / "state", small_task().fingerprint)
    assert record.is_done(file_source(path)) and FolderWatch(tmp_path, record.is_done, 0.0).look() == []
    record.close()


def test_dates_beyond_64_bits_are_the_last_of_64_bits(tmp_path, monkeypatch):
    really = tmp_path.stat()

    class Stat:
        st_mtime_ns, st_size, st_mode = 2**70, 3, really.st_mode

    monkeypatch.setattr(os, "stat", lambda path: Stat)
    assert file_source("a.png").modified == 2**63 - 1


def test_folders_in_folders_in_folders(tmp_path):
    """Deeper than Python's recursion; names longer than the system takes are a problem, and the rest goes on."""
    path, deep = write(tmp_path / "a.png"), tmp_path
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    deep = write(tmp_path.joinpath(*["d"] * 1050) / "b.png")
    watch = FolderWatch(tmp_path, never, 0.0)
    assert sorted(names(watch.look())) == ["a.png", "b.png"] and path.exists() and deep.exists()
    here = tmp_path / "d"
    os.chdir(tmp_path)  # shutil.rmtree of pytest would recurse
    import subprocess

    subprocess.run(["rm", "-rf", str(here)], check=True)


def test_whatever_goes_wrong_with_a_look_is_said_and_the_watching_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(feeds, "HEARD_SECONDS", 0.0)
    write(tmp_path / "a.png")
    watching = Watching(tmp_path)
    wait_until(watching.step, "the first picture")
    really = watching.place._watch.look

    def broken():
        raise RecursionError("too deep")

    monkeypatch.setattr(watching.place._watch, "look", broken)
    wait_until(lambda: watching.step() is None and "RecursionError: too deep" in watching.place.problem, "the problem")
    monkeypatch.setattr(watching.place._watch, "look", really)
    write(tmp_path / "b.png")
    watching.until(2, "the second picture")
    wait_until(lambda: watching.step() is None and not watching.place.problem, "the end of the problem")
    watching.feed.close()


def test_a_share_that_never_answers_is_a_problem_until_it_does(tmp_path, monkeypatch):
    """A look at a hard-mounted share that is away neither fails nor returns; nor does reading a file there."""
    monkeypatch.setattr(feeds, "HEARD_SECONDS", 0.0)
    monkeypatch.setattr(feeds, "SLOW_SECONDS", 0.5)
    write(tmp_path / "a.png")
    watching = Watching(tmp_path)
    wait_until(watching.step, "the first picture")
    really, back = watching.place._watch.look, threading.Event()

    def away():
        back.wait()
        return really()

    monkeypatch.setattr(watching.place._watch, "look", away)
    wait_until(lambda: watching.step() is None and "no answer from this folder" in watching.feed.problem, "the problem")
    assert str(tmp_path) in watching.feed.problem
    write(tmp_path / "b.png")
    back.set()
    watching.until(2, "the second picture")
    assert not watching.feed.problem
    watching.feed.close()


@pytest.mark.parametrize("watched", [True, False])
def test_a_file_that_is_never_read_is_a_problem_until_it_is(tmp_path, monkeypatch, watched):
    monkeypatch.setattr(feeds, "SLOW_SECONDS", 0.5)
    path, back = write(tmp_path / "a.png"), threading.Event()
    place = WatchedFolder(FolderWatch(tmp_path, never)) if watched else NamedFiles([path], never)

    def slow(path):
        back.wait()
        return prepare(path)

    feed = PictureFeed(place, slow)
    arrivals = iter(feed)
    wait_until(lambda: next(arrivals) is None and feed.problem, "the problem")
    assert feed.problem.startswith(f"{path}: not read after")
    back.set()
    wait_until(lambda: next(arrivals), "the picture")
    assert not feed.problem
    feed.close()


def test_a_full_queue_is_no_problem(tmp_path, monkeypatch):
    monkeypatch.setattr(feeds, "SLOW_SECONDS", 0.2)
    for number in range(20):
        write(tmp_path / f"{number}.png")
    place = WatchedFolder(FolderWatch(tmp_path, never), room=2)
    feed = PictureFeed(place, prepare, ahead=2)
    arrivals = iter(feed)
    assert wait_until(lambda: next(arrivals), "the first picture")
    late = time.monotonic() + 3 * feeds.SLOW_SECONDS  # nobody takes the next one
    wait_until(lambda: feed.problem or time.monotonic() > late, "a problem, or that there is none")
    assert not feed.problem
    feed.close()


# --- what the system tells -----------------------------------------------------------------------------------------


def test_a_picture_in_a_large_folder_comes_at_once(tmp_path, monkeypatch):
    """Looking takes its time; the system tells of the new file, of one in a new folder, and of one that was moved."""
    monkeypatch.setattr(feeds, "HEARD_SECONDS", 3600.0)
    folder = tmp_path / "in"
    for number in range(3000):
        (folder / f"{number % 30}").mkdir(parents=True, exist_ok=True)
        (folder / f"{number % 30}" / f"{number}.png").touch()
    watching = Watching(folder, settled=0.3, is_done=lambda source: source.size == 0)
    wait_until(lambda: watching.step() is None and watching.place._watch._files, "the first look")
    if not watching.place._watch.hears_all:
        pytest.skip("needs a file system whose events are heard")
    write(folder / "a.png")
    watching.until(1, "a new file")
    write(folder / "new" / "newer" / "b.png")
    watching.until(2, "a file in a new folder")
    write(folder / "new" / "newer" / "c.png")
    watching.until(3, "another one there")
    write(tmp_path / "d.png").rename(folder / "7" / "d.png")
    watching.until(4, "a file that was moved")
    write(folder / ".hidden.png")
    write(folder / "e.txt")
    write(folder / ".hidden" / "f.png")
    write(folder / "g.png")
    watching.until(5, "the last one")
    assert watching.names() == ["a.png", "b.png", "c.png", "d.png", "g.png"]
    watching.feed.close()


def test_without_events_and_on_a_share_the_folder_is_looked_at_often(tmp_path, monkeypatch):
    monkeypatch.setattr(feeds, "HEARD_SECONDS", 3600.0)
    monkeypatch.setattr(watch_folder.FolderEvents, "open", lambda: None)
    (tmp_path / "in").mkdir()
    watching = Watching(tmp_path / "in")
    assert watching.step() is None
    write(tmp_path / "in" / "sub" / "a.png")
    wait_until(watching.step, "the picture")
    assert not watching.place._watch.hears_all
    watching.feed.close()
    monkeypatch.undo()
    monkeypatch.setattr(watch_folder, "_LOCAL", ())  # a share
    assert not FolderWatch(tmp_path, never).hears_all


def test_heic_files_are_named_once_where_nothing_reads_them(tmp_path, monkeypatch):
    monkeypatch.setattr(watch_folder, "PICTURE_SUFFIXES", frozenset({".png"}))
    write(tmp_path / "a.png")
    write(tmp_path / "b.HEIC")
    watching = Watching(tmp_path)
    wait_until(watching.step, "the picture")
    assert "b.HEIC is left out" in watching.place.notice and "pillow-heif" in watching.place.notice
    assert watching.names() == ["a.png"] and not watching.place.problem
    watching.feed.close()


def test_heic_pictures_are_read_where_the_package_is_there(tmp_path, monkeypatch):
    heif = pytest.importorskip("pillow_heif")
    from PIL import Image

    from latte.encoders import open_picture, pictures

    heif.register_heif_opener()
    path = tmp_path / "a.heic"
    Image.new("RGB", (40, 30), (200, 10, 10)).save(path)
    assert open_picture(path).size == (40, 30) and ".heic" in pictures.PICTURE_SUFFIXES
    monkeypatch.setattr(pictures, "_READS_HEIC", False)
    with pytest.raises(BadImageError, match="pillow-heif"):
        open_picture(path)
