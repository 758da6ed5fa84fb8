"""What a push will want next, got ready while the host is at work on what was asked first."""

import threading
from contextlib import suppress
from importlib import import_module

from git_knotless.errors import KnotlessError
from git_knotless.storage.git import Git

# The first is imported by whoever is asking: it is waited for, or the others would delay that.
_MODULES = ("httpcore", "git_knotless.helper.push", "git_knotless.storage.pushing.push")


def prepare_push(git: Git) -> None:
    """It spares time and no more: whatever fails here is found again where it matters."""
    threading.Thread(target=_prepare, args=(git,), daemon=True).start()


def _prepare(git: Git) -> None:
    with suppress(KnotlessError):
        git.object_format()
    for name in _MODULES:
        import_module(name)
