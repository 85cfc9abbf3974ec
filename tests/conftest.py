"""What every test may ask for: a fresh database of each kind; and the closing count of tests per store.

A missing server skips the tests that need it, loudly; with CI=true the run does not even start.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import pytest

from services import KINDS, Services, bytecode, new_folder, prepared, processes, programs, thinned
from services.brokers import Broker
from services.databases import MysqlDatabases, PostgresDatabases, Prepare, redis_database
from services.emptied import EmptiedMariadb, EmptiedPostgres, Lending, migrate
from services.probe import Kind
from services.size import FULL

# No example is bounded by the clock: on a busy machine a single one may take seconds.
hypothesis.settings.register_profile("noonbell", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("noonbell")

STORES = ("memory", "sqlite", "postgres", "mariadb")
SERVICES = pytest.StashKey[Services]()

Fresh = Callable[..., str]
"""`fresh()` is the address of an empty database; `fresh(template, prepare)` of a copy of a prepared one."""


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.register(processes)  # it has an option


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts the tests with `&` has SIGINT ignored, and every command would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    bytecode.keep()
    prepared.keep()
    config.pluginmanager.register(thinned)
    if (handed := getattr(config, "workerinput", None)) is not None:
        config.stash[SERVICES] = Services(Path(handed["services_folder"]), handed["services_owner"])
        return
    services = config.stash[SERVICES] = Services(new_folder(), os.getpid())
    if in_ci() and not config.option.collectonly:
        missing = [service for kind in KINDS if (service := services.get(kind)).url is None]
        if missing:
            reasons = "\n".join(f"  {service.kind}: {service.story}" for service in missing)
            raise pytest.UsageError(f"CI=true, and these servers are missing:\n{reasons}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Ten thousand tests are no garbage: nobody looks for any among them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make test` leaves out what is marked `full`; `make test-full` runs that, and what is marked `longer` at its full size.

    Whoever names a test or chooses by these marks gets what was asked for.
    """
    asked = config.option.markexpr or ""
    if "full" in asked or "longer" in asked or any("::" in word for word in config.args):
        return
    left_out = [item for item in items if is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not is_left_out(item)]


def is_left_out(item: pytest.Item) -> bool:
    if item.get_closest_marker("full"):
        return not FULL
    return FULL and not item.get_closest_marker("longer")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    """pytest-xdist: tell a worker where the servers of this run are noted down."""
    services = node.config.stash[SERVICES]
    node.workerinput["services_folder"] = str(services.folder)
    node.workerinput["services_owner"] = services.owner_pid


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and SERVICES in config.stash:
        config.stash[SERVICES].stop()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> Iterator[None]:
    """Last of all summaries, so that only pytest's closing line comes after it."""
    yield
    missing = [service for service in config.stash[SERVICES].known() if service.url is None]
    if missing:
        terminalreporter.section("MISSING SERVERS: their tests did not run", sep="!", red=True, bold=True)
        for service in missing:
            terminalreporter.line(f"{service.kind}: {service.story}", red=True)
    terminalreporter.line(count_per_store(terminalreporter.stats))


def count_per_store(stats: dict[str, list]) -> str:
    """`tests per store: memory 12, sqlite 12, …`, from pytest's reports by outcome."""
    ran: dict[str, set[str]] = {store: set() for store in STORES}
    skipped: dict[str, set[str]] = {store: set() for store in STORES}
    for outcome in ("passed", "failed", "error", "xfailed", "xpassed", "skipped"):
        for report in stats.get(outcome, []):
            if store := store_of(getattr(report, "nodeid", "")):
                (skipped if outcome == "skipped" else ran)[store].add(report.nodeid)
    counts = [
        f"{store} {len(ran[store])}" + (f" ({len(skipped[store])} skipped)" if skipped[store] else "")
        for store in STORES
    ]
    return f"tests per store: {', '.join(counts)}"


def store_of(nodeid: str) -> str | None:
    """The store that stands among a test's parameters: `[postgres]`, `[postgres-…]`, `[…-postgres]`."""
    _, bracket, parameters = nodeid.partition("[")
    words = parameters.removesuffix("]").split("-") if bracket else []
    return next((word for word in words if word in STORES), None)


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true"}


def url_of(config: pytest.Config, kind: Kind) -> str:
    service = config.stash[SERVICES].get(kind)
    if service.url is None:
        (pytest.fail if in_ci() else pytest.skip)(f"no {kind}: {service.story}")
    return service.url


@pytest.fixture(scope="session")
def program(pytestconfig: pytest.Config) -> Callable[[str, str], str]:
    """`program("promtool", "prometheus")`: the path of a program, with the package of Debian that has it."""

    def path(name: str, package: str) -> str:
        service = programs.program(pytestconfig.stash[SERVICES], name, package)
        if service.url is None:
            (pytest.fail if in_ci() else pytest.skip)(f"no {name}: {service.story}")
        return service.url

    return path


@pytest.fixture(scope="session")
def postgres_databases(pytestconfig: pytest.Config) -> Iterator[PostgresDatabases]:
    databases = PostgresDatabases(url_of(pytestconfig, "postgres"))
    yield databases
    databases.close()


@pytest.fixture(scope="session")
def mysql_databases(pytestconfig: pytest.Config) -> MysqlDatabases:
    return MysqlDatabases(url_of(pytestconfig, "mysql"))


@pytest.fixture
def fresh_postgres(postgres_databases: PostgresDatabases) -> Iterator[Fresh]:
    """Call it for as many databases as the test needs; they are dropped after it."""
    yield from fresh_from(postgres_databases)


@pytest.fixture
def fresh_mysql(mysql_databases: MysqlDatabases) -> Iterator[Fresh]:
    """Like `fresh_postgres`."""
    yield from fresh_from(mysql_databases)


def fresh_from(databases: PostgresDatabases | MysqlDatabases) -> Iterator[Fresh]:
    with ExitStack() as cleanup:

        def fresh(template: str | None = None, prepare: Prepare | None = None) -> str:
            url = databases.create(template, prepare)
            cleanup.callback(databases.drop, url)
            return url

        yield fresh


@pytest.fixture(scope="session")
def lent_postgres(postgres_databases: PostgresDatabases) -> Iterator[Lending]:
    lending = Lending(postgres_databases, EmptiedPostgres)
    yield lending
    lending.close()


@pytest.fixture(scope="session")
def lent_mysql(mysql_databases: MysqlDatabases) -> Iterator[Lending]:
    lending = Lending(mysql_databases, EmptiedMariadb)
    yield lending
    lending.close()


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A store without rows; for tests that are marked `own_database` one that they may change, `bare_database` a database without tables."""
    yield from lent(request, "postgres")


@pytest.fixture
def mysql_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Like `postgres_url`."""
    yield from lent(request, "mysql")


def lent(request: pytest.FixtureRequest, kind: Kind) -> Iterator[str]:
    if request.node.get_closest_marker("bare_database") or request.path.parent.name == "faults":
        yield request.getfixturevalue(f"fresh_{kind}")()
        return
    if request.node.get_closest_marker("own_database"):
        yield request.getfixturevalue(f"fresh_{kind}")("today", migrate)
        return
    lending: Lending = request.getfixturevalue(f"lent_{kind}")
    database = lending.lend()
    yield database.url
    lending.give_back(database)


@pytest.fixture
def redis_url(pytestconfig: pytest.Config) -> Iterator[str]:
    with redis_database(url_of(pytestconfig, "redis")) as url:
        yield url


@pytest.fixture(params=["amqp", "nats", "redis", "mqtt"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each kind of broker in its turn; a test may name those that it is for (`indirect=True`)."""
    return named_broker(request, request.param)


@pytest.fixture
def broker_named(request: pytest.FixtureRequest) -> Callable[[str], Broker]:
    """By the name of the task's field."""
    return lambda name: named_broker(request, name)


def named_broker(request: pytest.FixtureRequest, name: str) -> Broker:
    kinds: dict[str, Kind] = {"amqp": "rabbitmq", "nats": "nats", "mqtt": "mosquitto"}
    if name == "redis":
        return Broker("redis", request.getfixturevalue("redis_url"))
    return Broker(name, url_of(request.config, kinds[name]))


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'noonbell.db'}"
