// Waiting for RAM: puts and reads in order of arrival, with deadlines.
#include <stdlib.h>

#include "storage/store_internal.h"

static uint64_t deadline_of(const struct cairn_wait *wait)
{
        if (wait->begin)
                return wait->begin->deadline_ms;
        return wait->acquire ? wait->acquire->deadline_ms : wait->range->deadline_ms;
}

int cairn_wait_add(struct cairn_store *store, const struct cairn_wait *wait)
{
        if (store->wait_count >= CAIRN_WAITING_MAX)
                return CAIRN_EBUSY;
        struct cairn_wait *copy = malloc(sizeof(*copy));
        if (!copy)
                return CAIRN_ENOMEM;
        *copy = *wait;
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

// What a waiting put finds when its turn comes may have changed.
static int begin_again(struct cairn_store *store, struct cairn_put_begin *request)
{
        struct cairn_wait *rest = store->wait_first;
        struct cairn_wait **last = store->wait_last;
        store->wait_first = NULL; // its turn: nobody is before it
        store->wait_last = &store->wait_first;
        uint32_t count = store->wait_count;
        cairn_put_begin_step(store, request);
        bool waits = store->wait_first != NULL;
        if (waits) {
                // It goes back to the front.
                store->wait_first->next = rest;
                if (rest)
                        store->wait_last = last;
        } else {
                store->wait_first = rest;
                store->wait_last = rest ? last : &store->wait_first;
        }
        assert(store->wait_count == count + waits);
        return waits ? CAIRN_EAGAIN : CAIRN_OK;
}

void cairn_wait_pump(struct cairn_store *store)
{
        while (store->wait_first) {
                struct cairn_wait wait = *store->wait_first;
                if (wait.begin) {
                        wait_end(store, &store->wait_first);
                        if (begin_again(store, wait.begin) == CAIRN_EAGAIN)
                                return;
                        continue;
                }
                int status = wait.acquire ? cairn_acquire_step(store, wait.acquire)
                                          : cairn_range_step(store, wait.range);
                if (status == CAIRN_EAGAIN)
                        return;
                // It left the queue: for the loads, or for good.
                wait_end(store, &store->wait_first);
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
        for (uint32_t i = 0; i < CAIRN_PUTS_HASH; i++) {
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
