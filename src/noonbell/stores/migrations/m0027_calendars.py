"""Step 27: business calendars.

`calendars` has each calendar as it stands, `calendar_revisions` what each revision of it said. `task_calendars` says which revision a version of
a task keeps to, from which effective time on, and which stretches of time it leaves out. `runs.moved_to` is when a run is due whose slot was
moved to another day; null for all others.

Code from before this step would plan the slots of closed days. So it may not go on.
"""

from __future__ import annotations

from noonbell.stores.migrations.m0001_foundation import _TYPES


def up(dialect: str) -> list[str]:
    types = _TYPES[dialect]
    name = f"name {types['key']} not null"
    calendars = (
        f"{name}, revision {{int}} not null, spec {{long}} not null, ical_days {{long}} not null,"
        " ical_checked_at {id}, ical_fetched_at {id}, ical_error {long}, refresh_at {id},"
        " created_at {id} not null, updated_at {id} not null, changed_by {text}, primary key (name)"
    ).format(**types)
    revisions = (
        f"{name}, revision {{int}} not null, rules {{long}} not null, created_at {{id}} not null, changed_by {{text}},"
        " primary key (name, revision)"
    ).format(**types)
    uses = (
        f"task_id {{id}} not null, version {{int}} not null, name {types['key']}, revision {{int}} not null,"
        " since {id} not null, left_out {long} not null, primary key (task_id, version)"
    ).format(**types)
    return [
        f"create table calendars ({calendars}){types['end']}",
        "create index calendars_refresh on calendars (refresh_at)",
        f"create table calendar_revisions ({revisions}){types['end']}",
        f"create table task_calendars ({uses}){types['end']}",
        "create index task_calendars_name on task_calendars (name)",
        f"alter table tasks add column calendar {types['long']}",
        f"alter table runs add column moved_to {types['id']}",
    ]


def down(dialect: str) -> list[str]:
    del dialect
    return [
        "alter table runs drop column moved_to",
        "alter table tasks drop column calendar",
        "drop table task_calendars",
        "drop table calendar_revisions",
        "drop table calendars",
    ]
