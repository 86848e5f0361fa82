// The whole store over the simulated device, against the plain model: random puts, re-puts, reads,
// leases, deletes, evictions, crashes, restarts and fills, with every fault that the device knows,
// replayed by a seed.
//   cairn_sim_store [--seed N] [--operations N] [--verbose]
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "policy/admission/admission.h"
#include "policy/eviction/eviction.h"
#include "sim_device.h"
#include "storage/legal.h"
#include "storage/store_internal.h"
#include "store_checks.h"
#include "store_model.h"

enum {
        TASKS_MAX = 24,
        KEYS = 400,
        LAYERS = 2,
        PHASES = 12,
        CHAIN = 8
};
enum task_kind {
        TASK_IDLE,
        TASK_PUT,
        TASK_GET,
        TASK_RANGE,
        TASK_DELETE
};

struct task {
        struct cairn_put_begin begin;
        struct cairn_acquire acquire;
        struct cairn_range range;
        enum task_kind kind;
        struct sim *sim;
        struct cairn_put *put;
        struct cairn_block *block;
        struct model_view view;
        uint32_t key;
        uint32_t version;
        uint32_t wait; // polls until it goes on: a slow writer, a long lease
        bool pinned;
        bool stuck; // in the store's hands
};

struct counts {
        uint64_t puts, existing, refused, gets, hits, ranges, misses, failed, deletes, crashes,
            restarts, drops, expired;
};

struct sim {
        struct cairn_executor executor; // first
        struct cairn_work *work_first;
        struct cairn_work **work_last;
        struct sim_random random;
        struct sim_device *device;
        struct cairn_store_options options;
        struct cairn_store_internal internal;
        struct cairn_block_shape shape;
        struct cairn_store *store;
        struct model model;
        struct model_key keys[KEYS];
        uint64_t expires_ms[KEYS]; // of what is visible; 0: never, or unknown
        struct checks checks;
        struct task tasks[TASKS_MAX];
        struct counts counts;
        uint64_t seed;
        uint64_t now_ms;
        uint64_t operation;
        uint32_t space;
        uint32_t catalog_fault_share;
        bool faulty; // the device and the catalog fail
        bool opened;
        bool drained;
        bool verbose;
        char directory[128];
};

static void fail(const struct sim *sim, const char *what)
{
        fprintf(stderr, "sim: operation %llu, seed %llu: %s\n", (unsigned long long)sim->operation,
                (unsigned long long)sim->seed, what);
        abort();
}

// ---- bytes ----

static void fill(uint8_t *bytes, uint64_t size, uint32_t key, uint32_t version, uint32_t part,
                 uint32_t layer)
{
        uint32_t head[4] = {key, version, part, layer};
        memcpy(bytes, head, sizeof(head));
        uint64_t state = (uint64_t)key << 40 ^ (uint64_t)version << 16 ^ part << 8 ^ layer;
        for (uint64_t i = sizeof(head); i < size; i++) {
                if (i % 8 == 0)
                        state = state * 6364136223846793005ull + 1442695040888963407ull;
                bytes[i] = (uint8_t)(state >> (8 * (i % 8)));
        }
}

static uint32_t check_bytes(const struct sim *sim, const struct task *task, const uint8_t *bytes,
                            uint32_t part, uint32_t layer)
{
        uint64_t size =
            part == CAIRN_PART_RAW ? sim->shape.raw_layer_bytes : sim->shape.code_layer_bytes;
        uint8_t expected[4096];
        uint32_t version;
        memcpy(&version, bytes + 4, sizeof(version));
        fill(expected, size, task->key, version, part, layer);
        if (memcmp(bytes, expected, size) != 0)
                fail(sim, "OK with bytes that no put wrote");
        return version;
}

static uint32_t check(const struct sim *sim, const struct task *task, uint32_t part, uint32_t layer)
{
        const uint8_t *bytes = part == CAIRN_PART_RAW ? cairn_block_raw(task->block, layer)
                                                      : cairn_block_code(task->block, layer);
        return check_bytes(sim, task, bytes, part, layer);
}

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

// ---- the store's surroundings ----

static void on_submit(struct cairn_executor *executor, struct cairn_work *work)
{
        struct sim *sim = (struct sim *)(void *)executor;
        work->next = NULL;
        *sim->work_last = work;
        sim->work_last = &work->next;
}

static void run_executor(struct sim *sim)
{
        while (sim->work_first) {
                struct cairn_work *work = sim->work_first;
                sim->work_first = work->next;
                if (!sim->work_first)
                        sim->work_last = &sim->work_first;
                work->run(work);
                work->on_done(work);
        }
}

static uint64_t on_now(void *clock)
{
        return ((struct sim *)clock)->now_ms;
}

static void on_warning(void *arg, const char *text)
{
        struct sim *sim = arg;
        if (sim->verbose)
                fprintf(stderr, "sim: %s\n", text);
}

static int on_catalog_fault(void *arg)
{
        struct sim *sim = arg;
        if (!sim_chance(&sim->random, sim->catalog_fault_share))
                return CAIRN_OK;
        return sim_below(&sim->random, 2) ? CAIRN_EIO : CAIRN_ENOSPC;
}

static void on_space(void *arg, int status, uint32_t space)
{
        struct sim *sim = arg;
        sim->opened = status == CAIRN_OK;
        sim->space = space;
        if (status != CAIRN_OK && sim->catalog_fault_share == 0)
                fail(sim, "a space cannot be opened");
}

static void poll_once(struct sim *sim)
{
        sim->now_ms += sim_below(&sim->random, 3) == 0;
        run_executor(sim);
        cairn_store_poll(sim->store);
}

static void open_space(struct sim *sim)
{
        struct cairn_key fingerprint = key_of(UINT32_MAX);
        sim->opened = false;
        while (!sim->opened) {
                cairn_store_space_open(sim->store, &fingerprint, &sim->shape, "sim", 3, on_space,
                                       sim);
                for (int i = 0; i < 8; i++)
                        poll_once(sim);
        }
}

static void open_store(struct sim *sim)
{
        char text[CAIRN_TEXT_BYTES_MAX];
        sim->work_first = NULL;
        sim->work_last = &sim->work_first;
        if (cairn_store_open_with(&sim->options, &sim->internal, &sim->store, text) != CAIRN_OK)
                fail(sim, text);
        open_space(sim);
        sim->checks.space = sim->space;
        for (uint32_t i = 0; i < CHECKS_TENANTS; i++)
                sim->checks.ram_max[i] = sim->checks.nvme_max[i] = UINT64_MAX;
        struct cairn_store_stats stats;
        cairn_store_stats(sim->store, &stats);
        if (stats.nvme_used_bytes + stats.nvme_free_bytes > sim->options.nvme_bytes)
                fail(sim, "a restart finds more than the limit");
}

// ---- tasks ----

static void end_task(struct task *task)
{
        *task = (struct task){.sim = task->sim};
}

static void on_begun(struct cairn_put_begin *begin, int status, struct cairn_put *put)
{
        struct task *task = CAIRN_CONTAINER(begin, struct task, begin);
        struct sim *sim = task->sim;
        task->stuck = false;
        if (status == CAIRN_OK) {
                task->put = put;
                task->version = sim->keys[task->key].last + 1;
                model_begun(&sim->model, task->key, task->version);
                task->wait = (uint32_t)sim_below(&sim->random, 6);
                return;
        }
        if (status == CAIRN_EEXIST)
                sim->counts.existing++;
        else
                sim->counts.refused++;
        end_task(task);
}

static void on_committed(void *arg, int status)
{
        struct task *task = arg;
        struct sim *sim = task->sim;
        bool disk = task->begin.ack == CAIRN_ACK_DISK;
        if (status == CAIRN_OK && disk)
                model_committed(&sim->model, task->key, task->version, true);
        if (status != CAIRN_OK && (!disk || sim->model.exact))
                fail(sim, "a put failed without a fault");
        sim->counts.puts += status == CAIRN_OK;
        sim->counts.refused += status != CAIRN_OK;
        sim->checks.keys[task->key].there += status == CAIRN_OK;
        end_task(task);
}

static void commit_put(struct task *task)
{
        struct sim *sim = task->sim;
        if (sim_chance(&sim->random, 50000)) {
                cairn_store_put_abort(sim->store, task->put);
                end_task(task);
                return;
        }
        for (uint32_t layer = 0; layer < sim->shape.layers; layer++) {
                fill(cairn_put_raw(task->put, layer), sim->shape.raw_layer_bytes, task->key,
                     task->version, CAIRN_PART_RAW, layer);
                cairn_put_seal(task->put, CAIRN_PART_RAW, layer);
                if (sim->shape.code_layer_bytes == 0)
                        continue;
                fill(cairn_put_code(task->put, layer), sim->shape.code_layer_bytes, task->key,
                     task->version, CAIRN_PART_CODE, layer);
                cairn_put_seal(task->put, CAIRN_PART_CODE, layer);
        }
        struct cairn_put *put = task->put;
        task->put = NULL;
        task->stuck = true;
        if (task->begin.ack == CAIRN_ACK_MEMORY)
                model_committed(&sim->model, task->key, task->version, false);
        sim->expires_ms[task->key] = task->begin.ttl_ms ? sim->now_ms + task->begin.ttl_ms : 0;
        cairn_store_put_commit(sim->store, put, on_committed, task);
}

static void check_read(struct task *task)
{
        struct sim *sim = task->sim;
        uint32_t version = MODEL_NONE;
        for (uint32_t part = CAIRN_PART_RAW; part <= CAIRN_PART_CODE; part++) {
                if (!(task->acquire.parts & part) ||
                    (part == CAIRN_PART_CODE && sim->shape.code_layer_bytes == 0))
                        continue;
                for (uint32_t layer = 0; layer < sim->shape.layers; layer++) {
                        uint32_t found = check(sim, task, part, layer);
                        if (version != MODEL_NONE && found != version)
                                fail(sim, "parts of one block are of two versions");
                        version = found;
                }
        }
        const char *wrong =
            version == MODEL_NONE ? NULL : model_read(&sim->model, task->key, version, &task->view);
        if (wrong)
                fail(sim, wrong);
}

static void on_ready(struct cairn_acquire *acquire, int status)
{
        struct task *task = CAIRN_CONTAINER(acquire, struct task, acquire);
        struct sim *sim = task->sim;
        task->stuck = false;
        if (status == CAIRN_OK) {
                check_read(task);
                sim->counts.hits++;
                task->pinned = true;
                task->wait =
                    (uint32_t)(sim_chance(&sim->random, 100000) ? sim_below(&sim->random, 200)
                                                                : sim_below(&sim->random, 4));
                return;
        }
        sim->counts.failed++;
        if (sim->model.exact && status != CAIRN_EDEADLINE)
                fail(sim, "a read failed without a fault");
        cairn_store_unhold(sim->store, task->block);
        end_task(task);
}

static void end_read(struct task *task)
{
        check_read(task); // pinned bytes do not change, whatever happened meanwhile
        cairn_store_unpin(task->sim->store, task->block, task->acquire.parts);
        cairn_store_unhold(task->sim->store, task->block);
        end_task(task);
}

static void check_range(struct task *task)
{
        struct sim *sim = task->sim;
        const struct cairn_range *range = &task->range;
        bool raw = range->part == CAIRN_PART_RAW;
        uint64_t size = raw ? sim->shape.raw_layer_bytes : sim->shape.code_layer_bytes;
        for (uint32_t i = 0; i < range->count; i++) {
                const uint8_t *bytes = (const uint8_t *)range->bytes + i * size;
                uint32_t version;
                memcpy(&version, bytes + 4, sizeof(version));
                check_bytes(sim, task, bytes, range->part, range->first + i);
                const char *wrong = model_read(&sim->model, task->key, version, &task->view);
                if (wrong)
                        fail(sim, wrong);
        }
}

static void on_range(struct cairn_range *range, int status)
{
        struct task *task = CAIRN_CONTAINER(range, struct task, range);
        struct sim *sim = task->sim;
        task->stuck = false;
        if (status == CAIRN_OK) {
                check_range(task);
                sim->counts.ranges++;
                task->wait = (uint32_t)sim_below(&sim->random, 4);
                return;
        }
        sim->counts.failed++;
        bool allowed = status == CAIRN_EDEADLINE || (status == CAIRN_ENOENT && range->from_nvme);
        if (sim->model.exact && !allowed)
                fail(sim, "a range failed without a fault");
        cairn_store_unhold(sim->store, task->block);
        end_task(task);
}

static void end_range(struct task *task)
{
        check_range(task);
        cairn_store_range_release(task->sim->store, &task->range);
        cairn_store_unhold(task->sim->store, task->block);
        end_task(task);
}

static void start_range(struct task *task)
{
        struct sim *sim = task->sim;
        task->kind = TASK_RANGE;
        task->stuck = true;
        bool raw = sim->shape.code_layer_bytes == 0 || sim_below(&sim->random, 2);
        uint32_t first = (uint32_t)sim_below(&sim->random, LAYERS);
        task->range = (struct cairn_range){
            .on_ready = on_range,
            .block = task->block,
            .part = raw ? CAIRN_PART_RAW : CAIRN_PART_CODE,
            .first = first,
            .count = 1 + (uint32_t)sim_below(&sim->random, LAYERS - first),
            .from_nvme = sim_below(&sim->random, 4) == 0,
        };
        if (sim_below(&sim->random, 8) == 0)
                task->range.deadline_ms = sim->now_ms + sim_below(&sim->random, 30) + 1;
        cairn_store_range_read(sim->store, &task->range);
}

static void on_deleted(void *arg, int status)
{
        struct task *task = arg;
        struct sim *sim = task->sim;
        model_deleted(&sim->model, task->key, task->version, status == CAIRN_OK);
        if (status != CAIRN_OK && status != CAIRN_ENOENT && sim->model.exact)
                fail(sim, "a delete failed without a fault");
        sim->counts.deletes += status == CAIRN_OK;
        end_task(task);
}

static void start_put(struct task *task)
{
        struct sim *sim = task->sim;
        task->kind = TASK_PUT;
        task->stuck = true;
        task->begin = (struct cairn_put_begin){
            .on_begun = on_begun,
            .space = sim->space,
            .tenant = (uint32_t)sim_below(&sim->random, 2),
            .key = key_of(task->key),
            .ack = sim_below(&sim->random, 2) ? CAIRN_ACK_DISK : CAIRN_ACK_MEMORY,
        };
        if (task->key % CHAIN)
                task->begin.parent = key_of(task->key - 1);
        if (!sim->model.exact && sim_below(&sim->random, 4) == 0)
                task->begin.ttl_ms = 1 + sim_below(&sim->random, 20000);
        task->begin.recompute_us = sim_below(&sim->random, 3) * 1000 * (1 + task->key % CHAIN);
        if (sim_below(&sim->random, 8) == 0)
                task->begin.deadline_ms = sim->now_ms + sim_below(&sim->random, 30) + 1;
        cairn_store_put_begin(sim->store, &task->begin);
}

static void start_get(struct task *task)
{
        struct sim *sim = task->sim;
        struct cairn_key key = key_of(task->key);
        sim->counts.gets++;
        task->view = model_view(&sim->model, task->key);
        if (cairn_store_hold(sim->store, sim->space, &key, &task->block) != CAIRN_OK) {
                sim->counts.misses++;
                const char *wrong = model_missed(&sim->model, task->key);
                if (wrong)
                        fail(sim, wrong);
                return;
        }
        if (task->view.visible == sim->keys[task->key].last && sim->expires_ms[task->key] > 0 &&
            sim->now_ms >= sim->expires_ms[task->key] && !cairn_block_legal(task->block))
                fail(sim, "a block is found after its time");
        if (sim_below(&sim->random, 2))
                cairn_store_touch(sim->store, task->block);
        if (sim_below(&sim->random, 4) == 0) {
                start_range(task);
                return;
        }
        task->kind = TASK_GET;
        task->stuck = true;
        task->acquire = (struct cairn_acquire){
            .on_ready = on_ready,
            .block = task->block,
            .parts = 1 + (uint32_t)sim_below(&sim->random, 3),
        };
        if (sim_below(&sim->random, 8) == 0)
                task->acquire.deadline_ms = sim->now_ms + sim_below(&sim->random, 30) + 1;
        cairn_store_acquire(sim->store, &task->acquire);
}

static void start_delete(struct task *task)
{
        struct sim *sim = task->sim;
        struct cairn_key key = key_of(task->key);
        task->kind = TASK_DELETE;
        task->stuck = true;
        task->version = model_delete_begun(&sim->model, task->key);
        cairn_store_delete(sim->store, sim->space, &key, NULL, on_deleted, task);
}

static void start_task(struct sim *sim, struct task *task)
{
        uint64_t choice = sim_below(&sim->random, 100);
        task->key = (uint32_t)sim_below(&sim->random, sim->model.keys_count);
        if (choice < 35)
                start_put(task);
        else if (choice < 90)
                start_get(task);
        else
                start_delete(task);
}

static void step_task(struct task *task)
{
        if (task->kind == TASK_IDLE || task->stuck)
                return;
        if (task->wait > 0) {
                task->wait--;
                return;
        }
        if (task->kind == TASK_PUT)
                commit_put(task);
        else if (task->kind == TASK_GET)
                end_read(task);
        else if (task->kind == TASK_RANGE)
                end_range(task);
}

// ---- events ----

static void forget_tasks(struct sim *sim)
{
        for (int i = 0; i < TASKS_MAX; i++)
                end_task(&sim->tasks[i]);
}

// A time to live begins anew with a start.
static void forget_times(struct sim *sim)
{
        memset(sim->expires_ms, 0, sizeof(sim->expires_ms));
}

static void must_hold(const struct sim *sim, const char *wrong)
{
        if (wrong)
                fail(sim, wrong);
}

static void crash(struct sim *sim)
{
        sim->counts.crashes++;
        sim_device_crash(sim->device);
        cairn_store_abandon(sim->store);
        forget_tasks(sim);
        model_crashed(&sim->model);
        open_store(sim);
        forget_times(sim);
        checks_begin(&sim->checks, sim->store);
        checks_hold_lifted(&sim->checks); // what RAM alone had is gone
}

static void on_drained(void *arg, int status)
{
        struct sim *sim = arg;
        sim->drained = true;
        if (status != CAIRN_OK && sim->model.exact)
                fail(sim, "a drain failed without a fault");
}

static void finish_tasks(struct sim *sim)
{
        for (int round = 0; round < 100000; round++) {
                bool busy = false;
                for (int i = 0; i < TASKS_MAX; i++) {
                        step_task(&sim->tasks[i]);
                        busy = busy || sim->tasks[i].kind != TASK_IDLE;
                }
                if (!busy)
                        return;
                poll_once(sim);
        }
        fail(sim, "a request never ends");
}

static void restart(struct sim *sim)
{
        sim->counts.restarts++;
        finish_tasks(sim);
        struct cairn_store_stats stats;
        sim->drained = false;
        cairn_store_drain(sim->store, sim->model.exact ? 0 : sim->now_ms + 2000, on_drained, sim);
        for (int round = 0; !sim->drained; round++) {
                if (round > 100000)
                        fail(sim, "a drain never ends");
                poll_once(sim);
        }
        cairn_store_stats(sim->store, &stats);
        if (stats.holds != 0 || stats.pins != 0)
                fail(sim, "a hold or a pin is left");
        if (cairn_store_audit_counters(sim->store) != CAIRN_OK)
                fail(sim, "counters differ from their sums after a drain");
        if (sim->model.exact)
                model_drained(&sim->model);
        sim->counts.expired += stats.expired;
        cairn_store_close(sim->store);
        model_crashed(&sim->model);
        open_store(sim);
        forget_times(sim);
        must_hold(sim, checks_vanished(&sim->checks, sim->store, !sim->faulty));
        checks_begin(&sim->checks, sim->store);
        checks_hold_lifted(&sim->checks); // a drain may drop what RAM alone has
}

static void maybe_event(struct sim *sim)
{
        if (!sim->model.exact && sim_chance(&sim->random, 1000))
                checks_set_quota(&sim->checks, sim->store, &sim->random, &sim->shape);
        if (!sim->model.exact && !sim->faulty && sim_chance(&sim->random, 1500))
                checks_turn_hold(&sim->checks, sim->store, (uint32_t)sim_below(&sim->random, KEYS),
                                 CHAIN);
        must_hold(sim, checks_quotas(&sim->checks, sim->store));
        if (sim_chance(&sim->random, 1000))
                must_hold(sim, checks_holds(&sim->checks, sim->store));
        if (sim_chance(&sim->random, 100))
                crash(sim);
        if (sim_chance(&sim->random, 50))
                restart(sim);
        if (sim_chance(&sim->random, 300)) {
                sim->counts.drops++;
                // In exact phases nothing may be lost: dropping takes copies alone, and RAM-only
                // blocks are none there.
                (void)cairn_store_drop_ram(sim->store);
        }
        if (sim_chance(&sim->random, 200))
                sim->now_ms += 2000;
        if (sim_chance(&sim->random, 500) && cairn_store_audit_counters(sim->store) != CAIRN_OK)
                fail(sim, "counters differ from their sums");
}

static int unlink_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
        (void)status;
        (void)kind;
        (void)walk;
        return remove(path);
}

static void begin_phase(struct sim *sim, uint32_t phase)
{
        snprintf(sim->directory, sizeof(sim->directory), "%s/cairn-sim-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (!mkdtemp(sim->directory))
                fail(sim, "no temporary directory");
        bool exact = phase % 2 == 0;
        sim->shape =
            (struct cairn_block_shape){LAYERS, 600 + sim_below(&sim->random, 3000),
                                       phase % 3 == 0 ? 0 : 100 + sim_below(&sim->random, 1000)};
        struct cairn_layout layout;
        (void)cairn_layout_of(&sim->shape, &layout); // valid by construction
        memset(sim->keys, 0, sizeof(sim->keys));
        forget_times(sim);
        sim->faulty = !exact && phase % 4 != 3;
        sim->checks.held = false;
        sim->model = (struct model){.keys = sim->keys, .keys_count = KEYS, .exact = exact};
        // An exact phase has room for every version that may be there at once: old ones under
        // lease, and new ones.
        uint64_t slots = exact ? 2 * KEYS : 50 + sim_below(&sim->random, 300);
        sim->options = (struct cairn_store_options){
            .directories = {sim->directory},
            .directories_count = 1,
            .ram_bytes = layout.slot_bytes * (30 + sim_below(&sim->random, 100)) + (8 << 12),
            .nvme_bytes = layout.slot_bytes * slots + (1 << 18),
            .slab_bytes = layout.slot_bytes * (10 + sim_below(&sim->random, 60)),
            .queue_depth = 1 + (uint32_t)sim_below(&sim->random, 32),
            .executor = &sim->executor,
            .now_ms = on_now,
            .wall_ms = on_now,
            .clock = sim,
            .audit_bytes = 64 << 20,
            .on_warning = on_warning,
            .on_warning_arg = sim,
            .eviction = cairn_eviction_by_name(cairn_eviction_name((phase + phase / 4) % 3)),
            .admission = exact || phase % 4 != 1 ? NULL
                         : phase % 8 == 1        ? &cairn_admission_second_use
                                                 : &cairn_admission_tinylfu,
            .views = phase % 5 > 2,
        };
        sim->executor.submit = on_submit;
        sim->device =
            sim_device_create(sim_next(&sim->random),
                              sim->faulty ? sim->options.nvme_bytes * 9 / 10 : UINT64_MAX);
        struct sim_faults faults = {.short_share = 20000,
                                    .again_share = 20000,
                                    .latency_max = 1 + (uint32_t)sim_below(&sim->random, 12)};
        sim->catalog_fault_share = 0;
        if (sim->faulty) {
                faults.eio_share = (uint32_t)sim_below(&sim->random, 5000);
                faults.enospc_share = 20000;
                faults.flip_share = (uint32_t)sim_below(&sim->random, 5000);
                sim->catalog_fault_share = (uint32_t)sim_below(&sim->random, 10000);
        }
        sim_device_faults(sim->device, &faults);
        sim->internal = (struct cairn_store_internal){.device = sim_device_device(sim->device),
                                                      .catalog_inline = true,
                                                      .catalog_no_sync = true,
                                                      .on_catalog_fault = on_catalog_fault,
                                                      .on_catalog_fault_arg = sim,
                                                      .seed = sim->seed + 1};
        open_store(sim);
        sim->checks.cursor = 0;
        checks_begin(&sim->checks, sim->store);
}

static void end_phase(struct sim *sim)
{
        restart(sim);
        cairn_store_close(sim->store);
        sim_device_destroy(sim->device);
        nftw(sim->directory, unlink_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void run_phase(struct sim *sim, uint32_t phase, uint64_t operations)
{
        begin_phase(sim, phase);
        for (uint64_t i = 0; i < operations; i++) {
                sim->operation++;
                struct task *task = &sim->tasks[sim_below(&sim->random, TASKS_MAX)];
                if (task->kind == TASK_IDLE)
                        start_task(sim, task);
                else
                        step_task(task);
                if (sim_below(&sim->random, 2) == 0)
                        poll_once(sim);
                maybe_event(sim);
        }
        end_phase(sim);
}

int main(int argc, char **argv)
{
        static struct sim sim;
        const char *environment = getenv("CAIRN_TEST_SEED");
        sim.seed = environment ? strtoull(environment, NULL, 0) : (uint64_t)time(NULL);
        uint64_t operations = 1000000;
        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "--verbose") == 0) {
                        sim.verbose = true;
                } else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
                        sim.seed = strtoull(argv[++i], NULL, 0);
                } else if (i + 1 < argc && strcmp(argv[i], "--operations") == 0) {
                        operations = strtoull(argv[++i], NULL, 0);
                } else {
                        fprintf(stderr, "usage: %s [--seed N] [--operations N] [--verbose]\n",
                                argv[0]);
                        return 2;
                }
        }
        printf("sim: seed %llu, %llu operations\n", (unsigned long long)sim.seed,
               (unsigned long long)operations);
        fflush(stdout);
        sim.random.state = sim.seed;
        sim.now_ms = 1000;
        sim.checks.keys_count = KEYS;
        for (uint32_t i = 0; i < KEYS; i++)
                sim.checks.keys[i].key = key_of(i);
        for (int i = 0; i < TASKS_MAX; i++)
                sim.tasks[i].sim = &sim;
        for (uint32_t phase = 0; phase < PHASES; phase++) {
                run_phase(&sim, phase, operations / PHASES);
                if (sim.verbose)
                        fprintf(stderr, "sim: phase %u of %d done\n", phase + 1, PHASES);
        }
        const struct counts *c = &sim.counts;
        printf("sim: ok: %llu puts, %llu there already, %llu refused; %llu gets: %llu hits, %llu "
               "ranges, %llu "
               "misses, %llu failed; "
               "%llu deletes, %llu crashes, %llu restarts, %llu drops; %llu quotas, %llu holds, "
               "%llu expired; %llu vanished with a record, %llu without\n",
               (unsigned long long)c->puts, (unsigned long long)c->existing,
               (unsigned long long)c->refused, (unsigned long long)c->gets,
               (unsigned long long)c->hits, (unsigned long long)c->ranges,
               (unsigned long long)c->misses, (unsigned long long)c->failed,
               (unsigned long long)c->deletes, (unsigned long long)c->crashes,
               (unsigned long long)c->restarts, (unsigned long long)c->drops,
               (unsigned long long)sim.checks.quotas, (unsigned long long)sim.checks.holds,
               (unsigned long long)c->expired, (unsigned long long)sim.checks.vanished,
               (unsigned long long)sim.checks.unrecorded);
        return 0;
}
