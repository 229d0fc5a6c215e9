"""Files that somebody names: only regular ones are read."""

import os
import socket

import pytest

from latte.files.documents import check_regular, read_bytes, read_text

pytestmark = pytest.mark.skipif(os.name != "posix", reason="FIFOs and devices")


@pytest.fixture(params=["FIFO", "device", "folder", "socket"])
def special(request, tmp_path, monkeypatch):
    path = tmp_path / "x.png"
    if request.param == "FIFO":
        os.mkfifo(path)
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    elif request.param == "folder":
        path.mkdir()
    else:
        monkeypatch.chdir(tmp_path)  # the path of a socket is short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    return path, request.param


def test_special_files_are_refused_at_once(special):
    path, kind = special
    for read in (read_bytes, read_text):
        with pytest.raises(ValueError) as refused:
            read(path, "list")
        assert str(path) in str(refused.value) and "\n" not in str(refused.value)
    with pytest.raises(ValueError, match=f"which is a {kind}, want a regular file"):
        check_regular(path, "memory")


def test_special_files_are_no_pictures(special):
    pytest.importorskip("PIL")
    from latte.encoders.pictures import BadImageError, open_picture

    with pytest.raises(BadImageError) as refused:
        open_picture(special[0])
    assert str(special[0]) in str(refused.value)


def test_regular_files_are_read_up_to_a_size(tmp_path):
    path = tmp_path / "x"
    check_regular(path)  # not there: to be made
    path.write_bytes(b"\xef\xbb\xbfcat\n")
    check_regular(path)
    assert read_bytes(path, most=7) == path.read_bytes() and read_text(path) == "cat\n"
    with pytest.raises(ValueError, match="7 bytes, want at most 6"):
        read_bytes(path, most=6)
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="not UTF-8"):
        read_text(path)
    with pytest.raises(ValueError, match="not there"):
        read_text(tmp_path / "y")
