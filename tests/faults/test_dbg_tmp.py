import asyncio, signal, asyncpg
from integration.jobs.fleet import fleet_on
LEASE = {"worker_timeout_ms": 2_000, "ping_interval_ms": 500}
async def test_dbg(postgres_url, tmp_path):
    async with fleet_on(postgres_url, tmp_path) as fleet:
        task = await fleet.task("haunt", **LEASE)
        crew = [await fleet.start("--concurrency", "0") for _ in range(2)]
        for n in range(8):
            z, h = crew[n%2], crew[1-n%2]
            await fleet.order(h.id, concurrency=0)
            await fleet.order(z.id, concurrency=10)
            await fleet.beats(h.id, 2)
            file = tmp_path/f"r{n}"
            run_ids = await fleet.publish(task, {"file": str(file)}, 10)
            await fleet.notes(file, "start", 10)
            z.send(signal.SIGSTOP)
            (tmp_path/f"r{n}.go").touch()
            await fleet.order(h.id, concurrency=10)
            for i in range(10):
                await asyncio.sleep(1)
                runs = [await fleet.store.run(r) for r in run_ids]
                if all(r.final_status for r in runs): break
            else:
                print("round", n, [str(r.status)[:5]+f"{r.attempt}{r.lost_count}{r.worker_id}" for r in runs], [(w.id, w.concurrency, w.state) for w in await fleet.store.workers()])
                c = await asyncpg.connect(postgres_url)
                for r in await c.fetch("select pid, state, wait_event_type, wait_event, left(query, 150) q, now()-xact_start as age from pg_stat_activity where datname=current_database()"): print(dict(r))
                z.send(signal.SIGCONT)
                assert 0
            z.send(signal.SIGCONT)
            await fleet.eventually(lambda: sum(l.split()[3]==z.id for l in file.read_text().splitlines() if l.startswith("end"))==10)
