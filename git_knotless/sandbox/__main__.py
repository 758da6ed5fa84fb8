"""`python -m git_knotless.sandbox --dir DIR`: run a sandbox in the foreground until it is ended."""

import argparse
import json
import sys
from pathlib import Path

from git_knotless.errors import KnotlessError
from git_knotless.sandbox.errors import SandboxError
from git_knotless.sandbox.serve import Wanted, run
from git_knotless.sandbox.state import DEFAULT_BLOB_LIMIT, Behaviour


def main(argv: list[str] | None = None) -> int:
    options = _parse(argv)
    behaviour = Behaviour(
        blob_limit=options.blob_limit,
        rate_limit=options.rate_limit,
        clean_errors=options.clean_errors,
        seek=not options.no_seek,
        create_updates=options.create_updates,
    )
    wanted = Wanted(options.dir, options.port, options.pds, tuple(options.account), behaviour)
    try:
        run(wanted, lambda network: _say(_said(network, options.json)))
    except KnotlessError as error:
        return _fail(error.message)
    except OSError as error:
        return _fail(f"{error.filename or options.dir}: {error.strerror}")
    return 0


def _fail(message: str) -> int:
    print(f"sandbox: {message}", file=sys.stderr)
    return 1


def _say(text: str) -> None:
    """Whoever started it may not be there to hear."""
    if sys.stdout is None:  # it was closed from the first, and the number is another file's by now
        return
    try:
        with open(sys.stdout.fileno(), "w", closefd=False) as out:
            print(text, file=out)
    except OSError as error:
        raise SandboxError(f"cannot say that it is ready: {error.strerror}") from error


def _said(network: dict[str, object], as_json: bool) -> str:  # noqa: FBT001  an option as it is
    if as_json:
        return json.dumps(network)
    return "\n".join(f"{name}: {json.dumps(value)}" for name, value in network.items())


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m git_knotless.sandbox", description=__doc__)
    add = parser.add_argument
    add("--dir", type=Path, required=True, metavar="DIR", help="keep everything here")
    add(
        "--port",
        type=_port,
        metavar="N",
        help="of the PLC directory, the PDSes after it (free ones)",
    )
    add("--pds", type=_count, default=1, metavar="N", help="number of PDSes (1)")
    add("--blob-limit", type=_size, default=DEFAULT_BLOB_LIMIT, metavar="BYTES",
        help="largest blob that is taken (5 MiB)")  # fmt: skip
    add("--rate-limit", action="store_true", help="enforce the reference's rate limits")
    add("--clean-errors", action="store_true", help="name what the reference answers 500 to")
    add("--no-seek", action="store_true", help="list from no key but where a page ended")
    add("--create-updates", action="store_true", help="let a create overwrite")
    add("--account", action="append", default=[], metavar="HANDLE",
        help="have this account, made if it is not there; may be given again")  # fmt: skip
    add("--json", action="store_true", help="print the network as one line of JSON when ready")
    return parser.parse_args(argv)


def _port(text: str) -> int:
    return _number(text, 1024, 65535 - 16)


def _count(text: str) -> int:
    return _number(text, 1, 16)


def _size(text: str) -> int:
    return _number(text, 1, 1 << 40)


def _number(text: str, low: int, high: int) -> int:
    value = int(text)
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{text} is not from {low} to {high}")
    return value


if __name__ == "__main__":
    sys.exit(main())
