// A store in a temporary directory, driven by hand: an executor that runs in poll, a clock that the
// test sets, blocks filled with a pattern that names key, part, layer and version.
#ifndef CAIRN_TESTS_STORE_FIXTURE_H
#define CAIRN_TESTS_STORE_FIXTURE_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "policy/eviction/eviction.h"
#include "storage/store_internal.h"

enum {
        FIXTURE_LAYERS = 3
};
#define FIXTURE_RAW_BYTES  10000u
#define FIXTURE_CODE_BYTES 1500u

struct fixture_executor {
        struct cairn_executor executor;
        struct cairn_work *first;
        struct cairn_work **last;
};

struct fixture {
        char directory[256];
        struct fixture_executor executor;
        struct cairn_store_options options;
        struct cairn_store_internal internal;
        struct cairn_store *store;
        uint64_t now_ms;
        bool real_time;
        uint32_t warnings;
        char warning[CAIRN_TEXT_BYTES_MAX];
        uint32_t space;
        struct cairn_block_shape shape;
        int fds_before;
};

static inline void fixture_submit(struct cairn_executor *executor, struct cairn_work *work)
{
        struct fixture_executor *self = (struct fixture_executor *)executor;
        work->next = NULL;
        *self->last = work;
        self->last = &work->next;
}

static inline void fixture_run_executor(struct fixture *f)
{
        while (f->executor.first) {
                struct cairn_work *work = f->executor.first;
                f->executor.first = work->next;
                if (!f->executor.first)
                        f->executor.last = &f->executor.first;
                work->run(work);
                work->on_done(work);
        }
}

static inline uint64_t fixture_now(void *clock)
{
        struct fixture *f = clock;
        if (f->real_time) {
                struct timespec now;
                clock_gettime(CLOCK_MONOTONIC, &now);
                return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
        }
        return f->now_ms;
}

static inline void fixture_warning(void *arg, const char *text)
{
        struct fixture *f = arg;
        f->warnings++;
        snprintf(f->warning, sizeof(f->warning), "%s", text);
}

static inline int fixture_fds(void)
{
        DIR *entries = opendir("/proc/self/fd");
        int count = 0;
        while (readdir(entries))
                count++;
        closedir(entries);
        return count;
}

static inline void fixture_init(struct fixture *f)
{
        memset(f, 0, sizeof(*f));
        f->fds_before = fixture_fds();
        const char *base = getenv("TMPDIR");
        snprintf(f->directory, sizeof(f->directory), "%s/cairn-test-XXXXXX", base ? base : "/tmp");
        cr_assert_not_null(mkdtemp(f->directory));
        f->executor.executor.submit = fixture_submit;
        f->executor.last = &f->executor.first;
        f->now_ms = 1000;
        f->shape =
            (struct cairn_block_shape){FIXTURE_LAYERS, FIXTURE_RAW_BYTES, FIXTURE_CODE_BYTES};
        f->options = (struct cairn_store_options){
            .directories = {f->directory},
            .directories_count = 1,
            .ram_bytes = 4 << 20,
            .nvme_bytes = 16 << 20,
            .executor = &f->executor.executor,
            .now_ms = fixture_now,
            .clock = f,
            .on_warning = fixture_warning,
            .on_warning_arg = f,
            .eviction = &cairn_eviction_lru,
        };
        f->internal.seed = 1;
}

static inline void fixture_poll(struct fixture *f)
{
        struct pollfd fd = {.fd = cairn_store_fd(f->store), .events = POLLIN};
        (void)poll(&fd, 1, f->internal.device ? 0 : 5);
        fixture_run_executor(f);
        cairn_store_poll(f->store);
}

// Polls until *flag, for ten seconds at most.
static inline void fixture_until(struct fixture *f, const bool *flag)
{
        struct timespec start, now;
        clock_gettime(CLOCK_MONOTONIC, &start);
        do {
                fixture_poll(f);
                clock_gettime(CLOCK_MONOTONIC, &now);
                cr_assert_lt(now.tv_sec - start.tv_sec, 10,
                             "the store did not call back in ten seconds");
        } while (!*flag);
}

struct fixture_result {
        bool done;
        int status;
        uint32_t space;
        struct cairn_put *put;
};

static inline void fixture_on_status(void *arg, int status)
{
        struct fixture_result *result = arg;
        cr_assert_not(result->done, "called back twice");
        result->done = true;
        result->status = status;
}

static inline void fixture_on_space(void *arg, int status, uint32_t space)
{
        fixture_on_status(arg, status);
        ((struct fixture_result *)arg)->space = space;
}

static inline struct cairn_key fixture_key(uint64_t number)
{
        struct cairn_key key = {{0}};
        for (int i = 0; i < 4; i++) {
                uint64_t word = (number + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)i;
                memcpy(key.bytes + 8 * i, &word, 8);
        }
        return key;
}

// The next of a xorshift's numbers; *state is not 0.
static inline uint64_t fixture_random(uint64_t *state)
{
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        return *state;
}

static inline void fixture_pattern(uint8_t *bytes, size_t size, uint64_t number, uint64_t version,
                                   uint32_t part, uint32_t layer)
{
        uint64_t state = number * 1000003 + version * 7919 + part * 104729 + layer * 31 + 1;
        for (size_t i = 0; i < size; i++) {
                if (i % 8 == 0)
                        (void)fixture_random(&state);
                bytes[i] = (uint8_t)(state >> (8 * (i % 8)));
        }
}

static inline int fixture_space_open(struct fixture *f, const char *name,
                                     const struct cairn_block_shape *shape, uint32_t *ret_space)
{
        struct cairn_key fingerprint = {{0}};
        snprintf((char *)fingerprint.bytes, sizeof(fingerprint.bytes), "%s", name);
        struct fixture_result result = {0};
        cairn_store_space_open(f->store, &fingerprint, shape, name, strlen(name), fixture_on_space,
                               &result);
        cr_assert_not(result.done, "called back inside the call");
        fixture_until(f, &result.done);
        *ret_space = result.space;
        return result.status;
}

static inline void fixture_open(struct fixture *f)
{
        char text[CAIRN_TEXT_BYTES_MAX];
        int status = cairn_store_open_with(&f->options, &f->internal, &f->store, text);
        cr_assert_eq(status, CAIRN_OK, "%s", text);
        cr_assert_eq(fixture_space_open(f, "space", &f->shape, &f->space), CAIRN_OK);
}

static inline void fixture_close(struct fixture *f)
{
        cr_assert_eq(cairn_store_audit_counters(f->store), CAIRN_OK);
        cairn_store_close(f->store);
        f->store = NULL;
}

static inline int fixture_unlink(const char *path, const struct stat *status, int kind,
                                 struct FTW *walk)
{
        (void)status;
        (void)kind;
        (void)walk;
        return remove(path);
}

static inline void fixture_finish(struct fixture *f)
{
        if (f->store)
                fixture_close(f);
        nftw(f->directory, fixture_unlink, 16, FTW_DEPTH | FTW_PHYS);
        cr_assert_eq(fixture_fds(), f->fds_before, "descriptors leaked");
}

struct fixture_begin {
        struct cairn_put_begin request; // first
        struct fixture_result result;
};

static inline void fixture_on_begun(struct cairn_put_begin *request, int status,
                                    struct cairn_put *put)
{
        struct fixture_begin *begin = (struct fixture_begin *)request;
        fixture_on_status(&begin->result, status);
        begin->result.put = put;
}

static inline void fixture_begin(struct fixture *f, struct fixture_begin *begin, uint64_t number,
                                 const struct cairn_key *parent, enum cairn_ack ack)
{
        memset(begin, 0, sizeof(*begin));
        begin->request.on_begun = fixture_on_begun;
        begin->request.space = f->space;
        begin->request.key = fixture_key(number);
        begin->request.ack = ack;
        if (parent)
                begin->request.parent = *parent;
        cairn_store_put_begin(f->store, &begin->request);
        cr_assert_not(begin->result.done, "called back inside the call");
}

static inline void fixture_fill(struct fixture *f, struct cairn_put *put, uint64_t number,
                                uint64_t version)
{
        for (uint32_t layer = 0; layer < f->shape.layers; layer++) {
                fixture_pattern(cairn_put_raw(put, layer), f->shape.raw_layer_bytes, number,
                                version, 1, layer);
                cairn_put_seal(put, CAIRN_PART_RAW, layer);
                if (f->shape.code_layer_bytes == 0)
                        continue;
                fixture_pattern(cairn_put_code(put, layer), f->shape.code_layer_bytes, number,
                                version, 2, layer);
                cairn_put_seal(put, CAIRN_PART_CODE, layer);
        }
}

static inline int fixture_put_child(struct fixture *f, uint64_t number,
                                    const struct cairn_key *parent, uint64_t version,
                                    enum cairn_ack ack)
{
        struct fixture_begin begin;
        fixture_begin(f, &begin, number, parent, ack);
        fixture_until(f, &begin.result.done);
        if (begin.result.status != CAIRN_OK)
                return begin.result.status;
        fixture_fill(f, begin.result.put, number, version);
        struct fixture_result result = {0};
        cairn_store_put_commit(f->store, begin.result.put, fixture_on_status, &result);
        cr_assert_not(result.done, "called back inside the call");
        fixture_until(f, &result.done);
        return result.status;
}

static inline int fixture_put(struct fixture *f, uint64_t number, uint64_t version,
                              enum cairn_ack ack)
{
        return fixture_put_child(f, number, NULL, version, ack);
}

struct fixture_acquire {
        struct cairn_acquire request; // first
        struct fixture_result result;
};

static inline void fixture_on_ready(struct cairn_acquire *request, int status)
{
        fixture_on_status(&((struct fixture_acquire *)request)->result, status);
}

static inline void fixture_acquire(struct fixture *f, struct fixture_acquire *acquire,
                                   struct cairn_block *block, uint32_t parts)
{
        memset(acquire, 0, sizeof(*acquire));
        acquire->request.on_ready = fixture_on_ready;
        acquire->request.block = block;
        acquire->request.parts = parts;
        cairn_store_acquire(f->store, &acquire->request);
        cr_assert_not(acquire->result.done, "called back inside the call");
}

static inline void fixture_check(struct fixture *f, const struct cairn_block *block, uint32_t part,
                                 uint64_t number, uint64_t version)
{
        uint64_t size =
            part == CAIRN_PART_RAW ? f->shape.raw_layer_bytes : f->shape.code_layer_bytes;
        static uint8_t expected[64 << 10];
        cr_assert_leq(size, sizeof(expected));
        for (uint32_t layer = 0; layer < f->shape.layers; layer++) {
                fixture_pattern(expected, size, number, version, part, layer);
                const void *bytes = part == CAIRN_PART_RAW ? cairn_block_raw(block, layer)
                                                           : cairn_block_code(block, layer);
                cr_assert_eq(memcmp(bytes, expected, size), 0, "block %lu part %u layer %u differs",
                             (unsigned long)number, part, layer);
        }
}

// Reads a block and compares every byte. Returns the status of hold or acquire.
static inline int fixture_get(struct fixture *f, uint64_t number, uint64_t version, uint32_t parts)
{
        struct cairn_key key = fixture_key(number);
        struct cairn_block *block;
        int status = cairn_store_hold(f->store, f->space, &key, &block);
        if (status != CAIRN_OK)
                return status;
        struct fixture_acquire acquire;
        fixture_acquire(f, &acquire, block, parts);
        fixture_until(f, &acquire.result.done);
        if (acquire.result.status == CAIRN_OK) {
                if (parts & CAIRN_PART_RAW)
                        fixture_check(f, block, CAIRN_PART_RAW, number, version);
                if ((parts & CAIRN_PART_CODE) && f->shape.code_layer_bytes > 0)
                        fixture_check(f, block, CAIRN_PART_CODE, number, version);
                cairn_store_unpin(f->store, block, parts);
        }
        cairn_store_unhold(f->store, block);
        return acquire.result.status;
}

static inline int fixture_delete(struct fixture *f, uint64_t number)
{
        struct cairn_key key = fixture_key(number);
        struct fixture_result result = {0};
        cairn_store_delete(f->store, f->space, &key, NULL, fixture_on_status, &result);
        cr_assert_not(result.done, "called back inside the call");
        fixture_until(f, &result.done);
        return result.status;
}

static inline int fixture_drain(struct fixture *f)
{
        struct fixture_result result = {0};
        cairn_store_drain(f->store, 0, fixture_on_status, &result);
        fixture_until(f, &result.done);
        return result.status;
}

// Polls until everything acknowledged is on NVMe.
static inline void fixture_settle(struct fixture *f)
{
        struct cairn_store_stats stats;
        for (int i = 0; i < 2000; i++) {
                fixture_poll(f);
                cairn_store_stats(f->store, &stats);
                if (stats.dirty_blocks == 0 && stats.io_inflight == 0 && f->store->ops_pending == 0)
                        return;
        }
        cr_assert_fail("the store does not come to rest");
}

static inline struct cairn_store_stats fixture_stats(const struct fixture *f)
{
        struct cairn_store_stats stats;
        cairn_store_stats(f->store, &stats);
        return stats;
}

#endif
