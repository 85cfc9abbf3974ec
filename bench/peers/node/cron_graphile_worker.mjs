// graphile-worker's cron, with backfill. A job whose process died stays locked for four hours, unless someone who knows that it is
// dead unlocks it: a process that comes back does that for its last life. Jobs are locked under the id of a pool, kept in a file.

import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { EventEmitter } from "node:events";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { CONNECTIONS, deliver, isSetup, names, ready, settings } from "./cron.mjs";

const logger = new Logger(() => (level, message) => level === "error" && console.error(message));
const utils = await makeWorkerUtils({ connectionString: settings.url, logger });

if (isSetup) {
  await utils.migrate();
} else {
  const file = `${settings.folder}/pools-${process.argv[2]}.txt`;
  const dead = existsSync(file) ? readFileSync(file, "utf8").trim().split("\n") : [];
  if (dead.length) await utils.forceUnlockWorkers(dead);
  const events = new EventEmitter();
  events.on("pool:create", ({ workerPool }) => appendFileSync(file, `${workerPool.id}\n`));
  await run({
    connectionString: settings.url,
    concurrency: 20,
    maxPoolSize: CONNECTIONS,
    pollInterval: 1000,
    logger,
    events,
    crontab: names.map((name) => `* * * * * fire ?id=${name}&fill=1h {"schedule":"${name}"}`).join("\n"),
    taskList: { fire: ({ schedule, _cron }, { job }) => deliver(schedule, { slot: Date.parse(_cron.ts) / 1000, key: job.id }) },
  });
  ready();
}
await utils.release();
