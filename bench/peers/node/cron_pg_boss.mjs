// pg-boss's schedules: jobs with a heartbeat of the least length that it admits; a missed time is made up for once.

import { PgBoss } from "pg-boss";
import { CONNECTIONS, LEASE, deliver, isSetup, names, ready, settings } from "./cron.mjs";

const MINUTE = 60_000;
const boss = new PgBoss({
  connectionString: settings.url,
  max: CONNECTIONS,
  schedule: !isSetup,
  useListenNotify: true,
  cronMonitorIntervalSeconds: LEASE,
  cronWorkerIntervalSeconds: 1,
  superviseIntervalSeconds: LEASE,
  monitorIntervalSeconds: LEASE,
});
boss.on("error", (problem) => console.error(problem));
await boss.start();

if (isSetup) {
  await boss.createQueue("fire", { retryLimit: 10, heartbeatSeconds: 10, expireInSeconds: 30, notify: true });
  for (const name of names) await boss.schedule("fire", "* * * * *", { schedule: name }, { key: name, tz: "UTC", missed: "once" });
  await boss.stop();
} else {
  const options = { localConcurrency: 20, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5, includeMetadata: true };
  // A job is not told the time that it stands for; it is made in that minute, or later where that minute was missed.
  const fire = async ([job]) => deliver(job.data.schedule, { made: Math.floor(job.createdOn / MINUTE) * 60, key: job.id });
  await boss.work("fire", options, fire);
  ready();
}
