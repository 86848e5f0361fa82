// Waiting for RAM: puts and reads in order of arrival, with deadlines.
#include <stdlib.h>

#include "storage/store_internal.h"

int cairn_wait_add(struct cairn_store *store, struct cairn_put_begin *begin,
                   struct cairn_acquire *acquire)
{
        if (store->wait_count >= CAIRN_WAITING_MAX)
                return CAIRN_EBUSY;
        struct cairn_wait *wait = calloc(1, sizeof(*wait));
        if (!wait)
                return CAIRN_ENOMEM;
        wait->begin = begin;
        wait->acquire = acquire;
        *store->wait_last = wait;
        store->wait_last = &wait->next;
        store->wait_count++;
        store->deadlines += (begin ? begin->deadline_ms : acquire->deadline_ms) > 0;
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
        store->deadlines -=
            (wait->begin ? wait->begin->deadline_ms : wait->acquire->deadline_ms) > 0;
        free(wait);
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
                struct cairn_put_begin *begin = store->wait_first->begin;
                struct cairn_acquire *acquire = store->wait_first->acquire;
                if (begin) {
                        wait_end(store, &store->wait_first);
                        if (begin_again(store, begin) == CAIRN_EAGAIN)
                                return;
                        continue;
                }
                int status = cairn_acquire_step(store, acquire);
                if (status == CAIRN_EAGAIN)
                        return;
                // It left the queue: for the loads, or for good.
                wait_end(store, &store->wait_first);
                if (status < CAIRN_OK)
                        cairn_acquire_end(store, acquire, status);
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
                struct cairn_put_begin *begin = (*link)->begin;
                struct cairn_acquire *acquire = (*link)->acquire;
                if (!expired(begin ? begin->deadline_ms : acquire->deadline_ms, now_ms)) {
                        link = &(*link)->next;
                        continue;
                }
                wait_end(store, link);
                if (begin)
                        cairn_begin_ready(store, begin, CAIRN_EDEADLINE, NULL);
                else
                        cairn_acquire_end(store, acquire, CAIRN_EDEADLINE);
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
