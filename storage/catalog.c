// The catalog's LMDB file: opening, checking, loading, transactions. The bytes of records are in
// catalog_record.h.
#include "storage/catalog_file.h"

#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/status.h"
#include "storage/catalog_audit.h"
#include "storage/catalog_guard.h"
#include "storage/catalog_note.h"
#include "storage/catalog_record.h"

enum {
        GENERATION_SHIFT = 40,
        DELETES_AT_ONCE = 32, // where there is no room for more
};
#define MAP_BYTES_MIN (8ull << 20)
#define MAP_BYTES_MAX (1ull << 40)

struct cairn_catalog_file {
        struct cairn_catalog_options options;
        char *path;
        MDB_env *env;
        MDB_dbi meta;
        MDB_dbi spaces;
        MDB_dbi blocks;
        MDB_dbi notes;
        struct cairn_catalog_audit audit;
        uint64_t map_bytes;
        uint32_t openings;
        bool fresh;
        bool broken;                     // its bytes went away under LMDB
        struct cairn_catalog_file *next; // of the broken ones
};

// LMDB cannot be closed where a transaction broke off; this keeps what it holds in sight.
static struct cairn_catalog_file *_Atomic broken_files;

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
        default: break;
        }
        if (error < 0 && error > -CAIRN_STATUS_COUNT)
                return error; // a status already
        return error > 0 ? cairn_status_from_errno(error) : CAIRN_EIO;
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

// What one transaction may hold.
struct batch {
        struct cairn_catalog_op *first;
        const struct cairn_audit_record *records;
        size_t records_count;
};
enum extent {
        EXTENT_ALL,
        EXTENT_DELETES,         // alone: there is no room
        EXTENT_DELETES_THROUGH, // and their records go to the audit's files at once
        EXTENT_DELETES_COUNTED, // those cannot be written either: a later record says how many
};

static void on_assert(MDB_env *env, const char *text)
{
        (void)env;
        (void)text;
        cairn_catalog_guard_end();
}

// What LMDB is asked to do with a file that is whole, or CAIRN_EIO.
struct guarded {
        struct cairn_catalog_file *file;
        int (*run)(const struct guarded *guarded);
        const struct batch *batch;
        enum extent extent;
        bool ended;
};

static int run_guarded(void *arg)
{
        struct guarded *guarded = arg;
        int error = guarded->run(guarded);
        guarded->ended = true;
        return error;
}

static bool is_damage(int error)
{
        return error == MDB_CORRUPTED || error == MDB_PAGE_NOTFOUND || error == MDB_PANIC;
}

static int guard(struct guarded *guarded)
{
        struct cairn_catalog_file *file = guarded->file;
        int error = file->broken ? CAIRN_EIO : cairn_catalog_guard(run_guarded, guarded);
        if (file->broken || (guarded->ended && !is_damage(error)))
                return error;
        file->broken = true;
        if (file->options.on_warning)
                file->options.on_warning(
                    file->options.on_warning_arg,
                    "the catalog cannot be read any more: it was cut, or its disk fails; blocks "
                    "stay in RAM alone; mend the disk, then restart, which makes it anew from the "
                    "slab files");
        return error;
}

static int map_grow_within(const struct guarded *guarded)
{
        struct cairn_catalog_file *file = guarded->file;
        uint64_t bytes = file->map_bytes * 2;
        if (bytes > MAP_BYTES_MAX)
                return ENOSPC;
        int error = reserve_file(file->path, bytes);
        if (error)
                return error;
        error = mdb_env_set_mapsize(file->env, bytes);
        if (error == 0)
                file->map_bytes = bytes;
        return error;
}

static int map_grow(struct cairn_catalog_file *file)
{
        struct guarded guarded = {.file = file, .run = map_grow_within};
        return guard(&guarded);
}

// 1: before the map is full. A transaction needs pages for what it copies.
static int map_low_within(const struct guarded *guarded)
{
        MDB_envinfo info;
        if (mdb_env_info(guarded->file->env, &info) != 0)
                return 0;
        return (info.me_last_pgno + 1) * 4096ull > guarded->file->map_bytes / 4 * 3;
}

static bool map_low(struct cairn_catalog_file *file)
{
        struct guarded guarded = {.file = file, .run = map_low_within};
        return guard(&guarded) == 1;
}

static int put_op(struct cairn_catalog_file *file, MDB_txn *txn, struct cairn_catalog_op *op)
{
        uint8_t key_bytes[CAIRN_RECORD_KEY_BYTES];
        uint8_t bytes[CAIRN_RECORD_SPACE_BYTES];
        MDB_val key = {sizeof(key_bytes), key_bytes};
        MDB_val value = {0, bytes};
        switch (op->kind) {
        case CAIRN_CATALOG_SPACE:
                value.mv_size = cairn_record_space_write(&op->space, bytes);
                key = (MDB_val){sizeof(op->space.id), &op->space.id};
                return mdb_put(txn, file->spaces, &key, &value, 0);
        case CAIRN_CATALOG_PUT:
                cairn_record_key_write(op->block.space_id, &op->block.key, key_bytes);
                value.mv_size = cairn_record_block_write(&op->block, bytes);
                return mdb_put(txn, file->blocks, &key, &value, 0);
        case CAIRN_CATALOG_NOTE: return cairn_catalog_note_write(txn, file->notes, op->note);
        case CAIRN_CATALOG_NOTHING: return 0;
        case CAIRN_CATALOG_DELETE: break;
        }
        cairn_record_key_write(op->block.space_id, &op->block.key, key_bytes);
        int error = mdb_del(txn, file->blocks, &key, NULL);
        return error == MDB_NOTFOUND ? 0 : error;
}

static int stage_op(struct cairn_catalog_file *file, MDB_txn *txn, struct cairn_catalog_op *op,
                    enum extent extent)
{
        if (extent != EXTENT_ALL && op->kind != CAIRN_CATALOG_DELETE)
                return 0;
        int error = put_op(file, txn, op);
        if (error || op->audit.action == 0)
                return error;
        if (extent != EXTENT_DELETES_COUNTED)
                cairn_catalog_audit_stage(&file->audit, &op->audit);
        return 0;
}

static void count_lost(struct cairn_catalog_file *file, const struct batch *batch)
{
        uint64_t lost = 0;
        for (const struct cairn_catalog_op *op = batch->first; op; op = op->next)
                lost += op->kind == CAIRN_CATALOG_DELETE && op->audit.action > 0;
        if (file->audit.log)
                cairn_audit_log_lose(file->audit.log, lost);
}

static int commit_within(const struct guarded *guarded)
{
        struct cairn_catalog_file *file = guarded->file;
        const struct batch *batch = guarded->batch;
        enum extent extent = guarded->extent;
        MDB_txn *txn;
        int error = mdb_txn_begin(file->env, NULL, 0, &txn);
        if (error)
                return error;
        bool audited = extent != EXTENT_DELETES_COUNTED;
        if (audited)
                error =
                    cairn_catalog_audit_begin(&file->audit, txn, extent == EXTENT_DELETES_THROUGH);
        for (struct cairn_catalog_op *op = batch->first; op && !error; op = op->next)
                error = stage_op(file, txn, op, extent);
        for (size_t i = 0; i < batch->records_count && !error && extent == EXTENT_ALL; i++)
                cairn_catalog_audit_stage(&file->audit, &batch->records[i]);
        if (!error && audited)
                error = cairn_catalog_audit_finish(&file->audit, txn);
        if (error) {
                mdb_txn_abort(txn);
                return error;
        }
        error = mdb_txn_commit(txn);
        if (!error && audited)
                cairn_catalog_audit_commit(&file->audit);
        else if (!error)
                count_lost(file, batch);
        return error;
}

// All of the batch in one transaction, or none. LMDB's errors, or a negative status.
static int commit(struct cairn_catalog_file *file, const struct batch *batch, enum extent extent)
{
        struct guarded guarded = {file, commit_within, batch, extent, false};
        return guard(&guarded);
}

static bool no_room(int error)
{
        return error == MDB_MAP_FULL || error == ENOSPC;
}

// The status of the deletes in a list.
static void set_status(struct cairn_catalog_op *first, int status)
{
        for (struct cairn_catalog_op *op = first; op; op = op->next) {
                if (op->kind == CAIRN_CATALOG_DELETE)
                        op->status = status;
        }
}

// What is deleted needs no room, but its records do: then they go to files.
static int commit_deletes(struct cairn_catalog_file *file, struct cairn_catalog_op *first)
{
        const struct batch batch = {.first = first};
        int error = commit(file, &batch, EXTENT_DELETES);
        return no_room(error) ? commit(file, &batch, EXTENT_DELETES_THROUGH) : error;
}

// A transaction copies the pages that it changes. Where all at once find no room for that, some at
// a time do.
static bool write_deletes(struct cairn_catalog_file *file, struct cairn_catalog_op *first)
{
        int error = commit_deletes(file, first);
        bool any = error == 0;
        set_status(first, status_of(error));
        if (!no_room(error) && !(error < 0 && error > -CAIRN_STATUS_COUNT))
                return any;
        while (first) {
                struct cairn_catalog_op *last = first;
                for (int i = 1; i < DELETES_AT_ONCE && last->next; i++)
                        last = last->next;
                struct cairn_catalog_op *rest = last->next;
                last->next = NULL;
                error = commit_deletes(file, first);
                if (error) {
                        const struct batch batch = {.first = first};
                        error = commit(file, &batch, EXTENT_DELETES_COUNTED);
                }
                set_status(first, status_of(error));
                any = any || error == 0;
                last->next = rest;
                first = rest;
        }
        return any;
}

// A full map or disk: grow and retry; if it cannot grow, the deletes alone.
bool cairn_catalog_file_write(struct cairn_catalog_file *file, struct cairn_catalog_op *first,
                              const struct cairn_audit_record *records, size_t records_count,
                              bool *ret_recorded)
{
        const struct batch batch = {first, records, records_count};
        bool full = map_low(file) && map_grow(file) != 0;
        int error = full ? ENOSPC : 0;
        if (!full) {
                error = commit(file, &batch, EXTENT_ALL);
                while (error == MDB_MAP_FULL && map_grow(file) == 0)
                        error = commit(file, &batch, EXTENT_ALL);
                full = no_room(error);
        }
        int status = full ? CAIRN_ENOSPC : status_of(error);
        for (struct cairn_catalog_op *op = first; op; op = op->next)
                op->status = status;
        *ret_recorded = status == CAIRN_OK;
        return full ? write_deletes(file, first) : status == CAIRN_OK;
}

static int open_databases(struct cairn_catalog_file *file, MDB_txn *txn)
{
        int error = mdb_dbi_open(txn, "meta", MDB_CREATE, &file->meta);
        if (!error)
                error = mdb_dbi_open(txn, "spaces", MDB_CREATE, &file->spaces);
        if (!error)
                error = mdb_dbi_open(txn, "blocks", MDB_CREATE, &file->blocks);
        if (!error)
                error = mdb_dbi_open(txn, "notes", MDB_CREATE, &file->notes);
        if (!error)
                error =
                    mdb_dbi_open(txn, "audit_tail", MDB_CREATE | MDB_INTEGERKEY, &file->audit.tail);
        file->audit.meta = file->meta;
        return error;
}

static int write_meta(struct cairn_catalog_file *file, MDB_txn *txn)
{
        struct cairn_record_meta meta = {CAIRN_FORMAT_VERSION, file->openings};
        uint8_t bytes[CAIRN_RECORD_META_BYTES];
        MDB_val key = {6, (void *)(uintptr_t) "format"};
        MDB_val value = {cairn_record_meta_write(&meta, bytes), bytes};
        return mdb_put(txn, file->meta, &key, &value, 0);
}

static int read_meta(struct cairn_catalog_file *file, MDB_txn *txn,
                     struct cairn_record_meta *ret_meta)
{
        MDB_val key = {6, (void *)(uintptr_t) "format"};
        MDB_val value;
        *ret_meta = (struct cairn_record_meta){0};
        int error = mdb_get(txn, file->meta, &key, &value);
        return error ? status_of(error)
                     : cairn_record_meta_read(value.mv_data, value.mv_size, ret_meta);
}

// Reads or makes the format record, and takes a range of generations for this opening.
static int open_meta(struct cairn_catalog_file *file, char *ret_text)
{
        MDB_txn *txn;
        int error = mdb_txn_begin(file->env, NULL, 0, &txn);
        if (error)
                return status_of(error);
        struct cairn_record_meta meta;
        int status = status_of(open_databases(file, txn));
        if (status == CAIRN_OK)
                status = read_meta(file, txn, &meta);
        if (status == CAIRN_ENOENT)
                status = CAIRN_OK;
        if (status == CAIRN_EVERSION)
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                         "the catalog has format %u, this build reads format %d; use the cairnd "
                         "that wrote it or "
                         "another data directory",
                         meta.version, CAIRN_FORMAT_VERSION);
        file->openings = meta.openings + 1;
        if (status == CAIRN_OK)
                status = status_of(write_meta(file, txn));
        if (status != CAIRN_OK) {
                mdb_txn_abort(txn);
                return status;
        }
        return status_of(mdb_txn_commit(txn));
}

bool cairn_catalog_file_fresh(const struct cairn_catalog_file *file)
{
        return file->fresh;
}

uint64_t cairn_catalog_file_generation(const struct cairn_catalog_file *file)
{
        return (uint64_t)file->openings << GENERATION_SHIFT;
}

int cairn_catalog_file_set_generation(struct cairn_catalog_file *file, uint64_t above)
{
        uint64_t openings = (above >> GENERATION_SHIFT) + 1;
        if (openings <= file->openings)
                return CAIRN_OK;
        MDB_txn *txn;
        int error = mdb_txn_begin(file->env, NULL, 0, &txn);
        if (error)
                return status_of(error);
        file->openings = (uint32_t)openings;
        error = write_meta(file, txn);
        if (error) {
                mdb_txn_abort(txn);
                return status_of(error);
        }
        return status_of(mdb_txn_commit(txn));
}

// ---- opening ----

static int move_aside(const struct cairn_catalog_file *file)
{
        char aside[4096];
        if (snprintf(aside, sizeof(aside), "%s.bad", file->path) >= (int)sizeof(aside))
                return ENAMETOOLONG;
        if (rename(file->path, aside) != 0)
                return errno;
        if (file->options.on_warning)
                file->options.on_warning(
                    file->options.on_warning_arg,
                    "the catalog is damaged: it was moved aside to catalog.mdb.bad and is made "
                    "anew from the slab files; check the disk, and set quotas and legal holds "
                    "again: "
                    "those that were set at run time went with it");
        return 0;
}

static int prepare_file(struct cairn_catalog_file *file)
{
        struct stat status;
        file->map_bytes = file->options.map_bytes;
        if (file->map_bytes < MAP_BYTES_MIN)
                file->map_bytes = MAP_BYTES_MIN;
        file->fresh = true;
        if (lstat(file->path, &status) != 0)
                return errno == ENOENT ? 0 : errno;
        if (!S_ISREG(status.st_mode))
                return EINVAL;
        if (status.st_size == 0)
                return 0;
        if (!cairn_catalog_check(file->path, (uint64_t)status.st_size))
                return move_aside(file);
        file->fresh = false;
        while (file->map_bytes < (uint64_t)status.st_size)
                file->map_bytes *= 2;
        return 0;
}

// One process holds the directory's lock and one thread the file: LMDB's own lock file is not
// needed.
static int open_env(struct cairn_catalog_file *file)
{
        int error = prepare_file(file);
        if (!error)
                error = mdb_env_create(&file->env);
        if (!error)
                error = mdb_env_set_maxdbs(file->env, CAIRN_CATALOG_DATABASES);
        if (!error)
                error = mdb_env_set_mapsize(file->env, file->map_bytes);
        if (!error)
                error = mdb_env_set_assert(file->env, on_assert);
        unsigned flags =
            MDB_NOSUBDIR | MDB_NOTLS | MDB_NOLOCK | (file->options.no_sync ? MDB_NOSYNC : 0);
        if (!error)
                error = mdb_env_open(file->env, file->path, flags, 0600);
        // After the open, which makes a new file of an empty one alone. A disk too full for the
        // reserve may still serve what is there.
        if (!error)
                (void)reserve_file(file->path, file->map_bytes);
        return error;
}

int cairn_catalog_file_resume(struct cairn_catalog_file *file, struct cairn_audit_log *log)
{
        struct cairn_audit_end end;
        uint8_t *tail = NULL;
        uint64_t count = 0;
        MDB_txn *txn;
        int error = mdb_txn_begin(file->env, NULL, MDB_RDONLY, &txn);
        if (error)
                return status_of(error);
        error = cairn_catalog_audit_load(txn, file->meta, file->audit.tail, &end, &tail, &count);
        mdb_txn_abort(txn);
        if (error && error != MDB_NOTFOUND)
                return status_of(error);
        int status = cairn_audit_log_resume(log, error ? NULL : &end, tail, count);
        free(tail);
        if (status == CAIRN_OK)
                file->audit.log = log;
        return status;
}

int cairn_catalog_file_open(const struct cairn_catalog_options *options,
                            struct cairn_catalog_file **ret_file, char *ret_text)
{
        ret_text[0] = 0;
        struct cairn_catalog_file *file = calloc(1, sizeof(*file));
        if (file) {
                file->options = *options;
                file->path = strdup(options->path);
        }
        int error = file && file->path ? open_env(file) : ENOMEM;
        int status = status_of(error);
        if (status == CAIRN_OK)
                status = open_meta(file, ret_text);
        if (status != CAIRN_OK) {
                if (!ret_text[0])
                        snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                                 "cannot open the catalog %s: %s; check the disk, its space and "
                                 "its permissions",
                                 options->path,
                                 error ? mdb_strerror(error) : cairn_status_text(status));
                cairn_catalog_file_close(file);
                return status;
        }
        *ret_file = file;
        return CAIRN_OK;
}

void cairn_catalog_file_close(struct cairn_catalog_file *file)
{
        if (!file)
                return;
        if (file->broken) {
                file->next = atomic_load(&broken_files);
                while (!atomic_compare_exchange_weak(&broken_files, &file->next, file))
                        ;
                return;
        }
        if (file->env)
                mdb_env_close(file->env);
        free(file->path);
        free(file);
}

// ---- loading ----

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

int cairn_catalog_file_load(struct cairn_catalog_file *file,
                            const struct cairn_catalog_visitor *visitor, uint64_t *ret_bad_count)
{
        MDB_txn *txn;
        int error = mdb_txn_begin(file->env, NULL, MDB_RDONLY, &txn);
        if (error)
                return status_of(error);
        uint64_t bad_count = 0;
        int status = load_spaces(txn, file->spaces, visitor, &bad_count);
        if (status == CAIRN_OK)
                status = cairn_catalog_notes_load(txn, file->notes, visitor, &bad_count);
        if (status == CAIRN_OK)
                status = load_blocks(txn, file->blocks, visitor, &bad_count);
        mdb_txn_abort(txn);
        *ret_bad_count = bad_count;
        return status;
}

// ---- reading what nobody has open ----

static int read_databases(struct cairn_catalog_file *file)
{
        struct cairn_record_meta meta;
        MDB_txn *txn;
        int error = mdb_txn_begin(file->env, NULL, MDB_RDONLY, &txn);
        if (error)
                return status_of(error);
        error = mdb_dbi_open(txn, "meta", 0, &file->meta);
        if (!error)
                error = mdb_dbi_open(txn, "spaces", 0, &file->spaces);
        if (!error)
                error = mdb_dbi_open(txn, "blocks", 0, &file->blocks);
        int status = error ? status_of(error) : read_meta(file, txn, &meta);
        if (status != CAIRN_OK) {
                mdb_txn_abort(txn);
                return status == CAIRN_ENOENT ? CAIRN_ECORRUPT : status;
        }
        return status_of(mdb_txn_commit(txn)); // nothing was written: it keeps the handles open
}

static int open_reading(const char *path, MDB_env **ret_env)
{
        struct stat info;
        MDB_env *env = NULL;
        if (lstat(path, &info) != 0)
                return cairn_status_from_errno(errno);
        if (!S_ISREG(info.st_mode))
                return CAIRN_ECORRUPT;
        if (info.st_size == 0)
                return CAIRN_ENOENT;
        if (access(path, R_OK) != 0)
                return cairn_status_from_errno(errno);
        if (!cairn_catalog_check(path, (uint64_t)info.st_size))
                return CAIRN_ECORRUPT;
        int error = mdb_env_create(&env);
        if (!error)
                error = mdb_env_set_maxdbs(env, CAIRN_CATALOG_DATABASES);
        if (!error)
                error = mdb_env_open(env, path, MDB_NOSUBDIR | MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS,
                                     0600);
        if (error) {
                if (env)
                        mdb_env_close(env);
                return status_of(error);
        }
        *ret_env = env;
        return CAIRN_OK;
}

int cairn_catalog_file_read(const char *path, const struct cairn_catalog_visitor *visitor,
                            uint64_t *ret_bad_count)
{
        struct cairn_catalog_file file = {0};
        int status = open_reading(path, &file.env);
        if (status != CAIRN_OK)
                return status;
        status = read_databases(&file);
        if (status == CAIRN_OK)
                status = cairn_catalog_file_load(&file, visitor, ret_bad_count);
        mdb_env_close(file.env);
        return status;
}

static int read_audit(MDB_env *env, struct cairn_audit_end *ret_end, uint8_t **ret_tail,
                      uint64_t *ret_tail_count)
{
        MDB_txn *txn;
        MDB_dbi meta, tail;
        int error = mdb_txn_begin(env, NULL, MDB_RDONLY, &txn);
        if (error)
                return error;
        error = mdb_dbi_open(txn, "meta", 0, &meta);
        if (!error)
                error = mdb_dbi_open(txn, "audit_tail", 0, &tail);
        if (!error)
                error =
                    cairn_catalog_audit_load(txn, meta, tail, ret_end, ret_tail, ret_tail_count);
        mdb_txn_abort(txn);
        return error;
}

int cairn_catalog_file_read_audit(const char *path, struct cairn_audit_end *ret_end,
                                  uint8_t **ret_tail, uint64_t *ret_tail_count)
{
        MDB_env *env;
        int status = open_reading(path, &env);
        if (status != CAIRN_OK)
                return status;
        status = status_of(read_audit(env, ret_end, ret_tail, ret_tail_count));
        mdb_env_close(env);
        return status;
}
