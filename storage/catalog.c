// The catalog's file and its index thread: opening, loading, group commit. The bytes of records:
// catalog_record.h.
#include "storage/catalog.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/status.h"
#include "storage/catalog_record.h"

enum {
        DATABASES_COUNT = 3,
        GENERATION_SHIFT = 40
};
#define MAP_BYTES_MIN (8ull << 20)
#define MAP_BYTES_MAX (1ull << 40)

struct op_queue {
        struct cairn_catalog_op *first;
        struct cairn_catalog_op **last;
        uint32_t count;
};

struct cairn_catalog {
        struct cairn_catalog_options options;
        char *path;
        MDB_env *env;
        MDB_dbi meta;
        MDB_dbi spaces;
        MDB_dbi blocks;
        uint64_t map_bytes;
        uint64_t generation;
        _Atomic uint64_t commits;
        int event_fd;
        pthread_t thread;
        bool started;
        pthread_mutex_t lock;
        pthread_cond_t wake;
        struct op_queue pending; // under the lock
        struct op_queue done;    // under the lock
        bool urgent;             // under the lock: no company is expected
        bool stopping;           // under the lock
};

static void queue_init(struct op_queue *queue)
{
        *queue = (struct op_queue){.last = &queue->first};
}

static void queue_push(struct op_queue *queue, struct cairn_catalog_op *op)
{
        op->next = NULL;
        *queue->last = op;
        queue->last = &op->next;
        queue->count++;
}

static struct cairn_catalog_op *queue_pop(struct op_queue *queue)
{
        struct cairn_catalog_op *op = queue->first;
        if (op) {
                queue->first = op->next;
                queue->count--;
                if (!queue->first)
                        queue->last = &queue->first;
        }
        return op;
}

static int status_of(int error)
{
        switch (error) {
        case 0: return CAIRN_OK;
        case MDB_NOTFOUND: return CAIRN_ENOENT;
        case MDB_MAP_FULL: return CAIRN_ENOSPC;
        case MDB_VERSION_MISMATCH: return CAIRN_EVERSION;
        case MDB_INVALID:
        case MDB_CORRUPTED:
        case MDB_PAGE_NOTFOUND:
        case MDB_PANIC: return CAIRN_ECORRUPT;
        default: return error > 0 ? cairn_status_from_errno(error) : CAIRN_EIO;
        }
}

// The file is kept as large as the map, so that a full disk is noticed when it grows and deletes
// always have pages.
static int reserve_file(const char *path, uint64_t bytes)
{
        int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return errno;
        int error = posix_fallocate(fd, 0, (off_t)bytes);
        if (error == EOPNOTSUPP || error == EINVAL)
                error = 0;
        close(fd);
        return error;
}

static int map_grow(struct cairn_catalog *catalog)
{
        uint64_t bytes = catalog->map_bytes * 2;
        if (bytes > MAP_BYTES_MAX)
                return ENOSPC;
        int error = reserve_file(catalog->path, bytes);
        if (error)
                return error;
        error = mdb_env_set_mapsize(catalog->env, bytes);
        if (error == 0)
                catalog->map_bytes = bytes;
        return error;
}

// Before the map is full: a transaction needs pages for what it copies.
static bool map_low(const struct cairn_catalog *catalog)
{
        MDB_envinfo info;
        if (mdb_env_info(catalog->env, &info) != 0)
                return false;
        return (info.me_last_pgno + 1) * 4096ull > catalog->map_bytes / 4 * 3;
}

static int put_op(struct cairn_catalog *catalog, MDB_txn *txn, struct cairn_catalog_op *op)
{
        uint8_t key_bytes[CAIRN_RECORD_KEY_BYTES];
        uint8_t bytes[CAIRN_RECORD_SPACE_BYTES];
        MDB_val key = {sizeof(key_bytes), key_bytes};
        MDB_val value = {0, bytes};
        switch (op->kind) {
        case CAIRN_CATALOG_SPACE:
                value.mv_size = cairn_record_space_write(&op->space, bytes);
                key = (MDB_val){sizeof(op->space.id), &op->space.id};
                return mdb_put(txn, catalog->spaces, &key, &value, 0);
        case CAIRN_CATALOG_PUT:
                cairn_record_key_write(op->block.space_id, &op->block.key, key_bytes);
                value.mv_size = cairn_record_block_write(&op->block, bytes);
                return mdb_put(txn, catalog->blocks, &key, &value, 0);
        case CAIRN_CATALOG_DELETE: break;
        }
        cairn_record_key_write(op->block.space_id, &op->block.key, key_bytes);
        int error = mdb_del(txn, catalog->blocks, &key, NULL);
        return error == MDB_NOTFOUND ? 0 : error;
}

// All of the ops in one transaction, or none.
static int commit(struct cairn_catalog *catalog, struct cairn_catalog_op *first, bool deletes_only)
{
        MDB_txn *txn;
        int error = mdb_txn_begin(catalog->env, NULL, 0, &txn);
        if (error)
                return error;
        for (struct cairn_catalog_op *op = first; op && !error; op = op->next) {
                if (!deletes_only || op->kind == CAIRN_CATALOG_DELETE)
                        error = put_op(catalog, txn, op);
        }
        if (error) {
                mdb_txn_abort(txn);
                return error;
        }
        return mdb_txn_commit(txn);
}

// A full map or disk: grow and retry; if it cannot grow, the deletes alone.
static void run_batch(struct cairn_catalog *catalog, struct cairn_catalog_op *first)
{
        int fault = CAIRN_OK;
        if (catalog->options.on_fault)
                fault = catalog->options.on_fault(catalog->options.on_fault_arg);
        bool full = false;
        if (map_low(catalog))
                full = map_grow(catalog) != 0;
        int error = full ? ENOSPC : 0;
        if (fault == CAIRN_OK && !full) {
                error = commit(catalog, first, false);
                while (error == MDB_MAP_FULL && map_grow(catalog) == 0)
                        error = commit(catalog, first, false);
                full = error == MDB_MAP_FULL || error == ENOSPC;
        }
        int status = fault != CAIRN_OK ? fault : status_of(error);
        int deletes = status;
        if (fault == CAIRN_OK && full) {
                status = CAIRN_ENOSPC;
                deletes = status_of(commit(catalog, first, true));
        }
        for (struct cairn_catalog_op *op = first; op; op = op->next)
                op->status = op->kind == CAIRN_CATALOG_DELETE ? deletes : status;
        if (status == CAIRN_OK || deletes == CAIRN_OK)
                atomic_fetch_add(&catalog->commits, 1);
}

static struct cairn_catalog_op *take_batch(struct cairn_catalog *catalog)
{
        struct op_queue batch;
        queue_init(&batch);
        while (batch.count < catalog->options.commit_batch_max && catalog->pending.first)
                queue_push(&batch, queue_pop(&catalog->pending));
        return batch.first;
}

static void finish_batch(struct cairn_catalog *catalog, struct cairn_catalog_op *first)
{
        while (first) {
                struct cairn_catalog_op *next = first->next;
                queue_push(&catalog->done, first);
                first = next;
        }
        uint64_t one = 1;
        (void)!write(catalog->event_fd, &one, sizeof(one)); // full means readable already
}

static void wait_for_company(struct cairn_catalog *catalog)
{
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 1000l * catalog->options.commit_delay_us;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        while (!catalog->urgent && !catalog->stopping &&
               catalog->pending.count < catalog->options.commit_batch_max) {
                if (pthread_cond_timedwait(&catalog->wake, &catalog->lock, &until) != 0)
                        return;
        }
}

static void *index_main(void *arg)
{
        struct cairn_catalog *catalog = arg;
        pthread_mutex_lock(&catalog->lock);
        for (;;) {
                if (!catalog->pending.first) {
                        if (catalog->stopping)
                                break;
                        pthread_cond_wait(&catalog->wake, &catalog->lock);
                        continue;
                }
                wait_for_company(catalog);
                catalog->urgent = false;
                struct cairn_catalog_op *batch = take_batch(catalog);
                pthread_mutex_unlock(&catalog->lock);
                run_batch(catalog, batch);
                pthread_mutex_lock(&catalog->lock);
                finish_batch(catalog, batch);
        }
        pthread_mutex_unlock(&catalog->lock);
        return NULL;
}

void cairn_catalog_submit(struct cairn_catalog *catalog, struct cairn_catalog_op *op, bool more)
{
        pthread_mutex_lock(&catalog->lock);
        assert(!catalog->stopping);
        queue_push(&catalog->pending, op);
        catalog->urgent = catalog->urgent || !more;
        pthread_cond_signal(&catalog->wake);
        pthread_mutex_unlock(&catalog->lock);
        if (!catalog->options.no_thread)
                return;
        uint64_t one = 1;
        (void)!write(catalog->event_fd, &one, sizeof(one)); // full means readable already
}

void cairn_catalog_reap(struct cairn_catalog *catalog)
{
        uint64_t count;
        (void)!read(catalog->event_fd, &count, sizeof(count)); // empty is fine: nothing has ended
        if (catalog->options.no_thread && catalog->pending.first) {
                struct cairn_catalog_op *batch = take_batch(catalog);
                run_batch(catalog, batch);
                finish_batch(catalog, batch);
        }
        for (;;) {
                pthread_mutex_lock(&catalog->lock);
                struct cairn_catalog_op *op = queue_pop(&catalog->done);
                pthread_mutex_unlock(&catalog->lock);
                if (!op)
                        return;
                op->on_done(op, op->status);
        }
}

int cairn_catalog_fd(const struct cairn_catalog *catalog)
{
        return catalog->event_fd;
}

uint64_t cairn_catalog_commits(const struct cairn_catalog *catalog)
{
        return atomic_load(&catalog->commits);
}

uint64_t cairn_catalog_generation(const struct cairn_catalog *catalog)
{
        return catalog->generation;
}

static int open_databases(struct cairn_catalog *catalog, MDB_txn *txn)
{
        int error = mdb_dbi_open(txn, "meta", MDB_CREATE, &catalog->meta);
        if (!error)
                error = mdb_dbi_open(txn, "spaces", MDB_CREATE, &catalog->spaces);
        if (!error)
                error = mdb_dbi_open(txn, "blocks", MDB_CREATE, &catalog->blocks);
        return error;
}

// Reads or makes the format record, and takes a range of generations for this opening.
static int open_meta(struct cairn_catalog *catalog, char *ret_text)
{
        MDB_txn *txn;
        int error = mdb_txn_begin(catalog->env, NULL, 0, &txn);
        if (error)
                return status_of(error);
        struct cairn_record_meta meta = {.version = CAIRN_FORMAT_VERSION, .openings = 0};
        uint8_t bytes[CAIRN_RECORD_META_BYTES];
        MDB_val key = {6, (void *)(uintptr_t) "format"};
        MDB_val value;
        int status = CAIRN_OK;
        error = open_databases(catalog, txn);
        if (!error)
                error = mdb_get(txn, catalog->meta, &key, &value);
        if (!error)
                status = cairn_record_meta_read(value.mv_data, value.mv_size, &meta);
        else if (error != MDB_NOTFOUND)
                status = status_of(error);
        if (status == CAIRN_EVERSION)
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                         "the catalog has format %u, this build reads format %d; use the cairnd "
                         "that wrote it or "
                         "another data directory",
                         meta.version, CAIRN_FORMAT_VERSION);
        if (status == CAIRN_OK) {
                meta.openings++;
                value = (MDB_val){cairn_record_meta_write(&meta, bytes), bytes};
                status = status_of(mdb_put(txn, catalog->meta, &key, &value, 0));
        }
        if (status != CAIRN_OK) {
                mdb_txn_abort(txn);
                return status;
        }
        catalog->generation = (uint64_t)meta.openings << GENERATION_SHIFT;
        return status_of(mdb_txn_commit(txn));
}

static int open_env(struct cairn_catalog *catalog)
{
        struct stat status;
        catalog->map_bytes = catalog->options.map_bytes;
        if (catalog->map_bytes < MAP_BYTES_MIN)
                catalog->map_bytes = MAP_BYTES_MIN;
        if (lstat(catalog->path, &status) == 0) {
                if (!S_ISREG(status.st_mode))
                        return EINVAL;
                while (catalog->map_bytes < (uint64_t)status.st_size)
                        catalog->map_bytes *= 2;
        }
        int error = mdb_env_create(&catalog->env);
        if (!error)
                error = mdb_env_set_maxdbs(catalog->env, DATABASES_COUNT);
        if (!error)
                error = mdb_env_set_mapsize(catalog->env, catalog->map_bytes);
        unsigned flags = MDB_NOSUBDIR | MDB_NOTLS | (catalog->options.no_sync ? MDB_NOSYNC : 0);
        if (!error)
                error = mdb_env_open(catalog->env, catalog->path, flags, 0600);
        int dead;
        if (!error)
                error = mdb_reader_check(catalog->env, &dead);
        // After the open, which makes a new file of an empty one alone. A disk too full for the
        // reserve may still serve what is there.
        if (!error)
                (void)reserve_file(catalog->path, catalog->map_bytes);
        return error;
}

int cairn_catalog_open(const struct cairn_catalog_options *options,
                       struct cairn_catalog **ret_catalog, char *ret_text)
{
        struct cairn_catalog *catalog = calloc(1, sizeof(*catalog));
        if (!catalog) {
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "out of memory while opening the catalog");
                return CAIRN_ENOMEM;
        }
        catalog->options = *options;
        queue_init(&catalog->pending);
        queue_init(&catalog->done);
        pthread_mutex_init(&catalog->lock, NULL);
        pthread_condattr_t attributes;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(&catalog->wake, &attributes);
        pthread_condattr_destroy(&attributes);
        catalog->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        catalog->path = strdup(options->path);
        int error = catalog->path && catalog->event_fd >= 0 ? open_env(catalog) : ENOMEM;
        int status = status_of(error);
        ret_text[0] = 0;
        if (status == CAIRN_OK)
                status = open_meta(catalog, ret_text);
        if (status != CAIRN_OK) {
                if (!ret_text[0])
                        snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                                 "cannot open the catalog %s: %s; check the disk, its space and "
                                 "its permissions",
                                 options->path,
                                 error ? mdb_strerror(error) : cairn_status_text(status));
                cairn_catalog_destroy(catalog);
                return status;
        }
        *ret_catalog = catalog;
        return CAIRN_OK;
}

int cairn_catalog_start(struct cairn_catalog *catalog)
{
        assert(!catalog->started);
        if (catalog->options.no_thread)
                return CAIRN_OK;
        if (pthread_create(&catalog->thread, NULL, index_main, catalog) != 0)
                return CAIRN_ENOMEM;
        catalog->started = true;
        return CAIRN_OK;
}

void cairn_catalog_destroy(struct cairn_catalog *catalog)
{
        if (!catalog)
                return;
        if (catalog->started) {
                pthread_mutex_lock(&catalog->lock);
                catalog->stopping = true;
                pthread_cond_signal(&catalog->wake);
                pthread_mutex_unlock(&catalog->lock);
                pthread_join(catalog->thread, NULL);
        }
        if (catalog->env)
                mdb_env_close(catalog->env);
        if (catalog->event_fd >= 0)
                close(catalog->event_fd);
        pthread_cond_destroy(&catalog->wake);
        pthread_mutex_destroy(&catalog->lock);
        free(catalog->path);
        free(catalog);
}

static int load_spaces(MDB_txn *txn, MDB_dbi dbi, const struct cairn_catalog_visitor *visitor,
                       uint64_t *bad_count)
{
        MDB_cursor *cursor;
        int error = mdb_cursor_open(txn, dbi, &cursor);
        if (error)
                return status_of(error);
        MDB_val key, value;
        int status = CAIRN_OK;
        while (status == CAIRN_OK &&
               (error = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
                struct cairn_catalog_space space;
                if (cairn_record_space_read(value.mv_data, value.mv_size, &space) == CAIRN_OK)
                        status = visitor->on_space(visitor->arg, &space);
                else
                        ++*bad_count;
        }
        mdb_cursor_close(cursor);
        return status == CAIRN_OK && error != MDB_NOTFOUND ? status_of(error) : status;
}

static int load_blocks(MDB_txn *txn, MDB_dbi dbi, const struct cairn_catalog_visitor *visitor,
                       uint64_t *bad_count)
{
        MDB_cursor *cursor;
        int error = mdb_cursor_open(txn, dbi, &cursor);
        if (error)
                return status_of(error);
        MDB_val key, value;
        int status = CAIRN_OK;
        while (status == CAIRN_OK &&
               (error = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
                struct cairn_catalog_block block;
                if (cairn_record_block_read(key.mv_data, key.mv_size, value.mv_data, value.mv_size,
                                            &block) == CAIRN_OK)
                        status = visitor->on_block(visitor->arg, &block);
                else
                        ++*bad_count;
        }
        mdb_cursor_close(cursor);
        return status == CAIRN_OK && error != MDB_NOTFOUND ? status_of(error) : status;
}

int cairn_catalog_load(struct cairn_catalog *catalog, const struct cairn_catalog_visitor *visitor,
                       uint64_t *ret_bad_count)
{
        assert(!catalog->started);
        MDB_txn *txn;
        int error = mdb_txn_begin(catalog->env, NULL, MDB_RDONLY, &txn);
        if (error)
                return status_of(error);
        uint64_t bad_count = 0;
        int status = load_spaces(txn, catalog->spaces, visitor, &bad_count);
        if (status == CAIRN_OK)
                status = load_blocks(txn, catalog->blocks, visitor, &bad_count);
        mdb_txn_abort(txn);
        *ret_bad_count = bad_count;
        return status;
}
