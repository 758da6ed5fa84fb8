"""The one base of every error that a person may see."""


class KnotlessError(Exception):
    """What went wrong, in one line of the user's terms; `hint` is the command that mends it.

    The helper, the command line and the server turn it into what a person sees; nothing
    below them prints or exits.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class LoginNeeded(KnotlessError):
    """A login is what is missing."""
