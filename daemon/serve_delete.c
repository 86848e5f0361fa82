// Delete, and Delete with purge.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/serve.h"
#include "daemon/server.h"
#include "proto/status.h"
#include "storage/legal.h"
#include "storage/purge.h"

enum {
        DELETES_AT_ONCE_MAX = 64
};

struct delete_op;

struct delete_slot {
        struct delete_op *op;
        size_t index;
};

struct delete_op {
        struct cairn_request *request;
        const struct cairn_space_entry *entry;
        const struct cairn_key *keys;
        size_t count;
        size_t next;
        size_t running;
        int32_t *statuses;
        bool purge;
        struct cairn_audit_record cause;
        char text[CAIRN_TEXT_BYTES_MAX]; // why the first refused one was
        struct delete_slot slots[DELETES_AT_ONCE_MAX];
        // Of a purge: the keys that nothing forbids, and where their statuses go.
        struct cairn_purge work;
        struct cairn_key *purged;
        int32_t *purged_statuses;
        size_t *places;
};

static void delete_end(void *arg)
{
        struct delete_op *op = arg;

        free(op->statuses);
        free(op->purged);
        free(op->purged_statuses);
        free(op->places);
}

// Who deletes is told what forbids it; the hold's name is for operators.
static void refuse(struct delete_op *op, size_t index, const struct cairn_hold *hold)
{
        bool by_operator = cairn_request_from_operator(op->request);
        struct cairn_audit_record record = {
            .action = CAIRN_AUDIT_REFUSE,
            .reason = hold ? CAIRN_AUDIT_LEGAL_HOLD : CAIRN_AUDIT_PINNED,
            .tenant = op->request->session->tenant,
            .space = op->entry->id,
            .key = op->keys[index],
            .layer = CAIRN_AUDIT_ALL,
            .head = CAIRN_AUDIT_ALL,
            .count = 1,
            .bytes = op->entry->block_bytes,
        };

        op->statuses[index] = CAIRN_EHELD;
        cairn_request_audit(op->request, &record);
        if (op->text[0] != '\0')
                return;
        if (!hold)
                (void)snprintf(op->text, sizeof(op->text), "key %zu is pinned; unpin it first",
                               index);
        else
                (void)snprintf(op->text, sizeof(op->text),
                               "key %zu is under legal hold%s%s; an operator must lift it first",
                               index, by_operator ? " " : "", by_operator ? hold->name : "");
}

// Whether nothing forbids it. Then the tenant's own pins on it end.
static bool may_delete(struct delete_op *op, size_t index)
{
        struct cairn_server *server = op->request->server;
        uint32_t tenant = op->request->session->tenant;
        uint32_t space = op->entry->id;
        const struct cairn_key *key = &op->keys[index];
        const struct cairn_hold *hold = cairn_store_held_by(server->store, space, key);

        if (hold || cairn_block_pins_protect(&server->block_pins, space, key, op->purge, tenant)) {
                refuse(op, index, hold);
                return false;
        }
        cairn_block_pins_end_tenant(&server->block_pins, space, key, tenant);
        return true;
}

static void finish(struct delete_op *op)
{
        Cairn__DeleteReply reply = CAIRN__DELETE_REPLY__INIT;

        reply.statuses = op->statuses;
        reply.n_statuses = op->count;
        reply.pending = op->work.pending;
        reply.text = op->text;
        cairn_request_reply(op->request, &reply);
}

// ---- Delete ----

static void on_deleted(void *arg, int status);

// Starts the next delete that nothing forbids, if any is left.
static void start_delete(struct delete_slot *slot)
{
        struct delete_op *op = slot->op;

        while (op->next < op->count) {
                slot->index = op->next++;
                if (!may_delete(op, slot->index))
                        continue;
                op->running++;
                cairn_store_delete(op->request->server->store, op->entry->id,
                                   &op->keys[slot->index], &op->cause, on_deleted, slot);
                return;
        }
}

static void on_deleted(void *arg, int status)
{
        struct delete_slot *slot = arg;
        struct delete_op *op = slot->op;

        op->running--;
        op->statuses[slot->index] = status;
        start_delete(slot); // also when nobody waits: it was asked for
        if (op->running == 0)
                finish(op);
}

static void start_deletes(struct delete_op *op)
{
        for (size_t i = 0; i < DELETES_AT_ONCE_MAX && op->next < op->count; i++) {
                op->slots[i].op = op;
                start_delete(&op->slots[i]);
        }
        if (op->running == 0)
                finish(op);
}

// ---- purge ----

static void on_purged(struct cairn_purge *work, int status)
{
        struct delete_op *op =
            (struct delete_op *)(void *)((uint8_t *)work - offsetof(struct delete_op, work));

        if (status != CAIRN_OK) {
                cairn_request_fail(op->request, status,
                                   "the purge was cut off: %s; ask again, or restart the daemon, "
                                   "which finishes what it had noted",
                                   cairn_status_text(status));
                return;
        }
        for (size_t i = 0; i < work->count; i++)
                op->statuses[op->places[i]] = work->statuses[i];
        finish(op);
}

static void start_purge(struct delete_op *op)
{
        size_t count = op->count ? op->count : 1;

        op->purged = calloc(count, sizeof(op->purged[0]));
        op->purged_statuses = calloc(count, sizeof(op->purged_statuses[0]));
        op->places = calloc(count, sizeof(op->places[0]));
        if (!op->purged || !op->purged_statuses || !op->places) {
                cairn_request_fail(op->request, CAIRN_ENOMEM, NULL);
                return;
        }
        op->work = (struct cairn_purge){
            .on_done = on_purged,
            .space = op->entry->id,
            .keys = op->purged,
            .statuses = op->purged_statuses,
            .cause = &op->cause,
        };
        for (size_t i = 0; i < op->count; i++) {
                if (!may_delete(op, i))
                        continue;
                op->places[op->work.count] = i;
                op->purged[op->work.count++] = op->keys[i];
        }
        if (op->work.count > 0)
                cairn_store_purge(op->request->server->store, &op->work);
        else
                finish(op);
}

void cairn_serve_delete(struct cairn_request *request)
{
        const Cairn__DeleteRequest *message = request->message;
        const struct cairn_space_entry *entry;
        const struct cairn_key *keys;
        struct delete_op *op;
        size_t count;

        if (!cairn_serve_keys(request, message->space, &message->keys, &entry, &keys, &count))
                return;
        op = cairn_request_op(request, sizeof(*op), delete_end);
        if (op)
                op->statuses = calloc(count ? count : 1, sizeof(op->statuses[0]));
        if (!op || !op->statuses) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        op->request = request;
        op->entry = entry;
        op->keys = keys;
        op->count = count;
        op->purge = message->purge;
        op->cause = (struct cairn_audit_record){
            .action = message->purge ? CAIRN_AUDIT_PURGE : CAIRN_AUDIT_DELETE,
            .reason = CAIRN_AUDIT_REQUEST,
            .request = request->id,
            .connection = request->session->connection,
        };
        if (message->purge)
                start_purge(op);
        else
                start_deletes(op);
}
