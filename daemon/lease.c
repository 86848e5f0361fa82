// The leases of one connection: a list, since there are few and each stands for many blocks.
#include "daemon/lease.h"

#include <assert.h>
#include <stdlib.h>

#include "proto/limits.h"
#include "proto/status.h"

void cairn_lease_table_init(struct cairn_lease_table *table,
                            void (*on_release)(void *arg, struct cairn_block *const *blocks,
                                               size_t count),
                            void *arg)
{
        *table = (struct cairn_lease_table){
            .deadline_min_ms = UINT64_MAX, .on_release = on_release, .arg = arg};
}

// Unlinks *link's lease and gives its blocks back.
static void end(struct cairn_lease_table *table, struct cairn_lease **link)
{
        struct cairn_lease *lease = *link;

        assert(table->count > 0);
        *link = lease->next;
        table->count--;
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
