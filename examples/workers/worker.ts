// A worker in TypeScript, with nothing but Node (22.18 or newer runs it as it is): claim, heartbeat, settle, over HTTP.
//
//     NOONBELL_URL=http://127.0.0.1:8080 node worker.ts WORKER_ID [QUEUE ...]
//
// Put your own functions into `handlers`, by job type. What they return is the result. `Fail` ends a run for good, any other error is
// retried as the task says. Long ones listen to `signal`: it is aborted when the run is canceled or lost.

type Payload = Record<string, unknown>;
type Handler = (payload: Payload, signal: AbortSignal) => Promise<unknown>;

interface ClaimedRun {
  run_id: number;
  token: number;
  job_type: string;
  payload: Payload;
  ping_interval_ms: number;
}

interface Order {
  run_id: number;
  order: "continue" | "cancel" | "lost";
}

interface WorkerState {
  state: "running" | "draining" | "stopping";
}

class Fail extends Error {}

const handlers: Record<string, Handler> = {
  async sleep(payload, signal) {
    await new Promise<void>((done, failed) => {
      const timer = setTimeout(done, Number(payload.seconds) * 1000);
      signal.addEventListener("abort", () => (clearTimeout(timer), failed(new Error("stopped"))));
    });
    return { slept: true };
  },
  async divide(payload) {
    if (payload.by === 0) throw new Fail("a division by zero");
    return Number(payload.number) / Number(payload.by);
  },
};

const base = `${process.env.NOONBELL_URL ?? "http://127.0.0.1:8080"}/api/v1`;
const concurrency = Number(process.env.CONCURRENCY ?? "4");
const [name, ...queues] = process.argv.slice(2);
const held = new Map<ClaimedRun, AbortController>();
let going = true;
let ping = 5000;
let notifyRoom = (): void => undefined;
let nextBeat: ReturnType<typeof setTimeout> | undefined;

async function call<Answer>(path: string, body: unknown): Promise<Answer> {
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${process.env.NOONBELL_TOKEN ?? ""}` };
  const answer = await fetch(base + path, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${path} was answered with ${answer.status}: ${await answer.text()}`);
  return (await answer.json()) as Answer;
}

async function carryOut(run: ClaimedRun): Promise<void> {
  const stop = new AbortController();
  held.set(run, stop);
  let said: Record<string, unknown>;
  try {
    said = { outcome: "success", result: await handlers[run.job_type](run.payload, stop.signal) };
  } catch (error) {
    said = { outcome: error instanceof Fail ? "fail" : "error", error_message: String(error) };
  }
  try {
    if (!stop.signal.aborted) await call(`/runs/${run.run_id}/settle`, { worker_id: name, token: run.token, ...said });
  } catch (error) {
    console.error("not settled:", error); // 409: it is another worker's by now, or over. Anything else: its lease runs out.
  }
  held.delete(run);
  notifyRoom();
}

async function beat(): Promise<void> {
  clearTimeout(nextBeat);
  const runs = [...held.keys()];
  try {
    const body = { runs: runs.map(({ run_id, token }) => ({ run_id, token })) };
    const told = await call<{ runs: Order[]; worker: WorkerState }>(`/workers/${name}/heartbeat`, body);
    told.runs.forEach((each, number) => each.order === "continue" || held.get(runs[number])?.abort());
    going = going && told.worker.state !== "stopping";
  } catch (error) {
    console.error("no heartbeat:", error);
  }
  clearTimeout(nextBeat);
  if (going || held.size) nextBeat = setTimeout(beat, ping);
}

async function work(): Promise<void> {
  const asked = { queues: queues.length ? queues : ["default"], job_types: Object.keys(handlers), concurrency, wait_seconds: 5 };
  void beat();
  while (going || held.size) {
    if (!going || held.size >= concurrency) {
      await new Promise<void>((room) => (notifyRoom = room));
      continue;
    }
    try {
      const found = await call<{ runs: ClaimedRun[] }>(`/workers/${name}/claim`, asked);
      for (const run of found.runs) {
        ping = Math.min(ping, run.ping_interval_ms);
        void carryOut(run);
      }
      if (found.runs.length) void beat();
    } catch (error) {
      console.error("no claim:", error);
      await new Promise((later) => setTimeout(later, 1000));
    }
  }
}

for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => (going = false));
await work();
clearTimeout(nextBeat);
