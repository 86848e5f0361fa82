// The leases of one connection: a list, since there are few and each stands for many blocks.
#include "daemon/lease.h"

#include <assert.h>
#include <stdlib.h>

#include "proto/limits.h"
#include "proto/status.h"

enum {
        VIEWS_MIN = 16
};

void cairn_lease_table_init(struct cairn_lease_table *table,
                            void (*on_release)(void *arg, struct cairn_block *const *blocks,
                                               size_t count),
                            void (*on_view_end)(void *arg, const struct cairn_lease_view *view),
                            void *arg)
{
        *table = (struct cairn_lease_table){.deadline_min_ms = UINT64_MAX,
                                            .on_release = on_release,
                                            .on_view_end = on_view_end,
                                            .arg = arg};
}

// Unlinks *link's lease and gives its blocks back.
static void end(struct cairn_lease_table *table, struct cairn_lease **link)
{
        struct cairn_lease *lease = *link;

        assert(table->count > 0);
        *link = lease->next;
        table->count--;
        for (size_t i = 0; i < lease->views_capacity; i++)
                if (lease->views[i].block)
                        table->on_view_end(table->arg, &lease->views[i]);
        free(lease->views);
        table->on_release(table->arg, lease->blocks, lease->blocks_count);
        free(lease->blocks);
        free(lease);
}

void cairn_lease_table_finish(struct cairn_lease_table *table)
{
        while (table->first)
                end(table, &table->first);
        assert(table->count == 0);
        table->deadline_min_ms = UINT64_MAX;
}

int cairn_lease_add(struct cairn_lease_table *table, uint64_t id, uint64_t deadline_ms,
                    struct cairn_block **blocks, size_t count)
{
        struct cairn_lease *lease;

        assert(id != 0);
        if (table->count >= CAIRN_LEASES_MAX)
                return CAIRN_EBUSY;
        lease = malloc(sizeof(*lease));
        if (!lease)
                return CAIRN_ENOMEM;
        *lease = (struct cairn_lease){.next = table->first,
                                      .id = id,
                                      .deadline_ms = deadline_ms,
                                      .blocks = blocks,
                                      .blocks_count = count};
        table->first = lease;
        table->count++;
        if (deadline_ms < table->deadline_min_ms)
                table->deadline_min_ms = deadline_ms;
        return CAIRN_OK;
}

const struct cairn_lease *cairn_lease_find(const struct cairn_lease_table *table, uint64_t id,
                                           uint64_t now_ms)
{
        for (const struct cairn_lease *lease = table->first; lease; lease = lease->next)
                if (lease->id == id)
                        return now_ms < lease->deadline_ms ? lease : NULL;
        return NULL;
}

// ---- views ----

// Where the block is in the table, or the empty place where it would go.
static struct cairn_lease_view *place_of(struct cairn_lease_view *views, size_t capacity,
                                         const struct cairn_block *block)
{
        size_t at = (size_t)(((uint64_t)(uintptr_t)block * 0x9e3779b97f4a7c15u) >> 32);

        while (views[at & (capacity - 1)].block && views[at & (capacity - 1)].block != block)
                at++;
        return &views[at & (capacity - 1)];
}

bool cairn_lease_has_view(const struct cairn_lease *lease, const struct cairn_block *block)
{
        return lease->views_count > 0 &&
               place_of(lease->views, lease->views_capacity, block)->block == block;
}

// Room for one more, at most half full.
static int reserve_view(struct cairn_lease *lease)
{
        size_t capacity = lease->views_capacity ? 2 * lease->views_capacity : VIEWS_MIN;
        struct cairn_lease_view *views;

        if (2 * (lease->views_count + 1) <= lease->views_capacity)
                return CAIRN_OK;
        views = calloc(capacity, sizeof(*views));
        if (!views)
                return CAIRN_ENOMEM;
        for (size_t i = 0; i < lease->views_capacity; i++)
                if (lease->views[i].block)
                        *place_of(views, capacity, lease->views[i].block) = lease->views[i];
        free(lease->views);
        lease->views = views;
        lease->views_capacity = capacity;
        return CAIRN_OK;
}

int cairn_lease_add_view(struct cairn_lease_table *table, uint64_t id, uint64_t now_ms,
                         const struct cairn_lease_view *view)
{
        struct cairn_lease *lease = (struct cairn_lease *)cairn_lease_find(table, id, now_ms);
        struct cairn_lease_view *place;

        if (!lease)
                return CAIRN_ESTALE;
        if (reserve_view(lease) != CAIRN_OK)
                return CAIRN_ENOMEM;
        place = place_of(lease->views, lease->views_capacity, view->block);
        if (place->block)
                return CAIRN_EEXIST;
        *place = *view;
        lease->views_count++;
        return CAIRN_OK;
}

// ---- ends ----

int cairn_lease_release(struct cairn_lease_table *table, uint64_t id)
{
        for (struct cairn_lease **link = &table->first; *link; link = &(*link)->next) {
                if ((*link)->id == id) {
                        end(table, link);
                        return CAIRN_OK;
                }
        }
        return CAIRN_ESTALE;
}

uint32_t cairn_lease_expire(struct cairn_lease_table *table, uint64_t now_ms)
{
        struct cairn_lease **link = &table->first;
        uint64_t min_ms = UINT64_MAX;
        uint32_t ended = 0;

        if (now_ms < table->deadline_min_ms)
                return 0;
        while (*link) {
                if ((*link)->deadline_ms <= now_ms) {
                        end(table, link);
                        ended++;
                        continue;
                }
                if ((*link)->deadline_ms < min_ms)
                        min_ms = (*link)->deadline_ms;
                link = &(*link)->next;
        }
        table->deadline_min_ms = min_ms;
        return ended;
}
