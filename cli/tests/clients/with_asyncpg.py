"""asyncpg at two servers of one pool: the ports are the arguments."""

import asyncio
import datetime
import decimal
import json
import sys
import uuid

import asyncpg


async def connect(port):
    connection = await asyncpg.connect(
        host="127.0.0.1", port=int(port), user="me", database="selkie", ssl=False
    )
    await connection.set_type_codec(
        "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
    )
    return connection


async def values_go_there_and_back(here, there):
    await here.execute(
        "create table async_value (id int primary key, big bigint, exact numeric(20,4), real float8,"
        " words varchar(40), raw bytea, day date, instant timestamptz, span interval, key uuid,"
        " doc jsonb, numbers int[], texts text[])"
    )
    row = (
        1,
        2**62,
        decimal.Decimal("-1234.5000"),
        0.1,
        "it's \u4e16",
        b"\x00\xff",
        datetime.date(2024, 2, 29),
        datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.timezone.utc),
        datetime.timedelta(days=2, seconds=3),
        uuid.UUID(int=9),
        {"a": [1, None]},
        [1, None, 3],
        ["a,b", None],
    )
    marks = ", ".join(f"${n}" for n in range(1, len(row) + 1))
    await here.execute(f"insert into async_value values ({marks})", *row)
    found = await there.fetchrow("select * from async_value where id = $1", 1)
    assert tuple(found) == row, tuple(found)
    nulls = [2] + [None] * (len(row) - 1)
    await there.execute(f"insert into async_value values ({marks})", *nulls)
    assert list(await here.fetchrow("select * from async_value where id = 2")) == nulls


async def rows_come_in_every_way(here, there):
    await here.execute("create table async_row (id int primary key, name text)")
    await here.executemany(
        "insert into async_row values ($1, $2)", [(n, f"row {n}") for n in range(300)]
    )
    copied = await there.copy_records_to_table(
        "async_row", records=[(n, f"row {n}") for n in range(300, 600)]
    )
    assert copied == "COPY 300", copied
    several = "insert into async_row select * from unnest($1::int[], $2::text[])"
    await there.execute(several, [600, 601], ["a", "b"])
    found = await here.fetch("select id from async_row where id = any($1::int[]) order by id", [1, 601])
    assert [own["id"] for own in found] == [1, 601]
    # In parts, through a portal.
    async with here.transaction():
        seen = [own["id"] async for own in here.cursor("select id from async_row order by id")]
        assert seen == list(range(602)), len(seen)
        cursor = await here.cursor("select id from async_row where id >= $1 order by id", 590)
        assert [own["id"] for own in await cursor.fetch(5)] == list(range(590, 595))
    prepared = await there.prepare("select name from async_row where id = $1")
    assert [own.type.name for own in prepared.get_attributes()] == ["text"]
    assert await prepared.fetchval(7) == "row 7"


async def transactions_and_errors(here, there):
    try:
        async with here.transaction(isolation="serializable"):
            await here.execute("insert into async_row values (1000, 'a')")
            async with here.transaction():
                await here.execute("insert into async_row values (1, 'twice')")
        raise AssertionError("a second row of one key")
    except asyncpg.UniqueViolationError as error:
        assert error.constraint_name == "async_row_pkey", error.constraint_name
    assert await there.fetchval("select count(*) from async_row where id = 1000") == 0
    for sql, kind in (
        ("select 1 / 0", asyncpg.DivisionByZeroError),
        ("select nothing", asyncpg.UndefinedColumnError),
        ("selec", asyncpg.PostgresSyntaxError),
    ):
        try:
            await here.fetch(sql)
            raise AssertionError(sql)
        except kind:
            pass
    try:
        await asyncio.wait_for(here.fetch("select count(*) from generate_series(1, 1e9::int)"), 0.3)
        raise AssertionError("it counts fast")
    except (TimeoutError, asyncio.TimeoutError):
        pass
    # The statement was cancelled, and the connection goes on.
    assert await here.fetchval("select 7") == 7


async def main(first, second):
    here, there = await connect(first), await connect(second)
    await values_go_there_and_back(here, there)
    await rows_come_in_every_way(here, there)
    await transactions_and_errors(here, there)
    async with asyncpg.create_pool(
        host="127.0.0.1", port=int(second), user="me", database="selkie", min_size=1, max_size=3
    ) as pool:
        counts = await asyncio.gather(
            *(pool.fetchval("select count(*) from async_row where id < $1", n) for n in range(10))
        )
        assert counts == list(range(10)), counts
    await here.close()
    await there.close()
    print("asyncpg: well")


asyncio.run(main(*sys.argv[1:3]))
