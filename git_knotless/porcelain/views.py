"""A repository as the commands show it."""

from typing import TYPE_CHECKING, Any

from git_knotless.storage.records import REPO, RepoRecord
from git_knotless.storage.refname import BRANCHES, TAGS

if TYPE_CHECKING:
    from git_knotless.atproto.syntax import Did
    from git_knotless.storage.records import Rule
    from git_knotless.storage.snapshot import Snapshot
    from git_knotless.storage.url import RepoUrl


def place_json(url: "RepoUrl", did: "Did") -> dict[str, Any]:
    return {"uri": f"at://{did}/{REPO}/{url.name}", "url": str(url), "name": url.name}


def repository_json(url: "RepoUrl", did: "Did", repo: RepoRecord) -> dict[str, Any]:
    """Where it is, and the record's fields, those with a default always there."""
    fields = {name: value for name, value in repo.fields.items() if name != "$type"}
    known = {
        "description": repo.description,
        "defaultBranch": repo.default_branch,
        "collaborators": list(repo.collaborators),
        "rules": [dict(rule.fields) for rule in repo.rules],
        "archived": repo.archived,
    }
    place = place_json(url, did)  # comes first, and last, as a record could say otherwise
    return place | fields | place | known


def snapshot_json(url: "RepoUrl", did: "Did", snapshot: "Snapshot") -> dict[str, Any]:
    """Also the refs, as their records have them."""
    refs = (snapshot.refs[name] for name in snapshot.live)
    return repository_json(url, did, snapshot.repo) | {
        "refs": [
            {"name": ref.name, "target": ref.target, "generation": ref.generation} for ref in refs
        ]
    }


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


def ref_fields(snapshot: "Snapshot") -> list[tuple[str, str]]:
    branches = sum(name.startswith(BRANCHES) for name in snapshot.live)
    tags = sum(name.startswith(TAGS) for name in snapshot.live)
    return [("branches", str(branches)), ("tags", str(tags))]


def _rule(rule: "Rule") -> str:
    return f"{rule.branch} ({'linear' if rule.linear else 'merges'})"
