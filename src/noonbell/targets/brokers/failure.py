"""Why a message was not published, as a kind of failure that the retry policy knows and a sentence."""

from __future__ import annotations

from noonbell.model.failure_text import failure_text


class BrokerFailure(Exception):
    """`kind` is what `error_details.kind` shows.

    connection_refused, dns, connect_timeout, connection_lost, tls   class network: retried
    nacked, no_responders, error                                     class error: retried
    authentication, refused, unroutable, blocked_address, too_large  never retried: it would end in the same way
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def lost(error: object = None) -> BrokerFailure:
    """The connection ended before the broker's word was there: it may have the message."""
    if error is not None and str(error):
        return BrokerFailure("connection_lost", failure_text("lost_before_broker_why", error=str(error)))
    return BrokerFailure("connection_lost", failure_text("lost_before_broker"))
