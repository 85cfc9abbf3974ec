"""What SQLite takes for granted of its file, and a file system may not give: that locks hold, and that the file stays
where it is.

locks without effect      two processes write at once, and the file is malformed within seconds: refused at the start a
network file system     locks may hold on this host and not on another: refused at the start, by its name deleted, or
replaced      the process goes on in a file that no other process sees and that is gone with it: each batch of calls
looks at the path before it begins and after its commit, and its callers get StoreUnavailable
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import struct
from pathlib import Path

from noonbell.errors import StoreUnavailable

_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|smb3|ncpfs|afs|coda|9p|lustre|glusterfs|fuse\.(sshfs|glusterfs|s3fs.*|rclone)"
)
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


def check_file_system(path: str, *, network_disk: bool = False) -> None:
    """StoreUnavailable where SQLite's file cannot be kept safe. `network_disk`: the operator says that one host uses it."""
    folder = Path(path).absolute().parent
    kind = "" if network_disk else file_system_of(folder)
    if _NETWORK.fullmatch(kind):
        raise StoreUnavailable(
            f"SQLite: {path} is on a network file system ({kind}), where two hosts may not see each other's locks: use a local disk,"
            " or PostgreSQL; store.network_disk: true if this host alone opens the file"
        )
    if not locks_hold(folder):
        raise StoreUnavailable(
            f"SQLite: locks have no effect on the file system of {path}{kind and f' ({kind})'}: two processes would destroy the file;"
            " use a local disk, or PostgreSQL"
        )


def file_system_of(folder: Path) -> str:
    """Its kind as Linux names it, such as ext4; empty where that is not known."""
    try:
        device = folder.stat().st_dev
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in reversed(lines):  # of several mounts in one place, the last is seen
        before, _, after = line.partition(" - ")
        if before.split()[2:3] == [number]:
            return after.split()[0]
    return ""


def locks_hold(folder: Path) -> bool:
    """Whether a lock that is held keeps out another. True where that cannot be tried.

    Locks of open files (OFD) are tried, because the usual ones never keep out the process that holds them. A file of its own is
    used: to close any descriptor of the store's file would give up the locks that SQLite has on it in this process.
    """
    command = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None:
        return True
    probe = folder / f".noonbell-lock-probe-{secrets.token_hex(6)}"
    whole_file = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    with contextlib.ExitStack() as stack:
        try:
            first = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except OSError:
            return True  # no file can be made here, which SQLite will say better
        stack.callback(probe.unlink, missing_ok=True)
        stack.callback(os.close, first)
        second = os.open(probe, os.O_RDWR)
        stack.callback(os.close, second)
        try:
            fcntl.fcntl(first, command, whole_file)
        except OSError as error:
            return error.errno not in _NO_LOCKS
        try:
            fcntl.fcntl(second, command, whole_file)
        except OSError:
            return True
        return False


class OpenFile:
    """Knows the file that a path led to when it was opened, and its write-ahead log."""

    def __init__(self, path: str) -> None:
        self._path, self._log_path = path, f"{path}-wal"
        self._file = _identity(path)
        self._log: tuple[int, int] | None = None

    def check(self) -> None:
        """StoreUnavailable if the path leads elsewhere by now, or nowhere. Two calls of `stat`: some microseconds."""
        _compare(self._path, self._file)
        if self._log is None:
            self._log = _identity(self._log_path)
        else:
            _compare(self._log_path, self._log)


def _compare(path: str, opened: tuple[int, int] | None) -> None:
    found = _identity(path)
    if found != opened:
        done = "deleted" if found is None else "replaced by another file"
        raise StoreUnavailable(
            f"SQLite: {path} was {done} while it was open: nothing is written any longer. Put the file back, or start Noonbell anew"
            " with the file that is to be used"
        )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path takes longer than the call
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(f"SQLite: {path} cannot be looked at: {error}") from error
    return found.st_dev, found.st_ino
