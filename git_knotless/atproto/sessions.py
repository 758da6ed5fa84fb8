"""The files that keep logins: one an account, for nobody else to read.

They serve every kind of login. How a kind is used and renewed is a module of its own,
`password.py` and `oauth_tokens.py`, and `session_auth.py` is what both have in common. Beside
their directory lies `account`, a file with the DID of the account that was chosen.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from git_knotless.atproto.files import discard, replace_cache, replace_file
from git_knotless.atproto.hosts import parse_origin
from git_knotless.atproto.syntax import (
    Did,
    Handle,
    format_time,
    parse_did,
    parse_handle,
    parse_time,
)
from git_knotless.errors import KnotlessError, LoginNeeded

if TYPE_CHECKING:
    from filelock import FileLock

VERSION = 1
KINDS = ("oauth", "password")
# Another process holds the lock for three requests at most, each of whose answers may take 30 s
# to begin.
_LOCK_SECONDS = 100.0
_LARGEST_CHOICE = 4096  # bytes: a DID has 2,048 at most


class BadSession(KnotlessError):
    """A session file that cannot be used."""


class DamagedSession(BadSession, LoginNeeded):
    """A session file that holds no session any more: another login replaces it."""


@dataclass(frozen=True, slots=True)
class Session:
    """What one login gave; `kind` says how it is used and renewed.

    Of one that has ended no secret is left. Fields that this version does not know are kept in
    `extra`.
    """

    did: Did
    handle: Handle | None
    pds: str
    access: str = field(repr=False)
    refresh: str = field(repr=False)
    kind: str = "password"
    expires_at: str | None = None  # of `access`, by the host's clock, in RFC 3339
    # Of OAuth: who gave it and to which client, what it allows, and the private JWK it is bound to.
    issuer: str | None = None
    client_id: str | None = None
    scope: str | None = None
    dpop_key: Mapping[str, Any] | None = field(default=None, repr=False)
    version: int = VERSION
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """What to call the account when speaking to a person."""
        return self.handle or self.did

    @property
    def ended(self) -> bool:
        return not self.refresh

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
            data = path.read_bytes()
            if _hide(path, 0o600):
                self._tell(f"{path} could be read by others on this machine; no longer")
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

    def check_writable(self, did: Did) -> None:
        """Raises BadSession where no session of `did` could be saved."""
        path = self._path(did)
        with self.lock(did), _writing(path), tempfile.TemporaryFile(dir=self._directory):
            pass

    def delete(self, did: Did) -> None:
        """Also a session that cannot be read, and what a save that was killed has left."""
        if self._directory.exists():
            with self.lock(did), _writing(self._path(did)):
                discard(self._path(did))
                if _read_choice(self._choice) == did:
                    self._choice.unlink(missing_ok=True)

    def chosen(self) -> Did | None:
        """The account that is meant where several are logged in and none is named."""
        return _read_choice(self._choice)

    def choose(self, did: Did) -> None:
        with _writing(self._choice):
            self._choice.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_cache(self._choice, f"{did}\n".encode())

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
            if did not in self._left_out:
                self._left_out.add(did)
                self._tell(f"{error.message}: left out (git knotless logout {did} removes it)")
            return None

    def _tell(self, line: str) -> None:
        if self._notify is not None:
            self._notify(line)

    @property
    def _choice(self) -> Path:
        return self._directory.parent / "account"

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


def _read_choice(path: Path) -> Did | None:
    """None also for a file that is not ours: then one has to be named."""
    with suppress(OSError, ValueError, KnotlessError), path.open("rb") as file:
        return parse_did(file.read(_LARGEST_CHOICE).decode().strip())
    return None


def _hide(path: Path, mode: int) -> bool:
    """Whether others had to be kept from `path`, as a copy or a restore may have left it."""
    if not path.stat().st_mode & 0o077:
        return False
    path.chmod(mode)
    return True


def _encode(session: Session) -> bytes:
    oauth = {
        "issuer": session.issuer,
        "client_id": session.client_id,
        "scope": session.scope,
        "dpop_key": session.dpop_key,
    }
    value = {
        **session.extra,
        "version": session.version,
        "kind": session.kind,
        "did": session.did,
        "handle": session.handle,
        "pds": session.pds,
        "access": session.access,
        "refresh": session.refresh,
        "expires_at": session.expires_at,
        **{name: each for name, each in oauth.items() if each is not None},
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
        return _session(value)
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


def _session(value: dict[str, Any]) -> Session:
    """Takes from `value` what it knows."""
    handle = value.pop("handle")
    session = Session(
        did=parse_did(value.pop("did")),
        handle=None if handle is None else parse_handle(handle),
        pds=parse_origin(value.pop("pds")),
        access=token(value.pop("access")),
        refresh=token(value.pop("refresh")),
        kind=value.pop("kind"),
        version=value.pop("version"),
        expires_at=_optional(value.pop("expires_at", None), str),
        issuer=_optional(value.pop("issuer", None), str),
        client_id=_optional(value.pop("client_id", None), str),
        scope=_optional(value.pop("scope", None), str),
        dpop_key=_optional(value.pop("dpop_key", None), dict),
        extra=value,
    )
    if session.expires_at is not None:
        parse_time(session.expires_at)
    if session.kind == "oauth":
        parse_origin(session.issuer or "")
        if session.client_id is None or session.scope is None:
            raise ValueError("not all of an OAuth session")
        if session.dpop_key is None and not session.ended:
            raise ValueError("an OAuth session without its key")
    return session


def _optional(value: Any, *kinds: type) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
        raise TypeError(f"not what a session holds: {type(value).__name__}")
    return value


def _damaged(message: str, did: Did) -> DamagedSession:
    return DamagedSession(message, hint=f"git knotless login {did}")


def moment(unix: float) -> str:
    """As `expires_at` has it."""
    return format_time(datetime.fromtimestamp(unix, UTC))


def token(value: object) -> str:
    """A token that may stand in a header."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("not a token")
    return value
