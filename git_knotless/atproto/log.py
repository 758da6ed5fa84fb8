"""Log lines in which a host's words move no cursor."""

import logging


class PrintableFormatter(logging.Formatter):
    """httpx logs a host's reason phrase as it came, and an error may quote anything.

    A message is one line; only a traceback has more.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        # It stands on httpx, which whoever makes no request need not wait for.
        from git_knotless.atproto.answers import one_line

        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        from git_knotless.atproto.answers import visible

        return "\n".join(map(visible, super().format(record).split("\n")))
