"""Channels of kind `email`: a mail server takes each message by SMTP.

    smtp://HOST[:587]     begins in plain text and goes over to TLS where the server offers it (STARTTLS)
    smtps://HOST[:465]    TLS from the first byte

The user who signs in stands in the address (`smtps://USER@HOST`), or is the sender. A password is sent under TLS only,
or to this machine. Every dial passes the outbound guard. `Message-ID` is the same for each attempt, so that a mail
server can drop a repeat.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import smtplib
import socket
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from noonbell.alerts.channel_kind import AlertSender, ChannelKind, Undeliverable
from noonbell.alerts.chat import link_of, title_of
from noonbell.clock import SECOND, SystemClock
from noonbell.fields.problems import ReadContext
from noonbell.masking import mask_credentials
from noonbell.model.alert import Channel
from noonbell.model.failure_text import failure_text, said_in
from noonbell.settings import Settings
from noonbell.targets.http.guard import AddressGuard, BlockedAddress

TIMEOUT = 30.0
_STEP_TIMEOUT = 10.0
_PORTS: Final = {"smtp": 587, "smtps": 465}
_ADDRESS = re.compile(r"[^@\s<>,;\"]{1,64}@[^@\s<>,;\"]{1,255}")


class GuardedSMTP(smtplib.SMTP):
    """Dials no address that the guard denies."""

    def __init__(self, guard: AddressGuard, host: str, port: int, context: ssl.SSLContext) -> None:
        self._guard, self.address = guard, ""
        self._start(host, port, context)

    def _start(self, host: str, port: int, context: ssl.SSLContext) -> None:
        del context
        super().__init__(host, port, timeout=_STEP_TIMEOUT)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        problem: OSError = OSError(f"{host} has no address")
        for *_, found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            self.address = str(found[0])
            try:
                self._guard.check(self.address, port)
                return socket.create_connection((self.address, port), timeout)
            except OSError as error:
                problem = error
        raise problem


class GuardedTlsSMTP(smtplib.SMTP_SSL, GuardedSMTP):
    def _start(self, host: str, port: int, context: ssl.SSLContext) -> None:
        smtplib.SMTP_SSL.__init__(self, host, port, timeout=_STEP_TIMEOUT, context=context)

    def __init__(self, guard: AddressGuard, host: str, port: int, context: ssl.SSLContext) -> None:
        GuardedSMTP.__init__(self, guard, host, port, context)


class EmailSender(AlertSender):
    def __init__(
        self,
        *,
        guard: AddressGuard | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._guard = guard or AddressGuard(deny_ports=())
        self._ssl_context = ssl_context

    async def send(self, channel: Channel, message: Mapping[str, Any], delivery_id: str) -> int | None:
        if not channel.to or not channel.sender:
            raise Undeliverable(failure_text("alert_no_sender"), again=False)
        mail = mail_of(channel, message, delivery_id, SystemClock().now() / SECOND)
        try:
            async with asyncio.timeout(TIMEOUT):
                await asyncio.to_thread(self._deliver, channel, mail)
        except TimeoutError:
            raise Undeliverable(failure_text("alert_no_answer", seconds=f"{TIMEOUT:g}")) from None
        except smtplib.SMTPResponseException as error:
            said = (
                error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
            )
            why = failure_text("alert_mail_answered", code=error.smtp_code, error=said)
            raise Undeliverable(why, again=400 <= error.smtp_code < 500, response_code=error.smtp_code) from None
        except BlockedAddress as error:
            raise Undeliverable(said_in(error), again=False) from None
        except ssl.SSLError as error:
            raise Undeliverable(failure_text("tls_failed", error=str(error)), again=False) from None
        except UnicodeError:
            raise Undeliverable(failure_text("alert_mail_not_ascii"), again=False) from None
        except socket.gaierror as error:
            host = urlsplit(channel.url).hostname or ""
            raise Undeliverable(failure_text("no_such_host", host=host, error=error.strerror)) from None
        except smtplib.SMTPServerDisconnected as error:
            raise Undeliverable(failure_text("alert_mail_lost", error=str(error))) from None
        except (smtplib.SMTPException, OSError) as error:
            raise Undeliverable(_failed(error, channel)) from None
        return None

    def _deliver(self, channel: Channel, mail: EmailMessage) -> None:
        parts = urlsplit(channel.url)
        make = GuardedTlsSMTP if parts.scheme == "smtps" else GuardedSMTP
        context = self._ssl_context or ssl.create_default_context()
        with make(self._guard, parts.hostname or "", parts.port or _PORTS[parts.scheme], context) as server:
            server.ehlo()
            is_sealed = parts.scheme == "smtps"
            if not is_sealed and server.has_extn("starttls"):
                server.starttls(context=context)
                server.ehlo()
                is_sealed = True
            if channel.secret:
                if not is_sealed and not ipaddress.ip_address(server.address).is_loopback:
                    raise Undeliverable(failure_text("alert_mail_open"), again=False)
                server.login(unquote(parts.username) if parts.username else str(channel.sender), channel.secret)
            try:
                refused = server.send_message(mail, channel.sender, list(channel.to))
            except smtplib.SMTPRecipientsRefused as error:
                raise _refused(error.recipients, channel) from None
            if refused:
                raise _refused(refused, channel)


def _failed(error: Exception, channel: Channel) -> str:
    if isinstance(error, ConnectionRefusedError):
        parts = urlsplit(channel.url)
        return failure_text("refused", where=f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}")
    return failure_text("alert_mail_failed", error=str(error) or type(error).__name__)


def _refused(recipients: Mapping[str, tuple[int, bytes]], channel: Channel) -> Undeliverable:
    """Those who were not refused have the message: another attempt would send it twice, unless all were."""
    said = "; ".join(f"{name}: {code} {text.decode(errors='replace')}" for name, (code, text) in recipients.items())
    is_for_all = len(recipients) == len(set(channel.to))
    again = is_for_all and all(400 <= code < 500 for code, _ in recipients.values())
    return Undeliverable(failure_text("alert_mail_refused", recipients=said[:280]), again=again)


def mail_of(channel: Channel, message: Mapping[str, Any], delivery_id: str, at: float) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"] = " ".join(title_of(message).split())
    mail["From"] = f"Noonbell <{channel.sender}>"
    mail["To"] = ", ".join(channel.to)
    mail["Date"] = formatdate(at)
    mail["Message-ID"] = f"<{delivery_id}@{str(channel.sender).rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content("\n\n".join(filter(None, (str(message["message"] or ""), link_of(message)))) + "\n")
    return mail


def check(channel: Channel, at: ReadContext) -> None:
    if not _is_mail_server(channel.url):
        at.wrong(
            "url", "is missing or wrong; expected smtp://HOST:PORT or smtps://HOST:PORT; the password is the secret"
        )
    if channel.secret is not None and not channel.secret.isascii():
        at.wrong("secret", "has characters that are not ASCII; mail servers accept ASCII only")
    if channel.sender is None or _ADDRESS.fullmatch(channel.sender) is None:
        at.wrong("sender", "is missing or wrong; expected an e-mail address")
    if not channel.to:
        at.wrong("to", "is missing; expected e-mail addresses")
    for address in channel.to:
        if _ADDRESS.fullmatch(address) is None:
            at.wrong("to", "has {value}; expected e-mail addresses", value=repr(address[:60]))


def _is_mail_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # ValueError for one out of range
    except ValueError:
        return False
    is_bare = not parts.password and parts.path in ("", "/") and not parts.query and not parts.fragment
    return parts.scheme in _PORTS and bool(parts.hostname) and is_bare


def make_sender(settings: Settings) -> EmailSender:
    executor = settings.executor
    return EmailSender(guard=AddressGuard(executor.allow_networks, executor.deny_networks, deny_ports=()))


KIND: Final = ChannelKind(
    name="email",
    make_sender=make_sender,
    check=check,
    shown_url=mask_credentials,
    credential="the password of the user who sends, where the mail server wants one",
    fields=("url", "secret", "sender", "to"),
    sends_secret=True,
    url_examples={
        "STARTTLS": "smtp://smtp.example.com:587",
        "TLS": "smtps://smtp.example.com:465",
        "QQ 企业邮箱": "smtps://smtp.exmail.qq.com:465",
    },
)
