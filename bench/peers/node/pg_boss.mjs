// pg-boss: two local workers that fetch batches of 1,000 one after the other. A batch completes as one; finished jobs are kept.

import pg from "pg";
import { PgBoss } from "pg-boss";
import { BATCH, Handler, PAYLOAD, printPickUp, printSample, publishOnDemand, rate, readArguments } from "./peer.mjs";

const LOCAL_CONCURRENCY = 2;

async function start(url) {
  const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false, useListenNotify: true });
  boss.on("error", (problem) => console.error(problem));
  await boss.start();
  return boss;
}

async function throughput({ url, one, many, drain }) {
  const boss = await start(url);
  await boss.createQueue("warm");
  await boss.createQueue("noop");
  const pool = new pg.Pool({ connectionString: url });

  const single = await rate(one, 1, () => boss.send("warm", PAYLOAD));
  const batched = await rate(many, BATCH, (size) => boss.insert("noop", Array(size).fill({ data: PAYLOAD })));
  await pool.query("vacuum analyze");

  const handler = new Handler(drain);
  if (drain > 0) {
    const options = { batchSize: BATCH, localConcurrency: LOCAL_CONCURRENCY, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
    await boss.work("noop", options, async (jobs) => jobs.forEach(() => handler.hit()));
    await handler.done;
  }
  await boss.stop({ graceful: true });
  const { rows } = await pool.query("select count(*)::int as done from pgboss.job where name = 'noop' and state = 'completed'");
  if (rows[0].done !== drain) throw new Error(`${rows[0].done} of ${drain} jobs are completed`);
  await pool.end();
  const settings = `batches of ${BATCH}, ${LOCAL_CONCURRENCY} local workers, the next fetch at once after a full one`;
  printSample("pg-boss", single, batched, drain ? handler.rate : null, drain, settings);
}

const args = readArguments();
if (args.role === "worker") {
  const boss = await start(args.url);
  await boss.createQueue("ping", { notify: true });
  await boss.work("ping", { pollingIntervalSeconds: 0.5 }, async ([job]) => printPickUp(job.data.at));
  console.log("ready");
} else if (args.role === "publisher") {
  const boss = await start(args.url);
  await publishOnDemand((at) => boss.send("ping", { at }));
  await boss.stop();
} else await throughput(args);
