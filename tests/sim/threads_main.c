// The store on a real directory with its real threads: random puts, reads, deletes and restarts for
// some seconds, every byte checked; for ThreadSanitizer and AddressSanitizer.
//   cairn_sim_threads [--seed N] [--seconds N] [--sync]
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "sim_random.h"
#include "policy/eviction/eviction.h"
#include "storage/store.h"

enum {
        TASKS_MAX = 32,
        KEYS = 200,
        LAYERS = 3,
        WORKERS = 2,
        RAW_BYTES = 20000,
        CODE_BYTES = 3000
};

struct pool {
        struct cairn_executor executor; // first
        pthread_t threads[WORKERS];
        pthread_mutex_t lock;
        pthread_cond_t wake;
        struct cairn_work *pending; // under the lock
        struct cairn_work *done;    // under the lock
        bool stopping;              // under the lock
        int event_fd;
};

struct task {
        struct cairn_put_begin begin;
        struct cairn_acquire acquire;
        struct cairn_work work;
        struct run *run;
        struct cairn_put *put;
        struct cairn_block *block;
        uint32_t key;
        bool busy;
};

struct run {
        struct pool pool;
        struct sim_random random;
        struct cairn_store *store;
        struct cairn_store_options options;
        struct task tasks[TASKS_MAX];
        uint64_t seed;
        uint64_t puts, reads, deletes, restarts;
        uint32_t space;
        bool opened;
        bool drained;
        char directory[128];
};

static void fail(const struct run *run, const char *what)
{
        fprintf(stderr, "threads: seed %llu: %s\n", (unsigned long long)run->seed, what);
        abort();
}

static uint64_t now_ms(void *clock)
{
        (void)clock;
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

// ---- the executor ----

static void pool_submit(struct cairn_executor *executor, struct cairn_work *work)
{
        struct pool *pool = (struct pool *)(void *)executor;
        pthread_mutex_lock(&pool->lock);
        work->next = pool->pending;
        pool->pending = work;
        pthread_cond_signal(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
}

static void *pool_main(void *arg)
{
        struct pool *pool = arg;
        pthread_mutex_lock(&pool->lock);
        while (!pool->stopping) {
                struct cairn_work *work = pool->pending;
                if (!work) {
                        pthread_cond_wait(&pool->wake, &pool->lock);
                        continue;
                }
                pool->pending = work->next;
                pthread_mutex_unlock(&pool->lock);
                work->run(work);
                pthread_mutex_lock(&pool->lock);
                work->next = pool->done;
                pool->done = work;
                uint64_t one = 1;
                (void)!write(pool->event_fd, &one, sizeof(one));
        }
        pthread_mutex_unlock(&pool->lock);
        return NULL;
}

static void pool_reap(struct pool *pool)
{
        uint64_t count;
        (void)!read(pool->event_fd, &count, sizeof(count));
        pthread_mutex_lock(&pool->lock);
        struct cairn_work *work = pool->done;
        pool->done = NULL;
        pthread_mutex_unlock(&pool->lock);
        while (work) {
                struct cairn_work *next = work->next;
                work->on_done(work);
                work = next;
        }
}

// ---- tasks ----

static struct cairn_key key_of(uint32_t number)
{
        struct cairn_key key = {{0}};
        struct sim_random random = {number};
        for (int i = 0; i < 4; i++) {
                uint64_t word = sim_next(&random);
                memcpy(key.bytes + 8 * i, &word, sizeof(word));
        }
        return key;
}

static void fill(uint8_t *bytes, uint32_t size, uint32_t key, uint32_t part, uint32_t layer)
{
        memset(bytes, (int)(key * 31 + part * 7 + layer), size);
        memcpy(bytes, &key, sizeof(key));
}

static void check(struct run *run, const uint8_t *bytes, uint32_t size, uint32_t key, uint32_t part,
                  uint32_t layer)
{
        uint8_t expected[RAW_BYTES];
        fill(expected, size, key, part, layer);
        if (memcmp(bytes, expected, size) != 0)
                fail(run, "OK with bytes that no put wrote");
}

static void run_fill(struct cairn_work *work)
{
        struct task *task = (struct task *)((char *)work - offsetof(struct task, work));
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
                fill(cairn_put_raw(task->put, layer), RAW_BYTES, task->key, 1, layer);
                cairn_put_seal(task->put, CAIRN_PART_RAW, layer);
                fill(cairn_put_code(task->put, layer), CODE_BYTES, task->key, 2, layer);
                cairn_put_seal(task->put, CAIRN_PART_CODE, layer);
        }
}

static void on_committed(void *arg, int status)
{
        struct task *task = arg;
        if (status != CAIRN_OK)
                fail(task->run, "a put failed");
        task->run->puts++;
        task->busy = false;
}

static void on_filled(struct cairn_work *work)
{
        struct task *task = (struct task *)((char *)work - offsetof(struct task, work));
        cairn_store_put_commit(task->run->store, task->put, on_committed, task);
}

static void on_begun(struct cairn_put_begin *begin, int status, struct cairn_put *put)
{
        struct task *task = (struct task *)(void *)begin;
        task->busy = status == CAIRN_OK;
        if (status != CAIRN_OK && status != CAIRN_EEXIST)
                fail(task->run, "a put was refused");
        if (status != CAIRN_OK)
                return;
        task->put = put;
        task->work = (struct cairn_work){.run = run_fill, .on_done = on_filled};
        pool_submit(&task->run->pool.executor, &task->work);
}

static void run_check(struct cairn_work *work)
{
        struct task *task = (struct task *)((char *)work - offsetof(struct task, work));
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
                if (task->acquire.parts & CAIRN_PART_RAW)
                        check(task->run, cairn_block_raw(task->block, layer), RAW_BYTES, task->key,
                              1, layer);
                if (task->acquire.parts & CAIRN_PART_CODE)
                        check(task->run, cairn_block_code(task->block, layer), CODE_BYTES,
                              task->key, 2, layer);
        }
        if (cairn_block_verify(task->block,
                               task->acquire.parts & CAIRN_PART_RAW ? CAIRN_PART_RAW
                                                                    : CAIRN_PART_CODE,
                               0, LAYERS) != CAIRN_OK)
                fail(task->run, "pinned bytes fail their checksum");
}

static void on_checked(struct cairn_work *work)
{
        struct task *task = (struct task *)((char *)work - offsetof(struct task, work));
        cairn_store_unpin(task->run->store, task->block, task->acquire.parts);
        cairn_store_unhold(task->run->store, task->block);
        task->run->reads++;
        task->busy = false;
}

static void on_ready(struct cairn_acquire *acquire, int status)
{
        struct task *task = (struct task *)((char *)acquire - offsetof(struct task, acquire));
        if (status != CAIRN_OK)
                fail(task->run, "a read failed");
        task->work = (struct cairn_work){.run = run_check, .on_done = on_checked};
        pool_submit(&task->run->pool.executor, &task->work);
}

static void on_deleted(void *arg, int status)
{
        struct task *task = arg;
        task->run->deletes += status == CAIRN_OK;
        task->busy = false;
}

static void start(struct run *run, struct task *task)
{
        uint64_t choice = sim_below(&run->random, 100);
        task->key = (uint32_t)sim_below(&run->random, KEYS);
        struct cairn_key key = key_of(task->key);
        if (choice < 30) {
                task->busy = true;
                task->begin =
                    (struct cairn_put_begin){.on_begun = on_begun,
                                             .space = run->space,
                                             .key = key,
                                             .ack = (enum cairn_ack)sim_below(&run->random, 2)};
                if (task->key % 8)
                        task->begin.parent = key_of(task->key - 1);
                cairn_store_put_begin(run->store, &task->begin);
        } else if (choice < 92) {
                if (cairn_store_hold(run->store, run->space, &key, &task->block) != CAIRN_OK)
                        return;
                cairn_store_touch(run->store, task->block);
                task->busy = true;
                task->acquire =
                    (struct cairn_acquire){.on_ready = on_ready,
                                           .block = task->block,
                                           .parts = 1 + (uint32_t)sim_below(&run->random, 3)};
                cairn_store_acquire(run->store, &task->acquire);
        } else {
                task->busy = true;
                cairn_store_delete(run->store, run->space, &key, NULL, on_deleted, task);
        }
}

// ---- the loop ----

static void turn(struct run *run)
{
        struct pollfd fds[2] = {{.fd = cairn_store_fd(run->store), .events = POLLIN},
                                {.fd = run->pool.event_fd, .events = POLLIN}};
        (void)poll(fds, 2, 20);
        pool_reap(&run->pool);
        cairn_store_poll(run->store);
}

static void on_space(void *arg, int status, uint32_t space)
{
        struct run *run = arg;
        if (status != CAIRN_OK)
                fail(run, "a space cannot be opened");
        run->space = space;
        run->opened = true;
}

static void open_store(struct run *run)
{
        char text[CAIRN_TEXT_BYTES_MAX];
        if (cairn_store_open(&run->options, &run->store, text) != CAIRN_OK)
                fail(run, text);
        const struct cairn_key fingerprint = {{1}};
        const struct cairn_block_shape shape = {LAYERS, RAW_BYTES, CODE_BYTES};
        run->opened = false;
        cairn_store_space_open(run->store, &fingerprint, &shape, "threads", 7, on_space, run);
        while (!run->opened)
                turn(run);
}

static void on_drained(void *arg, int status)
{
        struct run *run = arg;
        if (status != CAIRN_OK)
                fail(run, "a drain failed");
        run->drained = true;
}

static void close_store(struct run *run)
{
        bool busy = true;
        while (busy) {
                turn(run);
                busy = false;
                for (int i = 0; i < TASKS_MAX; i++)
                        busy = busy || run->tasks[i].busy;
        }
        run->drained = false;
        cairn_store_drain(run->store, 0, on_drained, run);
        while (!run->drained)
                turn(run);
        if (cairn_store_audit_counters(run->store) != CAIRN_OK)
                fail(run, "counters differ from their sums");
        cairn_store_close(run->store);
}

static int unlink_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
        (void)status;
        (void)kind;
        (void)walk;
        return remove(path);
}

static void pool_start(struct pool *pool)
{
        pool->executor.submit = pool_submit;
        pthread_mutex_init(&pool->lock, NULL);
        pthread_cond_init(&pool->wake, NULL);
        pool->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        for (int i = 0; i < WORKERS; i++)
                pthread_create(&pool->threads[i], NULL, pool_main, pool);
}

static void pool_stop(struct pool *pool)
{
        pthread_mutex_lock(&pool->lock);
        pool->stopping = true;
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
        for (int i = 0; i < WORKERS; i++)
                pthread_join(pool->threads[i], NULL);
        close(pool->event_fd);
}

int main(int argc, char **argv)
{
        static struct run run;
        uint64_t seconds = 5;
        const char *environment = getenv("CAIRN_TEST_SEED");
        run.seed = environment ? strtoull(environment, NULL, 0) : (uint64_t)time(NULL);
        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "--sync") == 0)
                        run.options.force_sync_device = true;
                else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
                        run.seed = strtoull(argv[++i], NULL, 0);
                else if (i + 1 < argc && strcmp(argv[i], "--seconds") == 0)
                        seconds = strtoull(argv[++i], NULL, 0);
                else
                        return fprintf(stderr, "usage: %s [--seed N] [--seconds N] [--sync]\n",
                                       argv[0]),
                               2;
        }
        printf("threads: seed %llu, %llu s\n", (unsigned long long)run.seed,
               (unsigned long long)seconds);
        run.random.state = run.seed;
        const char *base = getenv("TMPDIR");
        snprintf(run.directory, sizeof(run.directory), "%s/cairn-threads-XXXXXX",
                 base ? base : "/tmp");
        if (!mkdtemp(run.directory))
                fail(&run, "no temporary directory");
        pool_start(&run.pool);
        run.options.directories[0] = run.directory;
        run.options.directories_count = 1;
        run.options.ram_bytes = 3 << 20;
        run.options.nvme_bytes = 64 << 20;
        run.options.executor = &run.pool.executor;
        run.options.now_ms = now_ms;
        run.options.eviction = &cairn_eviction_lru;
        for (int i = 0; i < TASKS_MAX; i++)
                run.tasks[i].run = &run;
        uint64_t end_ms = now_ms(NULL) + seconds * 1000;
        while (now_ms(NULL) < end_ms) {
                open_store(&run);
                uint64_t restart_ms = now_ms(NULL) + 700;
                while (now_ms(NULL) < restart_ms) {
                        for (int i = 0; i < TASKS_MAX; i++) {
                                if (!run.tasks[i].busy)
                                        start(&run, &run.tasks[i]);
                        }
                        turn(&run);
                }
                close_store(&run);
                run.restarts++;
        }
        pool_stop(&run.pool);
        nftw(run.directory, unlink_entry, 16, FTW_DEPTH | FTW_PHYS);
        printf("threads: ok: %llu puts, %llu reads, %llu deletes, %llu restarts\n",
               (unsigned long long)run.puts, (unsigned long long)run.reads,
               (unsigned long long)run.deletes, (unsigned long long)run.restarts);
        return 0;
}
