// Waiting for RAM: puts and reads in order of arrival, with deadlines.
#include <stdlib.h>

#include "storage/store_internal.h"

static uint64_t deadline_of(const struct cairn_wait *wait)
{
        if (wait->begin)
                return wait->begin->deadline_ms;
        return wait->acquire ? wait->acquire->deadline_ms : wait->range->deadline_ms;
}

static struct cairn_tenant *tenant_of(const struct cairn_store *store,
                                      const struct cairn_wait *wait)
{
        if (wait->begin)
                return cairn_tenant_find(store, wait->begin->tenant);
        return cairn_block_owner(store, wait->acquire ? wait->acquire->block : wait->range->block);
}

int cairn_wait_add(struct cairn_store *store, const struct cairn_wait *wait)
{
        if (store->wait_count >= CAIRN_WAITING_MAX)
                return CAIRN_EBUSY;
        struct cairn_wait *copy = malloc(sizeof(*copy));
        if (!copy)
                return CAIRN_ENOMEM;
        *copy = *wait;
        copy->tenant = tenant_of(store, wait);
        copy->tenant->waits++;
        copy->since_ms = cairn_store_now(store);
        copy->next = NULL;
        *store->wait_last = copy;
        store->wait_last = &copy->next;
        store->wait_count++;
        store->deadlines += deadline_of(copy) > 0;
        return CAIRN_OK;
}

// Unlinks and frees the wait at *link.
static void wait_end(struct cairn_store *store, struct cairn_wait **link)
{
        struct cairn_wait *wait = *link;
        *link = wait->next;
        if (store->wait_last == &wait->next)
                store->wait_last = link;
        store->wait_count--;
        wait->tenant->waits--;
        store->deadlines -= deadline_of(wait) > 0;
        free(wait);
}

static void fail(struct cairn_store *store, const struct cairn_wait *wait, int status)
{
        if (wait->begin)
                cairn_begin_ready(store, wait->begin, status, NULL);
        else if (wait->acquire)
                cairn_acquire_end(store, wait->acquire, status);
        else
                cairn_range_end(store, wait->range, status);
}

bool cairn_wait_before(const struct cairn_store *store, const struct cairn_tenant *tenant)
{
        if (tenant->waits > 0)
                return true;
        for (uint32_t i = 0; store->wait_first && i < store->tenants_count; i++) {
                if (store->tenants[i]->waits > 0 && !store->tenants[i]->short_of_quota)
                        return true;
        }
        return false;
}

static int step(struct cairn_store *store, const struct cairn_wait *wait)
{
        if (wait->begin)
                return cairn_put_turn(store, wait->begin);
        return wait->acquire ? cairn_acquire_step(store, wait->acquire)
                             : cairn_range_step(store, wait->range);
}

// What a tenant has may be kept from leaving for long, by leases or by children of others: who
// waits for its quota alone learns that after a while.
static int quota_wait(struct cairn_store *store, const struct cairn_wait *wait)
{
        if (cairn_store_now(store) < wait->since_ms + CAIRN_QUOTA_WAIT_MS)
                return CAIRN_EAGAIN;
        if (!wait->begin)
                return CAIRN_ENOMEM;
        cairn_put_refuse(store, wait->begin, wait->tenant, CAIRN_REFUSAL_RAM_QUOTA);
        return CAIRN_ENOSPC;
}

// In order, until one finds no room in the tier. A tenant that is short of its own quota keeps
// nobody else waiting.
void cairn_wait_pump(struct cairn_store *store)
{
        struct cairn_wait **link = &store->wait_first;
        for (uint32_t i = 0; *link && i < store->tenants_count; i++)
                store->tenants[i]->short_of_quota = false;
        while (*link) {
                struct cairn_wait wait = **link;
                int status = wait.tenant->short_of_quota ? CAIRN_EAGAIN : step(store, &wait);
                if (status == CAIRN_EAGAIN && !wait.tenant->short_of_quota)
                        return;
                if (status == CAIRN_EAGAIN)
                        status = quota_wait(store, &wait);
                if (status == CAIRN_EAGAIN) {
                        link = &(*link)->next;
                        continue;
                }
                // It left the queue: for the loads, another put, or for good.
                wait_end(store, link);
                if (status < CAIRN_OK)
                        fail(store, &wait, status);
        }
}

static bool expired(uint64_t deadline_ms, uint64_t now_ms)
{
        return deadline_ms > 0 && now_ms >= deadline_ms;
}

static void expire_queue(struct cairn_store *store, uint64_t now_ms)
{
        struct cairn_wait **link = &store->wait_first;
        while (*link) {
                struct cairn_wait wait = **link;
                if (!expired(deadline_of(&wait), now_ms)) {
                        link = &(*link)->next;
                        continue;
                }
                wait_end(store, link);
                fail(store, &wait, CAIRN_EDEADLINE);
        }
}

static void expire_followers(struct cairn_store *store, uint64_t now_ms)
{
        for (uint32_t i = 0; i < CAIRN_PUTS_HASH && store->followers > 0; i++) {
                for (struct cairn_put *put = store->puts[i]; put; put = put->next_same) {
                        struct cairn_put_begin **link = &put->followers;
                        while (*link) {
                                struct cairn_put_begin *request = *link;
                                if (!expired(request->deadline_ms, now_ms)) {
                                        link = &request->next;
                                        continue;
                                }
                                *link = request->next;
                                store->deadlines--;
                                store->followers--;
                                cairn_begin_ready(store, request, CAIRN_EDEADLINE, NULL);
                        }
                }
        }
}

static void expire_loads(struct cairn_store *store, struct cairn_block *block, uint64_t now_ms)
{
        struct cairn_acquire **link = &block->resident->waiters;
        while (*link) {
                struct cairn_acquire *request = *link;
                if (!expired(request->deadline_ms, now_ms)) {
                        link = &request->next;
                        continue;
                }
                *link = request->next;
                store->deadlines--;
                cairn_store_unpin(store, block, request->parts);
                cairn_acquire_end(store, request, CAIRN_EDEADLINE);
        }
}

// A stalled disk must not stall those who set a deadline.
void cairn_wait_expire(struct cairn_store *store)
{
        uint64_t now_ms = cairn_store_now(store);
        if (store->deadlines == 0 || now_ms == store->deadlines_checked_ms)
                return;
        store->deadlines_checked_ms = now_ms;
        expire_queue(store, now_ms);
        expire_followers(store, now_ms);
        for (struct cairn_link *link = store->loads; link; link = link->next)
                expire_loads(store, CAIRN_CONTAINER(link, struct cairn_load, link)->block, now_ms);
        cairn_range_expire(store, now_ms);
}

void cairn_wait_cancel(struct cairn_store *store)
{
        struct cairn_wait **link = &store->wait_first;
        while (*link) {
                struct cairn_put_begin *begin = (*link)->begin;
                if (!begin) {
                        link = &(*link)->next;
                        continue;
                }
                wait_end(store, link);
                cairn_begin_ready(store, begin, CAIRN_ECANCELLED, NULL);
        }
}
