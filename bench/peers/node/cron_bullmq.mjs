// BullMQ's job schedulers: workers share them; the id of a job is its schedule and its moment, also when it is repeated.

import { Queue, Worker } from "bullmq";
import { LEASE, deliver, isSetup, names, ready, settings } from "./cron.mjs";

const address = new URL(settings.url);
const connection = { host: address.hostname, port: Number(address.port), db: Number(address.pathname.slice(1)), maxRetriesPerRequest: null };
const prefix = address.hash.slice(1);

if (isSetup) {
  const queue = new Queue("fire", { connection, prefix });
  const pattern = settings.every_second ? "* * * * * *" : "* * * * *";
  for (const name of names) await queue.upsertJobScheduler(name, { pattern, tz: "UTC" }, { name });
  await queue.close();
} else {
  const fire = (job) => deliver(job.name, { slot: Number(job.id.split(":").at(-1)) / 1000, key: job.id });
  const options = { connection, prefix, concurrency: 20, lockDuration: LEASE * 1000, stalledInterval: LEASE * 1000 };
  const worker = new Worker("fire", fire, options);
  worker.on("error", (problem) => console.error(problem));
  await worker.waitUntilReady();
  ready();
}
