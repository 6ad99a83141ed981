//! TPC-C over a Selkie pool: schema, loader, transactions, consistency conditions, report.
