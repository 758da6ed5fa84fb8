"""The files that keep logins: one an account, for nobody else to read.

They serve every kind of login. How a kind is used and renewed is a module of its own,
`password.py` and `oauth_tokens.py`, and `session_auth.py` is what both have in common. Beside
their directory lies `account`, a file with the DID of the account that was chosen.
"""

import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from git_knotless.atproto.files import discard, read_file, replace_cache, replace_file, room_for
from git_knotless.atproto.session import BadSession, Session, damaged, decode, encode
from git_knotless.atproto.syntax import Did, parse_did
from git_knotless.errors import KnotlessError

if TYPE_CHECKING:
    from filelock import FileLock

# Another process holds the lock for four requests at most, each of whose answers may take 30 s
# to begin.
_LOCK_SECONDS = 130.0
_LARGEST_CHOICE = 4096  # bytes: a DID has 2,048 at most
_LARGEST_SESSION = 1024 * 1024  # bytes: a host's answer with tokens has 256 KiB at most
_ROOM = 32 * 1024  # bytes: most sessions take 3 KiB


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
        _check_place(path)
        try:
            data = read_file(path, _LARGEST_SESSION, links=False)
            if _hide(path, 0o600):
                self._tell(f"{path} could be read by others on this machine; no longer")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise damaged(f"{path} cannot be read: {error.strerror}", did) from error
        session = decode(data, path, did)
        if session.did != did:
            raise damaged(f"{path} is the session of another account, {session.did}", did)
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
        """On the disk when this returns."""
        path = self._path(session.did)
        _check_place(path)
        with self.lock(session.did), _writing(path):
            replace_file(path, encode(session))

    @contextmanager
    def room(self, did: Did) -> Iterator[Callable[[Session], None]]:
        """Under the lock: what saves one session of `did`, for which the disk has room.

        So that nothing that a host gives only once is asked for where it could not be kept.
        Raises BadSession.
        """
        path = self._path(did)
        _check_place(path)
        with self.lock(did), ExitStack() as stack:
            with _writing(path):
                put = stack.enter_context(room_for(path, _ROOM))

            def save(session: Session) -> None:
                with _writing(path):
                    put(encode(session))

            yield save

    def check_writable(self, did: Did) -> None:
        """Raises BadSession where no session of `did` could be saved."""
        with self.room(did):
            pass

    def delete(self, did: Did) -> None:
        """Also a session that cannot be read, and what a save that was killed has left."""
        if self._directory.exists():
            _check_place(self._path(did))
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

    def keep_choice(self) -> None:
        """Before one more comes in: the only account that there is goes on being meant."""
        if self.chosen() is None and len(stored := self.all()) == 1:
            self.choose(stored[0].did)

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
                aside = _aside(self._path(did))
                mend = f"{aside} keeps" if aside else f"git knotless logout {did} removes"
                self._tell(f"{error.message}: left out ({mend} it)")
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


def _aside(path: Path) -> str | None:
    """The command that makes place for a session, where what is there is none of ours.

    What a link leads to would keep its tokens when the session is renewed, or logged out.
    """
    if not (path.is_symlink() or path.is_dir()):
        return None
    return f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.old')}"


def _check_place(path: Path) -> None:
    if (aside := _aside(path)) is not None:
        kind = "link" if path.is_symlink() else "folder"
        raise BadSession(f"{path} is a {kind}, and no session can be kept there", hint=aside)


def _read_choice(path: Path) -> Did | None:
    """None also for a file that is not ours: then one has to be named."""
    with suppress(OSError, ValueError, KnotlessError):
        return parse_did(read_file(path, _LARGEST_CHOICE).decode().strip())
    return None


def _hide(path: Path, mode: int) -> bool:
    """Whether others had to be kept from `path`, as a copy or a restore may have left it."""
    if not path.stat().st_mode & 0o077:
        return False
    path.chmod(mode)
    return True
