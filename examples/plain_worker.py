"""A worker in plain Python, for a machine that has nothing else: claim, heartbeat, settle, over HTTP.

    NOONBELL_URL=http://127.0.0.1:8080 python plain_worker.py WORKER_ID [QUEUE ...]

Put your own functions into HANDLERS, by job type. What they return is the result. `Fail` ends a run for good, any other
exception is retried as the task says. Long ones look at `stop` now and then: it is set when the run is canceled or lost.
"""

import json
import os
import signal
import sys
import threading
import time
import urllib.request

BASE = os.environ.get("NOONBELL_URL", "http://127.0.0.1:8080").rstrip("/") + "/api/v1"
CONCURRENCY = int(os.environ.get("CONCURRENCY", "4"))


class Fail(Exception): ...


def sleep(payload, stop):
    return {"slept": not stop.wait(payload["seconds"])}


def divide(payload, stop):
    if payload["by"] == 0:
        raise Fail("nobody can divide by zero")
    return payload["number"] / payload["by"]


HANDLERS = {"sleep": sleep, "divide": divide}


def call(path, body):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('NOONBELL_TOKEN', '')}"}
    request = urllib.request.Request(BASE + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


class Worker:
    def __init__(self, worker_id, queues):
        self.id, self.queues, self.going, self.ping = worker_id, queues, True, 5.0
        self.held = {}  # (run_id, token) → the event that tells its handler to stop
        self.room, self.bell = threading.Semaphore(CONCURRENCY), threading.Event()

    def carry_out(self, run, stop):
        try:
            result = HANDLERS[run["job_type"]](run["payload"], stop)
            said = {"outcome": "release" if stop.is_set() else "success", "result": result}
        except Exception as error:
            outcome = "fail" if isinstance(error, Fail) else "error"
            said = {"outcome": outcome, "error_message": f"{type(error).__name__}: {error}"}
        try:
            call(f"/runs/{run['run_id']}/settle", {"worker_id": self.id, "token": run["token"], **said})
        except OSError as error:  # 409: it is somebody else's by now, or over. Anything else: its lease runs out.
            print("not settled:", run["run_id"], error, file=sys.stderr)
        del self.held[run["run_id"], run["token"]]
        self.room.release()

    def beat(self):
        while True:
            self.bell.wait(self.ping)
            self.bell.clear()
            held = dict(self.held)
            try:
                told = call(f"/workers/{self.id}/heartbeat", {"runs": [{"run_id": r, "token": t} for r, t in held]})
            except OSError:
                continue
            for stop, run in zip(held.values(), told["runs"], strict=True):
                if run["order"] != "continue":
                    stop.set()
            self.going = self.going and told["worker"]["state"] != "stopping"

    def work(self):
        threading.Thread(target=self.beat, daemon=True).start()
        asked = {"queues": self.queues, "job_types": list(HANDLERS), "concurrency": CONCURRENCY, "wait_seconds": 5}
        while self.going:
            self.room.acquire()
            try:
                runs = call(f"/workers/{self.id}/claim", asked)["runs"]
            except OSError:  # the server is away, or says why not
                runs = time.sleep(1) or ()
            for run in runs:
                self.ping = min(self.ping, run["ping_interval_ms"] / 1000)
                stop = self.held[run["run_id"], run["token"]] = threading.Event()
                threading.Thread(target=self.carry_out, args=(run, stop)).start()
                self.bell.set()
            if not runs:
                self.room.release()


if __name__ == "__main__":
    worker = Worker(sys.argv[1], sys.argv[2:] or ["default"])
    signal.signal(signal.SIGTERM, lambda *_: setattr(worker, "going", False))
    worker.work()  # threads that carry out a run are waited for at the end, with a heartbeat as long
