#ifndef SELKIE_H
#define SELKIE_H

/* Made by cbindgen from the crate selkie-capi: see capi/tests/c.rs. */

#include <stddef.h>
#include <stdint.h>

/*
 The function has done what it is for.
 */
#define SELKIE_OK 0

/*
 `selkie_step`: there is a row.
 */
#define SELKIE_ROW 1

/*
 `selkie_step`: the statement is over, and there are no more rows.
 */
#define SELKIE_DONE 2

/*
 The function has failed: `selkie_error` says why.
 */
#define SELKIE_ERROR -1

/*
 `selkie_transaction_state`: no transaction is in progress.
 */
#define SELKIE_IDLE 0

/*
 `selkie_transaction_state`: one is in progress.
 */
#define SELKIE_IN_TRANSACTION 1

/*
 `selkie_transaction_state`: one is in progress that has failed, and has to be rolled back.
 */
#define SELKIE_FAILED 2

/*
 A connection: statements, one after the other.
 */
typedef struct selkie_connection selkie_connection;

/*
 A database that is open.
 */
typedef struct selkie_database selkie_database;

/*
 A prepared statement, and its rows.
 */
typedef struct selkie_statement selkie_statement;

/*
 Why a function has failed.
 */
typedef struct selkie_error_info {
    /*
     PostgreSQL's SQLSTATE, of five characters; "00000" if nothing has failed in this thread.
     */
    const char *state;
    /*
     What happened, in a line.
     */
    const char *message;
    /*
     More about that, or NULL.
     */
    const char *detail;
    /*
     What would help, or NULL.
     */
    const char *hint;
    /*
     The first character of the statement that it is about, counted from 1; 0 for none.
     */
    size_t position;
    /*
     1 if the same transaction may succeed when it is run again (40001, 40P01), else 0.
     */
    int32_t is_retryable;
} selkie_error_info;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Why the last function of this thread has failed that gave `SELKIE_ERROR`. Never NULL, but in a
 thread that ends. It is valid until the next failure in this thread.
 */
const struct selkie_error_info *selkie_error(void);

/*
 Opens the database of a pool; a pool without a database gets one. `url` is `embedded:` (in this
 process, and it ends with it), `embedded:DIR` (kept in a directory), `shm:NAME` or
 `tcp:HOST:PORT,...` (pools that processes share). The handle has to be closed. It fails with
 22023 if the URL is wrong, 55006 if another process has the directory, 53100 if it has no room,
 58030 if files cannot be used, and 08000 if the pool is not reached or refuses.

 # Safety
 `url` is NULL or a text; `database` is NULL or a place for a handle.
 */
int32_t selkie_open(const char *url, struct selkie_database **database);

/*
 Closes a database: writes what has changed home, and leaves the pool. Connections that are still
 there get errors from now on, and have to be closed all the same. The handle is none any more,
 also if this fails.
 */
int32_t selkie_close(struct selkie_database *database);

/*
 Connects to a database. The connection has to be closed.

 # Safety
 `connection` is NULL or a place for a handle.
 */
int32_t selkie_connect(struct selkie_database *database, struct selkie_connection **connection);

/*
 Closes a connection. Its transaction is rolled back. Statements of it have to be finalized all
 the same; one whose rows are being read may be read on.
 */
int32_t selkie_disconnect(struct selkie_connection *connection);

/*
 Runs all statements of a text, which have no parameters and whose rows are not wanted. Unless
 they begin a transaction themselves, they are one. `affected`, if it is not NULL, gets how many
 rows they have changed and given. `commit` in it gives `SELKIE_OK` also when a statement of the
 transaction has failed and it rolls back: `selkie_commit` does not.

 # Safety
 `sql` is NULL or a text; `affected` is NULL or a place for a number.
 */
int32_t selkie_execute(struct selkie_connection *connection, const char *sql, uint64_t *affected);

/*
 Commits the transaction in progress. It fails, and nothing is committed, with 25P02 if a
 statement of it has failed, with 25P01 if none is in progress, and with 40001 if it has to be
 run again. With 08007 it is not known whether it will last. With 55006 another statement uses
 the connection, and the transaction goes on. After other errors a `rollback` does no harm.
 */
int32_t selkie_commit(struct selkie_connection *connection);

/*
 Ends the statement that the connection runs in another thread: it fails with 57014 at its next
 wait. Nothing happens if none runs, or if it commits already.
 */
int32_t selkie_cancel(struct selkie_connection *connection);

/*
 Whether a transaction is in progress: `SELKIE_IDLE`, `SELKIE_IN_TRANSACTION` or `SELKIE_FAILED`.

 # Safety
 `state` is NULL or a place for a number.
 */
int32_t selkie_transaction_state(struct selkie_connection *connection, int32_t *state);

/*
 Prepares a statement with parameters `$1`, `$2` and so on. It has to be finalized.

 # Safety
 `sql` is NULL or a text; `statement` is NULL or a place for a handle.
 */
int32_t selkie_prepare(struct selkie_connection *connection,
                       const char *sql,
                       struct selkie_statement **statement);

/*
 Prepares a statement and sets the values of its `count` parameters, as texts; NULL is NULL. It
 runs with the first `selkie_step`, and has to be finalized.

 # Safety
 `sql` is NULL or a text; `values` is NULL or points to `count` pointers, each NULL or a text;
 `statement` is NULL or a place for a handle.
 */
int32_t selkie_query(struct selkie_connection *connection,
                     const char *sql,
                     size_t count,
                     const char *const *values,
                     struct selkie_statement **statement);

/*
 Runs a statement up to its next row: `SELKIE_ROW`, or `SELKIE_DONE` when there is none. What
 changes rows without RETURNING has done so then, and has committed if it is in no transaction of
 the connection. Further steps give `SELKIE_DONE`, until a reset. If it fails while it runs,
 further steps fail with 55000, until a reset. Between steps no limit, as `statement_timeout`,
 ends the statement: rows that nobody reads keep its snapshot and its locks.
 */
int32_t selkie_step(struct selkie_statement *statement);

/*
 Ends what a statement runs, so that it may run again. Its values stay. Rows that are left are
 not read: a query stops there, what changes rows goes on to its end, which may fail.
 */
int32_t selkie_reset(struct selkie_statement *statement);

/*
 Ends a statement, as `selkie_reset`. The handle is none any more, also if this fails; unless
 another thread uses the statement (55006).
 */
int32_t selkie_finalize(struct selkie_statement *statement);

/*
 How many rows a statement has changed, or given, once `selkie_step` gave `SELKIE_DONE`; 0
 before.

 # Safety
 `affected` is NULL or a place for a number.
 */
int32_t selkie_affected(struct selkie_statement *statement, uint64_t *affected);

/*
 Sets a parameter to NULL.
 */
int32_t selkie_bind_null(struct selkie_statement *statement, size_t number);

/*
 Sets a parameter of type boolean: 0 is false, 1 is true.
 */
int32_t selkie_bind_bool(struct selkie_statement *statement, size_t number, int32_t value);

/*
 Sets a parameter of type smallint, integer, bigint or numeric.
 */
int32_t selkie_bind_int64(struct selkie_statement *statement, size_t number, int64_t value);

/*
 Sets a parameter of type real or double precision.
 */
int32_t selkie_bind_double(struct selkie_statement *statement, size_t number, double value);

/*
 Sets a parameter of any type, by its text in UTF-8; NULL is NULL.

 # Safety
 `value` is NULL or a text.
 */
int32_t selkie_bind_text(struct selkie_statement *statement, size_t number, const char *value);

/*
 Sets a parameter of type bytea.

 # Safety
 `value` points to `length` bytes, or is NULL if that is 0.
 */
int32_t selkie_bind_blob(struct selkie_statement *statement,
                         size_t number,
                         const uint8_t *value,
                         size_t length);

/*
 How many columns the rows of a statement have; 0 if it gives no rows.

 # Safety
 `count` is NULL or a place for a number.
 */
int32_t selkie_column_count(struct selkie_statement *statement, size_t *count);

/*
 The name of a column. It is valid until the statement is finalized.

 # Safety
 `name` is NULL or a place for a pointer.
 */
int32_t selkie_column_name(struct selkie_statement *statement, size_t index, const char **name);

/*
 The type of a column, by PostgreSQL's number: 16 boolean, 20 bigint, 21 smallint, 23 integer, 25
 text, 17 bytea, 701 double precision, 1700 numeric, and so on.

 # Safety
 `oid` is NULL or a place for a number.
 */
int32_t selkie_column_type(struct selkie_statement *statement, size_t index, uint32_t *oid);

/*
 Whether a value is NULL: 1 or 0.

 # Safety
 `is_null` is NULL or a place for a number.
 */
int32_t selkie_column_is_null(struct selkie_statement *statement, size_t index, int32_t *is_null);

/*
 A value of type boolean: 1 or 0. NULL is an error.

 # Safety
 `value` is NULL or a place for a number.
 */
int32_t selkie_column_bool(struct selkie_statement *statement, size_t index, int32_t *value);

/*
 A value of type smallint, integer or bigint. NULL is an error.

 # Safety
 `value` is NULL or a place for a number.
 */
int32_t selkie_column_int64(struct selkie_statement *statement, size_t index, int64_t *value);

/*
 A value of type real or double precision. NULL is an error.

 # Safety
 `value` is NULL or a place for a number.
 */
int32_t selkie_column_double(struct selkie_statement *statement, size_t index, double *value);

/*
 A value of any type as text in UTF-8, with a 0 behind it; NULL if it is NULL. `length`, if it is
 not NULL, gets its bytes. The text is valid until the next step, reset or finalize of the
 statement.

 # Safety
 `text` is NULL or a place for a pointer, `length` NULL or a place for a number.
 */
int32_t selkie_column_text(struct selkie_statement *statement,
                           size_t index,
                           const char **text,
                           size_t *length);

/*
 A value of type bytea; NULL if it is NULL. It is valid until the next step, reset or finalize of
 the statement.

 # Safety
 `bytes` is NULL or a place for a pointer, `length` NULL or a place for a number.
 */
int32_t selkie_column_blob(struct selkie_statement *statement,
                           size_t index,
                           const uint8_t **bytes,
                           size_t *length);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SELKIE_H */
