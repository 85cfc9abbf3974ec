"""What `make test` leaves out, and what tests are lent instead of making it, is what `services` says it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from noonbell.stores.sqlite import MemoryStore, SqliteStore
from services import prepared
from services.order import TESTS, spread
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
def test_of_each_test_a_case_stays_wherever_a_store_has_statements_of_its_own(turn: int, count: int):
    cases = [Case(store, number) for store in STORES for number in range(count)]
    everything = set(range(count))

    stays = staying("conformance/store/test_keys.py", turn, cases)
    assert stays["memory"] == stays["sqlite"] == everything
    assert stays["postgres"]
    assert stays["mariadb"]

    assert staying("conformance/store/test_claim.py", turn, cases) == dict.fromkeys(STORES, everything)

    stays = staying("conformance/apart/test_apart.py", turn, cases)
    assert stays["postgres"]
    assert bool(stays["sqlite"]) is not bool(stays["mariadb"])

    stays = staying("integration/api/test_runs.py", turn, cases)
    assert stays["memory"] == everything
    assert bool(stays["postgres"]) is not bool(stays["mariadb"])

    stays = staying("acceptance/test_flows.py", turn, cases)
    assert sorted(number for numbers in stays.values() for number in numbers) == sorted(everything)

    assert staying("integration/test_races.py", turn, cases) == dict.fromkeys(STORES, everything)


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


def test_files_stay_whole_and_short_ones_are_the_last():
    @dataclass(frozen=True)
    class Item:
        path: Path
        number: int

    folders = {"acceptance": 7, "browser": 5, "conformance": 11, "integration": 13, "typing": 1, "unit": 40}
    paths = [TESTS / folder / f"test_{number}.py" for folder, count in folders.items() for number in range(count)]
    items = [Item(path, number) for path in paths for number in range(3)]
    order: list[Item] = spread(items)  # type: ignore[arg-type,assignment]
    assert sorted(order, key=items.index) == items
    assert [each.number for each in order] == [0, 1, 2] * len(paths)
    last = [each.path.parent.name for each in order[-9:]]
    assert {"acceptance", "browser"} & {*last} == set()
