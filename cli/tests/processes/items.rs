//! Tables that the tests of shells describe.

/// Makes them.
pub(crate) const TABLES: &str = "create table shop (id int primary key, city text);
    create table item (shop int references shop on delete cascade, number int default 7,
      name text not null, price numeric(10,2) check (price > 0), primary key (shop, number),
      unique (name));
    create index item_price on item (price desc);
    create view cheap as select shop, name from item where price < 1;";

/// One of them as psql shows it at PostgreSQL 15.
pub(crate) const ITEM: &str = r#"                   Table "public.item"
 Column |     Type      | Collation | Nullable | Default 
--------+---------------+-----------+----------+---------
 shop   | integer       |           | not null | 
 number | integer       |           | not null | 7
 name   | text          |           | not null | 
 price  | numeric(10,2) |           |          | 
Indexes:
    "item_pkey" PRIMARY KEY, btree (shop, number)
    "item_name_key" UNIQUE CONSTRAINT, btree (name)
    "item_price" btree (price DESC)
Check constraints:
    "item_price_check" CHECK (price > 0::numeric)
Foreign-key constraints:
    "item_shop_fkey" FOREIGN KEY (shop) REFERENCES shop(id) ON DELETE CASCADE

"#;
