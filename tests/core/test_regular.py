"""Files that somebody names: only regular ones are read."""

import os
import socket

import pytest

from latte.core.regular import UnfitFileError, check_regular, read_bytes, read_text

pytestmark = pytest.mark.skipif(os.name != "posix", reason="FIFOs and devices")


@pytest.fixture(params=["FIFO", "device", "folder", "socket"])
def special(request, tmp_path):
    path = tmp_path / "x.png"
    if request.param == "FIFO":
        os.mkfifo(path)
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    elif request.param == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.relpath(path))
    return path, request.param


def test_special_files_are_refused_at_once(special):
    path, kind = special
    with pytest.raises((UnfitFileError, OSError)):
        read_bytes(path, 100)
    with pytest.raises(ValueError) as refused:
        read_text("list", path, "text")
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)
    with pytest.raises(ValueError, match=f"is a {kind}, want a regular file"):
        check_regular("memory", path)


def test_special_files_are_no_pictures(special):
    pytest.importorskip("PIL")
    from latte.encoders.pictures import BadImageError, open_picture

    with pytest.raises(BadImageError) as refused:
        open_picture(special[0])
    assert str(special[0]) in str(refused.value)


def test_regular_files_are_read_up_to_a_size(tmp_path):
    path = tmp_path / "x"
    check_regular("x", path)  # not there: to be made
    path.write_bytes(b"\xef\xbb\xbfcat\n")
    check_regular("x", path)
    assert read_bytes(path, 7) == path.read_bytes() and read_text("list", path, "text") == "cat\n"
    with pytest.raises(UnfitFileError, match="7 bytes, want at most 6"):
        read_bytes(path, 6)
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="not UTF-8"):
        read_text("list", path, "text")
    with pytest.raises(ValueError, match="No such file"):
        read_text("list", tmp_path / "y", "text")
