// What every scheduler of Node shares: its settings, and the one request that a scheduled task makes.

export const settings = JSON.parse(process.env.BENCH_FAULTS);
export const names = Array.from({ length: settings.schedules }, (_, number) => `s${number}`);
export const isSetup = process.argv[2] === "setup";
/** Seconds until the work of a process that died is taken up again, wherever a setting decides it and admits this. */
export const LEASE = 5;
/** To PostgreSQL, of the pool of one process. */
export const CONNECTIONS = 5;

/** `told`: `slot` in seconds since 1970, or `made`, and the `key` that a repeat of the same work would have too. */
export async function deliver(schedule, told) {
  const answer = await fetch(`${settings.target}/${schedule}?${new URLSearchParams(told)}`);
  await answer.text();
}

export function ready() {
  console.log("is ready");
}
