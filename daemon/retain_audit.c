// What a Retain leaves in the audit: one record of the choice, and one a layer of what is dropped.
#include "daemon/retain.h"
#include "daemon/server.h"
#include "proto/audit_record.h"

static uint32_t saturated(uint64_t value)
{
        return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static uint64_t row_bytes(const struct cairn_space *space)
{
        return ((uint64_t)space->k_dim + space->v_dim) * cairn_dtype_bytes(space->dtype);
}

// Sums over the heads of layers [first, first + count) of the request.
static struct cairn_audit_record sum(const struct cairn_retain *r, uint32_t first, uint32_t count)
{
        const struct cairn_space *space = &r->entry->space;
        uint64_t heads = (uint64_t)count * space->kv_heads;
        struct cairn_audit_record record = {.reason = CAIRN_AUDIT_RETENTION,
                                            .tenant = r->request->session->tenant,
                                            .space = r->entry->id,
                                            .context = r->context->id,
                                            .layer = CAIRN_AUDIT_ALL,
                                            .head = CAIRN_AUDIT_ALL,
                                            .policy = "nacl",
                                            .tier_from = CAIRN_TIER_RAM};
        uint64_t kept = 0, removed = 0;
        double mass = 0, lowest = 2;

        for (uint64_t i = 0; i < heads; i++) {
                const struct cairn_retain_outcome *outcome =
                    &r->outcomes[(uint64_t)first * space->kv_heads + i];

                kept += outcome->kept;
                removed += outcome->removed;
                mass += outcome->mass / (double)heads;
                lowest = outcome->mass < lowest ? outcome->mass : lowest;
        }
        record.count = saturated(removed);
        record.bytes = removed * row_bytes(space);
        record.score = mass;
        record.numbers[0] = (double)kept;
        record.numbers[1] = (double)removed;
        record.numbers[2] = lowest;
        record.numbers[3] = (double)r->seed;
        return record;
}

void cairn_retain_audit(const struct cairn_retain *r)
{
        struct cairn_audit_record record = sum(r, 0, r->layers_count);

        record.action = CAIRN_AUDIT_RETAIN;
        record.tier_to = r->drop ? CAIRN_TIER_NONE : CAIRN_TIER_NVME;
        cairn_request_audit(r->request, &record);
        for (uint32_t i = 0; r->drop && i < r->layers_count; i++) {
                record = sum(r, i, 1);
                record.action = CAIRN_AUDIT_DROP;
                record.layer = (uint16_t)r->layers[i];
                cairn_request_audit(r->request, &record);
        }
}

void cairn_retain_cool(const struct cairn_retain *r)
{
        const struct cairn_chain *chain = r->context->chain;
        const struct cairn_audit_record cause = {.action = CAIRN_AUDIT_DEMOTE,
                                                 .reason = CAIRN_AUDIT_RETENTION,
                                                 .tenant = r->request->session->tenant,
                                                 .context = r->context->id,
                                                 .policy = "nacl",
                                                 .request = r->request->id,
                                                 .connection = r->request->session->connection};

        if (chain)
                (void)cairn_store_demote(r->request->server->store, chain->blocks, chain->count,
                                         &cause);
}
