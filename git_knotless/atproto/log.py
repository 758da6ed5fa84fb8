"""Log lines in which a host's words move no cursor."""

import logging

from git_knotless.atproto.answers import one_line, visible


class PrintableFormatter(logging.Formatter):
    """httpx logs a host's reason phrase as it came, and an error may quote anything.

    A message is one line; only a traceback has more.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(visible, super().format(record).split("\n")))
