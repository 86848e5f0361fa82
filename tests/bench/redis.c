// redis-server as the baseline of get: hiredis over a Unix socket, GETs in one pipeline a batch.
// The library is taken at run time; without its header at build time this baseline is left out.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/io.h"

#if __has_include(<hiredis/hiredis.h>)

#include <dlfcn.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct cairn_bench_redis {
        const struct cairn_bench_io *io;
        pid_t pid;
        void *library;
        redisContext *connection;
        redisContext *(*connect)(const char *path);
        void (*disconnect)(redisContext *connection);
        int (*append)(redisContext *connection, int argc, const char **argv, const size_t *sizes);
        int (*reply)(redisContext *connection, void **ret_reply);
        void (*free_reply)(void *reply);
};

static int take_library(struct cairn_bench_redis *redis)
{
        static const char *const names[] = {"libhiredis.so", "libhiredis.so.0.14",
                                            "libhiredis.so.1.1.0", "libhiredis.so.1"};

        for (size_t i = 0; !redis->library && i < sizeof(names) / sizeof(names[0]); i++)
                redis->library = dlopen(names[i], RTLD_NOW);
        if (!redis->library) {
                fprintf(stderr, "cairn-bench: --vs redis: %s\n", dlerror());
                return -1;
        }
        *(void **)&redis->connect = dlsym(redis->library, "redisConnectUnix");
        *(void **)&redis->disconnect = dlsym(redis->library, "redisFree");
        *(void **)&redis->append = dlsym(redis->library, "redisAppendCommandArgv");
        *(void **)&redis->reply = dlsym(redis->library, "redisGetReply");
        *(void **)&redis->free_reply = dlsym(redis->library, "freeReplyObject");
        return redis->connect && redis->disconnect && redis->append && redis->reply &&
                       redis->free_reply
                   ? 0
                   : -1;
}

static int launch(struct cairn_bench_redis *redis)
{
        char path[128];

        (void)snprintf(path, sizeof(path), "%s/redis", redis->io->daemon.folder);
        redis->pid = fork();
        if (redis->pid == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (!freopen("/dev/null", "w", stdout))
                        _exit(126);
                execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", path,
                       "--save", "", "--appendonly", "no", (char *)NULL);
                _exit(127);
        }
        for (int i = 0; redis->pid > 0 && i < 200; i++) {
                redis->connection = redis->connect(path);
                if (redis->connection && !redis->connection->err)
                        return 0;
                if (redis->connection)
                        redis->disconnect(redis->connection);
                redis->connection = NULL;
                if (waitpid(redis->pid, NULL, WNOHANG) != 0) {
                        redis->pid = 0;
                        break;
                }
                (void)usleep(20000);
        }
        fprintf(stderr, "cairn-bench: --vs redis: no redis-server; apt install redis-server\n");
        return -1;
}

// The next reply, which must be of `type` and, for strings, a block long.
static int take_reply(struct cairn_bench_redis *redis, int type)
{
        redisReply *reply = NULL;
        bool good;

        if (redis->reply(redis->connection, (void **)&reply) != REDIS_OK || !reply)
                return -1;
        good = reply->type == type &&
               (type != REDIS_REPLY_STRING || (uint64_t)reply->len == redis->io->block_bytes);
        redis->free_reply(reply);
        return good ? 0 : -1;
}

static int set_all(struct cairn_bench_redis *redis)
{
        const struct cairn_bench_io *io = redis->io;

        for (uint64_t i = 0; i < io->count; i++) {
                const char *argv[] = {"SET", (const char *)io->keys[i].bytes,
                                      (const char *)io->blocks + i * io->block_bytes};
                size_t sizes[] = {3, sizeof(io->keys[i].bytes), io->block_bytes};

                if (redis->append(redis->connection, 3, argv, sizes) != REDIS_OK ||
                    take_reply(redis, REDIS_REPLY_STATUS) != 0)
                        return -1;
        }
        return 0;
}

int cairn_bench_redis_start(struct cairn_bench_io *io)
{
        struct cairn_bench_redis *redis = calloc(1, sizeof(*redis));

        if (!redis || io->daemon.pid <= 0) {
                fprintf(stderr, "cairn-bench: --vs redis: not with --socket\n");
                free(redis);
                return -1;
        }
        redis->io = io;
        io->redis = redis; // stopped with the rest, whatever comes
        if (take_library(redis) != 0 || launch(redis) != 0)
                return -1;
        if (set_all(redis) != 0) {
                fprintf(stderr, "cairn-bench: --vs redis: SET failed\n");
                return -1;
        }
        return 0;
}

void cairn_bench_redis_stop(struct cairn_bench_redis *redis)
{
        if (!redis)
                return;
        if (redis->connection)
                redis->disconnect(redis->connection);
        if (redis->pid > 0) {
                (void)kill(redis->pid, SIGKILL);
                (void)waitpid(redis->pid, NULL, 0);
        }
        if (redis->library)
                (void)dlclose(redis->library);
        free(redis);
}

double cairn_bench_redis_get_s(struct cairn_bench_redis *redis, uint64_t first, uint64_t count)
{
        double begin_s = cairn_bench_now_s();

        for (uint64_t i = first; i < first + count; i++) {
                const char *argv[] = {"GET", (const char *)redis->io->keys[i].bytes};
                size_t sizes[] = {3, sizeof(redis->io->keys[i].bytes)};

                if (redis->append(redis->connection, 2, argv, sizes) != REDIS_OK)
                        return -1;
        }
        for (uint64_t i = 0; i < count; i++) {
                if (take_reply(redis, REDIS_REPLY_STRING) != 0) {
                        fprintf(stderr, "cairn-bench: --vs redis: GET failed\n");
                        return -1;
                }
        }
        return cairn_bench_now_s() - begin_s;
}

#else

int cairn_bench_redis_start(struct cairn_bench_io *io)
{
        (void)io;
        fprintf(stderr,
                "cairn-bench: --vs redis: built without hiredis; apt install libhiredis-dev "
                "redis-server and build anew\n");
        return -1;
}

void cairn_bench_redis_stop(struct cairn_bench_redis *redis)
{
        (void)redis;
}

double cairn_bench_redis_get_s(struct cairn_bench_redis *redis, uint64_t first, uint64_t count)
{
        (void)redis, (void)first, (void)count;
        return -1;
}

#endif
