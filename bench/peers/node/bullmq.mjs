// BullMQ on Redis: 500 jobs at a time, finished ones removed. The fragment of the address is the prefix of its keys.

import { Queue, Worker } from "bullmq";
import { BATCH, Handler, PAYLOAD, printPickUp, printSample, publishOnDemand, rate, readArguments } from "./peer.mjs";

const CONCURRENCY = 500;

function place(url) {
  const { hostname, port, pathname, hash } = new URL(url);
  return { connection: { host: hostname, port: Number(port || 6379), db: Number(pathname.slice(1) || 0) }, prefix: hash.slice(1) };
}

const KEPT = { removeOnComplete: true, removeOnFail: true };

async function throughput({ url, one, many, drain }) {
  const warm = new Queue("warm", place(url));
  const queue = new Queue("noop", place(url));
  const single = await rate(one, 1, () => warm.add("warm", PAYLOAD, KEPT));
  const job = { name: "noop", data: PAYLOAD, opts: KEPT };
  const batched = await rate(many, BATCH, (size) => queue.addBulk(Array(size).fill(job)));

  const handler = new Handler(drain);
  if (drain > 0) {
    const worker = new Worker("noop", async () => handler.hit(), { ...place(url), concurrency: CONCURRENCY });
    await handler.done;
    await worker.close();
  }
  await warm.close();
  await queue.close();
  const settings = `concurrency ${CONCURRENCY}, Redis`;
  printSample("bullmq", single, batched, drain ? handler.rate : null, drain, settings);
}

const args = readArguments();
if (args.role === "worker") {
  const worker = new Worker("ping", async (job) => printPickUp(job.data.at), { ...place(args.url), concurrency: CONCURRENCY });
  await worker.waitUntilReady();
  console.log("ready");
} else if (args.role === "publisher") {
  const queue = new Queue("ping", place(args.url));
  await publishOnDemand((at) => queue.add("ping", { at }, KEPT));
  await queue.close();
} else await throughput(args);
