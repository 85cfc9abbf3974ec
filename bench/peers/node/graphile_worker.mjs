// graphile-worker: for throughput a local queue and batched completion, for pick-up neither, because both trade it away.
// It deletes a finished job, and keeps no history.

import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { BATCH, Handler, PAYLOAD, printPickUp, printSample, publishOnDemand, rate, readArguments } from "./peer.mjs";

const CONCURRENCY = 24;
const LOCAL_QUEUE = 2000;
const logger = new Logger(() => () => {});

function start(url, taskList, worker) {
  const preset = { worker: { concurrentJobs: CONCURRENCY, maxPoolSize: 10, ...worker } };
  return run({ connectionString: url, taskList, preset, logger, noHandleSignals: true });
}

async function throughput({ url, one, many, drain }) {
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  await utils.migrate();
  const pool = new pg.Pool({ connectionString: url });

  const single = await rate(one, 1, () => utils.addJob("warm", PAYLOAD));
  await pool.query("truncate graphile_worker._private_jobs");
  const job = { identifier: "noop", payload: PAYLOAD };
  const batched = await rate(many, BATCH, (size) => utils.addJobs(Array(size).fill(job)));
  await pool.query("vacuum analyze");

  const handler = new Handler(drain);
  if (drain > 0) {
    const batching = { localQueue: { size: LOCAL_QUEUE }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
    const runner = await start(url, { noop: async () => handler.hit() }, batching);
    await handler.done;
    await runner.stop();
    const { rows } = await pool.query("select count(*)::int as left from graphile_worker._private_jobs");
    if (rows[0].left !== 0) throw new Error(`${rows[0].left} jobs are left`);
  }
  await pool.end();
  await utils.release();
  const settings = `concurrency ${CONCURRENCY}, local queue of ${LOCAL_QUEUE}, completion in batches without a delay`;
  printSample("graphile-worker", single, batched, drain ? handler.rate : null, drain, settings);
}

const args = readArguments();
if (args.role === "worker") {
  await start(args.url, { ping: async ({ at }) => printPickUp(at) }, {});
  console.log("ready");
} else if (args.role === "publisher") {
  const utils = await makeWorkerUtils({ connectionString: args.url, logger });
  await publishOnDemand((at) => utils.addJob("ping", { at }));
  await utils.release();
} else await throughput(args);
