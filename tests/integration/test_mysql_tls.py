"""MySQL and MariaDB over TLS: what `ssl-mode` and `ssl-ca` of the store's address ask for is what the server sees."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from noonbell.errors import SettingsError, StoreUnavailable
from noonbell.stores import open_store
from services import keeper, launch, probe, wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Path]]:
    """The address of a private MariaDB that has a certificate, and the certificate."""
    folder = Path(mkdtemp(prefix="nb-tls-"))
    folder.chmod(0o755)
    command = launch.mariadb(folder / "server")
    certificate, key = folder / "server.crt", folder / "server.key"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *name, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    if command.user is not None:
        shutil.chown(key, command.user)
    client = ["-subj", "/CN=app", "-keyout", folder / "client.key", "-out", folder / "client.crt"]
    subprocess.run([*made, *client], check=True, capture_output=True)
    authority = f"--ssl-ca={folder / 'client.crt'}"
    command.arguments.extend((f"--ssl-cert={certificate}", f"--ssl-key={key}", authority))
    pid = keeper.start(command, folder, os.getpid())
    try:
        wait_until(lambda: probe.refusal("mysql", command.url) is None, launch.START_SECONDS)
        yield command.url.removesuffix("/mysql") + "/", certificate
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 15)
        wait_until(lambda: not keeper.alive(pid), keeper.STOP_SECONDS + 5)
        shutil.rmtree(folder, ignore_errors=True)


async def cipher(url: str) -> str:
    store = open_store(url)
    try:
        await store.open()
        rows = await store.fetch("show session status like 'Ssl_cipher'")  # type: ignore[attr-defined]
        return str(rows[0][1])
    finally:
        await store.close()


async def test_a_connection_is_as_private_as_the_address_asks(server: tuple[str, Path]):
    url, certificate = server
    await _make_database(url)
    assert await cipher(f"{url}nb") == ""
    for asked in (
        f"ssl-mode=VERIFY_CA&ssl-ca={certificate}",
        f"ssl_mode=verify_identity&ssl_ca={certificate}",
        f"ssl-ca={certificate}",
    ):
        assert await cipher(f"{url}nb?{asked}") != "", asked


async def test_a_certificate_that_is_not_trusted_or_of_another_name_is_refused(server: tuple[str, Path]):
    url, certificate = server
    await _make_database(url)
    for address in (
        f"{url}nb?ssl-mode=VERIFY_IDENTITY",
        f"{url}nb?ssl-mode=VERIFY_CA",
        f"{url.replace('127.0.0.1', 'localhost')}nb?ssl-ca={certificate}",
    ):
        with pytest.raises(StoreUnavailable, match="certificate"):
            await cipher(address)


async def test_a_user_who_has_to_show_a_certificate_is_let_in_with_it(server: tuple[str, Path]):
    url, certificate = server
    await _make_database(
        url, "create user if not exists app@'127.0.0.1' require x509", "grant all on nb.* to app@'127.0.0.1'"
    )
    address = f"{url.replace('root@', 'app@')}nb?ssl-ca={certificate}"
    with pytest.raises(StoreUnavailable, match="Access denied"):
        await cipher(address)
    own = certificate.parent
    assert await cipher(f"{address}&ssl-cert={own / 'client.crt'}&ssl-key={own / 'client.key'}") != ""


@pytest.mark.parametrize(
    "asked",
    [
        "ssl-mode=PREFERRED",
        "ssl-mode=REQUIRED",
        "ssl-mode=VERIFY",
        "ssl-ca=/nowhere/ca.pem",
        "ssl-cert=/nowhere/client.pem",
        "ssl-key=/nowhere/client.key",
        "ssl-mode=DISABLED&ssl-ca=/nowhere/ca.pem",
        "sslmode=require",
        "parseTime=True",
    ],
)
def test_what_an_address_asks_for_and_does_not_get_is_refused(asked: str):
    with pytest.raises(SettingsError, match=r"store\.url"):
        open_store(f"mysql://root@127.0.0.1:3306/nb?{asked}")


async def _make_database(url: str, *more: str) -> None:
    link = await probe.connect_mysql(f"{url}mysql")
    async with link.cursor() as cursor:
        for statement in ("create database if not exists nb", *more):
            await cursor.execute(statement)
    await link.ensure_closed()
