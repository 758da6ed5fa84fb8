"""What a sandbox answers when it refuses: a status, a name and a sentence, as the reference does.

"Not found" is a 400 with a name nearly everywhere: the status says whose fault it is, not what.
"""

from git_knotless.errors import KnotlessError


class Refusal(KnotlessError):
    """An XRPC error: `{"error": name, "message": message}` with `status`."""

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.name = name
        self.headers: dict[str, str] = {}


def invalid(message: str, name: str = "InvalidRequest") -> Refusal:
    return Refusal(400, name, message)


def unauthorized(
    message: str = "Authentication Required", name: str = "AuthenticationRequired"
) -> Refusal:
    return Refusal(401, name, message)


def forbidden(message: str, name: str = "Forbidden") -> Refusal:
    return Refusal(403, name, message)


def internal() -> Refusal:
    """What the reference answers where it did not foresee the case."""
    return Refusal(500, "InternalServerError", "Internal Server Error")


def too_large(message: str = "request entity too large", name: str = "PayloadTooLarge") -> Refusal:
    return Refusal(413, name, message)


class SandboxError(KnotlessError):
    """What keeps a sandbox from starting."""
