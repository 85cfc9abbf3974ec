"""Rows to Structs and back; tasks, read through a cache of the versions seen last.

A transition that changes a task locks the row of its cursor first. So planning, editing and the follow-ups of a run take
turns, and a version that was read under that lock is the newest.
"""

from __future__ import annotations

import contextlib
import enum
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property, lru_cache, partial
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Generic, NamedTuple, NewType, TypeVar, Union, get_args, get_origin

import msgspec

from noonbell import when
from noonbell.engine import failpoint
from noonbell.errors import ScheduleError
from noonbell.model.calendar import CalendarRules, CalendarUse
from noonbell.model.sla import Sla
from noonbell.model.task import Step, Task, TaskId, TaskPause, TaskSpec
from noonbell.policy.account import bounds_of
from noonbell.policy.flows import FlowPlan, PlannedStep
from noonbell.policy.sla import SlaDefaults, default_sla
from noonbell.stores.migrations.m0007_keys import EARLIER_UID
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.statement import Fetch, Row, Work
from noonbell.when.schedule import Schedule

S = TypeVar("S", bound=msgspec.Struct)

MOST_FOLLOWING = 1_000
"""In one transaction: what follows beyond that is left to the sweep."""
_FLOWS = 500
"""Versions of flows that a node remembers."""

encoder = msgspec.json.Encoder()
decoder = msgspec.json.Decoder()


def to_json(value: Any) -> str:
    return encoder.encode(value).decode()


def from_json(text: str | None) -> Any:
    return None if text is None else decoder.decode(text)


def json_or_null(value: Any) -> str | None:
    return None if value is None else to_json(value)


_COLUMNS = {"key": '"key"', "user": "run_as"}
"""Columns that are not called as their field is: databases know these words as their own."""


class Record(Generic[S]):
    """A Struct whose fields are columns: what is selected, read and written follows from its declaration.

    Enums are stored as their values, booleans as 0 and 1; lists, mappings, Structs and Any as JSON.
    """

    def __init__(self, kind: type[S], *, without: Collection[str] = (), long: Sequence[str] = ()) -> None:
        """`without`: fields that are no columns. `long`: those that a list leaves out where they are too long for it."""
        self._kind, self._long = kind, tuple(long)
        self.fields = tuple(name for name in kind.__struct_fields__ if name not in {*without, "omitted"})
        self.columns = tuple(_COLUMNS.get(name, name) for name in self.fields)

    def select(self, alias: str = "") -> str:
        """The columns as `read` wants them."""
        return ", ".join(f"{alias}{column}" for column in self.columns)

    def select_short(self, q: Dialect, alias: str = "") -> str:
        """As `read_short` wants them: a long one is null if it has more than `:share` bytes; at the end the sizes of those."""
        sizes = {name: q.size(f"{alias}{name}") for name in self._long}
        columns = [
            f"case when {sizes[column]} > :share then null else {alias}{column} end"
            if column in sizes
            else f"{alias}{column}"
            for column in self.columns
        ]
        return ", ".join((*columns, *(f"case when {size} > :share then {size} end" for size in sizes.values())))

    def values(self, row: Row) -> dict[str, Any]:
        """The fields as the Struct has them. Where a field is never None, a null is read as its default or as empty."""
        found = dict(zip(self.fields, row, strict=False))
        for name, stored in self._stored:
            if found[name] is not None:
                found[name] = stored.decode(found[name])
            elif stored.null is not None:
                found[name] = stored.null()
        return found

    def read(self, row: Row, **more: Any) -> S:
        return self._kind(**self.values(row), **more)

    def read_short(self, row: Row, **more: Any) -> S:
        return self.read(row, omitted=self.omitted(row), **more)

    def omitted(self, row: Row) -> dict[str, int] | msgspec.UnsetType:
        """The bytes of what `select_short` left out."""
        sizes = zip(self._long, row[len(self.fields) :], strict=False)
        return {name: int(size) for name, size in sizes if size is not None} or msgspec.UNSET

    def row(self, value: S) -> tuple[Any, ...]:
        """In the order of `columns`."""
        found = {name: getattr(value, name) for name in self.fields}
        for name, stored in self._stored:
            if found[name] is not None or stored.null is not None:
                found[name] = stored.encode(found[name])
        return tuple(found.values())

    @cached_property
    def _stored(self) -> list[tuple[str, _Stored]]:
        """How fields are stored that are not stored as they are. Made when it is first asked for: that takes milliseconds."""
        fields = {field.name: _stored(field) for field in msgspec.structs.fields(self._kind)}
        return [(name, stored) for name in self.fields if (stored := fields[name]) is not None]


def _as_it_is(value: Any) -> Any:
    return value


def _tuple_of(text: str) -> tuple[Any, ...]:
    return tuple(from_json(text))


class _Stored(NamedTuple):
    decode: Callable[[Any], Any] = _as_it_is
    encode: Callable[[Any], Any] = _as_it_is
    null: Callable[[], Any] | None = None
    """Where the field is never None: what a null is read as."""


def _stored(field: msgspec.structs.FieldInfo) -> _Stored | None:
    # `msgspec.inspect` would look into the Structs of fields as well: 35 ms for a task, while its first run waits.
    kind, *others = _alternatives(field.type)
    origin, items = get_origin(kind) or kind, get_args(kind)
    null: Callable[[], Any] | None = None
    if NoneType not in others:
        empty = {dict: {}, Mapping: {}, str: ""}.get(origin)
        null = partial(copy, empty if field.default is msgspec.NODEFAULT else field.default)
    if origin is bool:
        return _Stored(bool, int, null)
    if origin is tuple and items[1:] == (...,):
        if not _is_struct(items[0]):
            return _Stored(_tuple_of, to_json, null)
        return _Stored(partial(msgspec.json.decode, type=GenericAlias(tuple, items)), to_json, null)
    if origin in (dict, Mapping, Any):
        return _Stored(from_json, to_json, null)
    if _is_struct(origin):
        return _Stored(partial(msgspec.json.decode, type=origin), to_json, null)
    if isinstance(origin, type) and issubclass(origin, enum.Enum):
        return _Stored(origin, null=null)
    return None if null is None or null() is None else _Stored(null=null)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _alternatives(kind: Any) -> list[Any]:
    """The types of a union, each without its notes and without the name that is put on it."""
    if isinstance(kind, NewType):
        return _alternatives(kind.__supertype__)
    origin = get_origin(kind)
    if origin is Annotated:
        return _alternatives(kind.__origin__)
    if origin in (Union, UnionType):
        return [each for part in get_args(kind) for each in _alternatives(part)]
    return [kind]


_CURSOR = ("next_fire_at", "fired", "skip_next", "accounted_to")
SPEC = Record(TaskSpec)
_STATE = Record(Task, without=("spec", "calendar_use", "pause", *_CURSOR))
_CURSORS = Record(Task, without=set(Task.__struct_fields__) - set(_CURSOR))
CALENDAR_COLUMNS = "u.name, u.revision, u.since, u.left_out, d.rules"
CALENDAR_JOIN = (
    " left join task_calendars u on u.task_id = {0}.{1} and u.version = {0}.version"
    " left join calendar_revisions d on d.name = u.name and d.revision = u.revision"
)
"""The use that a version of a task makes of a calendar, and what that said."""
PAUSE_COLUMNS = "p.reason, p.until_at, p.paused_by, p.paused_at"
PAUSE_JOIN = " left join task_pauses p on p.task_id = {0}.{1} and p.version = {0}.version"
"""What was said of the pause that a version of a task is in."""
TASK_SELECT = (
    f"select {SPEC.select('t.')}, {_STATE.select('t.')}, {_CURSORS.select('c.')}, {PAUSE_COLUMNS}, {CALENDAR_COLUMNS}"
    f" from tasks t left join cursors c on c.task_id = t.id{PAUSE_JOIN.format('t', 'id')}{CALENDAR_JOIN.format('t', 'id')}"
)


def task_from(row: Row) -> Task:
    """From the columns of TASK_SELECT."""
    state = row[len(SPEC.fields) :]
    values = _STATE.values(state) | _CURSORS.values(state[len(_STATE.fields) :])
    values["uid"] = values["uid"] or f"{EARLIER_UID}{values['id']}"
    return Task(spec=SPEC.read(row), pause=pause_from(row[-9:-5]), calendar_use=use_from(row[-5:]), **values)


def pause_from(row: Row) -> TaskPause | None:
    """From PAUSE_COLUMNS."""
    reason, until, by, at = row
    return None if at is None else TaskPause(reason=reason, until=until, by=by, at=at)


def use_from(row: Row) -> CalendarUse | None:
    """From CALENDAR_COLUMNS."""
    name, revision, since, left_out, rules = row
    if revision is None:
        return None
    return CalendarUse(
        name=name,
        revision=revision,
        rules=CalendarRules() if rules is None else rules_from(rules),
        since=since,
        left_out=tuple((first, last) for first, last in from_json(left_out)),
    )


@lru_cache(maxsize=256)
def rules_from(text: str) -> CalendarRules:
    """Many tasks have the same: they share one object."""
    return msgspec.json.decode(text, type=CalendarRules)


class Known:
    """A task's spec as of one version, with its schedule parsed: what a pass needs, without reading the wide row."""

    __slots__ = ("bounds", "schedule", "task")

    def __init__(self, task: Task) -> None:
        self.task = task
        self.bounds = bounds_of(task.spec)
        self.schedule: Schedule | None = None
        """None without a schedule, and with one that cannot be read: a zone may be gone from the zone data."""
        with contextlib.suppress(ScheduleError):
            self.schedule = when.of_task(task.spec)


class FlowVersion:
    """One version of a flow, as its runs need it."""

    __slots__ = ("_tasks", "plan", "task")

    def __init__(self, task: Task, plan: FlowPlan) -> None:
        self.task = task
        """With the spec of that version."""
        self.plan = plan
        self._tasks: dict[str, tuple[Task, Step]] = {}

    def task_of(self, planned: PlannedStep) -> tuple[Task, Step]:
        """The task as the runs of a step see it, and its spec, which is the step, known by the name of the task."""
        found = self._tasks.get(planned.step.id)
        if found is None:
            step = msgspec.structs.replace(planned.step, name=self.task.name)
            found = self._tasks[step.id] = (msgspec.structs.replace(self.task, spec=step), step)
        return found


class KnownTasks:
    """The tasks seen last, by id and version. A committed version never changes its meaning: nothing here is stale."""

    def __init__(self, size: int = 20_000) -> None:
        self._size = size
        self.installation = ""
        """The id of the installation, from when the store is open: it goes into the keys of new runs."""
        self.sla_defaults: SlaDefaults = {}
        """Service levels by label, from when the store is open."""
        self.on_followed: Callable[[Sequence[str], int], None] | None = None
        """Called when runs have been made because others ended, and that has committed: with the queues of those that are not
        skipped, one for each, and how many are.
        """
        self._known: OrderedDict[TaskId, Known] = OrderedDict()
        self.on_steps: Callable[[Collection[str]], None] | None = None
        """Called with the queues where steps of flows wait because others have ended, when that has committed."""
        self.flows: OrderedDict[tuple[int, int], FlowVersion] = OrderedDict()
        """Those seen last, by task and version."""

    def sla_of(self, spec: TaskSpec) -> Sla | None:
        """The service level of a task: its own, or that of the first of its labels that has one."""
        if spec.sla is not None or not self.sla_defaults or not spec.labels:
            return spec.sla
        return default_sla(self.sla_defaults, spec.labels)

    def clear(self) -> None:
        """The store went back to an earlier state: a version may get another meaning."""
        self._known.clear()
        self.flows.clear()

    def get(self, task_id: TaskId, version: int) -> Known | None:
        known = self._known.get(task_id)
        return known if known is not None and known.task.version == version else None

    def newest(self, task_id: TaskId) -> Known | None:
        return self._known.get(task_id)

    def add(self, known: Known) -> None:
        there = self._known.get(known.task.id)
        if there is not None and there.task.version > known.task.version:
            return
        self._known[known.task.id] = known
        self._known.move_to_end(known.task.id)
        while len(self._known) > self._size:
            self._known.popitem(last=False)


class TaskView:
    """The cache as one transaction sees it. What it adds is kept only when the transaction has committed.

    A version that was rolled back may be made again by another node, with another meaning.
    """

    def __init__(self, shared: KnownTasks) -> None:
        self._shared = shared
        self._own: dict[int, Known] = {}
        self.may_follow = MOST_FOLLOWING
        """Runs that this transaction may still bring to the tasks that follow."""
        self._fed: list[str] = []
        self._skipped = 0
        self.step_queues: set[str] = set()
        """Where children and resumed jobs wait from now on."""
        self.new_steps: dict[int, str] = {}
        """Runs of steps, and runs that their key has let in, that wait from now on; and where."""
        self.claimed_here: set[int] = set()
        """What this transaction has claimed: for those runs, no other worker has to be woken."""

    def get(self, task_id: TaskId, version: int) -> Known | None:
        own = self._own.get(task_id)
        if own is not None:
            return own if own.task.version == version else None
        return self._shared.get(task_id, version)

    @property
    def installation(self) -> str:
        return self._shared.installation

    def sla_of(self, spec: TaskSpec) -> Sla | None:
        return self._shared.sla_of(spec)

    def put(self, task: Task) -> Known:
        known = self._own[task.id] = Known(task)
        return known

    def flow(self, task_id: int, version: int) -> FlowVersion | None:
        return self._shared.flows.get((task_id, version))

    def put_flow(self, found: FlowVersion) -> FlowVersion:
        """Read from a version that was committed before: it is kept at once."""
        flows = self._shared.flows
        flows[found.task.id, found.task.version] = found
        while len(flows) > _FLOWS:
            flows.popitem(last=False)
        return found

    def keep(self) -> None:
        """The transaction has committed."""
        for known in self._own.values():
            self._shared.add(known)
        if self._fed or self._skipped:
            failpoint.hit("K18")
            if self._shared.on_followed is not None:
                self._shared.on_followed(self._fed, self._skipped)
        queues = self.step_queues | {
            queue for run_id, queue in self.new_steps.items() if run_id not in self.claimed_here
        }
        if queues and self._shared.on_steps is not None:
            self._shared.on_steps(queues)

    def note_followers(self, queues: Sequence[str], count: int) -> None:
        """`count` runs are made because others ended; those that are not skipped wait on `queues`."""
        self._fed += queues
        self._skipped += count - len(queues)


def known_tasks(q: Dialect, cache: TaskView, task_ids: Iterable[int]) -> Work[dict[int, Known]]:
    """The newest version of each, deleted ones too. Its cursor may be out of date: ask `load_task` for that."""
    found: dict[int, Known] = {}
    missing: list[int] = []
    rows = yield from q.fetch_by("select id, version from tasks", "id", task_ids)
    for task_id, version in rows:
        known = cache.get(task_id, version)
        if known is None:
            missing.append(task_id)
        else:
            found[task_id] = known
    for row in (yield from q.fetch_by(TASK_SELECT, "t.id", missing)):
        task = task_from(row)
        found[task.id] = cache.put(task)
    return found


def tasks_by_id(q: Dialect, cache: TaskView, task_ids: Sequence[TaskId]) -> Work[list[Task]]:
    found = yield from known_tasks(q, cache, task_ids)
    return [one.task for one in found.values()]


def load_task(task_id: int) -> Work[Task | None]:
    rows = yield Fetch(f"{TASK_SELECT} where t.id = :id", {"id": task_id})
    return task_from(rows[0]) if rows else None


def lock_task(q: Dialect, task_id: int) -> Work[Task | None]:
    """The task with its cursor, held until the end of the transaction."""
    rows = yield Fetch("select version from cursors where task_id = :id" + q.lock, {"id": task_id})
    if not rows:
        return None
    return (yield from load_task(task_id))
