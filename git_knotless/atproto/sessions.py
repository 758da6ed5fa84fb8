"""The files that keep logins: one an account, for nobody else to read.

They serve every kind of login. How a kind is begun, used, renewed and ended is a module of its
own with an `Auth` for `xrpc.Client`: `password.py` for app passwords.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from git_knotless.atproto.files import discard, replace_file
from git_knotless.atproto.hosts import parse_origin
from git_knotless.atproto.syntax import Did, Handle, parse_did, parse_handle
from git_knotless.errors import KnotlessError, LoginNeeded

if TYPE_CHECKING:
    from filelock import FileLock

VERSION = 1
KINDS = ("password",)
# Another process holds the lock for one request, whose answer may take 30 s to begin.
_LOCK_SECONDS = 45.0


class BadSession(KnotlessError):
    """A session file that cannot be used."""


class DamagedSession(BadSession, LoginNeeded):
    """A session file that holds no session any more: another login replaces it."""


@dataclass(frozen=True, slots=True)
class Session:
    """What one login gave; `kind` says how it is used and renewed.

    Fields that this version does not know are kept in `extra`.
    """

    did: Did
    handle: Handle | None
    pds: str
    access: str = field(repr=False)
    refresh: str = field(repr=False)
    kind: str = "password"
    version: int = VERSION
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """What to call the account when speaking to a person."""
        return self.handle or self.did

    @property
    def login_command(self) -> str:
        return f"git knotless login {self.name}"


class SessionStore:
    """The sessions in a directory of their own, which is made when the first is saved.

    `notify` gets a line for the person about each file that is left out.
    """

    def __init__(self, directory: Path, notify: Callable[[str], None] | None = None) -> None:
        self._directory = directory
        self._notify = notify
        self._left_out: set[Did] = set()
        self._locks: dict[Did, FileLock] = {}

    def load(self, did: Did) -> Session | None:
        """Raises BadSession for a file that cannot be used, DamagedSession where a login helps."""
        path = self._path(did)
        try:
            _hide(path, 0o600)
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _damaged(f"{path} cannot be read: {error.strerror}", did) from error
        session = _decode(data, path, did)
        if session.did != did:
            raise _damaged(f"{path} is the session of another account, {session.did}", did)
        return session

    def dids(self) -> list[Did]:
        """The accounts that have a file, in the order of the files' names, readable or not."""
        found: list[Did] = []
        for path in sorted(self._directory.glob("did_*.json")):
            with suppress(KnotlessError):
                found.append(parse_did(path.stem.replace("_", ":")))
        return found

    def all(self) -> list[Session]:
        """Every session that can be read; of each other file `notify` hears once."""
        return [session for did in self.dids() if (session := self._load_or_tell(did))]

    def of_handle(self, handle: str) -> Session | None:
        """The session that was begun under `handle`, whatever the other files hold."""
        for did in self.dids():
            with suppress(BadSession):
                session = self.load(did)
                if session is not None and session.handle == handle:
                    return session
        return None

    def save(self, session: Session) -> None:
        """On the disk when this returns, so that what a host gave only once is not lost."""
        path = self._path(session.did)
        with self.lock(session.did), _writing(path):
            replace_file(path, _encode(session), durable=True)

    def delete(self, did: Did) -> None:
        """Also a session that cannot be read, and what a save that was killed has left."""
        if self._directory.exists():
            with self.lock(did), _writing(self._path(did)):
                discard(self._path(did))

    @contextmanager
    def lock(self, did: Did) -> Iterator[None]:
        """Held by whoever changes the session, over all processes; may be taken again within."""
        # Most commands change no session.
        from filelock import FileLock, Timeout

        path = self._path(did).with_suffix(".lock")
        try:
            with _writing(self._directory):
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                _hide(self._directory, 0o700)
                held = self._locks.setdefault(did, FileLock(path, timeout=_LOCK_SECONDS))
                held.acquire()
        except Timeout as error:
            raise BadSession(f"another process does not let go of {path}") from error
        try:
            yield
        finally:
            held.release()

    def _load_or_tell(self, did: Did) -> Session | None:
        try:
            return self.load(did)
        except BadSession as error:
            if self._notify is not None and did not in self._left_out:
                self._left_out.add(did)
                self._notify(f"{error.message}: left out (git knotless logout {did} removes it)")
            return None

    def _path(self, did: Did) -> Path:
        return self._directory / f"{did.replace(':', '_')}.json"


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise
    except OSError as error:
        raise BadSession(f"{path} cannot be written: {error.strerror}") from error


def _hide(path: Path, mode: int) -> None:
    """Take from others what they may do with `path`, as a copy or a restore may have left it."""
    if path.stat().st_mode & 0o077:
        path.chmod(mode)


def _encode(session: Session) -> bytes:
    value = {
        **session.extra,
        "version": session.version,
        "kind": session.kind,
        "did": session.did,
        "handle": session.handle,
        "pds": session.pds,
        "access": session.access,
        "refresh": session.refresh,
    }
    return json.dumps(value, indent=2).encode() + b"\n"


def _decode(data: bytes, path: Path, did: Did) -> Session:
    try:
        value = json.loads(data)
        if value["version"] > VERSION or value["kind"] not in KINDS:
            raise BadSession(
                f"{path} was written by a newer git-knotless",
                hint="pip install --upgrade git-knotless",
            )
        handle = value.pop("handle")
        return Session(
            did=parse_did(value.pop("did")),
            handle=None if handle is None else parse_handle(handle),
            pds=parse_origin(value.pop("pds")),
            access=token(value.pop("access")),
            refresh=token(value.pop("refresh")),
            kind=value.pop("kind"),
            version=value.pop("version"),
            extra=value,
        )
    except BadSession:
        raise
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        KnotlessError,
    ) as error:
        raise _damaged(f"{path} is damaged", did) from error


def _damaged(message: str, did: Did) -> DamagedSession:
    return DamagedSession(message, hint=f"git knotless login {did}")


def token(value: object) -> str:
    """A token that may stand in a header."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("not a token")
    return value
