"""SQLAlchemy 2 at two servers of one pool: the ports are the arguments."""

import datetime
import decimal
import sys

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql


class Base(orm.DeclarativeBase):
    pass


class Shop(Base):
    __tablename__ = "alch_shop"
    __table_args__ = (sa.UniqueConstraint("city", "street", name="alch_shop_place"),)
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    city: orm.Mapped[str] = orm.mapped_column(sa.String(40), index=True)
    street: orm.Mapped[str | None]
    opened: orm.Mapped[datetime.datetime] = orm.mapped_column(
        sa.DateTime(timezone=True), server_default=sa.func.now()
    )
    items: orm.Mapped[list["Item"]] = orm.relationship(
        back_populates="shop", cascade="all, delete-orphan", order_by="Item.number"
    )


class Item(Base):
    __tablename__ = "alch_item"
    __table_args__ = (sa.CheckConstraint("price >= 0", name="alch_item_price"),)
    shop_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey("alch_shop.id", ondelete="CASCADE"), primary_key=True
    )
    number: orm.Mapped[int] = orm.mapped_column(primary_key=True, autoincrement=False)
    name: orm.Mapped[str] = orm.mapped_column(sa.Text, comment="as it is sold")
    price: orm.Mapped[decimal.Decimal] = orm.mapped_column(sa.Numeric(10, 2))
    tags: orm.Mapped[dict | None] = orm.mapped_column(postgresql.JSONB)
    shop: orm.Mapped[Shop] = orm.relationship(back_populates="items")


def engine(port):
    return sa.create_engine(f"postgresql+psycopg://me@127.0.0.1:{port}/selkie")


def tables_are_made_once(here, there):
    Base.metadata.create_all(here)
    # They are there already, as the other server sees them.
    Base.metadata.create_all(there)


def what_there_is_is_found(there):
    found = sa.inspect(there)
    assert {"alch_shop", "alch_item"} <= set(found.get_table_names())
    columns = {own["name"]: own for own in found.get_columns("alch_item")}
    assert str(columns["price"]["type"]) == "NUMERIC(10, 2)", columns["price"]
    assert columns["name"]["comment"] == "as it is sold", columns["name"]
    assert not columns["name"]["nullable"] and columns["tags"]["nullable"]
    assert str(columns["tags"]["type"]) == "JSONB"
    key = found.get_pk_constraint("alch_item")
    assert key["constrained_columns"] == ["shop_id", "number"], key
    (foreign,) = found.get_foreign_keys("alch_item")
    assert foreign["referred_table"] == "alch_shop", foreign
    assert foreign["options"] == {"ondelete": "CASCADE"}, foreign
    (check,) = found.get_check_constraints("alch_item")
    assert check["name"] == "alch_item_price", check
    (unique,) = found.get_unique_constraints("alch_shop")
    assert unique["column_names"] == ["city", "street"], unique
    indexes = {own["name"]: own["column_names"] for own in found.get_indexes("alch_shop")}
    assert indexes.get("ix_alch_shop_city") == ["city"], indexes
    default = {own["name"]: own["default"] for own in found.get_columns("alch_shop")}
    assert "alch_shop_id_seq" in default["id"], default
    assert default["opened"] == "now()", default
    reflected = sa.MetaData()
    reflected.reflect(there, only=["alch_item"])
    assert set(reflected.tables) == {"alch_item", "alch_shop"}, set(reflected.tables)
    (column,) = reflected.tables["alch_item"].c.shop_id.foreign_keys
    assert column.target_fullname == "alch_shop.id", column.target_fullname


def objects_go_there_and_back(here, there):
    with orm.Session(here) as session:
        oslo = Shop(city="Oslo", street="Gate 1")
        oslo.items = [
            Item(number=n, name=f"item {n}", price=decimal.Decimal(n) / 4, tags={"n": [n]})
            for n in range(1, 6)
        ]
        session.add_all([oslo, Shop(city="Bergen")])
        session.commit()
        assert oslo.id is not None and oslo.opened.tzinfo is not None
    with orm.Session(there) as session:
        query = sa.select(Shop).options(orm.selectinload(Shop.items)).order_by(Shop.city)
        bergen, oslo = session.scalars(query).all()
        assert (bergen.street, [item.number for item in oslo.items]) == (None, [1, 2, 3, 4, 5])
        assert oslo.items[2].price == decimal.Decimal("0.75") and oslo.items[2].tags == {"n": [3]}
        oslo.items[0].price += 10
        del oslo.items[4]
        session.commit()
    with orm.Session(here) as session:
        total = sa.func.sum(Item.price)
        query = (
            sa.select(Shop.city, sa.func.count(Item.number), total)
            .outerjoin(Shop.items)
            .group_by(Shop.id)
            .having(sa.func.count() > 0)
            .order_by(Shop.city)
        )
        rows = session.execute(query).all()
        expected = [("Bergen", 0, None), ("Oslo", 4, decimal.Decimal("12.50"))]
        assert rows == expected, rows
        numbers = session.scalars(
            sa.select(Item.number).where(Item.number.in_([2, 3]), Item.name.ilike("ITEM%"))
        )
        assert sorted(numbers) == [2, 3]
        page = sa.select(Item.name).order_by(Item.price.desc()).limit(2).offset(1)
        assert session.scalars(page).all() == ["item 4", "item 3"]


def what_fails_is_taken_back(here, there):
    with orm.Session(here) as session:
        session.add(Shop(city="Oslo", street="Gate 1"))
        try:
            session.commit()
            raise AssertionError("two shops at one place")
        except sa.exc.IntegrityError as error:
            assert error.orig.sqlstate == "23505", error
            session.rollback()
        with session.begin_nested() as inner:
            session.add(Shop(city="Nowhere"))
            session.flush()
            inner.rollback()
        session.commit()
    with there.connect() as connection:
        assert connection.scalar(sa.text("select count(*) from alch_shop")) == 2
    insert = postgresql.insert(Item)
    row = {"shop_id": 1, "number": 1, "name": "new", "price": 1}
    with there.begin() as connection:
        shop = connection.scalar(sa.select(Shop.id).where(Shop.city == "Oslo"))
        upsert = insert.values(row | {"shop_id": shop}).on_conflict_do_update(
            index_elements=["shop_id", "number"], set_={"name": insert.excluded.name}
        )
        assert connection.scalar(upsert.returning(Item.name)) == "new"


here, there = (engine(port) for port in sys.argv[1:3])
tables_are_made_once(here, there)
what_there_is_is_found(there)
objects_go_there_and_back(here, there)
what_fails_is_taken_back(here, there)
Base.metadata.drop_all(there)
assert "alch_shop" not in sa.inspect(here).get_table_names()
print("SQLAlchemy: well")
