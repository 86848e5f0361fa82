// The asynchronous API against a real daemon: `cairn_integration_async SOCKET [CLIENTS] [ROUNDS]`.
// Several clients in one process, each with a window of puts, lookups and gets under way, driven by
// poll(2) on their descriptors; every byte that comes back is checked. Prints one line; exits 1
// after saying what was wrong.
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cairn/cairn.h"

enum {
        WINDOW = 16,
        BLOCK_BYTES = 64 * 1024,
        CLIENTS_MAX = 16
};

struct driver;

// One chain of a single block: put it, look it up, get it back, and begin again with another.
struct worker {
        struct cairn_call call;
        struct driver *driver;
        uint32_t number;
        uint32_t round;
        struct cairn_key key;
        uint8_t *from; // in the arena
        uint8_t *to;   // in the arena
        size_t found;
        int status; // of the key
        bool done;
};

struct driver {
        struct cairn_client *client;
        struct cairn_arena *arena;
        uint32_t number;
        uint32_t space;
        uint32_t rounds;
        struct worker workers[WINDOW];
        uint64_t finished;
        int failed;
};

static void start_put(struct worker *worker);
static void start_get(struct worker *worker);

static void give_up(struct worker *worker, const char *what, int status)
{
        fprintf(stderr, "client %u, worker %u, round %u: %s: %s: %s\n", worker->driver->number,
                worker->number, worker->round, what, cairn_error_name(status),
                cairn_client_error(worker->driver->client));
        worker->driver->failed = 1;
        worker->done = true;
}

static uint8_t pattern(const struct worker *worker, size_t at)
{
        return (uint8_t)(at * 31 + worker->number * 7 + worker->round * 13 +
                         worker->driver->number * 101 + (at >> 8));
}

static void on_got(struct cairn_call *call, int status)
{
        struct worker *worker = call->arg;

        if (status != CAIRN_OK || worker->status != CAIRN_OK) {
                give_up(worker, "get", status != CAIRN_OK ? status : worker->status);
                return;
        }
        for (size_t i = 0; i < BLOCK_BYTES; i++) {
                if (worker->to[i] == pattern(worker, i))
                        continue;
                fprintf(stderr, "byte %zu differs\n", i);
                give_up(worker, "get", CAIRN_ECORRUPT);
                return;
        }
        worker->driver->finished++;
        if (++worker->round == worker->driver->rounds)
                worker->done = true;
        else
                start_put(worker);
}

static void start_get(struct worker *worker)
{
        struct driver *driver = worker->driver;
        struct cairn_get_args args = {
            .space = driver->space, .keys = &worker->key, .count = 1, .blocks = worker->to};
        int status;

        memset(worker->to, 0, BLOCK_BYTES);
        worker->call.on_done = on_got;
        status = cairn_get(driver->client, &worker->call, &args, &worker->status);
        if (status != CAIRN_OK)
                give_up(worker, "start of get", status);
}

static void on_looked_up(struct cairn_call *call, int status)
{
        struct worker *worker = call->arg;

        if (status != CAIRN_OK || worker->found != 1)
                give_up(worker, "lookup", status != CAIRN_OK ? status : CAIRN_ENOENT);
        else
                start_get(worker);
}

static void on_put(struct cairn_call *call, int status)
{
        struct worker *worker = call->arg;

        if (status != CAIRN_OK || worker->status != CAIRN_OK) {
                give_up(worker, "put", status != CAIRN_OK ? status : worker->status);
                return;
        }
        worker->call.on_done = on_looked_up;
        status = cairn_lookup(worker->driver->client, &worker->call, worker->driver->space,
                              &worker->key, 1, 0, &worker->found, NULL);
        if (status != CAIRN_OK)
                give_up(worker, "start of lookup", status);
}

static void start_put(struct worker *worker)
{
        struct driver *driver = worker->driver;
        uint32_t name[3] = {driver->number, worker->number, worker->round};
        struct cairn_key fingerprint = {{1}};
        struct cairn_put_args args = {
            .space = driver->space, .keys = &worker->key, .count = 1, .blocks = worker->from};
        int status;

        cairn_chain_keys(&fingerprint, 3, "async", 5, NULL, 0, NULL, name, 3, &worker->key);
        for (size_t i = 0; i < BLOCK_BYTES; i++)
                worker->from[i] = pattern(worker, i);
        worker->call.on_done = on_put;
        status = cairn_put(driver->client, &worker->call, &args, &worker->status);
        if (status != CAIRN_OK)
                give_up(worker, "start of put", status);
}

static int begin(struct driver *driver, const char *socket, uint32_t number, uint32_t rounds)
{
        struct cairn_client_options options = {.socket_path = socket};
        struct cairn_space_config config = {.kind = CAIRN_SPACE_OPAQUE,
                                            .model = "async",
                                            .block_tokens = 16,
                                            .tp_size = 1,
                                            .block_bytes = BLOCK_BYTES};
        char text[640];

        driver->number = number;
        driver->rounds = rounds;
        if (cairn_client_create(&options, &driver->client, text, sizeof(text)) != CAIRN_OK) {
                fprintf(stderr, "%s\n", text);
                return -1;
        }
        if (cairn_client_open_space(driver->client, &config, &driver->space) != CAIRN_OK ||
            cairn_client_arena_create(driver->client, 2ull * WINDOW * BLOCK_BYTES,
                                      &driver->arena) != CAIRN_OK) {
                fprintf(stderr, "%s\n", cairn_client_error(driver->client));
                return -1;
        }
        for (uint32_t i = 0; i < WINDOW; i++) {
                struct worker *worker = &driver->workers[i];
                uint8_t *memory = cairn_client_arena_data(driver->arena);

                *worker = (struct worker){.driver = driver,
                                          .number = i,
                                          .from = memory + 2ull * i * BLOCK_BYTES,
                                          .to = memory + (2ull * i + 1) * BLOCK_BYTES};
                worker->call.arg = worker;
                start_put(worker);
        }
        return 0;
}

static bool all_done(const struct driver *drivers, uint32_t count)
{
        for (uint32_t i = 0; i < count; i++)
                for (uint32_t j = 0; j < WINDOW; j++)
                        if (!drivers[i].workers[j].done)
                                return false;
        return true;
}

int main(int argc, char **argv)
{
        static struct driver drivers[CLIENTS_MAX];
        uint32_t count = argc > 2 ? (uint32_t)atoi(argv[2]) : 4;
        uint32_t rounds = argc > 3 ? (uint32_t)atoi(argv[3]) : 10;
        struct pollfd pollers[CLIENTS_MAX];
        uint64_t finished = 0;
        int failed = 0;

        if (argc < 2 || count == 0 || count > CLIENTS_MAX || rounds == 0) {
                fprintf(stderr, "usage: %s SOCKET [CLIENTS 1..%d] [ROUNDS]\n", argv[0],
                        CLIENTS_MAX);
                return 2;
        }
        for (uint32_t i = 0; i < count; i++) {
                if (begin(&drivers[i], argv[1], i, rounds) != 0)
                        return 1;
        }
        while (!all_done(drivers, count)) {
                for (uint32_t i = 0; i < count; i++)
                        pollers[i] = (struct pollfd){.fd = cairn_client_fd(drivers[i].client),
                                                     .events = POLLIN};
                if (poll(pollers, count, 60000) <= 0) {
                        fprintf(stderr, "nothing happened for a minute\n");
                        return 1;
                }
                for (uint32_t i = 0; i < count; i++)
                        if (pollers[i].revents && cairn_client_poll(drivers[i].client, 0) < 0)
                                return 1;
        }
        for (uint32_t i = 0; i < count; i++) {
                finished += drivers[i].finished;
                failed |= drivers[i].failed;
                cairn_client_destroy(drivers[i].client);
        }
        printf("%llu blocks put, found and got by %u clients\n", (unsigned long long)finished,
               count);
        return failed;
}
