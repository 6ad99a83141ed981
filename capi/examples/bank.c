/*
 * A bank in C: a table, values of parameters, transactions that are run again, rows.
 *
 *     cargo build -p selkie-capi
 *     cc -I capi/include -o bank capi/examples/bank.c target/debug/libselkie_capi.a \
 *         -lpthread -ldl -lm
 *     ./bank embedded:
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "selkie.h"

enum { ATTEMPTS = 20 };

/* Ends the program with the error of the last call. */
static void fail(const char *what)
{
    const selkie_error_info *error = selkie_error();
    fprintf(stderr, "%s: %s: %s\n", what, error->state, error->message);
    exit(EXIT_FAILURE);
}

static void run(selkie_connection *bank, const char *sql)
{
    if (selkie_execute(bank, sql, NULL) != SELKIE_OK)
        fail(sql);
}

/* Moves money, in the transaction. */
static int32_t move(selkie_statement *change, int64_t from, int64_t to, int64_t cents)
{
    const int64_t steps[2][2] = {{from, -cents}, {to, cents}};
    for (int i = 0; i < 2; i++) {
        if (selkie_bind_int64(change, 1, steps[i][0]) != SELKIE_OK ||
            selkie_bind_int64(change, 2, steps[i][1]) != SELKIE_OK ||
            selkie_step(change) != SELKIE_DONE)
            return SELKIE_ERROR;
        if (selkie_reset(change) != SELKIE_OK)
            return SELKIE_ERROR;
    }
    return SELKIE_OK;
}

/* Moves money; again if others make that fail. Whether it was moved. */
static int transfer(selkie_connection *bank, selkie_statement *change, int64_t from, int64_t to,
                    int64_t cents)
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        run(bank, "begin");
        if (move(change, from, to, cents) == SELKIE_OK && selkie_commit(bank) == SELKIE_OK)
            return 1;
        int32_t again = selkie_error()->is_retryable;
        int refused = strcmp(selkie_error()->state, "23514") == 0;
        if (!again && !refused)
            fail("transfer");
        /* The statement may have failed half way. */
        selkie_reset(change);
        run(bank, "rollback");
        if (refused)
            return 0;
    }
    fail("too many attempts");
    return 0;
}

static void show(selkie_connection *bank)
{
    const char *least[] = {"0"};
    selkie_statement *rows;
    int32_t status;
    if (selkie_query(bank, "select id, owner, cents from account where cents >= $1 order by id", 1,
                     least, &rows) != SELKIE_OK)
        fail("select");
    while ((status = selkie_step(rows)) == SELKIE_ROW) {
        int64_t id, cents;
        const char *owner;
        if (selkie_column_int64(rows, 0, &id) != SELKIE_OK ||
            selkie_column_text(rows, 1, &owner, NULL) != SELKIE_OK ||
            selkie_column_int64(rows, 2, &cents) != SELKIE_OK)
            fail("column");
        printf("%" PRId64 " %s %" PRId64 "\n", id, owner ? owner : "nobody", cents);
    }
    if (status != SELKIE_DONE)
        fail("select");
    selkie_finalize(rows);
}

int main(int count, char **arguments)
{
    selkie_database *database;
    selkie_connection *bank;
    selkie_statement *add, *change;
    const char *owners[] = {"Ann", "Bob", NULL};

    if (selkie_open(count > 1 ? arguments[1] : "embedded:", &database) != SELKIE_OK)
        fail("open");
    if (selkie_connect(database, &bank) != SELKIE_OK)
        fail("connect");
    run(bank, "create table if not exists account (id bigint primary key, owner text,"
              " cents bigint not null check (cents >= 0)); delete from account");

    if (selkie_prepare(bank, "insert into account values ($1, $2, $3)", &add) != SELKIE_OK)
        fail("prepare");
    for (int64_t id = 1; id <= 3; id++) {
        if (selkie_bind_int64(add, 1, id) != SELKIE_OK ||
            selkie_bind_text(add, 2, owners[id - 1]) != SELKIE_OK ||
            selkie_bind_int64(add, 3, 1000) != SELKIE_OK || selkie_step(add) != SELKIE_DONE ||
            selkie_reset(add) != SELKIE_OK)
            fail("insert");
    }
    selkie_finalize(add);

    if (selkie_prepare(bank, "update account set cents = cents + $2 where id = $1", &change) !=
        SELKIE_OK)
        fail("prepare");
    printf("%d\n", transfer(bank, change, 1, 2, 250));
    printf("%d\n", transfer(bank, change, 3, 1, 2000));
    selkie_finalize(change);

    show(bank);
    if (selkie_disconnect(bank) != SELKIE_OK || selkie_close(database) != SELKIE_OK)
        fail("close");
    return EXIT_SUCCESS;
}
