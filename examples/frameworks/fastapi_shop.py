"""A shop on FastAPI with SQLAlchemy: an order and the job that confirms it are one commit.

    DATABASE_URL=postgresql://… uvicorn fastapi_shop:app

Noonbell's tables are in the shop's database, in a schema of their own.
"""

import os
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from shop_jobs import confirm, jobs
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

URL = os.environ["DATABASE_URL"]
MOST = 100

engine = create_async_engine(URL.replace("postgresql://", "postgresql+asyncpg://"))


@asynccontextmanager
async def lifespan(app):
    async with engine.begin() as connection:
        # Processes that start together would all create it: the lock ends with the transaction.
        await connection.execute(text("select pg_advisory_xact_lock(hashtext('orders'))"))
        await connection.execute(
            text("create table if not exists orders (id serial primary key, item text, quantity int)")
        )
    await jobs.connect(URL, schema="noonbell")
    yield
    await jobs.close()
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


class NewOrder(BaseModel):
    item: str
    quantity: int = 1


@app.post("/orders", status_code=201)
async def order(new: NewOrder):
    async with AsyncSession(engine) as session, session.begin():
        made = await session.execute(
            text("insert into orders (item, quantity) values (:item, :quantity) returning id"), new.model_dump()
        )
        number = made.scalar_one()
        run = await confirm.publish(order=number, key=f"order-{number}", transaction=session)
        if new.quantity > MOST:  # the order and its job are both undone
            raise HTTPException(409, f"there are only {MOST}")
    return {"order": number, "run": run.run_id}
