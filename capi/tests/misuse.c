/* Calls everything as it should not be called: each is an error with a SQLSTATE; nothing ends. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "selkie.h"

static int failures;

static void expect(int line, int32_t status, int32_t wanted, const char *state)
{
    if (status != wanted) {
        fprintf(stderr, "line %d: status %d, not %d: %s\n", line, status, wanted,
                selkie_error()->message);
        failures++;
    } else if (state && strcmp(selkie_error()->state, state) != 0) {
        fprintf(stderr, "line %d: %s, not %s: %s\n", line, selkie_error()->state, state,
                selkie_error()->message);
        failures++;
    }
}

#define OK(call) expect(__LINE__, (call), SELKIE_OK, NULL)
#define ROW(call) expect(__LINE__, (call), SELKIE_ROW, NULL)
#define DONE(call) expect(__LINE__, (call), SELKIE_DONE, NULL)
#define FAILS(state, call) expect(__LINE__, (call), SELKIE_ERROR, state)
#define IS(condition)                                                                              \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                        \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

/* All functions that take a statement, with one that is none. */
static void without_statement(selkie_statement *none)
{
    size_t size;
    uint64_t affected;
    uint32_t oid;
    int32_t flag;
    int64_t number;
    double real;
    const char *text;
    const uint8_t *bytes;
    FAILS("22023", selkie_step(none));
    FAILS("22023", selkie_reset(none));
    FAILS("22023", selkie_finalize(none));
    FAILS("22023", selkie_affected(none, &affected));
    FAILS("22023", selkie_bind_null(none, 1));
    FAILS("22023", selkie_bind_bool(none, 1, 1));
    FAILS("22023", selkie_bind_int64(none, 1, 1));
    FAILS("22023", selkie_bind_double(none, 1, 1));
    FAILS("22023", selkie_bind_text(none, 1, "1"));
    FAILS("22023", selkie_bind_blob(none, 1, NULL, 0));
    FAILS("22023", selkie_column_count(none, &size));
    FAILS("22023", selkie_column_name(none, 0, &text));
    FAILS("22023", selkie_column_type(none, 0, &oid));
    FAILS("22023", selkie_column_is_null(none, 0, &flag));
    FAILS("22023", selkie_column_bool(none, 0, &flag));
    FAILS("22023", selkie_column_int64(none, 0, &number));
    FAILS("22023", selkie_column_double(none, 0, &real));
    FAILS("22023", selkie_column_text(none, 0, &text, &size));
    FAILS("22023", selkie_column_blob(none, 0, &bytes, &size));
}

static void handles(selkie_database *database, selkie_connection *connection)
{
    selkie_connection *other = (selkie_connection *)database;
    selkie_statement *statement = (selkie_statement *)connection;
    int32_t state;
    without_statement(NULL);
    without_statement((selkie_statement *)&state);
    /* A handle of something else. */
    without_statement((selkie_statement *)connection);
    FAILS("22023", selkie_connect(NULL, &other));
    IS(other == NULL);
    FAILS("22023", selkie_connect((selkie_database *)connection, &other));
    FAILS("22023", selkie_connect(database, NULL));
    FAILS("22023", selkie_execute(NULL, "select 1", NULL));
    FAILS("22023", selkie_execute((selkie_connection *)database, "select 1", NULL));
    FAILS("22023", selkie_prepare(NULL, "select 1", &statement));
    IS(statement == NULL);
    FAILS("22023", selkie_prepare(connection, "select 1", NULL));
    FAILS("22023", selkie_query(connection, "select 1", 0, NULL, NULL));
    FAILS("22023", selkie_commit(NULL));
    FAILS("22023", selkie_cancel(NULL));
    FAILS("22023", selkie_transaction_state(NULL, &state));
    FAILS("22023", selkie_transaction_state(connection, NULL));
    FAILS("22023", selkie_disconnect(NULL));
    FAILS("22023", selkie_close(NULL));
    FAILS("22023", selkie_close((selkie_database *)connection));
}

static void texts(selkie_connection *connection)
{
    const char *values[] = {"1", "\xff"};
    selkie_statement *statement;
    FAILS("22023", selkie_execute(connection, NULL, NULL));
    FAILS("22021", selkie_execute(connection, "select '\xff'", NULL));
    FAILS("42601", selkie_execute(connection, "selec 1", NULL));
    IS(selkie_error()->position == 1 && !selkie_error()->is_retryable);
    FAILS("42601", selkie_prepare(connection, "select 1; select 2", &statement));
    FAILS("42P01", selkie_prepare(connection, "select * from nothing", &statement));
    FAILS("42P02", selkie_query(connection, "select $1::int", 0, NULL, &statement));
    FAILS("22023", selkie_query(connection, "select $1::int", 1, NULL, &statement));
    FAILS("22023", selkie_query(connection, "select 1", (size_t)-1, values, &statement));
    FAILS("22021", selkie_query(connection, "select $1::int, $2::text", 2, values, &statement));
    IS(statement == NULL);
    values[0] = "x";
    FAILS("22007", selkie_query(connection, "select $1::date", 1, values, &statement));
}

static void values(selkie_connection *connection)
{
    selkie_statement *statement;
    const uint8_t blob[] = {0, 255};
    const uint8_t *bytes;
    const char *text, *again, *name;
    int64_t number = 7;
    int32_t flag = 7;
    double real;
    size_t size;
    uint32_t oid;
    uint64_t affected = 7;
    OK(selkie_prepare(connection, "select $1::int as a, $2::bytea, $3::bool, $4::real, $5::text",
                      &statement));
    FAILS("42P02", selkie_step(statement));
    IS(strstr(selkie_error()->message, "parameter 1"));
    FAILS("42P02", selkie_bind_int64(statement, 0, 1));
    FAILS("42P02", selkie_bind_int64(statement, 6, 1));
    FAILS("42P02", selkie_bind_int64(statement, (size_t)-1, 1));
    FAILS("22003", selkie_bind_int64(statement, 1, INT64_MAX));
    FAILS("42804", selkie_bind_double(statement, 1, 0.5));
    FAILS("42804", selkie_bind_blob(statement, 1, blob, 2));
    FAILS("22P02", selkie_bind_text(statement, 1, "one"));
    FAILS("22023", selkie_bind_blob(statement, 2, NULL, 2));
    FAILS("22023", selkie_bind_bool(statement, 3, 2));
    FAILS("22003", selkie_bind_double(statement, 4, 1e300));
    OK(selkie_bind_int64(statement, 1, -5));
    OK(selkie_bind_blob(statement, 2, blob, 2));
    OK(selkie_bind_bool(statement, 3, 1));
    OK(selkie_bind_double(statement, 4, 0.5));
    OK(selkie_bind_text(statement, 5, NULL));
    FAILS("55000", selkie_column_int64(statement, 0, &number));
    IS(number == 0);
    ROW(selkie_step(statement));
    FAILS("55000", selkie_bind_int64(statement, 1, 1));
    OK(selkie_column_count(statement, &size));
    IS(size == 5);
    OK(selkie_column_name(statement, 0, &name));
    IS(strcmp(name, "a") == 0);
    OK(selkie_column_type(statement, 0, &oid));
    IS(oid == 23);
    OK(selkie_column_int64(statement, 0, &number));
    IS(number == -5);
    OK(selkie_column_blob(statement, 1, &bytes, &size));
    IS(size == 2 && memcmp(bytes, blob, 2) == 0);
    OK(selkie_column_bool(statement, 2, &flag));
    IS(flag == 1);
    OK(selkie_column_double(statement, 3, &real));
    IS(real == 0.5);
    OK(selkie_column_is_null(statement, 4, &flag));
    IS(flag == 1);
    OK(selkie_column_text(statement, 4, &text, &size));
    IS(text == NULL && size == 0);
    OK(selkie_column_text(statement, 1, &text, &size));
    OK(selkie_column_text(statement, 1, &again, NULL));
    IS(strcmp(text, "\\x00ff") == 0 && size == 6 && text == again);
    FAILS("42804", selkie_column_int64(statement, 4, &number));
    FAILS("42804", selkie_column_bool(statement, 0, &flag));
    FAILS("42804", selkie_column_double(statement, 0, &real));
    FAILS("42804", selkie_column_blob(statement, 0, &bytes, &size));
    FAILS("42703", selkie_column_int64(statement, 5, &number));
    FAILS("42703", selkie_column_name(statement, 5, &name));
    IS(name == NULL);
    FAILS("22023", selkie_column_int64(statement, 0, NULL));
    FAILS("22023", selkie_column_int64(statement, 0, (int64_t *)((char *)&number + 1)));
    FAILS("22023", selkie_column_blob(statement, 1, &bytes, NULL));
    DONE(selkie_step(statement));
    DONE(selkie_step(statement));
    FAILS("55000", selkie_column_int64(statement, 0, &number));
    OK(selkie_affected(statement, &affected));
    IS(affected == 1);
    OK(selkie_reset(statement));
    OK(selkie_bind_null(statement, 1));
    ROW(selkie_step(statement));
    FAILS("23502", selkie_column_int64(statement, 0, &number));
    OK(selkie_finalize(statement));
    without_statement(statement);
}

/* A statement that has failed is not one that is done. */
static void after_a_failure(selkie_connection *connection)
{
    selkie_statement *statement;
    uint64_t affected = 7;
    OK(selkie_prepare(connection, "select 1 / $1::int", &statement));
    OK(selkie_bind_int64(statement, 1, 0));
    FAILS("22012", selkie_step(statement));
    FAILS("55000", selkie_step(statement));
    FAILS("55000", selkie_step(statement));
    FAILS("55000", selkie_bind_int64(statement, 1, 1));
    OK(selkie_affected(statement, &affected));
    IS(affected == 0);
    OK(selkie_reset(statement));
    OK(selkie_bind_int64(statement, 1, 1));
    ROW(selkie_step(statement));
    DONE(selkie_step(statement));
    OK(selkie_finalize(statement));
}

static void two_statements(selkie_database *database, selkie_connection *connection)
{
    selkie_statement *first, *second;
    selkie_connection *other;
    int32_t state;
    int64_t number;
    const char *far = "select i from generate_series(1::bigint, 4000000000) i";
    OK(selkie_query(connection, far, 0, NULL, &first));
    OK(selkie_query(connection, "select 2::bigint", 0, NULL, &second));
    OK(selkie_execute(connection, "begin", NULL));
    ROW(selkie_step(first));
    FAILS("55006", selkie_step(second));
    FAILS("55006", selkie_execute(connection, "commit", NULL));
    FAILS("55006", selkie_commit(connection));
    FAILS("55006", selkie_transaction_state(connection, &state));
    /* The rows that are left are not read, and the transaction goes on. */
    OK(selkie_reset(first));
    ROW(selkie_step(second));
    OK(selkie_transaction_state(connection, &state));
    IS(state == SELKIE_IN_TRANSACTION);
    FAILS("22012", selkie_execute(connection, "select 1 / 0", NULL));
    FAILS("25P02", selkie_execute(connection, "select 1", NULL));
    OK(selkie_transaction_state(connection, &state));
    IS(state == SELKIE_FAILED);
    FAILS("25P02", selkie_commit(connection));
    FAILS("25P01", selkie_commit(connection));
    OK(selkie_execute(connection, "begin", NULL));
    OK(selkie_commit(connection));
    OK(selkie_finalize(second));
    OK(selkie_finalize(first));

    OK(selkie_connect(database, &other));
    OK(selkie_query(other, far, 0, NULL, &first));
    OK(selkie_query(other, "select 1", 0, NULL, &second));
    ROW(selkie_step(first));
    OK(selkie_disconnect(other));
    FAILS("22023", selkie_disconnect(other));
    /* What is being read may be read on, but nothing begins any more. */
    ROW(selkie_step(first));
    OK(selkie_column_int64(first, 0, &number));
    IS(number == 2);
    FAILS("08000", selkie_step(second));
    OK(selkie_finalize(first));
    OK(selkie_finalize(second));
}

struct cancelling {
    selkie_connection *connection;
    selkie_statement *statement;
    pthread_mutex_t lock;
    int is_over;
};

static void *cancel(void *argument)
{
    struct cancelling *own = argument;
    const struct timespec pause = {0, 1000000};
    int is_over = 0, was_in_use = 0;
    while (!is_over) {
        /* The error is that of this thread, whatever the other does. */
        was_in_use |= selkie_reset(own->statement) == SELKIE_ERROR &&
                      strcmp(selkie_error()->state, "55006") == 0;
        if (was_in_use)
            OK(selkie_cancel(own->connection));
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&own->lock);
        is_over = own->is_over;
        pthread_mutex_unlock(&own->lock);
    }
    IS(was_in_use);
    return NULL;
}

static void threads(selkie_connection *connection)
{
    struct cancelling own = {connection, NULL, PTHREAD_MUTEX_INITIALIZER, 0};
    pthread_t thread;
    selkie_statement *ready;
    const char *sql = "select count(*) from generate_series(1, 2000000000)";
    OK(selkie_query(connection, sql, 0, NULL, &own.statement));
    OK(selkie_query(connection, "select 1", 0, NULL, &ready));
    IS(pthread_create(&thread, NULL, cancel, &own) == 0);
    int32_t status;
    do {
        status = selkie_step(own.statement);
    } while (status == SELKIE_ERROR && strcmp(selkie_error()->state, "55006") == 0);
    expect(__LINE__, status, SELKIE_ERROR, "57014");
    pthread_mutex_lock(&own.lock);
    own.is_over = 1;
    pthread_mutex_unlock(&own.lock);
    IS(pthread_join(thread, NULL) == 0);
    OK(selkie_reset(own.statement));
    OK(selkie_finalize(own.statement));
    ROW(selkie_step(ready));
    OK(selkie_finalize(ready));
}

int main(void)
{
    selkie_database *database = NULL;
    selkie_connection *connection;
    IS(strcmp(selkie_error()->state, "00000") == 0);
    FAILS("22023", selkie_open(NULL, &database));
    FAILS("22023", selkie_open("embedded:", NULL));
    FAILS("22023", selkie_open("nonsense:\xc3\xa4", &database));
    FAILS("58030", selkie_open("embedded:/dev/null/none", &database));
    FAILS("22021", selkie_open("\xff", &database));
    IS(database == NULL);
    OK(selkie_open("embedded:", &database));
    OK(selkie_connect(database, &connection));
    handles(database, connection);
    texts(connection);
    values(connection);
    after_a_failure(connection);
    two_statements(database, connection);
    threads(connection);
    OK(selkie_close(database));
    FAILS("22023", selkie_close(database));
    IS(selkie_execute(connection, "create table late (id int)", NULL) == SELKIE_ERROR);
    OK(selkie_disconnect(connection));
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
