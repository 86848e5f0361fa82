// The store's frame: opening, polling, callbacks, draining, closing, numbers.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "proto/probe.h"
#include "storage/store_internal.h"

enum {
        TIMER_MS_MAX = 3600 * 1000 // then it looks again
};

uint64_t cairn_store_now(const struct cairn_store *store)
{
        return store->options.now_ms(store->options.clock);
}

void cairn_store_warn(struct cairn_store *store, const char *text)
{
        if (store->options.on_warning)
                store->options.on_warning(store->options.on_warning_arg, text);
}

void cairn_store_wake(struct cairn_store *store)
{
        store->woken = true;
        if (store->signalled || store->polling)
                return; // poll looks at `woken` itself
        store->signalled = true;
        uint64_t one = 1;
        (void)!write(store->wake_fd, &one, sizeof(one)); // full means readable already
}

struct cairn_op *cairn_op_create(struct cairn_store *store)
{
        struct cairn_op *op = calloc(1, sizeof(*op));
        if (!op)
                return NULL;
        op->store = store;
        cairn_link_add(&store->all_ops, &op->link);
        return op;
}

// Callbacks have nobody to tell that memory ran out: some are kept for them.
struct cairn_op *cairn_op_reserved(struct cairn_store *store)
{
        struct cairn_op *op = cairn_op_create(store);
        if (op)
                return op;
        op = store->free_ops;
        assert(op);
        store->free_ops = op->next;
        store->free_ops_count--;
        *op = (struct cairn_op){.store = store};
        cairn_link_add(&store->all_ops, &op->link);
        return op;
}

void cairn_op_free(struct cairn_store *store, struct cairn_op *op)
{
        cairn_link_remove(&op->link);
        if (store->free_ops_count >= CAIRN_OPS_RESERVE) {
                free(op);
                return;
        }
        op->next = store->free_ops;
        store->free_ops = op;
        store->free_ops_count++;
}

void cairn_op_ready(struct cairn_op *op, int status)
{
        struct cairn_store *store = op->store;
        op->status = status;
        op->next = NULL;
        *store->ready_ops_last = op;
        store->ready_ops_last = &op->next;
        cairn_store_wake(store);
}

void cairn_op_dropped(struct cairn_catalog_op *catalog_op, int status)
{
        struct cairn_op *op = CAIRN_CONTAINER(catalog_op, struct cairn_op, op);
        (void)status; // the next start drops it again
        op->store->ops_pending--;
        cairn_op_free(op->store, op);
}

void cairn_op_removed(struct cairn_device_request *request, int status)
{
        struct cairn_op *op = CAIRN_CONTAINER(request, struct cairn_op, request);
        (void)status; // the next start finds the file again
        cairn_io_done(op->store);
        cairn_op_free(op->store, op);
}

void cairn_io_submit(struct cairn_store *store, struct cairn_device_request *request)
{
        store->io_pending++;
        CAIRN_PROBE3(io__submit, request->kind, request->offset, cairn_device_bytes_left(request));
        store->device->ops->submit(store->device, request);
        cairn_store_wake(store);
}

void cairn_io_done(struct cairn_store *store)
{
        assert(store->io_pending > 0);
        store->io_pending--;
}

void cairn_read_begin(struct cairn_store *store, uint64_t bytes)
{
        store->stats.nvme_read_bytes += bytes;
        if (store->reads_inflight++ == 0)
                store->reads_since_ms = cairn_store_now(store);
}

void cairn_read_end(struct cairn_store *store)
{
        assert(store->reads_inflight > 0);
        if (--store->reads_inflight == 0)
                store->stats.nvme_read_busy_ms += cairn_store_now(store) - store->reads_since_ms;
}

int cairn_store_fd(const struct cairn_store *store)
{
        return store->epoll_fd;
}

static void run_acquires(struct cairn_store *store)
{
        struct cairn_acquire *request = store->ready_acquires;
        store->ready_acquires = NULL;
        store->ready_acquires_last = &store->ready_acquires;
        while (request) {
                struct cairn_acquire *next = request->next;
                int status = (int)(intptr_t)request->internal;
                request->on_ready(request, status);
                request = next;
        }
}

static void run_ranges(struct cairn_store *store)
{
        struct cairn_range *range = store->ready_ranges;
        store->ready_ranges = NULL;
        store->ready_ranges_last = &store->ready_ranges;
        while (range) {
                struct cairn_range *next = range->next;
                range->on_ready(range, range->status);
                range = next;
        }
}

static void run_begins(struct cairn_store *store)
{
        struct cairn_put_begin *request = store->ready_begins;
        store->ready_begins = NULL;
        store->ready_begins_last = &store->ready_begins;
        while (request) {
                struct cairn_put_begin *next = request->next;
                intptr_t answer = (intptr_t)request->internal;
                bool failed = answer < 0 && answer > -CAIRN_STATUS_COUNT;
                struct cairn_tenant *tenant =
                    request->refusal ? cairn_tenant_find(store, request->tenant) : NULL;
                if (tenant)
                        cairn_tenant_explain(store, tenant, request->refusal);
                request->on_begun(request, failed ? (int)answer : CAIRN_OK,
                                  failed ? NULL : (struct cairn_put *)answer);
                store->refusal = NULL;
                request = next;
        }
}

static void run_ops(struct cairn_store *store)
{
        struct cairn_op *op = store->ready_ops;
        store->ready_ops = NULL;
        store->ready_ops_last = &store->ready_ops;
        while (op) {
                struct cairn_op *next = op->next;
                struct cairn_op copy = *op;
                cairn_op_free(store, op);
                if (copy.refusal)
                        cairn_tenant_explain(store, copy.tenant, copy.refusal);
                if (copy.on_space)
                        copy.on_space(copy.arg, copy.status, copy.value);
                else if (copy.on_status)
                        copy.on_status(copy.arg, copy.status);
                store->refusal = NULL;
                op = next;
        }
}

static void check_drained(struct cairn_store *store)
{
        if (!store->draining || !store->on_drained)
                return;
        bool idle = cairn_writer_idle(store) && store->puts_active == 0 && store->ops_pending == 0;
        bool late =
            store->drain_deadline_ms > 0 && cairn_store_now(store) >= store->drain_deadline_ms;
        if (!idle && !late)
                return;
        void (*on_drained)(void *, int) = store->on_drained;
        store->on_drained = NULL;
        on_drained(store->on_drained_arg,
                   idle && store->ram_only == 0 ? CAIRN_OK : CAIRN_EDEADLINE);
}

// A coarse clock runs only while something waits for it; else the timer waits for the first block
// that expires.
static void set_timer(struct cairn_store *store)
{
        bool tick = store->deadlines > 0 || store->wait_first || store->written_first ||
                    store->on_drained || store->ram_only > 0 || store->writes_queued > 0;
        const struct cairn_heap_item *first = cairn_heap_top(&store->expiries);
        uint64_t wanted = tick ? UINT64_MAX : first ? first->key : 0;
        if (wanted == store->timer_for)
                return;
        store->timer_for = wanted;
        struct itimerspec spec = {0};
        if (tick) {
                spec.it_interval.tv_nsec = CAIRN_TICK_MS * 1000000l;
                spec.it_value = spec.it_interval;
        } else if (first) {
                uint64_t now_ms = cairn_store_now(store);
                uint64_t wait_ms = first->key > now_ms ? first->key - now_ms : 1;
                if (wait_ms > TIMER_MS_MAX)
                        wait_ms = TIMER_MS_MAX;
                spec.it_value.tv_sec = (time_t)(wait_ms / 1000);
                spec.it_value.tv_nsec = (long)(wait_ms % 1000) * 1000000l;
        }
        (void)timerfd_settime(store->timer_fd, 0, &spec, NULL); // valid by construction
}

void cairn_store_poll(struct cairn_store *store)
{
        assert(!store->polling);
        store->polling = true;
        uint64_t count;
        bool rang = read(store->timer_fd, &count, sizeof(count)) > 0; // empty is fine
        if (rang && store->timer_for != UINT64_MAX)
                store->timer_for = 0; // it rings once
        if (store->signalled)
                (void)!read(store->wake_fd, &count, sizeof(count));
        store->signalled = false;
        for (int round = 0; round < CAIRN_POLL_ROUNDS_MAX; round++) {
                store->woken = false;
                store->device->ops->reap(store->device);
                cairn_catalog_reap(store->catalog);
                cairn_reader_finish(store);
                cairn_range_finish(store);
                cairn_expire_due(store);
                cairn_wait_expire(store);
                cairn_wait_pump(store);
                cairn_evict_to_quotas(store);
                cairn_writer_pump(store);
                cairn_purge_pump(store);
                store->device->ops->flush(store->device);
                run_acquires(store);
                run_ranges(store);
                run_begins(store);
                run_ops(store);
                check_drained(store);
                if (!store->woken)
                        break;
        }
        set_timer(store);
        store->polling = false;
        if (store->woken)
                cairn_store_wake(store); // there is more to do, after others had their turn
}

void cairn_store_drain(struct cairn_store *store, uint64_t deadline_ms,
                       void (*on_drained)(void *arg, int status), void *arg)
{
        assert(!store->draining);
        store->draining = true;
        store->drain_deadline_ms = deadline_ms;
        store->on_drained = on_drained;
        store->on_drained_arg = arg;
        cairn_wait_cancel(store);
        if (store->ram_only > 0 && store->options.nvme_bytes > 0)
                store->retry_ms = 1;
        cairn_writer_retry(store);
        cairn_store_wake(store);
}
