"""`git knotless repo compact` and `repo size`: what a repository takes, and taking less."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from git_knotless.errors import KnotlessError
from git_knotless.porcelain.options import (
    Json,
    Owner,
    Repository,
    open_context,
    open_own,
    open_repository,
)

if TYPE_CHECKING:
    from git_knotless.context import Context
    from git_knotless.storage.packs.folding import Folded
    from git_knotless.storage.packs.pruning import Pruned
    from git_knotless.storage.packs.sizing import Part
    from git_knotless.storage.repositories import Repository as OpenRepository


class AtItAlready(KnotlessError):
    """Another command of this machine brings the same repository's packs together."""


def compact(
    repository: Repository = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would go; nothing is written.")
    ] = False,
    account: Owner = None,
    json: Json = False,
) -> None:
    """Free what nothing needs any more, and fold what is left.

    What a push replaced stays for a day. It costs as many bytes, down and up, as the packs have
    of which some goes.

    \b
    Examples:
      git knotless repo compact
      git knotless repo compact alice.example/notes --dry-run
    """
    from git_knotless.porcelain.output import print_fields, print_json
    from git_knotless.porcelain.views import place_json

    with open_context(account) as context:
        if dry_run:
            own = open_repository(context, repository, "repo compact")
        else:
            own = open_own(context, repository, "repo compact", account)
        pruned, folded = _compact(context, own, dry_run=dry_run)
    if json:
        print_json(place_json(own.url, own.store.did) | _compact_json(pruned, folded, dry_run))
    else:
        _warn(pruned)
        print_fields(_compact_fields(pruned, folded, dry_run))


def _compact(
    context: "Context", own: "OpenRepository", *, dry_run: bool
) -> "tuple[Pruned, Folded]":
    from git_knotless.porcelain.transfer import progress
    from git_knotless.storage.packs.folding import Folded, fold
    from git_knotless.storage.packs.pruning import prune

    with _room(context, own) as scratch:
        pruned = prune(own, scratch / "pruning", progress=progress(), dry_run=dry_run)
        if dry_run:
            return pruned, Folded()
        folded = fold(own, scratch / "folding", progress=progress(), at_least=2)
    _remember(own, pruned, folded)
    return pruned, folded


def _remember(own: "OpenRepository", pruned: "Pruned", folded: "Folded") -> None:
    """In the clone around us, if it is one: it need not fetch again what it has."""
    from git_knotless.porcelain.here import Here
    from git_knotless.storage.packs.taken import became, know_sizes, pack_sizes

    here, key = Here.look(), own.record().key
    if here is None:
        return
    became(here.git, key, pruned.packs, pruned.into)
    became(here.git, key, folded.packs, folded.into)
    if pack_sizes(here.git, key):
        know_sizes(here.git, key, dict(folded.sizes))


@contextmanager
def _room(context: "Context", repository: "OpenRepository") -> Iterator[Path]:
    from git_knotless.storage.packs.workroom import workroom

    with workroom(context.settings.cache_dir / "packs" / repository.record().key) as place:
        if place is None:
            raise AtItAlready(
                f"another command is at the packs of {repository.url}: try again once it has ended"
            )
        yield place


def _warn(pruned: "Pruned") -> None:
    from git_knotless.porcelain.output import warn
    from git_knotless.storage.brief import brief

    for why in brief(pruned.held):
        warn(f"nothing of the packs goes: {why}")
    for why in brief(pruned.left_out):
        warn(f"left as it is: {why}")


def _compact_json(pruned: "Pruned", folded: "Folded", dry_run: bool) -> dict[str, Any]:
    return {
        "dryRun": dry_run,
        "packs": len(pruned.packs),
        "bytes": pruned.size,
        "rewritten": pruned.rewritten,
        "freed": pruned.freed,
        "claims": pruned.claims,
        "folded": len(folded.packs),
        "held": list(pruned.held),
        "leftOut": list(dict.fromkeys((*pruned.left_out, *folded.left_out))),
    }


def _compact_fields(pruned: "Pruned", folded: "Folded", dry_run: bool) -> list[tuple[str, str]]:
    from git_knotless.storage.progress import shown_bytes

    word = "would be freed" if dry_run else "freed"
    packs = f"{len(pruned.packs)}, of {shown_bytes(pruned.size)}"
    kept = f"; {shown_bytes(pruned.rewritten)} of that stay" if pruned.rewritten else ""
    rows = [(word, shown_bytes(pruned.freed)), ("packs", packs + kept)]
    rows += [("claims", str(pruned.claims))]
    return rows if dry_run else [*rows, ("folded", f"{len(folded.packs)} packs")]


def size(
    repository: Repository = None,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Not what pruning would free: no pack is fetched.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what a repository takes on its host, and what pruning would free.

    \b
    Example:
      git knotless repo size alice.example/notes
    """
    from git_knotless.porcelain.output import print_fields, print_json, working
    from git_knotless.porcelain.transfer import progress
    from git_knotless.porcelain.views import place_json
    from git_knotless.storage.packs.pruning import prune
    from git_knotless.storage.packs.sizing import measure

    with open_context() as context:
        found = open_repository(context, repository, "repo size")
        with working(f"measuring {found.url}"):
            parts = measure(found)
        pruned = None
        if not quick:
            with _room(context, found) as scratch:
                pruned = prune(found, scratch, progress=progress(), dry_run=True)
    if json:
        print_json(place_json(found.url, found.store.did) | _size_json(parts, pruned))
        return
    if pruned is not None:
        _warn(pruned)
    print_fields([("url", str(found.url)), *_size_fields(parts, pruned)])


def _size_json(parts: "list[Part]", pruned: "Pruned | None") -> dict[str, Any]:
    prunable = pruned and {
        "packs": len(pruned.packs),
        "bytes": pruned.freed,
        "claims": pruned.claims,
        "held": list(pruned.held),
    }
    return {
        "readers": "anyone",
        "bytes": sum(part.size for part in parts),
        "records": [
            {
                "collection": part.collection,
                "count": part.records,
                "bytes": part.record_bytes,
                "blobs": part.blobs,
                "blobBytes": part.blob_bytes,
            }
            for part in parts
        ],
        "prunable": prunable,
    }


def _size_fields(parts: "list[Part]", pruned: "Pruned | None") -> list[tuple[str, str]]:
    from git_knotless.storage.progress import shown_bytes

    rows = [("readers", "anyone"), ("size", shown_bytes(sum(part.size for part in parts)))]
    for part in parts:
        name = part.collection.rpartition(".")[2]
        blobs = f", and {part.blobs} blobs of {shown_bytes(part.blob_bytes)}" if part.blobs else ""
        if part.records:
            rows.append((name, f"{part.records} of {shown_bytes(part.record_bytes)}{blobs}"))
    if pruned is not None:
        frees = f"{shown_bytes(pruned.freed)} in {len(pruned.packs)} packs"
        rows.append(("prunable", f"{frees}, {pruned.claims} claims"))
    return rows
