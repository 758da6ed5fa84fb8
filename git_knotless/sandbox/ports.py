"""A sandbox that goes to other ports, as when something else has taken its own.

Where an account is, its DID says. So each of a host is told of the new address, signed with a key
of that host, in the transaction that moves the host: the sandbox is at the old ports, or the new.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace

from git_knotless.sandbox import plc
from git_knotless.sandbox.db import set_setting
from git_knotless.sandbox.errors import SandboxError
from git_knotless.sandbox.state import PLC_PORT, Host, Sandbox


def moved(sandbox: Sandbox, port: int | None) -> Sandbox:
    """With the directory at `port`, and the hosts at those after it; as it is without one."""
    if port in (None, sandbox.plc_port):
        return sandbox
    hosts = tuple(replace(host, port=port + 1 + host.number) for host in sandbox.hosts)
    return replace(sandbox, plc_port=port, hosts=hosts)


def move(old: Sandbox, new: Sandbox) -> None:
    """Keep that `old` is `new` from now on. Raises SandboxError where a DID cannot be told."""
    if old.ports == new.ports:
        return
    moves = {was.url: (was, now) for was, now in zip(old.hosts, new.hosts, strict=True)}
    with old.database.writing() as transaction:
        connection = transaction.connection
        for did, endpoint in list(_places(connection)):
            if endpoint in moves:
                _tell(connection, did, *moves[endpoint])
        for host in new.hosts:
            connection.execute(
                "UPDATE host SET port = ? WHERE number = ?", (host.port, host.number)
            )
        set_setting(connection, PLC_PORT, str(new.plc_port))


def _places(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Every DID that is not tombstoned, and where its PDS is."""
    last = "SELECT max(number), did FROM operation WHERE nullified = 0 GROUP BY did"
    for row in connection.execute(last).fetchall():
        operation = plc.history(connection, row["did"])[-1].operation
        if service := operation.get("services", {}).get(plc.PDS_SERVICE):
            yield row["did"], service["endpoint"]


def _tell(connection: sqlite3.Connection, did: str, was: Host, now: Host) -> None:
    def at_new_port(fields: plc.Operation) -> plc.Operation:
        service = {**fields["services"][plc.PDS_SERVICE], "endpoint": now.url}
        return {"services": {**fields["services"], plc.PDS_SERVICE: service}}

    operation = plc.following(connection, did, was.rotation_key, at_new_port)
    try:
        plc.submit(connection, did, operation)
    except plc.PlcError as error:
        raise SandboxError(
            f"{did} is at {was.url} by keys that are not the sandbox's, so it keeps its ports"
        ) from error
