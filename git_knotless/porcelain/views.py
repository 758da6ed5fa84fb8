"""A repository as the commands show it."""

from typing import TYPE_CHECKING, Any

from git_knotless.storage.records import REPO, RepoRecord
from git_knotless.storage.refname import BRANCHES, TAGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from git_knotless.atproto.syntax import Did
    from git_knotless.storage.places.references import RepoRef
    from git_knotless.storage.records import Rule
    from git_knotless.storage.snapshot import Snapshot
    from git_knotless.storage.url import RepoUrl


def place_json(url: "RepoUrl", did: "Did") -> dict[str, Any]:
    return {"uri": f"at://{did}/{REPO}/{url.name}", "url": str(url), "name": url.name}


def repository_json(url: "RepoUrl", did: "Did", repo: RepoRecord) -> dict[str, Any]:
    """Where it is, and what it is: these keys in this order, whatever its record has."""
    return place_json(url, did) | {
        "key": repo.key,
        "epoch": repo.epoch,
        "description": repo.description,
        "defaultBranch": repo.default_branch,
        "createdAt": repo.created_at,
        "updatedAt": repo.updated_at,
        "archived": repo.archived,
        "collaborators": list(repo.collaborators),
        "rules": [_rule_json(rule) for rule in repo.rules],
        "forkOf": _reference(repo.fork_of),
        "transfer": _reference(repo.transfer),
        "transferredFrom": _reference(repo.transferred_from),
    }


def snapshot_json(url: "RepoUrl", did: "Did", snapshot: "Snapshot") -> dict[str, Any]:
    """Also the refs, by name."""
    refs = (snapshot.refs[name] for name in snapshot.live)
    return repository_json(url, did, snapshot.repo) | {
        "refs": [
            {"name": ref.name, "target": ref.target, "generation": ref.generation} for ref in refs
        ]
    }


def _reference(ref: "RepoRef | None") -> dict[str, Any] | None:
    return None if ref is None else ref.to_json()


def _rule_json(rule: "Rule") -> dict[str, Any]:
    """As it is read: what the rule leaves to its reader is said."""
    return {"branch": rule.branch, "history": _history(rule), "queue": rule.queue}


def _history(rule: "Rule") -> str:
    return "linear" if rule.linear else "merges"


def repository_fields(
    url: "RepoUrl", repo: RepoRecord, collaborators: list[str]
) -> list[tuple[str, str]]:
    """Rows for a person; `collaborators` as they are called."""
    rows = [("url", str(url))]
    rows += [("description", repo.description)] if repo.description else []
    rows += [("default branch", repo.default_branch), ("created", repo.created_at)]
    rows += [("archived", "yes")] if repo.archived else []
    rows += [("collaborators", ", ".join(collaborators))] if collaborators else []
    rows += [("protected", ", ".join(map(_rule, repo.rules)))] if repo.rules else []
    return rows


def place_fields(repo: RepoRecord, name_of: "Callable[[Did], str]") -> list[tuple[str, str]]:
    """Where else it is, was or is to be; `name_of` says what an account is called."""
    places = (
        ("fork of", repo.fork_of),
        ("offered to", repo.transfer),
        ("came from", repo.transferred_from),
    )
    return [
        (what, f"knotless://{name_of(ref.did)}/{ref.name}")
        for what, ref in places
        if ref is not None
    ]


def ref_fields(snapshot: "Snapshot") -> list[tuple[str, str]]:
    branches = sum(name.startswith(BRANCHES) for name in snapshot.live)
    tags = sum(name.startswith(TAGS) for name in snapshot.live)
    return [("branches", str(branches)), ("tags", str(tags))]


def _rule(rule: "Rule") -> str:
    return f"{rule.branch} ({_history(rule)})"
