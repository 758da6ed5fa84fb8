"""Whether there is room on the disk for what is to come, before any of it is sent for."""

import os
from pathlib import Path

from git_knotless.storage.child import NoSpace

_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")


def check_room(directory: Path, size: int, source: str) -> None:
    """Raises NoSpace where `size` bytes are more than a user may still write there."""
    try:
        disk = os.statvfs(directory)
    except OSError:  # who writes there will say it better
        return
    free = disk.f_bavail * disk.f_frsize
    if size > free:
        free_words = f"{_about(free)} are free in {directory}"
        raise NoSpace(f"no space left: packs of {source} take {_about(size)}, and {free_words}")


def _about(size: int) -> str:
    """`1.4 GB`: to read, not to count with."""
    number, unit = float(size), 0
    while number >= 1000 and unit < len(_UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.1f} {_UNITS[unit]}" if unit else f"{size} bytes"
