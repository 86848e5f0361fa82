// The index thread: takes the catalog's changes in order, commits them in groups, hands them back.
// Without a thread (tests that replay by a seed) reap does its work.
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "proto/status.h"
#include "storage/catalog.h"
#include "storage/catalog_file.h"

struct op_queue {
        struct cairn_catalog_op *first;
        struct cairn_catalog_op **last;
        uint32_t count;
};

enum {
        LOOSE_MAX = 16384,
        LOOSE_ENOUGH = 4096, // to be committed at once
        LOOSE_FIRST = 256,
        LOOSE_SECONDS = 1,
        LOOSE_TOGETHER = 512, // ride along with other changes: each transaction costs pages
};

// Records of the audit that go with no change.
struct loose {
        struct cairn_audit_record *records; // owned
        size_t count;
        size_t capacity;
};

struct cairn_catalog {
        struct cairn_catalog_options options;
        struct cairn_catalog_file *file;
        _Atomic uint64_t commits;
        int event_fd;
        pthread_t thread;
        bool started;
        pthread_mutex_t lock;
        pthread_cond_t wake;
        struct op_queue pending; // under the lock
        struct op_queue done;    // under the lock
        struct cairn_audit_log *audit;
        struct loose loose;          // under the lock
        struct loose taken;          // the index thread's
        uint64_t loose_lost;         // under the lock
        struct timespec loose_until; // under the lock: when they are committed at the latest
        bool loose_wanted;           // under the lock: somebody waits for them
        bool urgent;                 // under the lock: no company is expected
        bool stopping;               // under the lock
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

static void run_batch(struct cairn_catalog *catalog, struct cairn_catalog_op *first)
{
        int fault = CAIRN_OK;
        bool recorded = false;
        if (catalog->options.on_fault)
                fault = catalog->options.on_fault(catalog->options.on_fault_arg);
        if (fault != CAIRN_OK) {
                for (struct cairn_catalog_op *op = first; op; op = op->next)
                        op->status = fault;
                return;
        }
        // Those for the audit alone are not counted: they come a second after what they tell of.
        if (cairn_catalog_file_write(catalog->file, first, catalog->taken.records,
                                     catalog->taken.count, &recorded) &&
            first)
                atomic_fetch_add(&catalog->commits, 1);
        if (recorded)
                catalog->taken.count = 0;
        if (recorded && catalog->audit && cairn_audit_log_full(catalog->audit))
                (void)cairn_catalog_file_write(catalog->file, NULL, NULL, 0, &recorded); // or later
}

static bool is_past(const struct timespec *until)
{
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec > until->tv_sec ||
               (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec);
}

// Under the lock. Whether the next transaction takes them along.
static bool loose_due(const struct cairn_catalog *catalog)
{
        return catalog->loose_wanted || catalog->stopping || catalog->taken.count > 0 ||
               catalog->loose.count >= LOOSE_TOGETHER ||
               (catalog->loose.count > 0 && is_past(&catalog->loose_until));
}

// Under the lock. Those of a transaction that failed go first, with the next.
static void take_loose(struct cairn_catalog *catalog)
{
        struct loose free_one = catalog->taken;
        if (free_one.count > 0 || catalog->loose.count == 0)
                return;
        catalog->taken = catalog->loose;
        catalog->loose = free_one;
        if (catalog->loose_lost > 0)
                cairn_audit_log_lose(catalog->audit, catalog->loose_lost);
        catalog->loose_lost = 0;
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

// Under the lock, with no change pending. True: loose records have waited long enough.
static bool wait_for_work(struct cairn_catalog *catalog)
{
        if (catalog->loose.count + catalog->taken.count == 0) {
                pthread_cond_wait(&catalog->wake, &catalog->lock);
                return false;
        }
        if (catalog->loose.count >= LOOSE_ENOUGH && catalog->taken.count == 0)
                return true;
        return pthread_cond_timedwait(&catalog->wake, &catalog->lock, &catalog->loose_until) ==
               ETIMEDOUT;
}

static void set_loose_until(struct cairn_catalog *catalog)
{
        clock_gettime(CLOCK_MONOTONIC, &catalog->loose_until);
        catalog->loose_until.tv_sec += LOOSE_SECONDS;
}

// Under the lock, which is let go meanwhile.
static void run(struct cairn_catalog *catalog)
{
        struct cairn_catalog_op *batch = take_batch(catalog);
        if (loose_due(catalog)) {
                take_loose(catalog);
                set_loose_until(catalog); // again, if this one fails
                catalog->loose_wanted = false;
        }
        pthread_mutex_unlock(&catalog->lock);
        run_batch(catalog, batch);
        pthread_mutex_lock(&catalog->lock);
        if (batch)
                finish_batch(catalog, batch);
}

static void *index_main(void *arg)
{
        struct cairn_catalog *catalog = arg;
        pthread_mutex_lock(&catalog->lock);
        for (;;) {
                if (!catalog->pending.first) {
                        if (catalog->stopping)
                                break;
                        if (wait_for_work(catalog))
                                run(catalog);
                        continue;
                }
                wait_for_company(catalog);
                catalog->urgent = false;
                run(catalog);
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
        catalog->loose_wanted = catalog->loose_wanted || op->kind == CAIRN_CATALOG_NOTHING;
        pthread_cond_signal(&catalog->wake);
        pthread_mutex_unlock(&catalog->lock);
        if (!catalog->options.no_thread)
                return;
        uint64_t one = 1;
        (void)!write(catalog->event_fd, &one, sizeof(one)); // full means readable already
}

static bool loose_grow(struct loose *loose)
{
        size_t capacity = loose->capacity ? loose->capacity * 2 : LOOSE_FIRST;
        if (loose->count < loose->capacity)
                return true;
        struct cairn_audit_record *records = NULL;
        if (capacity <= LOOSE_MAX)
                records = realloc(loose->records, capacity * sizeof(*records));
        if (!records)
                return false;
        loose->records = records;
        loose->capacity = capacity;
        return true;
}

void cairn_catalog_audit(struct cairn_catalog *catalog, const struct cairn_audit_record *record)
{
        assert(record->action > 0);
        if (!catalog->audit)
                return;
        pthread_mutex_lock(&catalog->lock);
        struct loose *loose = &catalog->loose;
        if (loose_grow(loose))
                loose->records[loose->count++] = *record;
        else
                catalog->loose_lost++;
        if (loose->count == 1)
                set_loose_until(catalog);
        if (record->action == CAIRN_AUDIT_BEGIN)
                catalog->loose_wanted = true; // before what follows
        if (loose->count == 1 || loose->count == LOOSE_ENOUGH)
                pthread_cond_signal(&catalog->wake);
        pthread_mutex_unlock(&catalog->lock);
}

struct cairn_audit_log *cairn_catalog_audit_log(const struct cairn_catalog *catalog)
{
        return catalog->audit;
}

static void join(struct cairn_catalog *catalog)
{
        if (!catalog->started)
                return;
        pthread_mutex_lock(&catalog->lock);
        catalog->stopping = true;
        pthread_cond_signal(&catalog->wake);
        pthread_mutex_unlock(&catalog->lock);
        pthread_join(catalog->thread, NULL);
        catalog->started = false;
}

void cairn_catalog_finish_audit(struct cairn_catalog *catalog)
{
        if (!catalog->audit)
                return;
        join(catalog);
        catalog->stopping = true;
        // What a failed transaction left is tried once more, then what came after it.
        for (int i = 0; i < 2 && catalog->loose.count + catalog->taken.count > 0; i++) {
                take_loose(catalog);
                run_batch(catalog, NULL);
        }
        cairn_audit_log_roll(catalog->audit, true);
        // Empties the table, if there is no trouble; if there is, the next start does.
        run_batch(catalog, NULL);
}

void cairn_catalog_reap(struct cairn_catalog *catalog)
{
        uint64_t count;
        (void)!read(catalog->event_fd, &count, sizeof(count)); // empty is fine: nothing has ended
        if (catalog->options.no_thread &&
            (catalog->pending.first || catalog->loose.count >= LOOSE_TOGETHER)) {
                pthread_mutex_lock(&catalog->lock);
                run(catalog);
                pthread_mutex_unlock(&catalog->lock);
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
        return cairn_catalog_file_generation(catalog->file);
}

static int open_audit(struct cairn_catalog *catalog, char *ret_text)
{
        const struct cairn_audit_log_options options = {
            .directory = catalog->options.audit_directory,
            .limit_bytes = catalog->options.audit_bytes,
            .on_warning = catalog->options.on_warning,
            .on_warning_arg = catalog->options.on_warning_arg};
        int status = cairn_audit_log_open(&options, &catalog->audit, ret_text);
        if (status != CAIRN_OK)
                return status;
        status = cairn_catalog_file_resume(catalog->file, catalog->audit);
        if (status != CAIRN_OK)
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                         "cannot read the end of the audit: %s; check the disk",
                         cairn_status_text(status));
        return status;
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
        int status = CAIRN_ENOMEM;
        if (catalog->event_fd < 0)
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                         "cannot make an eventfd; raise the limit of open files");
        else
                status = cairn_catalog_file_open(options, &catalog->file, ret_text);
        if (status == CAIRN_OK && options->audit_directory)
                status = open_audit(catalog, ret_text);
        if (status != CAIRN_OK) {
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
        join(catalog);
        cairn_catalog_file_close(catalog->file);
        cairn_audit_log_destroy(catalog->audit);
        free(catalog->loose.records);
        free(catalog->taken.records);
        if (catalog->event_fd >= 0)
                close(catalog->event_fd);
        pthread_cond_destroy(&catalog->wake);
        pthread_mutex_destroy(&catalog->lock);
        free(catalog);
}

int cairn_catalog_load(struct cairn_catalog *catalog, const struct cairn_catalog_visitor *visitor,
                       uint64_t *ret_bad_count)
{
        assert(!catalog->started);
        return cairn_catalog_file_load(catalog->file, visitor, ret_bad_count);
}

int cairn_catalog_write_now(struct cairn_catalog *catalog, struct cairn_catalog_op *first)
{
        assert(!catalog->started);
        bool recorded;
        (void)cairn_catalog_file_write(catalog->file, first, NULL, 0, &recorded);
        for (struct cairn_catalog_op *op = first; op; op = op->next) {
                if (op->status != CAIRN_OK)
                        return op->status;
        }
        return CAIRN_OK;
}

bool cairn_catalog_fresh(const struct cairn_catalog *catalog)
{
        return cairn_catalog_file_fresh(catalog->file);
}

int cairn_catalog_set_generation(struct cairn_catalog *catalog, uint64_t above)
{
        assert(!catalog->started);
        return cairn_catalog_file_set_generation(catalog->file, above);
}
