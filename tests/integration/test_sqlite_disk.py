"""SQLite's file: it is not worked on when it has left its place, nor where locks have no effect."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conformance.store.builders import http
from noonbell.errors import StoreUnavailable
from noonbell.stores import open_store
from noonbell.stores.sqlite import check_file_system, file_system_of, locks_hold


@pytest.mark.parametrize("part", ["", "-wal"])
async def test_nothing_is_acknowledged_once_the_file_is_gone(tmp_path: Path, part: str):
    file = tmp_path / "bell.db"
    store = open_store(f"sqlite:///{file}")
    await store.open()
    try:
        await store.create_task(http("before"))
        place, aside = Path(f"{file}{part}"), tmp_path / "aside"
        os.replace(place, aside)  # noqa: PTH105
        with pytest.raises(StoreUnavailable, match=f"{place.name} was deleted while it was open"):
            await store.create_task(http("lost"))
        with pytest.raises(StoreUnavailable, match="was deleted"):
            await store.task_named("before")
        aside.rename(place)
        await store.create_task(http("after"))
    finally:
        await store.close()
    with sqlite3.connect(file) as found:
        assert found.execute("select name from tasks order by name").fetchall() == [("after",), ("before",)]


async def test_a_file_that_was_replaced_by_a_copy_is_not_worked_on(tmp_path: Path):
    file = tmp_path / "bell.db"
    store = open_store(f"sqlite:///{file}")
    await store.open()
    try:
        shutil.copy(file, tmp_path / "copy")
        (tmp_path / "copy").rename(file)
        with pytest.raises(StoreUnavailable, match=r"bell\.db was replaced by another file while it was open"):
            await store.create_task(http("lost"))
    finally:
        await store.close()


async def test_the_lock_of_one_thread_outlives_the_making_of_the_file_by_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The thread that makes the file is held up before it closes its descriptor, which ends the locks of all threads."""
    close = os.close

    def close_late(descriptor: int) -> None:
        time.sleep(0.2)
        close(descriptor)

    monkeypatch.setattr(os, "close", close_late)
    file = tmp_path / "bell.db"
    store = open_store(f"sqlite:///{file}")
    await store.open()
    monkeypatch.undo()
    try:
        await store.create_task(http("before"))
        # Another process that opens the file and closes it clears the log away if it finds no lock.
        look = "import sqlite3, sys; f = sqlite3.connect(sys.argv[1]); f.execute('select * from tasks').fetchall(); f.close()"
        subprocess.run([sys.executable, "-c", look, str(file)], check=True)  # noqa: ASYNC221
        await store.create_task(http("after"))
    finally:
        await store.close()


_WITHOUT_LOCKS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
static int none(const char *name, int fd, int command, void *argument) {
    if (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW) return 0;
    return ((int (*)(int, int, void *))dlsym(RTLD_NEXT, name))(fd, command, argument);
}
#define LIKE(name) int name(int fd, int command, ...) { \\
    va_list all; va_start(all, command); void *argument = va_arg(all, void *); va_end(all); \\
    return none(#name, fd, command, argument); }
LIKE(fcntl)
LIKE(fcntl64)
"""


def test_a_file_system_whose_locks_have_no_effect_is_refused(tmp_path: Path):
    """Every lock of the process is granted, as on such a file system, by a library that is loaded before all others."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler on Linux")
    source, library = tmp_path / "without.c", tmp_path / "without.so"
    source.write_text(_WITHOUT_LOCKS)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, capture_output=True)
    file = tmp_path / "bell.db"
    command = [str(Path(sys.executable).with_name("noonbell")), "migrate", "--store", f"sqlite:///{file}"]
    done = subprocess.run(
        command,
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 8, done.stdout + done.stderr
    assert "locks have no effect on the file system" in done.stderr
    assert not file.exists()


def test_the_probe_leaves_nothing_behind_where_locks_hold(tmp_path: Path):
    assert locks_hold(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_left_to_sqlite(tmp_path: Path):
    check_file_system(str(tmp_path / "none" / "bell.db"))


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="needs /proc of Linux")
def test_the_kind_of_a_file_system_is_read_from_its_mount():
    assert file_system_of(Path("/proc")) == "proc"


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"])
def test_a_network_file_system_is_refused_unless_the_operator_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    device = tmp_path.stat().st_dev
    mount = f"36 35 {os.major(device)}:{os.minor(device)} / {tmp_path} rw - {kind} server:/share rw\n"
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path: mount if str(path).startswith("/proc") else read(path))
    with pytest.raises(StoreUnavailable, match=rf"network file system \({kind}\).*store\.network_disk"):
        check_file_system(str(tmp_path / "bell.db"))
    check_file_system(str(tmp_path / "bell.db"), network_disk=True)
