"""Every setting, in one table: read from here, and `docs/settings.md` is made from it.

A variable of the environment overrides its twin in git config; an empty one is unset. What could
send a user to a server that they did not choose counts from their own and the system's config
only, never from a repository's.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from git_knotless.atproto.hosts import parse_origin
from git_knotless.atproto.syntax import Did, Handle, InvalidSyntax, parse_identifier
from git_knotless.errors import KnotlessError
from git_knotless.value import value

APP = "knotless"
LOG_LEVELS = ("debug", "info", "warning", "error")
VERIFY = ("auto", "always", "never")
# The scopes of `git config --show-scope` that a repository cannot write.
_USERS_SCOPES = frozenset({"system", "global", "command"})
_PLC_DIRECTORY = "https://plc.directory"
_IDENTITY_TTL = 3600
_CLAIM_GRACE = 86_400
_CACHE_SIZE = 2 << 30  # bytes
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0", "")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class BadSetting(KnotlessError):
    """A value that the variable or the config key named cannot have."""


@value
class Password:
    """One, and whose: `owner` is None where nobody is named beside it."""

    text: str
    owner: Did | Handle | None

    def __repr__(self) -> str:
        return f"Password({self.owner!r})"


@value
class Settings:
    config_dir: Path
    cache_dir: Path
    password: Password | None = None
    account: Did | Handle | None = None
    plc_url: str = _PLC_DIRECTORY
    handle_resolvers: tuple[str, ...] = ()
    browser: tuple[str, ...] = ()
    identity_ttl: int = _IDENTITY_TTL  # seconds
    claim_grace: int = _CLAIM_GRACE  # seconds
    log: str = "warning"
    verify: str = "auto"
    allow_hosts: tuple[str, ...] = ()
    auto_fold: bool = True
    auto_detach: bool = True
    cache_size: int = _CACHE_SIZE  # bytes

    def __repr__(self) -> str:
        """Without the password, wherever it may be shown."""
        return f"Settings(config_dir={self.config_dir!r}, cache_dir={self.cache_dir!r})"


@value
class Setting:
    """`parse` takes the values given, at least one; raises ValueError or InvalidSyntax."""

    field: str
    variable: str
    key: str | None  # its twin in git config
    default: str  # in words
    help: str
    parse: Callable[[Sequence[str]], Any]
    users_only: bool = False


def _last(parse: Callable[[str], Any]) -> Callable[[Sequence[str]], Any]:
    """Of several values the last one counts, as git has it."""
    return lambda values: parse(values[-1])


def _seconds(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError(f"{text!r} is not a whole number of seconds")
    return int(text)


def _servers(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(parse_origin(text) for value in values for text in value.split())


def _command_line(text: str) -> tuple[str, ...]:
    """Its words, quoted as for a shell."""
    import shlex  # few have such a setting

    words = tuple(shlex.split(text))
    if not words:
        raise ValueError(f"{text!r} names no command")
    return words


def _account(text: str) -> Did | Handle:
    return parse_identifier(text.removeprefix("@"))


def _level(text: str) -> str:
    if text not in LOG_LEVELS:
        raise ValueError(f"{text!r} is none of {', '.join(LOG_LEVELS)}")
    return text


def _verify(text: str) -> str:
    if text not in VERIFY:
        raise ValueError(f"{text!r} is none of {', '.join(VERIFY)}")
    return text


def _yes(text: str) -> bool:
    """As git reads one."""
    if text.lower() not in _TRUE + _FALSE:
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() in _TRUE


def _bytes(text: str) -> int:
    """As git reads them: with k, m or g after the number, or nothing."""
    number = re.fullmatch(r"([0-9]{1,12})([kmg]?)", text.lower())
    if not number:
        raise ValueError(f"{text!r} is not a number of bytes, such as 500m or 2g")
    return int(number[1]) * _UNITS[number[2]]


def _hosts(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(host.lower() for value in values for host in value.split())


TABLE = (
    Setting(
        "config_dir",
        "KNOTLESS_CONFIG_DIR",
        None,
        "`~/.config/knotless`, or where the system keeps such things",
        "The folder of the logged-in sessions.",
        _last(lambda text: Path(text).absolute()),
    ),
    Setting(
        "cache_dir",
        "KNOTLESS_CACHE_DIR",
        None,
        "`~/.cache/knotless`, or where the system keeps such things",
        "The folder of what can be found out again: which host an account is on.",
        _last(lambda text: Path(text).absolute()),
    ),
    Setting(
        "password",
        "KNOTLESS_PASSWORD",
        None,
        "",
        "An app password: `git knotless login` takes it instead of opening a browser. It is of "
        "the account that the variable `KNOTLESS_ACCOUNT` names, if that is set, and then logs "
        "it in wherever its login is needed and none is stored that still holds. It is sent for "
        "no other account, whatever `--account` or git config name.",
        _last(str),
    ),
    Setting(
        "account",
        "KNOTLESS_ACCOUNT",
        "knotless.account",
        "the one that is logged in",
        "The account that commands act as, by its handle or DID.",
        _last(_account),
    ),
    Setting(
        "plc_url",
        "KNOTLESS_PLC_URL",
        "knotless.plcUrl",
        _PLC_DIRECTORY,
        "The directory that `did:plc` accounts are looked up in.",
        _last(parse_origin),
        users_only=True,
    ),
    Setting(
        "handle_resolvers",
        "KNOTLESS_HANDLE_RESOLVER",
        "knotless.handleResolver",
        "",
        "Servers that answer `com.atproto.identity.resolveHandle`, asked before DNS and the "
        "handle's own web server. Several are separated by spaces in the variable and given "
        "one by one in git config.",
        _servers,
        users_only=True,
    ),
    Setting(
        "browser",
        "KNOTLESS_BROWSER",
        "knotless.browser",
        "the system's",
        "The command that `git knotless login` opens a page with: its address is put in the place "
        "of `%s`, or else comes last. No shell reads it.",
        _last(_command_line),
        users_only=True,
    ),
    Setting(
        "identity_ttl",
        "KNOTLESS_IDENTITY_TTL_SECS",
        "knotless.identityTtlSecs",
        str(_IDENTITY_TTL),
        "How long a handle's account and its host are taken from the cache, in seconds.",
        _last(_seconds),
    ),
    Setting(
        "claim_grace",
        "KNOTLESS_CLAIM_GRACE_SECS",
        "knotless.claimGraceSecs",
        str(_CLAIM_GRACE),
        "How long what a push replaced is kept, in seconds. Less than a day counts only for a "
        "host on this machine.",
        _last(_seconds),
    ),
    Setting(
        "log",
        "KNOTLESS_LOG",
        "knotless.log",
        "warning",
        f"How much is said on stderr beside the errors: {', '.join(LOG_LEVELS)}.",
        _last(_level),
    ),
    Setting(
        "verify",
        "KNOTLESS_VERIFY",
        "knotless.verify",
        "auto",
        "Whether what is read is checked against the account's signed commit: `always`, `never`, "
        "or `auto`, which checks what did not come straight from the account's own host over TLS "
        "or from this machine.",
        _last(_verify),
        users_only=True,
    ),
    Setting(
        "allow_hosts",
        "KNOTLESS_ALLOW_HOST",
        "knotless.allowHost",
        "",
        "Hosts with private addresses that other people's documents and redirects may lead to. "
        "Several are separated by spaces in the variable and given one by one in git config.",
        _hosts,
        users_only=True,
    ),
    Setting(
        "auto_fold",
        "KNOTLESS_AUTO_FOLD",
        "knotless.autoFold",
        "true",
        "Whether a push that leaves more than fifty small packs has them folded into one.",
        _last(_yes),
    ),
    Setting(
        "auto_detach",
        "KNOTLESS_AUTO_DETACH",
        "knotless.autoDetach",
        "true",
        "Whether that is done in the background, as `git gc --auto` does.",
        _last(_yes),
    ),
    Setting(
        "cache_size",
        "KNOTLESS_CACHE_SIZE",
        "knotless.cacheSize",
        "2g",
        "How much the mirrors in the cache folder may take, in bytes; k, m and g are units.",
        _last(_bytes),
    ),
)


def load(env: Mapping[str, str], git_config: bytes) -> Settings:
    """`git_config` is what `git config --show-scope -z --list` prints."""
    entries = _entries(git_config)
    values = {setting.field: _value(setting, env, entries) for setting in TABLE}
    found = {name: value for name, value in values.items() if value is not None}
    if text := found.get("password"):
        # Not of whom git config names: a repository's own could have it sent to any host.
        owner = found["account"] if env.get("KNOTLESS_ACCOUNT") else None
        found["password"] = Password(text, owner)
    return Settings(**{**_default_dirs(found), **found})


def _value(setting: Setting, env: Mapping[str, str], entries: Sequence["_Entry"]) -> Any:
    if text := env.get(setting.variable):
        where, values = setting.variable, [text]
    elif setting.key and (values := _configured(setting, entries)):
        where = setting.key
    else:
        return None
    try:
        return setting.parse(values)
    except (ValueError, InvalidSyntax) as error:
        raise BadSetting(f"{where}: {error}") from error


@value
class _Entry:
    scope: str
    key: str  # as git prints it: section and variable in lower case
    value: str


def _entries(git_config: bytes) -> list[_Entry]:
    parts = git_config.decode(errors="surrogateescape").split("\0")
    pairs = zip(parts[::2], parts[1::2], strict=False)  # what is left over is the last \0's rest
    return [_Entry(scope, *entry.partition("\n")[::2]) for scope, entry in pairs]


def _configured(setting: Setting, entries: Sequence[_Entry]) -> list[str]:
    """The values of its key, since the last empty one, which takes back those before it."""
    values: list[str] = []
    key = (setting.key or "").lower()
    for entry in entries:
        if entry.key == key and (entry.scope in _USERS_SCOPES or not setting.users_only):
            values = [*values, entry.value] if entry.value else []
    return values


SANDBOX_CONFIG, SANDBOX_LOCK = "config", "sandbox.lock"  # both are in every sandbox's folder


def sandbox_dir() -> Path:
    """The sandbox that is the user's own: of their data, since a cache may be emptied while it
    runs."""
    import platformdirs

    return platformdirs.user_data_path(APP, appauthor=False) / "sandbox"


# Nothing is found there and nothing can be put there, whoever we are.
_NOWHERE = Path("/dev/null/set-KNOTLESS_CONFIG_DIR")


def _default_dirs(found: Mapping[str, Any]) -> dict[str, Path]:
    if {"config_dir", "cache_dir"} <= found.keys():
        return {}
    import platformdirs  # 5 ms, and a helper often has both folders given

    try:
        return {
            "config_dir": platformdirs.user_config_path(APP, appauthor=False),
            "cache_dir": platformdirs.user_cache_path(APP, appauthor=False),
        }
    except RuntimeError:  # neither HOME nor an entry for the user, as in some containers
        return {"config_dir": _NOWHERE, "cache_dir": _NOWHERE}


def markdown() -> str:
    """The table as `docs/settings.md` has it."""
    rows = ["| variable | git config | default | what it sets |", "| --- | --- | --- | --- |"]
    for setting in TABLE:
        key = f"`{setting.key}`" if setting.key else ""
        note = " Never taken from a repository's own config." if setting.users_only else ""
        cells = (f"`{setting.variable}`", key, setting.default, setting.help + note)
        rows.append("|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|")
    return "\n".join(rows) + "\n"
