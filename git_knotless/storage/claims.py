"""`dev.knotless.claim`: the compare-and-swap of a ref and of a repository as a whole."""

from typing import Any, Self

from git_knotless.atproto.syntax import Did, Rkey
from git_knotless.storage.records import CLAIM, RepoRecord, ref_rkey
from git_knotless.value import value


def claim_rkey(ref: Rkey, generation: int) -> Rkey:
    return Rkey(f"{ref}.{generation}")


def epoch_rkey(key: str, epoch: int) -> Rkey:
    return Rkey(f"{key}.epoch.{epoch}")


@value
class ClaimRecord:
    """`dev.knotless.claim`: the compare-and-swap of one move of one ref, and its receipt."""

    repo: str
    ref: str
    generation: int
    epoch: int
    old: str | None
    new: str | None
    nonce: str
    created_at: str
    pusher: Did | None = None

    @property
    def rkey(self) -> Rkey:
        return claim_rkey(ref_rkey(self.repo, self.ref), self.generation)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"$type": CLAIM, "repo": self.repo, "ref": self.ref}
        value |= {"generation": self.generation, "epoch": self.epoch, "nonce": self.nonce}
        value |= {"createdAt": self.created_at}
        optional = {"old": self.old, "new": self.new, "pusher": self.pusher}
        return value | {name: text for name, text in optional.items() if text is not None}


@value
class EpochRecord:
    """The claim record that stands while the repo record carries `epoch`.

    It says what the repo record says of it and no more, so that a push can update it, to what
    it already is, without reading it. The one that replaces it as the repository is deleted
    says so, and under which name it was: a delete that was cut is found by it.
    """

    repo: str
    epoch: int
    nonce: str
    created_at: str
    deleted: str | None = None

    @classmethod
    def of(cls, repo: RepoRecord) -> Self:
        return cls(repo.key, repo.epoch, repo.nonce, repo.updated_at)

    @property
    def rkey(self) -> Rkey:
        return epoch_rkey(self.repo, self.epoch)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"$type": CLAIM, "repo": self.repo, "epoch": self.epoch}
        value |= {"nonce": self.nonce, "createdAt": self.created_at}
        return value if self.deleted is None else value | {"deleted": self.deleted}
