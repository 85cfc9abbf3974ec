"""What `make test` leaves out, and what tests are lent instead of making it, is what `services` says it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from noonbell.stores.sqlite import MemoryStore, SqliteStore
from services import prepared
from services.thinned import STORES, left_out, store_of


@dataclass
class Spec:
    params: dict[str, Any]


@dataclass
class Case:
    """As much of a pytest.Item as is looked at."""

    store: str
    number: int
    callspec: Spec = field(init=False)

    def __post_init__(self) -> None:
        self.callspec = Spec({"case": self.number, "kind": self.store})


def staying(where: str, turn: int, cases: list[Case]) -> dict[str, set[int]]:
    gone = [(each.store, each.number) for each in left_out(Path(where), turn, cases)]  # type: ignore[arg-type,attr-defined]
    assert len(gone) == len(set(gone))
    return {
        store: {each.number for each in cases if each.store == store and (store, each.number) not in gone}
        for store in STORES
    }


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("turn", range(8))
def test_of_each_test_all_cases_stay_in_one_place_and_one_on_a_server(turn: int, count: int):
    cases = [Case(store, number) for store in STORES for number in range(count)]
    everything = set(range(count))

    stays = staying("conformance/store/test_keys.py", turn, cases)
    assert stays["memory"] == stays["sqlite"] == everything
    assert bool(stays["postgres"]) is not bool(stays["mariadb"])

    assert staying("conformance/store/test_claim.py", turn, cases) == dict.fromkeys(STORES, everything)

    stays = staying("conformance/apart/test_apart.py", turn, cases)
    assert stays["postgres"]
    assert bool(stays["sqlite"]) is not bool(stays["mariadb"])

    stays = staying("integration/api/test_runs.py", turn, cases)
    assert stays["memory"] == everything
    assert bool(stays["postgres"]) is not bool(stays["mariadb"])

    for where in ("acceptance/test_flows.py", "integration/test_races.py", "security/test_at_rest.py"):
        stays = staying(where, turn, cases)
        assert sorted(number for numbers in stays.values() for number in numbers) == sorted(everything)


def test_with_time_every_store_has_its_turn():
    cases = [Case(store, 0) for store in STORES[1:]]
    turns = [staying("acceptance/test_flows.py", turn, cases) for turn in range(3)]
    assert [[store for store in STORES if stays[store]] for stays in turns] == [["sqlite"], ["postgres"], ["mariadb"]]


def test_a_store_is_known_by_the_parameter_that_names_it():
    assert store_of(Case("postgres", 1)) == "postgres"  # type: ignore[arg-type]
    assert store_of(pytest.Item) == ""  # type: ignore[arg-type,type-abstract]


async def test_a_store_in_memory_begins_with_what_the_steps_make():
    lent, made = MemoryStore(), MemoryStore()
    await lent.open()
    await prepared._open_from_nothing(made)
    tables = [row[0] for row in await made.fetch("select name from sqlite_master where type = 'table' order by name")]
    shape = "select type, name, tbl_name, sql from sqlite_master order by type, name"
    assert await lent.fetch(shape) == await made.fetch(shape)
    for table in tables:
        if table != "installation":
            assert await lent.fetch(f'select * from "{table}"') == await made.fetch(f'select * from "{table}"'), table
    other = MemoryStore()
    await other.open()
    ids = {await store.installation_id() for store in (lent, made, other)}
    assert len(ids - {None}) == 3
    for store in (lent, made, other):
        await store.close()


async def test_a_file_begins_with_what_the_steps_make(tmp_path: Path):
    lent, made = tmp_path / "lent.db", tmp_path / "made.db"
    prepared.fill(f"sqlite:///{lent}")
    stores = [SqliteStore(str(path)) for path in (lent, made)]
    for store in stores:
        await store.open()
    shape = "select type, name, tbl_name, sql from sqlite_master order by type, name"
    first, second = [await store.fetch(shape) for store in stores]
    assert first == second
    assert lent.stat().st_mode == made.stat().st_mode
    assert await stores[0].fetch("pragma journal_mode") == [("wal",)]
    for store in stores:
        await store.close()
