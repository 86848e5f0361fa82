// Audit and Why.
#include <stdio.h>
#include <string.h>

#include "client/src/client.h"
#include "cairn/audit.h"
#include "proto/audit_record.h"

_Static_assert((int)CAIRN_AUDIT_ENTRY_NUMBERS == (int)CAIRN_AUDIT_NUMBERS, "numbers");

static const char *name_of(Cairn__TenantName *const *names, size_t count, uint32_t tenant,
                           char ret_number[16])
{
        for (size_t i = 0; i < count; i++) {
                if (names[i]->tenant == tenant)
                        return names[i]->name;
        }
        (void)snprintf(ret_number, 16, "%u", tenant);
        return ret_number;
}

static void show(const uint8_t *bytes, Cairn__TenantName *const *names, size_t names_count,
                 void (*on_entry)(void *arg, const struct cairn_audit_entry *entry), void *arg)
{
        struct cairn_audit_record record;
        char number[16];

        if (cairn_audit_read(bytes, &record) != CAIRN_OK) {
                const struct cairn_audit_entry damaged = {.damaged = true,
                                                          .action = "unknown",
                                                          .reason = "unknown",
                                                          .tenant_name = "",
                                                          .policy = ""};

                on_entry(arg, &damaged);
                return;
        }
        struct cairn_audit_entry entry = {
            .sequence = record.sequence,
            .time_ms = record.time_ms,
            .action = cairn_audit_action_name((int)record.action),
            .reason = cairn_audit_reason_name((int)record.reason),
            .tenant = record.tenant,
            .tenant_name = name_of(names, names_count, record.tenant, number),
            .space = record.space,
            .key = record.key,
            .context = record.context,
            .layer = record.layer == CAIRN_AUDIT_ALL ? -1 : record.layer,
            .head = record.head == CAIRN_AUDIT_ALL ? -1 : record.head,
            .count = record.count,
            .bytes = record.bytes,
            .score = record.score,
            .policy = record.policy,
            .request = record.request,
            .connection = record.connection,
            .tier_from = record.tier_from,
            .tier_to = record.tier_to};

        memcpy(entry.numbers, record.numbers, sizeof(entry.numbers));
        on_entry(arg, &entry);
}

static void show_all(struct cairn_client *client, const struct cairn_client_request *request,
                     const ProtobufCBinaryData *records, Cairn__TenantName *const *names,
                     size_t names_count)
{
        client->in_callback = true; // on_entry, like on_done, may not block
        for (size_t at = 0; at < records->len; at += CAIRN_AUDIT_RECORD_BYTES)
                show(records->data + at, names, names_count, request->outputs.audit.on_entry,
                     request->outputs.audit.arg);
        client->in_callback = false;
}

static int decode_read(struct cairn_client *client, struct cairn_client_request *request,
                       const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__AuditReply *reply = message;

        (void)payload, (void)payload_bytes; // it has no payload
        if (reply->records.len % CAIRN_AUDIT_RECORD_BYTES != 0)
                return CAIRN_EPROTO;
        show_all(client, request, &reply->records, reply->names, reply->n_names);
        *request->outputs.audit.ret_cursor = reply->cursor;
        *request->outputs.audit.ret_more = reply->more;
        return CAIRN_OK;
}

int cairn_read_audit(struct cairn_client *client, struct cairn_call *call,
                     const struct cairn_audit_query *query,
                     void (*on_entry)(void *arg, const struct cairn_audit_entry *entry), void *arg,
                     uint64_t *ret_cursor, bool *ret_more)
{
        Cairn__AuditRequest message = CAIRN__AUDIT_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_AUDIT,
            .message = &message,
            .decode = decode_read,
            .outputs.audit = {.on_entry = on_entry,
                              .arg = arg,
                              .ret_cursor = ret_cursor,
                              .ret_more = ret_more},
        };
        int status = cairn_client_ready(client);

        message.since_ms = query->since_ms;
        message.until_ms = query->until_ms;
        message.tenant = query->tenant ? (char *)query->tenant : (char *)"";
        message.action = query->action ? (char *)query->action : (char *)"";
        message.reason = query->reason ? (char *)query->reason : (char *)"";
        if (query->key)
                message.key = (ProtobufCBinaryData){CAIRN_KEY_BYTES, (uint8_t *)query->key->bytes};
        message.space = query->space;
        message.context = query->context;
        message.cursor = query->cursor;
        message.max = query->max;
        message.newest_first = query->newest_first;
        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}

static int decode_check(struct cairn_client *client, struct cairn_client_request *request,
                        const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__AuditReply *reply = message;
        struct cairn_audit_state state = {.records = reply->checked,
                                          .first = reply->first,
                                          .bad = reply->bad,
                                          .lost = reply->lost,
                                          .continued = reply->continued,
                                          .end.count = reply->end_count};

        (void)payload, (void)payload_bytes; // it has no payload
        if (reply->end_digest.len != CAIRN_KEY_BYTES)
                return CAIRN_EPROTO;
        memcpy(state.end.digest.bytes, reply->end_digest.data, CAIRN_KEY_BYTES);
        client->in_callback = true; // on_problem, like on_done, may not block
        for (size_t i = 0; request->outputs.audit.on_problem && i < reply->n_problems; i++)
                request->outputs.audit.on_problem(request->outputs.audit.arg, reply->problems[i]);
        client->in_callback = false;
        *request->outputs.audit.ret_state = state;
        return CAIRN_OK;
}

int cairn_check_audit(struct cairn_client *client, struct cairn_call *call,
                      const struct cairn_audit_mark *noted,
                      void (*on_problem)(void *arg, const char *text), void *arg,
                      struct cairn_audit_state *ret_state)
{
        Cairn__AuditRequest message = CAIRN__AUDIT_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_AUDIT,
            .message = &message,
            .decode = decode_check,
            .outputs.audit = {.on_problem = on_problem, .arg = arg, .ret_state = ret_state},
        };
        int status = cairn_client_ready(client);

        message.verify = true;
        if (noted) {
                message.noted_count = noted->count;
                message.noted_digest =
                    (ProtobufCBinaryData){CAIRN_KEY_BYTES, (uint8_t *)noted->digest.bytes};
        }
        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}

static int decode_why(struct cairn_client *client, struct cairn_client_request *request,
                      const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__WhyReply *reply = message;
        struct cairn_where where;

        (void)payload, (void)payload_bytes; // it has no payload
        if (reply->records.len % CAIRN_AUDIT_RECORD_BYTES != 0)
                return CAIRN_EPROTO;
        for (size_t i = 0; i < reply->n_blocks; i++) {
                if (!reply->blocks[i]->block ||
                    cairn_client_block_info(reply->blocks[i]->block, &where.info) != CAIRN_OK)
                        return CAIRN_EPROTO;
        }
        client->in_callback = true; // on_where, like on_done, may not block
        for (size_t i = 0; i < reply->n_blocks; i++) {
                const Cairn__Where *block = reply->blocks[i];

                (void)cairn_client_block_info(block->block, &where.info); // checked above
                where.tenant_name = block->tenant;
                where.pinned = block->pinned;
                where.legal_hold = block->hold;
                request->outputs.audit.on_where(request->outputs.audit.arg, &where);
        }
        client->in_callback = false;
        show_all(client, request, &reply->records, reply->names, reply->n_names);
        if (request->outputs.audit.ret_text)
                (void)snprintf(request->outputs.audit.ret_text, CAIRN_TEXT_BYTES_MAX, "%s",
                               reply->text);
        return CAIRN_OK;
}

int cairn_why(struct cairn_client *client, struct cairn_call *call, uint32_t space,
              const struct cairn_key *key, uint32_t max,
              void (*on_where)(void *arg, const struct cairn_where *where),
              void (*on_entry)(void *arg, const struct cairn_audit_entry *entry), void *arg,
              char *ret_text)
{
        Cairn__WhyRequest message = CAIRN__WHY_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_WHY,
            .message = &message,
            .decode = decode_why,
            .outputs.audit = {.on_where = on_where,
                              .on_entry = on_entry,
                              .arg = arg,
                              .ret_text = ret_text},
        };
        int status = cairn_client_ready(client);

        message.space = space;
        message.key = (ProtobufCBinaryData){CAIRN_KEY_BYTES, (uint8_t *)key->bytes};
        message.max = max;
        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}
