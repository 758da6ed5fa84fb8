"""What `git knotless sandbox start` is asked for, and the commands that its hints name."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from git_knotless.atproto.syntax import Handle, InvalidSyntax, is_handle, parse_handle
from git_knotless.errors import KnotlessError
from git_knotless.porcelain.options import bare

if TYPE_CHECKING:
    from git_knotless.porcelain.sandbox_folder import Folder

DEFAULT_ACCOUNT = "alice.test"
MOST_HOSTS = 16
# What the server says that a command mends.
_PORT_TAKEN = re.compile(r"port [0-9]+ is already taken")
_NO_HOST = re.compile(r"no host here is for \.pds([0-9]+)\.test\b")


class SandboxRuns(KnotlessError):
    """One runs already, and is not as it is asked for."""


@dataclass(frozen=True, slots=True)
class Wanted:
    directory: Path | None  # as it was given
    port: int | None
    pds: int
    handles: tuple[Handle, ...] = ()
    foreground: bool = False

    def with_accounts(self, names: Sequence[str]) -> Self:
        """Raises InvalidSyntax with the command that has `bob.test` for `bob`."""
        handles = []
        for name in map(bare, names):
            try:
                handles.append(parse_handle(name))
            except InvalidSyntax as error:
                meant = f"{name}.test".lower()
                hint = self._with(Handle(meant)).command() if is_handle(meant) else None
                raise InvalidSyntax(error.message, hint=hint) from error
        return replace(self, handles=tuple(handles))

    def _with(self, handle: Handle) -> Self:
        return replace(self, handles=(handle,))

    def options(self, kept: list[str]) -> list[str]:
        """For the server. It has again the accounts that it had; the first stays the first."""
        handles = dict.fromkeys([*kept, *self.handles]) or [DEFAULT_ACCOUNT]
        given = ["--pds", str(self.pds), *(f"--account={handle}" for handle in handles)]
        return given if self.port is None else [*given, "--port", str(self.port)]

    def command(self) -> str:
        """What asks for the same."""
        words = ["--port", str(self.port)] if self.port is not None else []
        words += ["--pds", str(self.pds)] if self.pds != 1 else []
        words += [word for handle in self.handles for word in ("--account", handle)]
        words += ["--foreground"] if self.foreground else []
        return command("start", self.directory, *words)

    def check(self, network: dict[str, Any], folder: "Folder") -> None:
        """Refuse what one that runs is not, and does not become while it does."""
        there = {each["handle"] for each in network["accounts"]}
        lacks = [f"without {handle}" for handle in self.handles if handle not in there]
        if len(network["pds"]) < self.pds:
            lacks.append(f"without {self.pds} hosts")
        if self.port is not None and not network["plc"].endswith(f":{self.port}"):
            lacks.append(f"at {network['plc']}")
        if lacks or self.foreground:
            said = ", ".join(["runs already", *lacks])
            raise SandboxRuns(
                f"the sandbox in {folder.path} {said}",
                hint=f"{command('stop', self.directory)} && {self.command()}",
            )

    def mend(self, said: str, free_port: int) -> str | None:
        """The command that would do what the server could not, for what it `said`."""
        if _PORT_TAKEN.search(said):
            return replace(self, port=free_port).command()
        if (found := _NO_HOST.search(said)) and (hosts := int(found[1]) + 1) <= MOST_HOSTS:
            return replace(self, pds=hosts).command()
        return None


def command(name: str, directory: Path | None, *words: str) -> str:
    place = [] if directory is None else ["--dir", str(directory)]
    return shlex.join(["git", "knotless", "sandbox", name, *place, *words])
