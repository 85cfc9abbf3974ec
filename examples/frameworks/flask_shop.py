"""A shop on Flask with psycopg: an order and the job that confirms it are one commit.

    DATABASE_URL=postgresql://… flask --app flask_shop run
    DATABASE_URL=postgresql://… gunicorn --preload --workers 4 flask_shop:app

The App is connected once, in a thread of its own. A server that forks afterwards (gunicorn --preload) needs nothing more: a
child connects again when it first publishes.
"""

import os

import psycopg
from flask import Flask, request
from shop_jobs import confirm, jobs

URL = os.environ["DATABASE_URL"]
MOST = 100

with psycopg.connect(URL) as connection:
    connection.execute("create table if not exists orders (id serial primary key, item text, quantity int)")

jobs.connect_sync(URL, schema="noonbell")  # until the interpreter exits, or jobs.close_sync()

app = Flask(__name__)


class TooMany(Exception): ...


@app.errorhandler(TooMany)
def too_many(_):
    return {"detail": f"there are only {MOST}"}, 409


@app.post("/orders")
def order():
    new = request.get_json()
    with psycopg.connect(URL) as connection:  # commits at its end, and rolls back if anything is raised
        number = connection.execute(
            "insert into orders (item, quantity) values (%s, %s) returning id", (new["item"], new.get("quantity", 1))
        ).fetchone()[0]
        run = confirm.publish_sync(order=number, key=f"order-{number}", transaction=connection)
        if new.get("quantity", 1) > MOST:  # the order and its job are both undone
            raise TooMany
    return {"order": number, "run": run.run_id}, 201


if __name__ == "__main__":
    app.run(port=int(os.environ.get("PORT", "5000")))
