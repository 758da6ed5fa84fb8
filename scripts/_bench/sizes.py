"""How much of everything is measured."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sizes:
    commits: int = 2_000  # of the synthetic history
    runs: int = 5  # timed, of each contestant, after one that is not
    starts: int = 15  # likewise, of a command that does nothing else
    pushes: int = 1_000  # small ones, one commit each
    forced: int = 50  # pushes of one file, each in place of the one before
    forced_file: int = 5 * MIB
    repositories: int = 200  # others in the account
    packs_between: int = 120  # more than one page of a listing
    memory: int = 1024 * MIB
    refs: int = 5_000
    packs: int = 10_000
    file: int = 100 * MIB
    batches: int = 1_000  # small ones, for the sandbox
    records: int = 100_000  # of the account whose records it proves
    proofs: int = 500
    verified: int = 1_000  # refs of a clone that is verified
    large: int = 50_000  # refs that are kept


# Everything once, small: whether it runs, and the counts. Its times say nothing.
QUICK = Sizes(
    commits=60,
    runs=1,
    starts=1,
    pushes=25,
    forced=4,
    forced_file=1 * MIB,
    repositories=5,
    packs_between=5,
    memory=12 * MIB,
    refs=250,
    packs=210,
    file=6 * MIB,
    batches=20,
    records=500,
    proofs=20,
    verified=60,
    large=1_500,
)
