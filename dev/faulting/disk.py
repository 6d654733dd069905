"""A small disk of our own that can really be full or read-only; limits of the process where none can be mounted."""

import ctypes
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Disk", "small_disk"]

SIZE = "48m"


class Disk:
    """A folder.

    Attributes:
        folder: where it is.
        mounted: whether it is a file system of its own.
    """

    def __init__(self, folder, mounted):
        self.folder, self.mounted = Path(folder), mounted

    @property
    def ballast(self):
        """A file that takes all room, when there is one."""
        return self.folder / "ballast"

    def read_only(self, wanted):
        """Make it read-only, or writable again."""
        if self.mounted:
            _mount("remount,ro" if wanted else "remount,rw", self.folder)
        else:
            for folder in (self.folder, *self.folder.rglob("*")):
                if folder.is_dir() and not folder.is_symlink():
                    folder.chmod(0o555 if wanted else 0o755)


def _mount(options, folder):
    command = [shutil.which("mount") or "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - ours


def obey_permissions():
    """Drop the right of root to write into folders that are read-only by their mode."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    rights = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, rights) == 0
    rights[0] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert libc.capset(header, rights) == 0


@contextmanager
def small_disk(folder):
    """The disk; the folder itself where it cannot be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _mount(f"size={SIZE},mode=755", folder)
    except (subprocess.CalledProcessError, OSError):
        yield Disk(folder, mounted=False)
        return
    try:
        yield Disk(folder, mounted=True)
    finally:
        subprocess.run([shutil.which("umount") or "umount", "-l", str(folder)], check=True)  # noqa: S603 - ours
