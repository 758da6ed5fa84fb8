"""The whole conversation without git: lines in, lines out, and a service that remembers."""

import io
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from git_knotless.errors import KnotlessError
from git_knotless.helper.connect import Request
from git_knotless.helper.conversation import Conversation
from git_knotless.helper.options import Options
from git_knotless.helper.protocol import GitGone
from git_knotless.storage.pushing.updates import Lease, Outcome, Update
from git_knotless.storage.records import RefRecord, RepoRecord
from git_knotless.storage.snapshot import Snapshot, hidden_among

KEY = "3jzfcijpj2z2a"
ONE, TWO, THREE = ("1" * 40, "2" * 40, "3" * 40)
ZERO = "0" * 40
MAIN, DEV = "refs/heads/main", "refs/heads/dev"
NAPLES = "refs/heads/n\xe4pel"


def snapshot_of(refs: dict[str, str], default: str = "main") -> Snapshot:
    records = {
        name: RefRecord(KEY, name, oid, 1, "2026-01-02T03:04:05.678Z") for name, oid in refs.items()
    }
    fields = {"key": KEY, "epoch": 1, "defaultBranch": default}
    return Snapshot(RepoRecord("hello", fields), records, hidden_among(records), 0.0)


@dataclass(frozen=True)
class Got:
    keeps: tuple[Path, ...] = ()
    connected: bool = False
    left_out: tuple[str, ...] = ()


class Echo:
    """An upload pack that answers with what it was asked."""

    def advertise(self) -> bytes:
        return b"000eversion 2\n0000"

    def answer(self, request: Request) -> Iterator[bytes]:
        yield from (b"<", *request, b">")


@dataclass
class Remote:
    refs: dict[str, str] = field(default_factory=dict)
    got: Got = field(default_factory=Got)
    outcomes: list[Outcome] | KnotlessError = field(default_factory=list)
    default: str = "main"
    local: dict[str, str] = field(default_factory=lambda: {"HEAD": ONE, MAIN: ONE, DEV: TWO})
    readings: list[bool] = field(default_factory=list)
    wanted: list[tuple[Sequence[str], Options]] = field(default_factory=list)
    pushed: list[tuple[Sequence[Update], Options]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    served: list[Options] = field(default_factory=list)
    shallow: bool = False
    partial: bool = False

    def snapshot(self, *, for_push: bool) -> Snapshot:
        self.readings.append(for_push)
        return snapshot_of(self.refs, self.default)

    def fetch(self, wants: Sequence[str], options: Options) -> Got:
        self.wanted.append((wants, options))
        return self.got

    def is_shallow(self) -> bool:
        return self.shallow

    def resolve(self, sources: Sequence[str]) -> dict[str, str | None]:
        return {source: self.local.get(source) for source in sources}

    def push(self, updates: Sequence[Update], options: Options) -> Sequence[Outcome]:
        self.pushed.append((updates, options))
        if isinstance(self.outcomes, KnotlessError):
            raise self.outcomes
        return self.outcomes or [Outcome(update.name) for update in updates]

    def is_partial(self) -> bool:
        return self.partial

    @contextmanager
    def upload_pack(self, options: Options) -> Iterator[Echo]:
        self.served.append(options)
        yield Echo()

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def talk(said: str | bytes, remote: Remote | None = None, stdout: io.BytesIO | None = None) -> str:
    """What git hears; `stdout` has it where an error ends the conversation."""
    stdin = io.BytesIO(said if isinstance(said, bytes) else said.encode())
    stdout = stdout or io.BytesIO()
    Conversation(stdin, stdout, remote or Remote()).run()
    return stdout.getvalue().decode("utf-8", "surrogateescape")


FULL = {MAIN: ONE, DEV: TWO, "refs/tags/v1": THREE}

TABLE = [
    # git leaves
    ("", {}, ""),
    ("\n", {}, ""),
    ("\ncapabilities\n", {}, ""),
    ("capabilities", {}, ""),  # a line that the end has torn
    (
        "capabilities\n",
        {},
        "option\nfetch\npush\ncheck-connectivity\nobject-format\nstateless-connect\n\n",
    ),
    # options
    ("option progress true\noption verbosity 1\n", {}, "ok\nok\n"),
    ("option verbosity 3\noption verbosity 0\noption verbosity -1\n", {}, "ok\nok\nok\n"),
    ("option verbosity loud\n", {}, "error verbosity is a number\n"),
    ("option progress\n", {}, "error progress is true or false\n"),
    ("option dry-run maybe\n", {}, "error dry-run is true or false\n"),
    ("option dry-run true\noption atomic true\noption force true\n", {}, "ok\nok\nok\n"),
    ("option cloning true\noption followtags true\n", {}, "ok\nok\n"),
    ("option check-connectivity true\n", {}, "ok\n"),
    (f"option cas {MAIN}:{ONE}\n", {}, "ok\n"),
    ('option push-option "a  \\"b\\" c"\n', {}, "ok\n"),
    ("option pushcert if-asked\n", {}, "ok\n"),
    ("option pushcert true\n", {}, "unsupported\n"),
    ("option object-format\noption object-format true\n", {}, "ok\nok\n"),
    ("option object-format sha1\n", {}, "ok\n"),
    (
        "option object-format sha256\n",
        {},
        "error sha256 is not the object format of this remote\n",
    ),
    ("option depth 0\noption depth 1\n", {}, "ok\nok\n"),
    ("option depth 2147483647\noption deepen-relative true\n", {}, "ok\nok\n"),
    ("option deepen-since 2026-01-02\noption deepen-not v1\n", {}, "ok\nok\n"),
    ("option filter blob:none\noption from-promisor 1\n", {}, "ok\nok\n"),
    ("option update-shallow true\noption family ipv4\n", {}, "unsupported\nunsupported\n"),
    # list
    ("list\n", {}, "\n"),
    ("list for-push\n", {}, "\n"),
    (
        "list\n",
        FULL,
        f"@{MAIN} HEAD\n{TWO} {DEV}\n{ONE} {MAIN}\n{THREE} refs/tags/v1\n\n",
    ),
    ("list for-push\n", FULL, f"{TWO} {DEV}\n{ONE} {MAIN}\n{THREE} refs/tags/v1\n\n"),
    ("list\n", {DEV: TWO}, f"{TWO} {DEV}\n\n"),  # HEAD's branch is not there
    (
        "option object-format\nlist\n",
        {MAIN: ONE},
        f"ok\n:object-format sha1\n@{MAIN} HEAD\n{ONE} {MAIN}\n\n",
    ),
    ("list\n", {NAPLES: ONE}, f"{ONE} {NAPLES}\n\n"),
    # fetch
    (f"fetch {ONE} {MAIN}\n\n", FULL, "\n"),
    # stateless-connect
    ("stateless-connect git-upload-pack\n", FULL, "fallback\n"),
    ("stateless-connect git-upload-archive\n", {}, "fallback\n"),
    ("stateless-connect git-receive-pack\n", {}, "fallback\n"),
    ("stateless-connect git-upload-pack\n", {}, "\n000eversion 2\n0000"),
    (
        "stateless-connect git-upload-pack\n0014command=ls-refs\n0001000bunborn\n00000000",
        {},
        "\n000eversion 2\n0000<0014command=ls-refs\n0001000bunborn\n0000>0002<0000>0002",
    ),
    # push
    (f"push {MAIN}:{MAIN}\n\n", FULL, f"ok {MAIN}\n\n"),
    (f"push :{DEV}\npush HEAD:{MAIN}\n\n", FULL, f"ok {DEV}\nok {MAIN}\n\n"),
]


@pytest.mark.parametrize(("said", "refs", "answer"), TABLE)
def test_table(said: str, refs: dict[str, str], answer: str) -> None:
    assert talk(said, Remote(refs)) == answer


TORN = [
    f"fetch {ONE} {MAIN}\n",
    f"fetch {ONE} {MAIN}\nfetch {TWO} {DEV}",
    f"push {MAIN}:{MAIN}\n",
    f"push {MAIN}:{MAIN}\npush {DEV}:{DEV}",
    "stateless-connect git-upload-pack\n0014command=ls",
    "stateless-connect git-upload-pack\n0014command=ls-refs\n",
    "stateless-connect git-upload-pack\n00",
]


@pytest.mark.parametrize("said", TORN)
def test_git_that_goes_in_the_middle_is_not_acted_for(said: str) -> None:
    remote = Remote()
    with pytest.raises(GitGone):
        talk(said, remote)
    assert not remote.wanted
    assert not remote.pushed


BAD = [
    ("hello\n", "git sent a command that is not known here: hello"),
    ("list everything\n", "git sent a command that is not known here: list everything"),
    ("export\n", "git sent a command that is not known here: export"),
    ("option\n", "git sent a command that is not known here: option"),
    ("fetch\n\n", "git asked to fetch what is not an object: "),
    (f"fetch {ONE}\n\n", f"git asked to fetch what is not an object: {ONE}"),
    (f"fetch {ONE[1:]} {MAIN}\n\n", f"git asked to fetch what is not an object: {ONE[1:]} {MAIN}"),
    (f"push {MAIN}\n\n", f"git asked to push what is not a refspec: {MAIN}"),
    (f"push {MAIN}:\n\n", f"git asked to push what is not a refspec: {MAIN}:"),
    (f"push {MAIN}:{MAIN}\nlist\n\n", "git sent list among the lines of a push"),
    (f"push {MAIN}:{DEV}\npush {DEV}:{DEV}\n\n", f"git asked to push {DEV} more than once"),
    (f"push refs/heads/gone:{DEV}\n\n", "src refspec refs/heads/gone does not match any"),
    (f"option cas {MAIN}\n", f"git sent a lease that cannot be read: {MAIN}"),
    ('option push-option "a\n', 'git sent a value in quotes that do not match: "a'),
    ('option push-option "a"b"\n', 'git sent a value in quotes that do not match: "a"b"'),
    ('option push-option "a\\"\n', 'git sent a value in quotes that do not match: "a\\"'),
    ("x" * (1 << 20) + "\n", "git sent a line that does not end"),
    ("stateless-connect git-upload-pack\n0x1fhello", "git sent a packet without a length"),
]


@pytest.mark.parametrize(("said", "message"), BAD)
def test_what_no_git_sends_is_refused(said: str, message: str) -> None:
    remote = Remote()
    with pytest.raises(KnotlessError) as raised:
        talk(said, remote)
    assert raised.value.message == message
    assert not remote.wanted
    assert not remote.pushed


def test_objects_are_fetched_once_each_in_their_order() -> None:
    remote = Remote(FULL)
    talk(f"fetch {TWO} {DEV}\nfetch {ONE} HEAD\nfetch {ONE} {MAIN}\n\n", remote)
    assert [wants for wants, _ in remote.wanted] == [(TWO, ONE)]


@pytest.mark.parametrize(
    ("asked", "got", "answer"),
    [
        ("", Got(), "\n"),
        ("", Got(connected=True), "\n"),
        ("option check-connectivity true\n", Got(connected=True), "ok\nconnectivity-ok\n\n"),
        ("option check-connectivity true\n", Got(connected=False), "ok\n\n"),
        ("", Got((Path("/r/pack-1.keep"), Path("/r/pack-2.keep"))), "lock /r/pack-1.keep\n\n"),
        ("", Got((Path("/r\xe9 p/pack-1.keep"),)), "lock /r\xe9 p/pack-1.keep\n\n"),
        ("", Got((Path("/r\nconnectivity-ok/pack-1.keep"),)), "\n"),
        ("", Got((Path("/r\udcff/pack-1.keep"),)), "\n"),
    ],
)
def test_fetch_says_what_git_takes(asked: str, got: Got, answer: str) -> None:
    remote = Remote(FULL, got)
    assert talk(f"{asked}fetch {ONE} {MAIN}\n\n", remote) == answer


def test_a_pack_that_cannot_be_read_is_left_out_with_a_word() -> None:
    remote = Remote(FULL, Got(left_out=("pack x: its data is not bytes",)))
    talk(f"fetch {ONE} {MAIN}\n\nfetch {TWO} {DEV}\n\n", remote)
    assert remote.warnings == ["pack x: its data is not bytes"]


def test_a_push_hands_on_what_git_asked_for() -> None:
    remote = Remote(FULL)
    talk(
        f"option cas {MAIN}:{THREE}\noption cas refs/heads/new:{ZERO}\n"
        'option cas "refs/heads/n\\303\\244pel:' + ONE + '"\n'
        "option dry-run true\noption atomic true\noption push-option ci.skip\n"
        'option push-option "a  \\"b\\" c"\n'
        f"push {MAIN}:{MAIN}\npush +{DEV}:{DEV}\npush HEAD:refs/heads/new\npush :{NAPLES}\n\n",
        remote,
    )
    (updates, options), *more = remote.pushed
    assert not more
    assert updates == [
        Update(MAIN, ONE, force=False, lease=THREE),
        Update(DEV, TWO, force=True, lease=Lease.NONE),
        Update("refs/heads/new", ONE, force=False, lease=None),
        Update(NAPLES, None, force=False, lease=ONE),
    ]
    assert options.dry_run
    assert options.atomic
    assert options.push_options == ("ci.skip", 'a  "b" c')


def test_force_as_an_option_is_that_of_every_ref() -> None:
    remote = Remote(FULL)
    talk(f"option force true\npush {MAIN}:{MAIN}\npush {DEV}:{DEV}\n\n", remote)
    assert [update.force for update in remote.pushed[0][0]] == [True, True]


def test_a_source_is_anything_that_git_reads_as_a_revision() -> None:
    remote = Remote(local={":/fix the: bug": ONE, "main:README": TWO})
    talk("push :/fix the: bug:refs/heads/x\npush main:README:refs/tags/y\n\n", remote)
    assert [(u.name, u.new) for u in remote.pushed[0][0]] == [
        ("refs/heads/x", ONE),
        ("refs/tags/y", TWO),
    ]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("fetch first", f"error {MAIN} fetch first"),
        ("non-fast forward", f"error {MAIN} non-fast forward"),
        ("stale info", f"error {MAIN} stale info"),
        ("protected branch: it only moves forward", None),
        # git would take these two for success
        ("up to date", f"error {MAIN} refused: up to date"),
        ("no match", f"error {MAIN} refused: no match"),
        ("two\nlines \x1b[31m", f"error {MAIN} two?lines ?[31m"),
        ('"quoted"', f'error {MAIN} "\\"quoted\\""'),
    ],
)
def test_a_refusal_is_reported_ref_by_ref(error: str, line: str | None) -> None:
    remote = Remote(FULL, outcomes=[Outcome(DEV), Outcome(MAIN, error)])
    answer = talk(f"push {DEV}:{DEV}\npush {MAIN}:{MAIN}\n\n", remote)
    assert answer == f"ok {DEV}\n{line or f'error {MAIN} {error}'}\n\n"


def test_a_push_that_fails_whole_leaves_nothing_half_said() -> None:
    remote = Remote(FULL, outcomes=KnotlessError("the host is down"))
    stdout = io.BytesIO()
    with pytest.raises(KnotlessError, match="the host is down"):
        talk(f"option progress true\npush {DEV}:{DEV}\n\n", remote, stdout)
    assert stdout.getvalue() == b"ok\n"


def test_names_that_are_not_text_go_through_as_they_are() -> None:
    remote = Remote(local={"refs/heads/\udcff": ONE})
    assert talk(b"push refs/heads/\xff:refs/heads/\xff\n\n", remote) == ("ok refs/heads/\udcff\n\n")


def test_a_batch_ends_and_the_conversation_goes_on() -> None:
    remote = Remote(FULL)
    said = f"list\nfetch {ONE} {MAIN}\n\nfetch {TWO} {DEV}\n\n\n{'x' * 9}\n"
    talk(said, remote)
    assert [wants for wants, _ in remote.wanted] == [(ONE,), (TWO,)]


CONNECT = "stateless-connect git-upload-pack\n"
PUT_THROUGH = "\n000eversion 2\n0000"


def test_a_default_branch_that_git_refuses_is_not_served() -> None:
    assert talk(CONNECT, Remote(default="a..b")) == "fallback\n"


@pytest.mark.parametrize(
    ("said", "partial", "served"),
    [
        ("", False, False),
        ("option depth 1\n", False, True),
        ("option deepen-since yesterday\n", False, True),
        ("option deepen-not v1\n", False, True),
        ("option filter tree:0\n", False, True),
        ("", True, True),
        # all of history is no less than everything; 0 is none of it left to ask for
        ("option depth 2147483647\n", False, False),
        ("option depth 2147483647\n", True, True),
        ("option depth 1\noption depth 0\n", False, False),
        ("option followtags true\noption cloning true\n", False, False),
    ],
)
def test_git_is_put_through_for_less_than_everything(
    said: str, partial: bool, served: bool
) -> None:
    remote = Remote(FULL, partial=partial)
    answer = talk(f"{said}{CONNECT}", remote).removeprefix("ok\n" * said.count("\n"))
    assert answer == (PUT_THROUGH if served else "fallback\n")
    assert remote.readings == ([] if served else [False])


def test_git_that_asks_again_is_told_the_same() -> None:
    remote = Remote(FULL)
    answer = talk(f"{CONNECT}option filter blob:none\n{CONNECT}fetch {ONE} {MAIN}\n\n", remote)
    assert answer == "fallback\nok\nfallback\n\n"
    assert remote.wanted
    assert not remote.served


def test_what_is_not_honoured_is_said_once() -> None:
    """git that does not ask to be put through speaks an old protocol."""
    remote, fetch = Remote(), f"fetch {ONE} {MAIN}\n\n"
    said = "option depth 1\noption filter blob:none\noption filter blob:none\noption depth 2\n"
    talk(f"{said}{fetch}{fetch}", remote)
    without = "is not honoured without protocol version 2 (protocol.version)"
    everything = "everything is fetched"
    assert remote.warnings == [
        f"--depth {without}: {everything}",
        f"--filter {without}: {everything}",
    ]


def test_no_depth_is_honoured_by_an_old_protocol_but_all_of_it() -> None:
    remote = Remote(shallow=True)
    fetch = f"fetch {ONE} {MAIN}\n\n"
    talk(f"option depth 2147483647\n{fetch}option depth 0\n{fetch}option depth 3\n{fetch}", remote)
    assert [options.unshallow for _, options in remote.wanted] == [True, False, False]
    (warning,) = remote.warnings
    assert warning == (
        "--depth is not honoured without protocol version 2 (protocol.version): history stays cut"
        " off where it is (git fetch --unshallow)"
    )


def test_refs_that_cannot_be_shown_are_few_lines() -> None:
    remote = Remote({"refs/heads/a": ONE} | {f"refs/heads/a/{n}": TWO for n in range(50)})
    talk("list\n", remote)
    assert len(remote.warnings) == 4
    assert remote.warnings[-1] == "… and 47 more"


def test_a_ref_that_cannot_be_shown_is_left_out_with_a_word() -> None:
    remote = Remote({"refs/heads/a": ONE, "refs/heads/a/b": TWO})
    assert talk("list for-push\nlist\n", remote) == f"{ONE} refs/heads/a\n\n" * 2
    assert remote.warnings == [
        "refs/heads/a/b is left out: it cannot stand beside refs/heads/a",
    ]


def test_only_a_listing_for_a_push_asks_for_the_account_as_it_is() -> None:
    remote = Remote(FULL)
    talk("stateless-connect git-upload-pack\nlist\nlist for-push\n", remote)
    assert remote.readings == [False, False, True]


class ClosedPipe(io.BytesIO):
    def write(self, said: object) -> int:
        raise BrokenPipeError


def test_a_closed_pipe_means_that_git_is_gone() -> None:
    with pytest.raises(GitGone):
        Conversation(io.BytesIO(b"list\n"), ClosedPipe(), Remote(FULL)).run()


def test_a_broken_pipe_of_something_else_does_not() -> None:
    class Broken(Remote):
        def snapshot(self, *, for_push: bool) -> Snapshot:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        talk("list\n", Broken())


@pytest.mark.parametrize(
    ("progress", "verbosity", "shown"),
    [(True, 1, True), (True, 3, True), (True, 0, False), (True, -1, False), (False, 1, False)],
)
def test_progress_is_shown_unless_git_is_quiet(progress: bool, verbosity: int, shown: bool) -> None:
    remote = Remote(FULL)
    said = f"option progress {str(progress).lower()}\noption verbosity {verbosity}\n"
    talk(f"{said}fetch {ONE} {MAIN}\n\n", remote)
    assert remote.wanted[0][1].shows_progress is shown


class Slow(Remote):
    def snapshot(self, *, for_push: bool) -> Snapshot:
        time.sleep(0.3)  # longer than what is patience here
        return super().snapshot(for_push=for_push)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("option progress true\n", True),
        ("option progress true\noption verbosity 0\n", False),
        ("option progress false\n", False),
    ],
)
def test_a_slow_look_up_is_told_of(
    options: str, says: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("git_knotless.helper.stderr.SHOWN_AFTER", 0.02)
    talk(f"{options}list\n", Slow(FULL))
    assert capsys.readouterr().err == "Looking up the repository...\n" * says
    monkeypatch.setattr("git_knotless.helper.stderr.SHOWN_AFTER", 20.0)
    talk(f"{options}list\n", Remote(FULL))
    assert capsys.readouterr().err == ""
