"""The example applications under load, killed in the middle of it: no order without its job, no job without its order."""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import asyncpg
import pytest

from acceptance.harness import Nodes
from services import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples/frameworks"
PAGE = EXAMPLES.parents[1] / "docs/how-to/frameworks.md"
PATIENCE = 60.0

COMMANDS = {
    "fastapi": ("-m", "uvicorn", "fastapi_shop:app", "--port", "{port}"),
    "flask": ("flask_shop.py",),
    "django": ("django_shop.py", "runserver", "--noreload", "{port}"),
}
_GUNICORN = ("-m", "gunicorn", "--preload", "--workers", "2", "--bind", "127.0.0.1:{port}", "--no-control-socket")
PRELOADED = {
    "fastapi": (*_GUNICORN, "--worker-class", "asgi", "fastapi_shop:app"),
    "flask": (*_GUNICORN, "--worker-class", "gthread", "--threads", "4", "flask_shop:app"),
    "django": (*_GUNICORN, "--worker-class", "gthread", "--threads", "4", "django_shop:application"),
}
KILLS = 4


class Shop:
    def __init__(self, process: subprocess.Popen[bytes], port: int, database: str) -> None:
        self.process, self.port, self.database = process, port, database

    def order(self, quantity: int = 1) -> int:
        """The status; 0 if there was no answer."""
        body = json.dumps({"item": "bell", "quantity": quantity}).encode()
        address = f"http://127.0.0.1:{self.port}/orders"
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            refused.close()
            return refused.code
        except OSError:
            return 0

    def numbers(self) -> tuple[set[int], set[int]]:
        """Of the orders, and of the orders that the runs are for."""
        return asyncio.run(self._numbers())

    async def _numbers(self) -> tuple[set[int], set[int]]:
        connection = await asyncpg.connect(self.database)
        try:
            # One snapshot: what the process had sent before it was killed may be committed at any moment.
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                orders = {row[0] for row in await connection.fetch("select id from orders")}
                keys = {row[0] for row in await connection.fetch("select key from noonbell.runs where key is not null")}
        finally:
            await connection.close()
        return orders, {int(key.removeprefix("order-")) for key in keys}

    def children(self) -> list[int]:
        return [
            int(pid) for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ]

    def is_up_or_ended(self) -> bool:
        return self.order() == 201 or self.process.poll() is not None


def free_port() -> int:
    """Below those that the kernel gives to callers: one that asks such a port before the server does may get it, and hold it."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as taken, contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port


def kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def launched(command: Sequence[str], database: str, log: Path, cleanup: contextlib.ExitStack) -> Shop:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, *(word.format(port=port) for word in command)],
        cwd=EXAMPLES,
        env=os.environ | {"DATABASE_URL": database, "PORT": str(port), "NOONBELL_STORE__POOL_SIZE": "2"},
        stdout=subprocess.DEVNULL,
        stderr=cleanup.enter_context(log.open("wb")),
        start_new_session=True,
    )
    cleanup.callback(process.wait)
    cleanup.callback(kill_group, process)
    return Shop(process, port, database)


@pytest.fixture
def start(fresh_postgres: Callable[[], str], tmp_path: Path) -> Iterator[Callable[[Sequence[str]], Shop]]:
    with contextlib.ExitStack() as cleanup:

        def begin(command: Sequence[str]) -> Shop:
            database, log = fresh_postgres(), tmp_path / "log"
            while True:
                shop = launched(command, database, log, cleanup)
                wait_until(shop.is_up_or_ended, PATIENCE)
                if shop.process.poll() is None:
                    return shop
                # Other tests may hold every connection that the server has to give.
                assert "too many clients" in log.read_text(), log.read_text()

        yield begin


@contextlib.contextmanager
def customers(shop: Shop, answered: list[int]) -> Iterator[None]:
    """Four of them, who order until the block ends or the shop does; `answered` grows with each order that was confirmed."""
    closing = threading.Event()

    def customer() -> None:
        while not closing.is_set() and shop.process.poll() is None:
            if shop.order() == 201:
                answered.append(201)

    threads = [threading.Thread(target=customer) for _ in range(4)]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        closing.set()
        for each in threads:
            each.join()


@pytest.mark.acceptance
@pytest.mark.parametrize("kind", COMMANDS)
def test_orders_and_their_jobs_are_one_commit_through_a_kill(kind: str, start: Callable[[Sequence[str]], Shop]):
    shop = start(COMMANDS[kind])
    assert shop.order(quantity=500) == 409
    orders, jobs = shop.numbers()
    assert (orders, len(orders)) == (jobs, 1), "what was refused left neither"
    answered: list[int] = []
    with customers(shop, answered):
        wait_until(lambda: len(answered) > 30, PATIENCE)
        kill_group(shop.process)
        shop.process.wait()
    orders, jobs = shop.numbers()
    assert orders == jobs
    assert len(orders) > len(answered), "each answer was committed, and the first order too"


@pytest.mark.acceptance
@pytest.mark.skipif(sys.platform != "linux", reason="finds the children of gunicorn in /proc")
@pytest.mark.parametrize("kind", PRELOADED)
def test_children_of_gunicorn_with_preload_publish_and_are_killed_at_random_moments(
    kind: str, start: Callable[[Sequence[str]], Shop]
):
    shop = start(PRELOADED[kind])
    answered: list[int] = []
    with customers(shop, answered):
        for _ in range(KILLS):
            more = len(answered) + random.randint(5, 25)
            wait_until(lambda: len(answered) >= more and len(shop.children()) == 2, PATIENCE)  # noqa: B023 - read at once
            os.kill(random.choice(shop.children()), signal.SIGKILL)
        more = len(answered) + 10
        wait_until(lambda: len(answered) >= more, PATIENCE)
        assert shop.process.poll() is None, "the parent goes on, and its new children publish"
        kill_group(shop.process)
        shop.process.wait()
    orders, jobs = shop.numbers()
    assert orders == jobs
    assert len(orders) > len(answered) > 30


def test_every_example_has_its_place_on_the_page():
    page = PAGE.read_text()
    for example in EXAMPLES.glob("*.py"):
        assert f"examples/frameworks/{example.name}" in page


def test_what_the_page_shows_of_an_example_is_in_it():
    shown = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for part, example in zip(shown, ("fastapi_shop.py", "django_admin.py"), strict=True):
        assert part in (EXAMPLES / example).read_text()


ADMIN = """
import sys
import django
from django.conf import settings
from django.core.management import call_command

parts = ("admin", "auth", "contenttypes", "messages", "sessions")
settings.configure(
    NOONBELL_URL=sys.argv[1],
    ALLOWED_HOSTS=["testserver"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    INSTALLED_APPS=[f"django.contrib.{part}" for part in parts],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    ROOT_URLCONF=__name__,
    SECRET_KEY="only-for-this-test",
    TEMPLATES=[{
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": [
            "django.template.context_processors.request",
            "django.contrib.auth.context_processors.auth",
            "django.contrib.messages.context_processors.messages",
        ]},
    }],
    USE_TZ=True,
    STATIC_URL="/static/",
)
django.setup()
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection, models
from django.test import Client
from django.urls import path
from django_admin import OrderAdmin


class Order(models.Model):
    item = models.TextField()

    class Meta:
        app_label = "auth"


admin.site.register(Order, OrderAdmin)
urlpatterns = [path("admin/", admin.site.urls)]
call_command("migrate", verbosity=0)
with connection.schema_editor() as editor:
    editor.create_model(Order)
Order.objects.create(pk=7, item="<bell>")
visitor = Client()
visitor.force_login(User.objects.create_superuser("ada"))
print(visitor.get("/admin/auth/order/").content.decode())
"""


@pytest.mark.acceptance
def test_the_admin_of_django_leads_from_an_order_to_its_job(nodes: Nodes, sqlite_url: str):
    node = nodes.start(sqlite_url)
    node.ask("POST", "/tasks", {"name": "confirm", "job_type": "confirm"}, expect=201)
    run_id, other = (
        node.ask("POST", "/tasks/name:confirm/trigger", {"key": key})["run_id"] for key in ("order-7", "order-71")
    )
    told = subprocess.run(
        [sys.executable, "-c", ADMIN, f"http://127.0.0.1:{node.port}"],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert told.returncode == 0, told.stderr
    (link,) = re.findall(r'<a href="([^"]+)">in Noonbell</a>', told.stdout)
    with urllib.request.urlopen(html.unescape(link), timeout=PATIENCE) as page:  # noqa: S310
        text = page.read().decode()
    assert (f"/runs/{run_id}" in text, f"/runs/{other}" in text) == (True, False)


def test_the_setting_of_the_page_is_the_schema_that_the_examples_connect_to():
    """With the default schema a worker would start on empty tables, and the orders would wait."""
    (schema,) = re.findall(r"schema: (\w+)\}' > noonbell.yaml", PAGE.read_text())
    named = {
        found
        for example in EXAMPLES.glob("*_shop.py")
        for found in re.findall(r'schema="(\w+)"', example.read_text()) or [None]
    }
    assert named == {schema}
