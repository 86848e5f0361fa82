// The audit, as the store sees it: facts of a block for a record, and records that go with no
// change of the catalog.
#include "storage/audit_log.h"
#include "storage/store_internal.h"

void cairn_audit_describe(const struct cairn_store *store, const struct cairn_block *block,
                          enum cairn_audit_action action, enum cairn_audit_reason reason,
                          struct cairn_audit_record *ret_record)
{
        const struct cairn_space_state *space = cairn_block_space(store, block);

        *ret_record = (struct cairn_audit_record){
            .action = action,
            .reason = reason,
            .time_ms = store->options.wall_ms ? store->options.wall_ms(store->options.clock) : 0,
            .tenant = block->tenant,
            .space = space->id,
            .key = block->key,
            .layer = CAIRN_AUDIT_ALL,
            .head = CAIRN_AUDIT_ALL,
            .count = 1,
            .bytes = space->layout.slot_bytes,
            .tier_from =
                cairn_block_is(block, CAIRN_BLOCK_STORED) ? CAIRN_TIER_NVME : CAIRN_TIER_RAM};
}

void cairn_audit_emit(struct cairn_store *store, const struct cairn_audit_record *record)
{
        struct cairn_audit_record copy = *record;

        if (store->options.audit_bytes == 0)
                return;
        if (copy.time_ms == 0 && store->options.wall_ms)
                copy.time_ms = store->options.wall_ms(store->options.clock);
        cairn_catalog_audit(store->catalog, &copy);
}

void cairn_store_audit(struct cairn_store *store, const struct cairn_audit_record *record)
{
        cairn_audit_emit(store, record);
}

void cairn_audit_started(struct cairn_store *store)
{
        struct cairn_audit_log *log = cairn_catalog_audit_log(store->catalog);
        struct cairn_audit_record record = {.action = CAIRN_AUDIT_BEGIN,
                                            .reason = CAIRN_AUDIT_STARTED,
                                            .layer = CAIRN_AUDIT_ALL,
                                            .head = CAIRN_AUDIT_ALL,
                                            .count = 1};

        if (!log)
                return;
        record.numbers[0] = (double)(store->generation >> 40);
        if (cairn_audit_log_continued(log)) {
                record.reason = CAIRN_AUDIT_CORRUPT; // the catalog was
                cairn_store_warn(store, "the audit goes on from its files: the catalog that knew "
                                        "its end is lost, and with it the newest records");
        }
        cairn_audit_emit(store, &record);
}

void cairn_audit_stopping(struct cairn_store *store)
{
        uint32_t entries = cairn_table_entries(&store->table);

        if (store->options.audit_bytes == 0)
                return;
        for (uint32_t id = 0; id < entries; id++) {
                const struct cairn_block *block = cairn_table_at(&store->table, id);
                struct cairn_audit_record record;

                if (!cairn_block_is(block, CAIRN_BLOCK_LIVE) ||
                    !cairn_block_is(block, CAIRN_BLOCK_VISIBLE) ||
                    cairn_block_is(block, CAIRN_BLOCK_STORED))
                        continue;
                cairn_audit_describe(store, block, CAIRN_AUDIT_EVICT, CAIRN_AUDIT_STOPPED, &record);
                cairn_audit_emit(store, &record);
        }
}

static void on_flushed(struct cairn_catalog_op *catalog_op, int status)
{
        struct cairn_op *op = CAIRN_CONTAINER(catalog_op, struct cairn_op, op);

        op->store->ops_pending--;
        cairn_op_ready(op, status);
}

void cairn_store_audit_flush(struct cairn_store *store, void (*on_status)(void *arg, int status),
                             void *arg)
{
        struct cairn_op *op = cairn_op_reserved(store);

        op->on_status = on_status;
        op->arg = arg;
        op->op.kind = CAIRN_CATALOG_NOTHING;
        op->op.on_done = on_flushed;
        store->ops_pending++;
        cairn_catalog_submit(store->catalog, &op->op, false);
}

int cairn_store_audit_snapshot(const struct cairn_store *store,
                               struct cairn_audit_snapshot *ret_snapshot)
{
        struct cairn_audit_log *log = cairn_catalog_audit_log(store->catalog);

        return log ? cairn_audit_log_snapshot(log, ret_snapshot) : CAIRN_EUNSUPPORTED;
}
