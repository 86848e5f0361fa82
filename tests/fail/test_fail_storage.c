// A script of puts, reads, evictions, deletes and restarts, once for every allocation, every
// request of the device and every transaction that occurs in it: that one fails. No crash, no leak,
// counters right, and each block is as before or as after: exact bytes or a miss, and then it can
// be put again.
#include "tests/sim/sim_device.h"
#include "tests/unit/store_fixture.h"

enum {
        BLOCKS = 12,
        BOTH = CAIRN_PART_RAW | CAIRN_PART_CODE
};

static struct {
        bool armed;
        uint64_t count;
        uint64_t fail_at;
} allocations;

static bool refuse(void)
{
        return allocations.armed && ++allocations.count == allocations.fail_at;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
        return refuse() ? NULL : __real_malloc(size);
}
void *__wrap_calloc(size_t count, size_t size)
{
        return refuse() ? NULL : __real_calloc(count, size);
}
void *__wrap_realloc(void *old, size_t size)
{
        return refuse() ? NULL : __real_realloc(old, size);
}
void *__wrap_aligned_alloc(size_t align, size_t size)
{
        return refuse() ? NULL : __real_aligned_alloc(align, size);
}
char *__wrap_strdup(const char *text)
{
        return refuse() ? NULL : __real_strdup(text);
}

struct script {
        struct fixture f;
        struct sim_device *device;
        uint64_t transactions;
        uint64_t transaction_fails;
        uint32_t version[BLOCKS]; // acknowledged; 0: none
};

static int on_transaction(void *arg)
{
        struct script *script = arg;
        return ++script->transactions == script->transaction_fails ? CAIRN_EIO : CAIRN_OK;
}

static void init(struct script *script)
{
        memset(script, 0, sizeof(*script));
        fixture_init(&script->f);
        script->device = sim_device_create(1, UINT64_MAX);
        struct sim_faults faults = {.latency_max = 2};
        sim_device_faults(script->device, &faults);
        script->f.options.ram_bytes = 320 << 10;
        script->f.options.nvme_bytes = 640 << 10;
        script->f.options.slab_bytes = 256 << 10;
        script->f.internal.device = sim_device_device(script->device);
        script->f.internal.catalog_inline = true;
        script->f.internal.catalog_no_sync = true;
        script->f.internal.on_catalog_fault = on_transaction;
        script->f.internal.on_catalog_fault_arg = script;
}

static void finish(struct script *script)
{
        fixture_finish(&script->f);
        sim_device_destroy(script->device);
}

// Like the fixture's open, but a failure is an answer.
static int try_open(struct script *script)
{
        char text[CAIRN_TEXT_BYTES_MAX];
        struct fixture *f = &script->f;
        int status = cairn_store_open_with(&f->options, &f->internal, &f->store, text);
        if (status != CAIRN_OK) {
                cr_assert(text[0] != 0, "a failed open says why");
                f->store = NULL;
                return status;
        }
        return fixture_space_open(f, "space", &f->shape, &f->space);
}

static void try_put(struct script *script, uint64_t number, enum cairn_ack ack)
{
        struct cairn_key parent = fixture_key(number - 1);
        uint32_t version = script->version[number] + 1;
        int status =
            fixture_put_child(&script->f, number, number % 4 ? &parent : NULL, version, ack);
        if (status == CAIRN_OK)
                script->version[number] = version;
}

static void try_get(struct script *script, uint64_t number)
{
        int status = fixture_get(&script->f, number, script->version[number], BOTH);
        cr_assert(status <= CAIRN_OK);
}

// A read that one part failed may have left the other with the executor, which runs between polls
// alone: closing waits for it.
static void close_store(struct script *script)
{
        for (int i = 0; script->f.store && i < 8; i++)
                fixture_poll(&script->f);
        cairn_store_close(script->f.store);
        script->f.store = NULL;
}

static void run(struct script *script)
{
        if (try_open(script) != CAIRN_OK)
                goto close;
        for (uint64_t i = 0; i < BLOCKS; i++)
                try_put(script, i, i % 3 ? CAIRN_ACK_DISK : CAIRN_ACK_MEMORY);
        for (uint64_t i = 0; i < BLOCKS; i++)
                try_get(script, i);
        cairn_store_drop_ram(script->f.store);
        for (uint64_t i = 0; i < BLOCKS; i += 2)
                try_get(script, i);
        for (uint64_t i = 0; i < BLOCKS; i += 5)
                (void)fixture_delete(&script->f, i);
        for (uint64_t i = 0; i < BLOCKS; i += 5)
                try_put(script, i, CAIRN_ACK_DISK);
        int audit = cairn_store_audit_counters(script->f.store);
        cr_assert(audit == CAIRN_OK || audit == CAIRN_ENOMEM); // it allocates, too
        (void)fixture_drain(&script->f);
close:
        close_store(script);
        if (try_open(script) == CAIRN_OK) {
                for (uint64_t i = 0; i < BLOCKS; i++)
                        try_get(script, i);
        }
        close_store(script);
}

// What a user finds afterwards, with nothing failing any more. A version of before may be back
// after a lost delete.
static void check(struct script *script)
{
        struct fixture *f = &script->f;
        fixture_open(f);
        for (uint64_t i = 0; i < BLOCKS; i++) {
                struct cairn_key key = fixture_key(i);
                struct cairn_block *block;
                if (cairn_store_hold(f->store, f->space, &key, &block) == CAIRN_OK) {
                        struct fixture_acquire acquire;
                        fixture_acquire(f, &acquire, block, BOTH);
                        fixture_until(f, &acquire.result.done);
                        cr_assert_eq(acquire.result.status, CAIRN_OK);
                        uint8_t expected[64];
                        bool exact = false;
                        for (uint32_t version = 1; version <= 3 && !exact; version++) {
                                fixture_pattern(expected, sizeof(expected), i, version, 1, 0);
                                exact = memcmp(cairn_block_raw(block, 0), expected,
                                               sizeof(expected)) == 0;
                                if (exact)
                                        fixture_check(f, block, CAIRN_PART_RAW, i, version);
                        }
                        cr_assert(exact, "block %lu holds bytes that no put wrote",
                                  (unsigned long)i);
                        cairn_store_unpin(f->store, block, BOTH);
                        cairn_store_unhold(f->store, block);
                        cr_assert_eq(fixture_delete(f, i), CAIRN_OK);
                }
                cr_assert_eq(fixture_put(f, i, 9, CAIRN_ACK_DISK), CAIRN_OK);
                cr_assert_eq(fixture_get(f, i, 9, BOTH), CAIRN_OK);
        }
        fixture_settle(f);
        cr_assert_eq(fixture_stats(f).holds, 0);
        cr_assert_eq(fixture_stats(f).pins, 0);
        fixture_close(f);
}

Test(fail_storage, every_allocation, .timeout = 900)
{
        uint64_t n = 1;
        for (;; n++) {
                struct script script;
                init(&script);
                allocations.count = 0;
                allocations.fail_at = n;
                allocations.armed = true;
                run(&script);
                allocations.armed = false;
                check(&script);
                finish(&script);
                if (allocations.count < n)
                        break;
        }
        cr_assert_gt(n, 150, "the script makes few allocations: %lu", (unsigned long)n);
        fprintf(stderr, "fail_storage: %lu allocations\n", (unsigned long)n - 1);
}

Test(fail_storage, every_request_of_the_device, .timeout = 900)
{
        uint64_t n = 1;
        for (;; n++) {
                struct script script;
                init(&script);
                sim_device_fail_at(script.device, n);
                run(&script);
                uint64_t requests = sim_device_requests(script.device);
                sim_device_fail_at(script.device, 0);
                check(&script);
                finish(&script);
                if (requests < n)
                        break;
        }
        cr_assert_gt(n, 30, "the script makes few requests: %lu", (unsigned long)n);
        fprintf(stderr, "fail_storage: %lu requests\n", (unsigned long)n - 1);
}

Test(fail_storage, every_transaction, .timeout = 900)
{
        uint64_t n = 1;
        for (;; n++) {
                struct script script;
                init(&script);
                script.transaction_fails = n;
                run(&script);
                bool last = script.transactions < n;
                script.transaction_fails = 0;
                check(&script);
                finish(&script);
                if (last)
                        break;
        }
        cr_assert_gt(n, 10, "the script makes few transactions: %lu", (unsigned long)n);
        fprintf(stderr, "fail_storage: %lu transactions\n", (unsigned long)n - 1);
}
