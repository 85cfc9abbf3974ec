// What every peer of Node shares: its arguments, the count of handled jobs, and the line of JSON that it prints at the end.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

export const PAYLOAD = { data: "x".repeat(89) };
export const BATCH = 1000;

const ROLES = ["throughput", "worker", "publisher"];

export function readArguments() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      url: { type: "string" },
      one: { type: "string" },
      drain: { type: "string" },
      "publish-only": { type: "boolean" },
    },
  });
  const role = positionals[0] ?? "throughput";
  if (!values.url || !ROLES.includes(role)) throw new Error(`usage: [${ROLES.join("|")}] --url URL --one N --drain N`);
  const many = Number(values.drain ?? 0);
  return { role, url: values.url, one: Number(values.one ?? 0), many, drain: values["publish-only"] ? 0 : many };
}

/** Counts no-op calls. The rate runs from the first to the last of them, so that start-up is left out. */
export class Handler {
  constructor(expected) {
    this.expected = expected;
    this.count = 0;
    this.done = new Promise((resolve) => (this.finish = resolve));
  }

  hit() {
    this.count += 1;
    if (this.count === 1) this.first = performance.now();
    if (this.count === this.expected) {
      this.last = performance.now();
      this.finish();
    }
  }

  get rate() {
    return ((this.expected - 1) * 1000) / (this.last - this.first);
  }
}

/** Calls a second. `call` handles `size` jobs; null if no job was asked for. */
export async function rate(count, size, call) {
  if (count === 0) return null;
  const start = performance.now();
  for (let done = 0; done < count; done += size) await call(Math.min(size, count - done));
  return (count * 1000) / (performance.now() - start);
}

export function printSample(peer, one, batch, drained, count, settings) {
  const manifest = new URL(`node_modules/${peer}/package.json`, import.meta.url);
  const { version } = JSON.parse(readFileSync(manifest, "utf8"));
  const sample = { peer, version, publish_one: one, publish_batch: batch, drain: drained, n: count, settings };
  console.log(JSON.stringify(sample));
}

/** One line per job that the worker takes: the milliseconds from just before its publish, by the machine's clock. */
export function printPickUp(at) {
  process.stdout.write(`${(now() - at).toFixed(3)}\n`);
}

/** Publishes a job for each line of standard input, until it ends. */
export async function publishOnDemand(publish) {
  console.log("ready");
  for await (const _ of createInterface({ input: process.stdin })) await publish(now());
}

/** Milliseconds since 1970, with their fraction: Date.now() has none. */
function now() {
  return performance.timeOrigin + performance.now();
}
