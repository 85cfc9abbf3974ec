"""Roll-ups, and samples of queues.

Roll-ups: what each transaction that ends runs adds to the figures, adding it up, reading, and counting again from history.

A transaction that ends runs appends one row to `rollup_deltas`: it locks nothing that another one needs. The sweep adds
deltas to the sums of `rollups` and deletes them in one transaction, so that each is counted once whenever a process
dies:

    K37  died in a fold, before its commit   the deltas are there, the sums are as they were; the next sweep adds them
    K38  died after it                       the deltas are gone, the sums have them

Only one node folds at a time: it holds the row of `rollup_state`, which no transaction that ends runs looks at. Figures
are read by one statement over both tables, so that they are complete at once and no delta is missed or counted twice.

Counting again is a row of steps, each one transaction that holds the same row and writes down how far it has come.
First the sums of the stretch are removed, then history is read page by page and added. Its stretch ends two minutes ago
at the latest: what ended before is committed.

Samples of how many runs wait in each queue are taken once a minute for the installation, and added up by hour and day in the
same transaction. The row of the minute with an empty name is the fence: the node that inserts it takes the sample, and every other finds
it there.

    died before the commit   no row of the minute is there; any node takes it while the minute lasts, else it is a gap
    died after it            the sample is complete

The sample reads what the list of queues reads, and no history.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.engine import failpoint
from noonbell.errors import InvalidArgument
from noonbell.model.rollup import (
    DAY,
    DROPPED,
    HOUR,
    MINUTE,
    SPANS,
    Fact,
    Figures,
    QueueDepth,
    RebuildState,
    RollUp,
    Scope,
    Span,
    Stretch,
    fact,
    finest,
    pieces,
)
from noonbell.model.run import FAILURES, FINAL, RunStatus, Settlement
from noonbell.model.task import TaskId
from noonbell.stores.sql.active_runs import WAITING
from noonbell.stores.sql.dialect import BY_KEY, Dialect
from noonbell.stores.sql.statement import (
    Execute,
    Fetch,
    InsertMany,
    NewIds,
    Now,
    Row,
    UpdateMany,
    Work,
    insert_new,
    update,
)

_SETTLED: Final = 120 * SECOND
"""What ended longer ago is committed, or never will be."""
_FINAL: Final = frozenset(map(str, FINAL))
_FAILED: Final = frozenset(map(str, FAILURES - {RunStatus.CANCELED}))
_ENDED = (
    "select id, task_id, queue, worker_id, status, origin, parent_id, attempt, run_at, created_at, start_time, end_time"
    " from runs"
)

_NOTE = """insert into rollup_deltas (id, at, data)
    select :id, last, {whole} from (
        select max(ended) as last,
            {listed}(json_array(task_id, queue, worker_id, status, is_inner, ended, number, took, delay, waited)) as facts
        from (select task_id, queue, worker_id, status, case when parent_id is null then 0 else 1 end as is_inner,
                end_time as ended, count(*) as number,
                case when start_time is not null then {greatest}(0, end_time - start_time) end as took,
                case when attempt = 1 then {greatest}(0, start_time - case when origin = 'schedule' then run_at
                     else {greatest}(run_at, created_at) end) end as delay,
                case when attempt = 1 then {greatest}(0, start_time - {greatest}(run_at, created_at)) end as waited
            from runs where {{which}} group by task_id, queue, worker_id, status, is_inner, ended, took, delay, waited) as alike
    ) as whole where last is not null"""
"""What `model.rollup.fact` says of each, in SQL."""
_NOTES: Final = {
    "sqlite": _NOTE.format(listed="json_group_array", whole="facts", greatest="max"),
    # The `json_arrayagg` of MariaDB writes its brackets anew each time that it is asked.
    "mysql": _NOTE.format(listed="group_concat", whole="concat('[', facts, ']')", greatest="greatest"),
}
"""By dialect: the rows need not leave the database. PostgreSQL notes most of them in the statement that settles."""
_IN_ONE_PIECE: Final = 2_000
"""Runs. MySQL and MariaDB refuse a text that is longer than `group_concat_max_len`, which the session sets to 16 MiB."""

_encode = msgspec.json.Encoder().encode
_read_facts = msgspec.json.Decoder(list[Fact]).decode
_read_figures = msgspec.json.Decoder(Figures).decode

Key = tuple[str, str, int, int]
"""Kind, name, seconds, beginning."""


# What a transaction adds


def note(q: Dialect, run_ids: Sequence[int]) -> Work[None]:
    """These runs have just become final: their rows in history say so."""
    if not run_ids:
        return
    note_them = _NOTES.get(q.name)
    if note_them is not None and len(run_ids) <= _IN_ONE_PIECE:
        ids = yield NewIds(1)
        yield Execute(note_them.format(which=q.ids("id", "ids")), {"id": ids[0], "ids": q.pack(run_ids)})
    else:
        rows = yield from q.fetch_by(_ENDED, "id", run_ids)
        yield from note_facts([_fact(row) for row in rows])


def note_settled(q: Dialect, now: Instant, settled: Sequence[tuple[Settlement, int, int, int]]) -> Work[None]:
    """Runs whose leases have just been settled, and that are no parts of others: of each the task, the attempt and the start.

    What a worker of this process settles brings its lease along: its row in history, which was just written, is not read again.
    """
    known: Counter[tuple[Any, ...]] = Counter()
    unknown = []
    for settlement, task_id, attempt, start in settled:
        lease = settlement.lease
        if lease is None or lease.created_at is None:
            unknown.append(settlement.run_id)
        else:
            times = (lease.run_at, lease.created_at, start, now)
            known[task_id, lease.queue, lease.worker_id, settlement.status, lease.origin, None, attempt, times] += 1
    facts = [(fact(*alike), number) for alike, number in known.items()]
    yield from note_facts([each if number == 1 else each._replace(number=number) for each, number in facts])
    yield from note(q, unknown)


def note_skipped(now: Instant, skipped: Iterable[tuple[int, str, int | None]]) -> Work[None]:
    """Runs that were born final: of each the task, the queue and the parent."""
    yield from note_facts(
        [
            Fact(task_id, queue, None, str(RunStatus.SKIPPED), int(parent is not None), now, 1, None, None, None)
            for task_id, queue, parent in skipped
        ]
    )


def note_dropped(now: Instant, dropped: Iterable[tuple[int, int]]) -> Work[None]:
    """Slots that a misfire policy left out: of each range the task, and how many."""
    yield from note_facts(
        [Fact(task_id, None, None, DROPPED, 0, now, count, None, None, None) for task_id, count in dropped]
    )


def note_facts(facts: Sequence[Fact]) -> Work[None]:
    if facts:
        ids = yield NewIds(1)
        yield delta(ids[0], facts)


def delta(id_: int, facts: Sequence[Fact]) -> InsertMany:
    """The row that adds these facts, once it is folded."""
    alike = Counter(facts)
    data = _encode([each if count == 1 else each._replace(number=each.number * count) for each, count in alike.items()])
    return InsertMany("rollup_deltas", ("id", "at", "data"), [(id_, facts[0].end_time, data.decode())])


def _fact(row: Sequence[Any]) -> Fact:
    _, task_id, queue, worker_id, status, origin, parent_id, attempt, run_at, created_at, start, end = row
    return fact(task_id, queue, worker_id, status, origin, parent_id, attempt, (run_at, created_at, start, end))


# Adding it up


def is_due() -> Work[bool]:
    """Whether there is anything to add, or to count again."""
    rows = yield Fetch(
        "select exists (select 1 from rollup_deltas), exists (select 1 from rollup_state where phase > 0)"
    )
    return bool(rows[0][0] or rows[0][1])


def fold(q: Dialect, limit: int) -> Work[tuple[int, set[int]]]:
    """Add up to `limit` deltas to the sums; return how many there were, and of which tasks. 0 where another node does
    it.
    """
    if not (yield Fetch(f"select phase from rollup_state where one = 1{q.skip_locked}")):
        return 0, set()
    rows = yield Fetch("select id, data from rollup_deltas order by id limit :limit", {"limit": limit})
    facts = [each for row in rows for each in _read_facts(row[1])]
    if rows:
        yield from _add(q, facts)
        yield _delete(q, "rollup_deltas", [row[0] for row in rows])
        failpoint.hit("K37")
    return len(rows), {each.task_id for each in facts if not each.is_inner}


def _delete(q: Dialect, table: str, ids: Sequence[int]) -> Execute:
    """By the primary key, even of a small table: a scan would wait for the rows of others on the way."""
    rows = f"delete d from {table} d{BY_KEY}" if q.name == "mysql" else f"delete from {table}"
    return Execute(f"{rows} where {q.ids('id', 'ids')}", {"ids": q.pack(ids)})


def _add(q: Dialect, facts: Sequence[Fact], oldest: dict[Span, int] | None = None) -> Work[None]:
    """`oldest`: rows that begin before are not written."""
    alike: dict[tuple[Any, ...], Figures] = defaultdict(Figures)
    for each in facts:
        minute = each.end_time - each.end_time % MINUTE.length
        alike[each.task_id, each.queue, each.worker_id, each.is_inner, minute].add(each)
    sums: dict[Key, Figures] = defaultdict(Figures)
    for (task_id, queue, worker_id, is_inner, minute), figures in alike.items():
        for span in SPANS:
            at = span.begin(minute)
            if oldest is None or at >= oldest[span]:
                for kind, name in _scopes(task_id, queue, worker_id, is_inner):
                    sums[kind, name, span.length // SECOND, at].merge(figures)
    yield from _write(q, sums)


def _scopes(task_id: int, queue: str | None, worker_id: str | None, is_inner: int) -> list[tuple[str, str]]:
    """A part or a step is a run of its queue and its worker. Of its task's runs, the one above it is counted."""
    scopes = [] if is_inner else [(str(Scope.ALL), ""), (str(Scope.TASK), str(task_id))]
    if queue is not None:
        scopes.append((str(Scope.QUEUE), queue))
    if worker_id is not None:
        scopes.append((str(Scope.WORKER), worker_id))
    return scopes


def _write(q: Dialect, sums: dict[Key, Figures]) -> Work[None]:
    """Add to the rows that are there, and make the others. The caller holds the row of `rollup_state`."""
    there: dict[Key, tuple[int, str]] = {}
    for kind in Scope:
        wanted = [key for key in sums if key[0] == kind]
        if wanted:
            rows = yield Fetch(
                f"select id, name, seconds, at, data from rollups where kind = :kind and {q.names('name', 'names')}"
                f" and seconds in ({', '.join(str(span.length // SECOND) for span in SPANS)}) and {q.ids('at', 'ats')}",
                {
                    "kind": str(kind),
                    "names": q.pack(sorted({key[1] for key in wanted})),
                    "ats": q.pack(sorted({key[3] for key in wanted})),
                },
            )
            there.update({(str(kind), name, seconds, at): (id_, data) for id_, name, seconds, at, data in rows})
    changed, new = [], []
    for key, figures in sums.items():
        if key in there:
            id_, data = there[key]
            total = _read_figures(data)
            total.merge(figures)
            changed.append((id_, total.runs, _encode(total).decode()))
        else:
            new.append((*key, figures.runs, _encode(figures).decode()))
    if changed:
        yield UpdateMany("rollups", "id", ("runs", "data"), changed)
    if new:
        yield from insert_new("rollups", ("kind", "name", "seconds", "at", "runs", "data"), new)


def forget(q: Dialect, limit: int) -> Work[int]:
    """Remove up to `limit` rows of each length that are older than such rows are kept; how many."""
    if not (yield Fetch(f"select phase from rollup_state where one = 1{q.skip_locked}")):
        return 0
    now = yield Now()
    removed = 0
    for span in SPANS:
        removed += yield from _remove(q, span, 0, now - span.kept - span.length, limit)
    return removed


def _remove(q: Dialect, span: Span, since: int, until: int, limit: int) -> Work[int]:
    """Remove the rows that begin in this stretch, up to `limit` of them."""
    rows = yield Fetch(
        "select id from rollups where seconds = :seconds and at >= :since and at < :until order by at limit :limit",
        {"seconds": span.length // SECOND, "since": since, "until": until, "limit": limit},
    )
    if rows:
        yield _delete(q, "rollups", [row[0] for row in rows])
    return len(rows)


# Reading


def rollups(
    q: Dialect, kind: Scope, stretch: Stretch, *, names: Sequence[str] | None = None, step: Span | None = None
) -> Work[list[RollUp]]:
    """Of each name, or of these: figures for each `step`, or for the whole stretch; what has no figures is left out.

    The stretch begins and ends where rows do (`stretch_of`).
    """
    now = yield Now()
    covered = pieces(stretch, now) if step is None else [(step, stretch.since, stretch.until)]
    params: dict[str, Any] = {"kind": str(kind), "since": stretch.since, "until": stretch.until}
    which = ""
    if names is not None:
        which, params["names"] = f" and {q.names('name', 'names')}", q.pack(list(names))
    parts = ["select 0 as is_sum, '' as name, at, data from rollup_deltas where at >= :since and at < :until"]
    for number, (span, since, until) in enumerate(covered):
        params |= {f"seconds{number}": span.length // SECOND, f"since{number}": since, f"until{number}": until}
        parts.append(
            f"select 1 as is_sum, name, at, data from rollups where kind = :kind{which} and seconds = :seconds{number}"
            f" and at >= :since{number} and at < :until{number}"
        )
    rows = yield Fetch(" union all ".join(parts), params)
    wanted = None if names is None else frozenset(names)
    found: dict[tuple[str, Instant], Figures] = defaultdict(Figures)
    for is_sum, name, at, data in rows:
        if is_sum:
            key = (name, stretch.since if step is None else Instant(at))
            if key in found:
                found[key].merge(_read_figures(data))
            else:
                found[key] = _read_figures(data)
            continue
        for each in _read_facts(data):
            for of_kind, of_name in _scopes(each.task_id, each.queue, each.worker_id, each.is_inner):
                if of_kind == kind and (wanted is None or of_name in wanted):
                    begin = stretch.since if step is None else step.begin(each.end_time)
                    found[of_name, begin].add(each)
    return [RollUp(name, at, figures) for (name, at), figures in sorted(found.items(), key=lambda each: each[0])]


def busiest(kind: Scope, since: Instant, until: Instant, limit: int) -> Work[list[str]]:
    """The names with the most runs that ended in the hours of the stretch, or in its days where hours are no longer kept."""
    span = DAY if finest(since, (yield Now())) is DAY else HOUR
    rows = yield Fetch(
        "select name, ended, '' as data from (select name, sum(runs) as ended from rollups where seconds = :seconds"
        " and at >= :since and at < :until and kind = :kind group by name order by ended desc, name limit :limit) most"
        " union all select '' as name, 0 as ended, data from rollup_deltas where at >= :since and at < :until",
        {
            "seconds": span.length // SECOND,
            "since": span.begin(since),
            "until": span.end(until),
            "kind": str(kind),
            "limit": limit,
        },
    )
    runs: Counter[str] = Counter()
    for name, ended, data in rows:
        if not data:
            runs[name] += int(ended)
        for each in _read_facts(data) if data else ():
            for of_kind, of_name in _scopes(each.task_id, each.queue, each.worker_id, each.is_inner):
                runs[of_name] += each.number if of_kind == kind and each.status != DROPPED else 0
    return sorted((name for name, ended in runs.items() if ended), key=lambda name: (-runs[name], name))[:limit]


def failed_tasks(since: Instant, until: Instant, limit: int) -> Work[list[TaskId]]:
    """Read from the rows of days: the last 24 hours are two rows for each task, however often it ran."""
    signs = {f"sign{place}": f'%"{status}":%' for place, status in enumerate(sorted(_FAILED))}
    rows = yield Fetch(
        "select name, '' as data from (select distinct name from rollups where seconds = :seconds and at >= :day"
        f" and at < :until and kind = :kind and ({' or '.join(f'data like :{sign}' for sign in signs)}) limit :limit) found"
        " union all select '' as name, data from rollup_deltas where at >= :since and at < :until",
        {
            "seconds": DAY.length // SECOND,
            "day": DAY.begin(since),
            "since": since,
            "until": until,
            "kind": str(Scope.TASK),
            "limit": limit,
            **signs,
        },
    )
    facts = [each for _, data in rows if data for each in _read_facts(data)]
    found = {int(name) for name, data in rows if not data}
    found |= {each.task_id for each in facts if not each.is_inner and each.status in _FAILED}
    return [TaskId(each) for each in sorted(found)[:limit]]


# Counting again


_ASKED, _MINUTES, _HOURS, _DAYS, _RUNS, _DROPPED = range(1, 7)
_PHASES: Final = {_MINUTES: MINUTE, _HOURS: HOUR, _DAYS: DAY}


def rebuild_state() -> Work[RebuildState]:
    rows = yield Fetch("select phase, since, until, position, cleaned_to from rollup_state where one = 1")
    phase, since, until, position, cleaned_to = rows[0]
    return RebuildState(
        is_under_way=phase > 0, since=since, until=until, position=position, cleaned_to=Instant(cleaned_to)
    )


def order_rebuild(q: Dialect, since: Instant | None, until: Instant | None) -> Work[RebuildState]:
    """Count whole days of UTC again: all that history has, or these. The sweep does it, or who calls `rebuild`."""
    rows = yield Fetch(f"select cleaned_to from rollup_state where one = 1{q.lock}")
    whole_from = DAY.end(rows[0][0])
    if since is not None and DAY.begin(since) < whole_from:
        raise InvalidArgument.field(
            "from",
            "is before runs were removed from history: to count that time again would lose what is known of them;"
            f" takes {rfc3339(whole_from)} or later",
        )
    first = whole_from if since is None else DAY.begin(since)
    last = None if until is None else DAY.end(until)
    if last is not None and last <= first:
        raise InvalidArgument.field("to", "is not after from")
    yield update("rollup_state", {"one": 1}, phase=_ASKED, since=first, until=last, position=0)
    return (yield from rebuild_state())


def rebuild(q: Dialect, limit: int) -> Work[bool]:
    """The next step of a count from history; whether there is another. False where another node is at it."""
    rows = yield Fetch(
        f"select phase, since, until, position from rollup_state where one = 1 and phase > 0{q.skip_locked}"
    )
    if not rows:
        return False
    phase, since, until, position = rows[0]
    now = yield Now()
    if phase == _ASKED:
        # Only what is surely committed; the rest of today is in rows of minutes, and stays as it is.
        until = Instant(min(MINUTE.begin(now - _SETTLED), now if until is None else until))
        yield Execute("delete from rollup_deltas where at >= :since and at < :until", {"since": since, "until": until})
        if since < until:
            yield from _cut(q, until)
        yield update("rollup_state", {"one": 1}, phase=_MINUTES if since < until else 0, until=until)
        return bool(since < until)
    if phase in _PHASES:
        span = _PHASES[phase]
        if (yield from _remove(q, span, since, until - span.length + 1, limit)) < limit:
            yield update("rollup_state", {"one": 1}, phase=phase + 1, position=0)
        return True
    if phase == _RUNS:
        last = yield from _count_runs(q, since, until, position, limit, now)
    else:
        last = yield from _count_dropped(q, since, until, position, limit, now)
    failpoint.hit("K37")
    if last is not None:
        yield update("rollup_state", {"one": 1}, position=last)
        return True
    yield update("rollup_state", {"one": 1}, phase=0 if phase == _DROPPED else phase + 1, position=0)
    return bool(phase != _DROPPED)


def _cut(q: Dialect, until: Instant) -> Work[None]:
    """The hour and the day in which the stretch ends keep what came after it: the sums of those minutes, which are few."""
    partial = [(span, span.begin(until)) for span in (HOUR, DAY) if span.begin(until) < until]
    if not partial:
        return
    for span, begin in partial:
        yield Execute(
            "delete from rollups where seconds = :seconds and at = :at", {"seconds": span.length // SECOND, "at": begin}
        )
    rows = yield Fetch(
        "select kind, name, at, data from rollups where seconds = :seconds and at >= :until",
        {"seconds": MINUTE.length // SECOND, "until": until},
    )
    sums: dict[Key, Figures] = defaultdict(Figures)
    for kind, name, at, data in rows:
        for span, begin in partial:
            if at < begin + span.length:
                sums[kind, name, span.length // SECOND, begin].merge(_read_figures(data))
    yield from _write(q, sums)


def _oldest(now: int) -> dict[Span, int]:
    return {span: now - span.kept - span.length for span in SPANS}


def _count_runs(q: Dialect, since: int, until: int, after: int, limit: int, now: int) -> Work[int | None]:
    rows = yield Fetch(f"{_ENDED} where id > :after order by id limit :limit", {"after": after, "limit": limit})
    ended = [row for row in rows if row[4] in _FINAL and since <= row[-1] < until]
    yield from _add(q, [_fact(row) for row in ended], _oldest(now))
    return rows[-1][0] if len(rows) == limit else None


def _count_dropped(q: Dialect, since: int, until: int, after: int, limit: int, now: int) -> Work[int | None]:
    """Task by task."""
    tasks = yield Fetch(
        "select distinct task_id from dropped where task_id > :after order by task_id limit :limit",
        {"after": after, "limit": limit},
    )
    ids = [row[0] for row in tasks]
    rows = yield from q.fetch_by("select task_id, count, at from dropped", "task_id", ids)
    facts = [
        Fact(task_id, None, None, DROPPED, 0, at, count, None, None, None)
        for task_id, count, at in rows
        if since <= at < until
    ]
    yield from _add(q, facts, _oldest(now))
    return ids[-1] if len(ids) == limit else None


def note_cleaned(before: Instant) -> Work[None]:
    """Runs that ended before are no longer all there."""
    yield Execute(
        "update rollup_state set cleaned_to = :before where one = 1 and cleaned_to < :before", {"before": before}
    )


_COLUMNS: Final = ("name", "seconds", "at", "samples", "waiting", "most", "longest_wait")
_ADDED: Final = ("samples", "waiting")
_GREATEST: Final = ("most", "longest_wait")
_ROWS_AT_ONCE: Final = 100
_ALL: Final = ""
"""The name of the rows that say when samples were taken."""


def sample(q: Dialect) -> Work[float]:
    """Take the sample of the present minute, if it has none; return how many seconds of the minute are left."""
    now = yield Now()
    left: float = (MINUTE.begin(now) + MINUTE.length - now) / SECOND
    first, last = ("insert ignore", "") if q.name == "mysql" else ("insert", " on conflict do nothing")
    taken = yield Execute(
        f"{first} into queue_depths ({', '.join(_COLUMNS)}) values (:name, :seconds, :at, 1, 0, 0, 0){last}",
        {"name": _ALL, "seconds": MINUTE.length // SECOND, "at": MINUTE.begin(now)},
    )
    if not taken:
        return left
    places = ", ".join(str(int(place)) for place in WAITING)
    counted = yield Fetch(f"select queue, count(*), min(run_at) from live where place in ({places}) group by queue")
    rows = [(_ALL, span.length // SECOND, span.begin(now), 1, 0, 0, 0) for span in SPANS if span is not MINUTE]
    for name, waiting, oldest in counted:
        wait = max(0, now - oldest)
        rows += [(name, span.length // SECOND, span.begin(now), 1, waiting, waiting, wait) for span in SPANS]
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        yield _add_depths(q, rows[start : start + _ROWS_AT_ONCE])
    return left


def _add_depths(q: Dialect, rows: Sequence[Row]) -> Execute:
    """Make these rows, or add them to those that are there."""
    params: dict[str, Any] = {}
    values = []
    for number, row in enumerate(rows):
        params |= {f"{column}{number}": value for column, value in zip(_COLUMNS, row, strict=True)}
        values.append(f"({', '.join(f':{column}{number}' for column in _COLUMNS)})")
    if q.name == "mysql":
        sets = [f"{column} = {column} + values({column})" for column in _ADDED]
        sets += [f"{column} = greatest({column}, values({column}))" for column in _GREATEST]
        last = f" on duplicate key update {', '.join(sets)}"
    else:
        larger = "max" if q.name == "sqlite" else "greatest"
        sets = [f"{column} = queue_depths.{column} + excluded.{column}" for column in _ADDED]
        sets += [f"{column} = {larger}(queue_depths.{column}, excluded.{column})" for column in _GREATEST]
        last = f" on conflict (name, seconds, at) do update set {', '.join(sets)}"
    return Execute(f"insert into queue_depths ({', '.join(_COLUMNS)}) values {', '.join(values)}{last}", params)


def depths(name: str, since: Instant, until: Instant, span: Span, step: int | None = None) -> Work[list[QueueDepth]]:
    """Of a queue, for each `span` that begins in the stretch, or for each `step` of several; those without a sample are
    left out.
    """
    rows = yield Fetch(
        "select name, at - at % :step as began, sum(samples), sum(waiting), max(most), max(longest_wait) from queue_depths"
        " where name in (:all, :name) and seconds = :seconds and at >= :since and at < :until group by name, began",
        {
            "step": step or span.length,
            "all": _ALL,
            "name": name,
            "seconds": span.length // SECOND,
            "since": since,
            "until": until,
        },
    )
    waited = {int(began): (int(total), most, wait) for of, began, _, total, most, wait in rows if of == name}
    return [
        QueueDepth(Instant(int(began)), int(samples), *waited.get(int(began), (0, 0, 0)))
        for of, began, samples, *_ in sorted(rows, key=lambda row: row[1])
        if of == _ALL
    ]


def forget_depths(limit: int) -> Work[int]:
    """Remove about `limit` rows of each length that are older than roll-ups of that length are kept; how many."""
    now = yield Now()
    removed = 0
    for span in SPANS:
        params = {"seconds": span.length // SECOND, "until": now - span.kept - span.length, "limit": limit}
        rows = yield Fetch(
            "select max(at) from (select at from queue_depths where seconds = :seconds and at < :until order by at limit :limit) few",
            params,
        )
        if rows[0][0] is not None:
            removed += yield Execute(
                "delete from queue_depths where seconds = :seconds and at <= :last",
                {"seconds": span.length // SECOND, "last": rows[0][0]},
            )
    return removed
