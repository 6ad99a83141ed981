"""psycopg 3 at two servers of one pool: the ports are the arguments."""

import datetime
import decimal
import sys
import uuid

import psycopg
from psycopg import errors
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb


def connect(port, **more):
    return psycopg.connect(host="127.0.0.1", port=port, user="me", dbname="selkie", **more)


VALUES = {
    "small": (1, -32768),
    "whole": (2147483647, -1),
    "big": (2**63 - 1, None),
    "exact": (decimal.Decimal("12345678901234567890.0123456789"), decimal.Decimal("-0.10")),
    "real": (1.5, float("inf")),
    "truth": (True, None),
    "words": ("it's \\ a \u4e16", ""),
    "bytes": (b"\x00\xff\\", b""),
    "day": (datetime.date(2024, 2, 29), datetime.date(1, 1, 1)),
    "moment": (datetime.datetime(2024, 2, 29, 23, 59, 59, 999999), None),
    "instant": (datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc), None),
    "span": (datetime.timedelta(days=-3, microseconds=7), datetime.timedelta()),
    "id": (uuid.UUID(int=7), None),
    "doc": (Jsonb({"a": [1, None, "x"]}), None),
    "numbers": ([1, None, 3], []),
    "texts": (["a,b", 'c"d'], None),
}
TYPES = {
    "small": "smallint",
    "whole": "integer",
    "big": "bigint",
    "exact": "numeric",
    "real": "double precision",
    "truth": "boolean",
    "words": "text",
    "bytes": "bytea",
    "day": "date",
    "moment": "timestamp",
    "instant": "timestamptz",
    "span": "interval",
    "id": "uuid",
    "doc": "jsonb",
    "numbers": "integer[]",
    "texts": "text[]",
}


def plain(value):
    return value.obj if isinstance(value, Jsonb) else value


def values_go_there_and_back(here, there):
    columns = ", ".join(f"{name} {TYPES[name]}" for name in VALUES)
    here.execute(f"create table psy_value (key int primary key, {columns})")
    marks = ", ".join(["%s"] * (len(VALUES) + 1))
    for key in (0, 1):
        row = [key] + [value[key] for value in VALUES.values()]
        here.execute(f"insert into psy_value values ({marks})", row)
    here.commit()
    for binary in (False, True):
        cursor = there.cursor(binary=binary, row_factory=dict_row)
        for row in cursor.execute("select * from psy_value order by key").fetchall():
            key = row.pop("key")
            expected = {name: plain(value[key]) for name, value in VALUES.items()}
            assert row == expected, (binary, row, expected)
    there.rollback()


def many_rows_and_copy(here, there):
    here.execute("create table psy_row (id int primary key, name text)")
    with here.cursor() as cursor:
        cursor.executemany(
            "insert into psy_row values (%s, %s)", [(n, f"row {n}") for n in range(500)]
        )
        with cursor.copy("copy psy_row from stdin") as copy:
            for n in range(500, 1000):
                copy.write_row((n, f"row\t{n}"))
    here.commit()
    with there.cursor() as cursor:
        with cursor.copy("copy (select * from psy_row order by id) to stdout") as copy:
            rows = list(copy.rows())
        assert len(rows) == 1000 and rows[999] == ("999", "row\t999"), rows[-1]
        cursor.execute(
            "update psy_row set name = %(name)s where id = any(%(ids)s) returning id",
            {"name": "other", "ids": [1, 2, 3]},
        )
        assert cursor.rowcount == 3
    there.commit()
    assert here.execute("select count(*) from psy_row where name = 'other'").fetchone() == (3,)
    here.rollback()


def transactions_and_errors(here, there):
    try:
        with here.transaction():
            here.execute("insert into psy_row values (2000, 'a')")
            with here.transaction():
                here.execute("insert into psy_row values (1, 'twice')")
        raise AssertionError("a second row of one key")
    except errors.UniqueViolation as error:
        assert error.diag.constraint_name == "psy_row_pkey", error.diag.constraint_name
        assert error.diag.table_name == "psy_row", error.diag.table_name
    count = there.execute("select count(*) from psy_row where id = 2000").fetchone()
    assert count == (0,), count
    there.rollback()
    for sql, kind in (
        ("select 1 / 0", errors.DivisionByZero),
        ("select nothing", errors.UndefinedColumn),
        ("select * from nothing", errors.UndefinedTable),
        ("selec 1", errors.SyntaxError),
        ("select 'x'::int", errors.InvalidTextRepresentation),
    ):
        try:
            here.execute(sql)
            raise AssertionError(sql)
        except kind:
            here.rollback()


def prepared_and_pipelined(here):
    for n in range(8):
        row = here.execute("select %s::int + 1", (n,), prepare=True).fetchone()
        assert row == (n + 1,), row
    here.commit()
    with here.pipeline():
        cursors = [here.execute("select %s::int * 2", (n,)) for n in range(20)]
    assert [cursor.fetchone()[0] for cursor in cursors] == [2 * n for n in range(20)]
    here.commit()
    # What fails fails the rest up to the end of the pipeline, and no more.
    try:
        with here.pipeline():
            here.execute("insert into psy_row values (3000, 'a')")
            here.execute("select 1 / 0")
            here.execute("insert into psy_row values (3001, 'b')")
        raise AssertionError("nothing has failed")
    except errors.DivisionByZero:
        here.rollback()
    assert here.execute("select count(*) from psy_row where id >= 3000").fetchone() == (0,)
    here.rollback()


def notices_are_heard(here):
    heard = []
    here.add_notice_handler(lambda notice: heard.append(notice.message_primary))
    here.execute("drop table if exists psy_nothing")
    here.commit()
    assert heard == ['table "psy_nothing" does not exist, skipping'], heard


first, second = (connect(int(port)) for port in sys.argv[1:3])
with first, second:
    values_go_there_and_back(first, second)
    many_rows_and_copy(first, second)
    transactions_and_errors(first, second)
    prepared_and_pipelined(first)
    notices_are_heard(first)
print("psycopg: well")
