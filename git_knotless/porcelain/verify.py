"""`git knotless repo verify`: a repository against what its account has signed."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from git_knotless.porcelain.options import Json, Repository, open_context, open_repository

if TYPE_CHECKING:
    from git_knotless.storage.proofs.verify import Verification
    from git_knotless.storage.repositories import Repository as OpenRepository

_UNSOUND = 1  # the exit status where anything is wrong
_LEFT_OVER = "verify-"
_LEFT_OVER_SECONDS = 86_400.0  # nobody downloads a repository for so long


def verify(
    repository: Repository = None,
    *,
    accept_rollback: Annotated[
        bool,
        typer.Option(
            "--accept-rollback",
            help="Take the state that the host shows, though a later one was seen before.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Check a repository down to each object: against the account's signature, and by git.

    All of it is downloaded. What is wrong is named, and the exit status is 1.

    \b
    Examples:
      git knotless repo verify
      git knotless repo verify alice.example/notes --json
    """
    from git_knotless.porcelain.bar import progress
    from git_knotless.porcelain.output import print_json
    from git_knotless.storage.proofs.verify import verify as verify_repository

    with open_context() as context:
        found = open_repository(context, repository, "repo verify")
        with progress() as shown, scratch(context.settings.cache_dir) as folder:
            done = verify_repository(
                found, context.revs, folder, os.environ, progress=shown, accept=accept_rollback
            )
        if json:
            print_json(verification_json(found, done))
        else:
            _print(found, done)
    if done.found.wrong:
        raise typer.Exit(_UNSOUND)


def verification_json(repository: "OpenRepository", done: "Verification") -> dict[str, Any]:
    from git_knotless.porcelain.views import place_json

    found = done.found
    return place_json(repository.url, repository.store.did) | {
        "host": done.host,
        "rev": done.rev,
        "commit": done.commit,
        "acceptedAfter": done.before,
        **found.counts,
        "bytes": found.bytes,
        "wrong": [{"what": each.what, "why": each.why} for each in found.wrong],
        "wrongInAll": len(found.wrong) + found.left_out,
    }


def _print(repository: "OpenRepository", done: "Verification") -> None:
    from git_knotless.porcelain.output import print_fields, printable

    found = done.found
    rows = [
        ("repository", str(repository.url)),
        ("host", done.host),
        ("signed", f"revision {done.rev}, by {repository.store.did}"),
        ("refs", f"{found.counts['refs']:,}"),
        ("claims", f"{found.counts['claims']:,}"),
        ("packs", f"{found.counts['packs']:,}, of {found.counts['objects']:,} objects"),
        ("LFS objects", f"{found.counts['lfsObjects']:,}"),
        ("downloaded", f"{found.bytes:,} bytes"),
    ]
    if done.before is not None:
        rows.append(("accepted", f"revision {done.before} was seen before"))
    number = len(found.wrong) + found.left_out
    rows.append(("wrong", f"{number:,}" if number else "nothing"))
    print_fields(rows)
    for each in found.wrong:
        print(printable(f"wrong: {each}"))
    if found.left_out:
        print(f"wrong: … and {found.left_out:,} more")


@contextmanager
def scratch(cache_dir: Path) -> Iterator[Path]:
    """A folder for as long as it takes; those of commands that were killed go first."""
    from tempfile import TemporaryDirectory

    cache_dir.mkdir(parents=True, exist_ok=True)
    _sweep(cache_dir)
    with TemporaryDirectory(dir=cache_dir, prefix=_LEFT_OVER) as name:
        yield Path(name)


def _sweep(cache_dir: Path) -> None:
    from shutil import rmtree

    for left in cache_dir.glob(f"{_LEFT_OVER}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_OVER_SECONDS:
                rmtree(left)
