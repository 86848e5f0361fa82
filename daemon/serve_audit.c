// Audit and Why: what was removed, refused or changed, and why; where a block is. The log is read
// by scorers, a slice at a time, from a snapshot: nobody waits for a long one.
#include <stdlib.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "daemon/connection.h"
#include "daemon/scorer.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "proto/status.h"
#include "storage/audit_read.h"
#include "storage/legal.h"

enum {
        AUDITS_MAX = 4, // at once: each has files open and copies the newest records
        SLICE_RECORDS = 16384,
        CHECK_STEPS = 8, // of about a thousand records
        PROBLEMS_MAX = 64,
        PROBLEM_BYTES = 160,
        NAMES_MAX = 64,
        WHY_DEFAULT = 8,
        WHERE_MAX = 64, // spaces that have one key
};

struct where {
        Cairn__Where message;
        Cairn__BlockInfo block;
        struct cairn_store_block_info info;
        char tenant[CAIRN_TENANT_NAME_BYTES];
};

struct audit_op {
        struct cairn_request *request;
        struct cairn_work work;
        struct cairn_audit_snapshot snapshot;
        bool counted; // in server->audits
        bool taken;   // the snapshot
        bool done;
        bool verify;
        int status;
        struct cairn_audit_search search;
        uint32_t tenant; // what the filter points to
        uint32_t space;
        uint64_t context;
        struct cairn_key key;
        uint8_t *records; // owned
        size_t count;
        size_t max;
        bool more;
        struct cairn_audit_checker check;
        struct cairn_audit_end noted;
        char problems[PROBLEMS_MAX][PROBLEM_BYTES];
        size_t problems_count;
        struct where *wheres; // owned
        Cairn__TenantName names[NAMES_MAX];
        char names_text[NAMES_MAX][CAIRN_TENANT_NAME_BYTES];
        size_t names_count;
        char text[CAIRN_TEXT_BYTES_MAX];
};

static void audit_end(void *arg)
{
        struct audit_op *op = arg;

        cairn_audit_snapshot_finish(&op->snapshot);
        free(op->records);
        free(op->wheres);
        if (op->counted)
                op->request->server->audits--;
}

// ---- reading, on a scorer ----

static bool on_record(void *arg, const uint8_t *bytes)
{
        struct audit_op *op = arg;

        memcpy(op->records + op->count * CAIRN_AUDIT_RECORD_BYTES, bytes, CAIRN_AUDIT_RECORD_BYTES);
        return ++op->count < op->max;
}

static void on_bad(void *arg, uint64_t sequence, const char *text)
{
        struct audit_op *op = arg;

        if (op->problems_count < PROBLEMS_MAX)
                (void)snprintf(op->problems[op->problems_count++], PROBLEM_BYTES, "%llu: %s",
                               (unsigned long long)sequence, text);
}

static void run_slice(struct cairn_work *work)
{
        struct audit_op *op =
            (struct audit_op *)((uint8_t *)work - offsetof(struct audit_op, work));

        if (!op->taken) {
                op->status = cairn_store_audit_snapshot(op->request->server->store, &op->snapshot);
                op->taken = op->status == CAIRN_OK;
                return;
        }
        for (int i = 0; op->verify && i < CHECK_STEPS && !op->done && op->status == CAIRN_OK; i++)
                op->status = cairn_audit_checker_step(&op->check, &op->done);
        if (op->verify)
                return;
        op->status =
            cairn_audit_snapshot_search(&op->snapshot, &op->search, &op->search.cursor, &op->more);
        op->done = !op->more || op->count == op->max;
}

// ---- answers ----

static void name_tenant(struct audit_op *op, uint32_t tenant)
{
        for (size_t i = 0; i < op->names_count; i++) {
                if (op->names[i].tenant == tenant)
                        return;
        }
        if (op->names_count == NAMES_MAX)
                return; // the number alone is shown
        Cairn__TenantName *name = &op->names[op->names_count];
        char *text = op->names_text[op->names_count++];

        *name = (Cairn__TenantName)CAIRN__TENANT_NAME__INIT;
        cairn_tenants_name(&op->request->server->config->tenants_named, tenant, text);
        name->tenant = tenant;
        name->name = text;
}

static void name_tenants(struct audit_op *op, Cairn__TenantName **ret_pointers)
{
        struct cairn_audit_record record;

        for (size_t i = 0; i < op->count; i++) {
                if (cairn_audit_read(op->records + i * CAIRN_AUDIT_RECORD_BYTES, &record) ==
                    CAIRN_OK)
                        name_tenant(op, record.tenant);
        }
        for (size_t i = 0; i < op->names_count; i++)
                ret_pointers[i] = &op->names[i];
}

static void reply_audit(struct audit_op *op)
{
        Cairn__AuditReply reply = CAIRN__AUDIT_REPLY__INIT;
        Cairn__TenantName *names[NAMES_MAX];
        char *problems[PROBLEMS_MAX];

        name_tenants(op, names);
        for (size_t i = 0; i < op->problems_count; i++)
                problems[i] = op->problems[i];
        reply.problems = problems;
        reply.n_problems = op->problems_count;
        reply.records = (ProtobufCBinaryData){op->count * CAIRN_AUDIT_RECORD_BYTES, op->records};
        reply.cursor = op->search.cursor;
        reply.more = op->more;
        reply.names = names;
        reply.n_names = op->names_count;
        reply.checked = op->check.result.records;
        reply.first = op->check.result.first;
        reply.bad = op->check.result.bad;
        reply.lost = op->check.result.lost;
        reply.continued = op->check.result.continued;
        reply.end_count = op->check.result.end.count;
        reply.end_digest =
            (ProtobufCBinaryData){CAIRN_KEY_BYTES, op->check.result.end.digest.bytes};
        cairn_request_reply(op->request, &reply);
}

static void fill_where(const struct audit_op *op, struct where *where)
{
        const struct cairn_server *server = op->request->server;
        const struct cairn_store_block_info *info = &where->info;
        const struct cairn_hold *hold = cairn_store_held_by(server->store, info->space, &op->key);
        Cairn__BlockInfo *block = &where->block;

        *block = (Cairn__BlockInfo)CAIRN__BLOCK_INFO__INIT;
        block->space = info->space;
        block->key = (ProtobufCBinaryData){CAIRN_KEY_BYTES, (uint8_t *)info->key.bytes};
        if (!cairn_key_is_zero(&info->parent))
                block->parent =
                    (ProtobufCBinaryData){CAIRN_KEY_BYTES, (uint8_t *)info->parent.bytes};
        block->tenant = info->tenant;
        block->ram_bytes = info->ram_bytes;
        block->nvme_bytes = info->nvme_bytes;
        block->holds = info->holds - 1; // but for ours
        block->children = info->children;
        block->unwritten = info->unwritten;
        block->uses_since = info->uses_since;
        block->generation = info->generation;
        block->expires_ms = info->expires_ms;
        cairn_tenants_name(&server->config->tenants_named, info->tenant, where->tenant);
        where->message = (Cairn__Where)CAIRN__WHERE__INIT;
        where->message.block = block;
        where->message.tenant = where->tenant;
        where->message.pinned =
            cairn_block_pins_protect(&server->block_pins, info->space, &op->key, false, 0);
        where->message.hold = hold ? (char *)hold->name : (char *)"";
}

// Where the key is now: in each space that who asks may know of.
static size_t find_blocks(struct audit_op *op, uint32_t wanted, bool all, Cairn__Where **ret_wheres)
{
        struct cairn_server *server = op->request->server;
        uint32_t tenant = op->request->session->tenant;
        size_t count = 0;

        for (uint32_t i = 0; i < CAIRN_SPACES_MAX && count < WHERE_MAX; i++) {
                const struct cairn_space_entry *entry = server->spaces.entries[i];
                struct cairn_block *block;

                if (!entry || (wanted != 0 && entry->id != wanted) ||
                    (!all && !cairn_space_entry_visible(entry, tenant)) ||
                    cairn_store_hold(server->store, entry->id, &op->key, &block) != CAIRN_OK)
                        continue;
                struct where *where = &op->wheres[count];

                cairn_store_block_info(server->store, block, &where->info);
                if (all || where->info.tenant == tenant) {
                        fill_where(op, where);
                        ret_wheres[count++] = &where->message;
                }
                cairn_store_unhold(server->store, block);
        }
        return count;
}

static void reply_why(struct audit_op *op)
{
        const Cairn__WhyRequest *message = op->request->message;
        Cairn__WhyReply reply = CAIRN__WHY_REPLY__INIT;
        Cairn__TenantName *names[NAMES_MAX];
        Cairn__Where *wheres[WHERE_MAX];

        op->wheres = calloc(WHERE_MAX, sizeof(*op->wheres));
        if (!op->wheres) {
                cairn_request_fail(op->request, CAIRN_ENOMEM, NULL);
                return;
        }
        reply.n_blocks =
            find_blocks(op, message->space, cairn_request_from_operator(op->request), wheres);
        reply.blocks = wheres;
        name_tenants(op, names);
        reply.names = names;
        reply.n_names = op->names_count;
        reply.records = (ProtobufCBinaryData){op->count * CAIRN_AUDIT_RECORD_BYTES, op->records};
        if (reply.n_blocks > 0) {
                const struct cairn_space_entry *entry =
                    cairn_space_table_find(&op->request->server->spaces, wheres[0]->block->space);

                if (entry &&
                    cairn_tuning_text(op->request->server, entry, op->text, sizeof(op->text)))
                        reply.text = op->text;
        } else if (op->status == CAIRN_EUNSUPPORTED)
                reply.text = (char *)"no records are kept: audit_bytes is 0";
        else if (op->count == 0)
                reply.text = (char *)"never stored here, or its records were rotated out";
        cairn_request_reply(op->request, &reply);
}

static void finish(struct audit_op *op)
{
        struct cairn_request *request = op->request;
        bool why = request->kind == CAIRN_KIND_WHY;

        if (op->status != CAIRN_OK && !(why && op->status == CAIRN_EUNSUPPORTED))
                cairn_request_fail(request, op->status,
                                   op->status == CAIRN_EUNSUPPORTED
                                       ? "there is no audit; set audit_bytes and restart"
                                       : "the audit cannot be read: %s",
                                   cairn_status_text(op->status));
        else if (why)
                reply_why(op);
        else
                reply_audit(op);
}

// ---- slices ----

static void on_slice(struct cairn_work *work)
{
        struct audit_op *op =
            (struct audit_op *)((uint8_t *)work - offsetof(struct audit_op, work));
        struct cairn_server *server = op->request->server;

        if (op->status == CAIRN_OK && !op->done) {
                if (cairn_request_abandoned(op->request) || server->state >= CAIRN_SERVER_DRAINING)
                        op->status = CAIRN_ECANCELLED;
                else if (cairn_request_late(op->request))
                        op->status = CAIRN_EDEADLINE;
        }
        if (op->status == CAIRN_OK && !op->done)
                cairn_scorer_submit(server->scorer, &op->work);
        else
                finish(op);
}

static void on_flushed(void *arg, int status)
{
        struct audit_op *op = arg;

        (void)status; // what could not be committed is not in the answer
        op->work = (struct cairn_work){.run = run_slice, .on_done = on_slice};
        cairn_scorer_submit(op->request->server->scorer, &op->work);
}

static void start(struct audit_op *op)
{
        if (op->verify)
                cairn_audit_checker_init(&op->check, &op->snapshot,
                                         op->noted.count > 0 ? &op->noted : NULL, on_bad, op);
        op->search.on_record = on_record;
        op->search.arg = op;
        op->search.records_max = SLICE_RECORDS;
        cairn_store_audit_flush(op->request->server->store, on_flushed, op);
}

// NULL: answered.
static struct audit_op *create(struct cairn_request *request, size_t max)
{
        struct cairn_server *server = request->server;
        struct audit_op *op;

        if (server->audits >= AUDITS_MAX) {
                cairn_request_fail(request, CAIRN_EBUSY,
                                   "%d searches of the audit are under way; retry", AUDITS_MAX);
                return NULL;
        }
        op = cairn_request_op(request, sizeof(*op), audit_end);
        if (op)
                op->records = malloc(max * CAIRN_AUDIT_RECORD_BYTES);
        if (!op || !op->records) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return NULL;
        }
        op->request = request;
        op->max = max;
        op->counted = true;
        server->audits++;
        return op;
}

static bool parse_key(struct audit_op *op, const ProtobufCBinaryData *field, struct cairn_key *key)
{
        if (field->len != CAIRN_KEY_BYTES) {
                cairn_request_fail(op->request, CAIRN_EINVAL, "%s: a key has %d bytes, not %zu",
                                   cairn_kind_name(op->request->kind), CAIRN_KEY_BYTES, field->len);
                return false;
        }
        memcpy(key->bytes, field->data, CAIRN_KEY_BYTES);
        return true;
}

// False: answered.
static bool parse_words(struct audit_op *op, const Cairn__AuditRequest *message)
{
        struct cairn_audit_filter *filter = &op->search.filter;

        filter->reason = cairn_audit_reason_parse(message->reason);
        filter->action = cairn_audit_action_parse(message->action);
        if ((message->reason[0] && !filter->reason) || (message->action[0] && !filter->action)) {
                cairn_request_fail(op->request, CAIRN_EINVAL,
                                   "Audit: no %s is called %.40s; cairnctl audit --help lists them",
                                   message->reason[0] && !filter->reason ? "reason" : "action",
                                   message->reason[0] && !filter->reason ? message->reason
                                                                         : message->action);
                return false;
        }
        if (message->tenant[0] && cairn_tenants_find(&op->request->server->config->tenants_named,
                                                     message->tenant, &op->tenant) != CAIRN_OK) {
                cairn_request_fail(op->request, CAIRN_ENOENT,
                                   "Audit: no tenant is called %.40s; give a name of the "
                                   "configuration, or a uid",
                                   message->tenant);
                return false;
        }
        if (message->tenant[0])
                filter->tenant = &op->tenant;
        return true;
}

static bool parse_audit(struct audit_op *op, const Cairn__AuditRequest *message)
{
        struct cairn_audit_filter *filter = &op->search.filter;

        if (!parse_words(op, message))
                return false;
        filter->since_ms = message->since_ms;
        filter->until_ms = message->until_ms;
        op->search.cursor = message->cursor;
        op->search.newest_first = message->newest_first;
        op->space = message->space;
        op->context = message->context;
        if (op->space > 0)
                filter->space = &op->space;
        if (op->context > 0)
                filter->context = &op->context;
        op->verify = message->verify;
        op->noted.count = message->noted_count;
        if (message->noted_count > 0 && !parse_key(op, &message->noted_digest, &op->noted.digest))
                return false;
        if (message->key.len > 0 && !parse_key(op, &message->key, &op->key))
                return false;
        if (message->key.len > 0)
                filter->key = &op->key;
        return true;
}

static size_t page(uint32_t max, size_t otherwise)
{
        return max == 0 ? otherwise : max > CAIRN_LIST_MAX ? CAIRN_LIST_MAX : max;
}

void cairn_serve_audit(struct cairn_request *request)
{
        const Cairn__AuditRequest *message = request->message;
        struct audit_op *op = create(request, page(message->max, CAIRN_LIST_DEFAULT));

        if (op && parse_audit(op, message))
                start(op);
}

void cairn_serve_why(struct cairn_request *request)
{
        const Cairn__WhyRequest *message = request->message;
        struct audit_op *op = create(request, page(message->max, WHY_DEFAULT));

        if (!op || !parse_key(op, &message->key, &op->key))
                return;
        op->search.filter.key = &op->key;
        op->search.newest_first = true;
        op->space = message->space;
        if (op->space > 0)
                op->search.filter.space = &op->space;
        op->tenant = request->session->tenant;
        if (!cairn_request_from_operator(request))
                op->search.filter.tenant = &op->tenant;
        start(op);
}
