"""What the SQL stores share: every transition, written once.

A transition is a generator. It yields statements and is sent their rows; it never touches a connection. The stores drive
it: SQLite on its writer thread, PostgreSQL and MariaDB over asyncio, each inside one transaction:

    def skip_next(q: Dialect, task_id: TaskId, count: int) -> Work[Task]:
        now = yield Now()
        rows = yield Fetch("select … where task_id = :id" + q.lock, {"id": task_id})
        …

So a transition can be run again from the start when a database breaks a deadlock, and a crash at any `yield` leaves
nothing behind. Where a store does better with a statement of its own, it overrides the method and says why.
"""
