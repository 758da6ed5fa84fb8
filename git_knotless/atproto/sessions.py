"""The files that keep logins: one an account, for nobody else to read.

They serve every kind of login. How a kind is begun, used, renewed and ended is a module of its
own with an `Auth` for `xrpc.Client`: `password.py` for app passwords.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from git_knotless.atproto.files import replace_file
from git_knotless.atproto.hosts import parse_origin
from git_knotless.atproto.syntax import Did, Handle, parse_did, parse_handle
from git_knotless.errors import KnotlessError

if TYPE_CHECKING:
    from filelock import FileLock

VERSION = 1
KINDS = ("password",)
# Another process holds the lock for one request, whose answer may take 30 s to begin.
_LOCK_SECONDS = 45.0


class BadSession(KnotlessError):
    """A session file that cannot be used."""


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
    """The sessions in a directory of their own, which is made when the first is saved."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._locks: dict[Did, FileLock] = {}

    def load(self, did: Did) -> Session | None:
        path = self._path(did)
        try:
            _hide(path, 0o600)
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadSession(f"{path} cannot be read: {error.strerror}") from error
        session = _decode(data, path, did)
        if session.did != did:
            raise BadSession(f"{path} is the session of another account, {session.did}")
        return session

    def all(self) -> list[Session]:
        """Every session, in the order of their files' names."""
        found = (self.load(did) for did in self._dids())
        return [session for session in found if session is not None]

    def save(self, session: Session) -> None:
        """On the disk when this returns, so that what a host gave only once is not lost."""
        path = self._path(session.did)
        with self.lock(session.did), _writing(path):
            replace_file(path, _encode(session), durable=True)

    def delete(self, did: Did) -> None:
        """Also a session that cannot be read."""
        if self._path(did).exists():
            with self.lock(did), _writing(self._path(did)):
                self._path(did).unlink(missing_ok=True)

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

    def _dids(self) -> Iterator[Did]:
        for path in sorted(self._directory.glob("did_*.json")):
            with suppress(KnotlessError):
                yield parse_did(path.stem.replace("_", ":"))

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
                f"{path} was written by a newer git-knotless", hint="update git-knotless"
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
        raise BadSession(f"{path} is damaged", hint=f"git knotless login {did}") from error


def token(value: object) -> str:
    """A token that may stand in a header."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("not a token")
    return value
