// SetQuota, ListTenants, SetHold, ListHolds.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/clock.h"
#include "daemon/connection.h"
#include "daemon/quota.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "proto/status.h"
#include "storage/legal.h"

enum {
        KEEP_RAM = 1,
        KEEP_NVME = 2,
        KEEP_RAM_GUARANTEED = 4,
        KEEP_NVME_GUARANTEED = 8,
        KEEP_ALL = 15,
};

// ---- quotas ----

struct quota_op {
        struct cairn_request *request;
        bool fallback;
        uint32_t tenant;
};

static void quota_to(const struct cairn_quota *quota, Cairn__Quota *ret_message)
{
        cairn__quota__init(ret_message);
        ret_message->ram_bytes = quota->ram_bytes;
        ret_message->nvme_bytes = quota->nvme_bytes;
        ret_message->ram_guaranteed_bytes = quota->ram_guaranteed_bytes;
        ret_message->nvme_guaranteed_bytes = quota->nvme_guaranteed_bytes;
}

static void audit_quota(const struct quota_op *op, const struct cairn_quota *quota)
{
        struct cairn_audit_record record = {
            .action = CAIRN_AUDIT_QUOTA,
            .reason = CAIRN_AUDIT_REQUEST,
            .tenant = op->fallback ? UINT32_MAX : op->tenant,
            .bytes = quota->ram_bytes,
            .numbers = {(double)quota->ram_bytes, (double)quota->nvme_bytes,
                        (double)quota->ram_guaranteed_bytes, (double)quota->nvme_guaranteed_bytes},
        };

        cairn_request_audit(op->request, &record);
}

static void on_quota_set(void *arg, int status)
{
        struct quota_op *op = arg;
        Cairn__SetQuotaReply reply = CAIRN__SET_QUOTA_REPLY__INIT;
        struct cairn_quota quota;
        Cairn__Quota message;

        if (status != CAIRN_OK) {
                cairn_request_fail(op->request, status, NULL);
                return;
        }
        reply.source = (char *)cairn_quota_source_name(
            cairn_quota_of(op->request->server, op->fallback ? NULL : &op->tenant, &quota));
        audit_quota(op, &quota);
        quota_to(&quota, &message);
        reply.quota = &message;
        cairn_request_reply(op->request, &reply);
}

// False: answered.
static bool find_tenant(struct cairn_request *request, const char *name, uint32_t *ret_tenant)
{
        if (cairn_tenants_find(&request->server->config->tenants_named, name, ret_tenant) ==
            CAIRN_OK)
                return true;
        cairn_request_fail(request, CAIRN_ENOENT,
                           "no tenant \"%.64s\"; give a name of the `tenants` key, or a uid", name);
        return false;
}

static uint64_t kept(const Cairn__SetQuotaRequest *message, uint32_t bit, uint64_t old,
                     uint64_t new)
{
        return message->keep & bit ? old : new;
}

void cairn_serve_set_quota(struct cairn_request *request)
{
        const Cairn__SetQuotaRequest *message = request->message;
        struct quota_op *op = cairn_request_op(request, sizeof(*op), NULL);
        char why[CAIRN_TEXT_BYTES_MAX] = "";
        struct cairn_quota quota;
        const uint32_t *tenant;
        int status;

        if (!op) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        op->request = request;
        op->fallback = strcmp(message->tenant, "default") == 0;
        if (!op->fallback && !find_tenant(request, message->tenant, &op->tenant))
                return;
        if (message->keep > KEEP_ALL) {
                cairn_request_fail(request, CAIRN_EINVAL, "keep: %u; bits of four numbers",
                                   message->keep);
                return;
        }
        tenant = op->fallback ? NULL : &op->tenant;
        (void)cairn_quota_of(request->server, tenant, &quota); // none: zeros
        quota = (struct cairn_quota){
            .ram_bytes = kept(message, KEEP_RAM, quota.ram_bytes, message->ram_bytes),
            .nvme_bytes = kept(message, KEEP_NVME, quota.nvme_bytes, message->nvme_bytes),
            .ram_guaranteed_bytes = kept(message, KEEP_RAM_GUARANTEED, quota.ram_guaranteed_bytes,
                                         message->ram_guaranteed_bytes),
            .nvme_guaranteed_bytes =
                kept(message, KEEP_NVME_GUARANTEED, quota.nvme_guaranteed_bytes,
                     message->nvme_guaranteed_bytes),
        };
        status = cairn_quota_set(request->server, tenant, message->reset ? NULL : &quota,
                                 on_quota_set, op, why);
        if (status != CAIRN_OK)
                cairn_request_fail(request, status, why[0] ? "%s" : NULL, why);
}

// ---- tenants ----

struct tenant_row {
        Cairn__TenantInfo info;
        Cairn__Quota quota;
        char name[CAIRN_TENANT_NAME_BYTES];
};

struct tenant_list {
        Cairn__TenantInfo **pointers;
        struct tenant_row *rows;
};

static void tenant_list_end(void *arg)
{
        struct tenant_list *list = arg;

        free(list->pointers);
        free(list->rows);
}

static bool tenant_held(const struct cairn_store *store, uint32_t tenant)
{
        for (size_t i = 0; i < cairn_store_holds_count(store); i++) {
                const struct cairn_hold *hold = cairn_store_hold_at(store, i);

                if (hold->kind == CAIRN_HOLD_TENANT && hold->tenant == tenant)
                        return true;
        }
        return false;
}

static void fill_tenant(const struct cairn_server *server,
                        const struct cairn_store_tenant_info *info, struct tenant_row *row)
{
        struct cairn_quota quota;

        cairn__tenant_info__init(&row->info);
        cairn_tenants_name(&server->config->tenants_named, info->tenant, row->name);
        row->info.name = row->name;
        row->info.tenant = info->tenant;
        row->info.source =
            (char *)cairn_quota_source_name(cairn_quota_of(server, &info->tenant, &quota));
        quota_to(&info->quota, &row->quota); // what is in force
        row->info.quota = &row->quota;
        row->info.ram_bytes = info->ram_bytes;
        row->info.nvme_bytes = info->nvme_bytes;
        row->info.blocks = info->blocks;
        row->info.refused = info->refused_quota;
        row->info.held = tenant_held(server->store, info->tenant);
        for (size_t i = 0; i < CAIRN_AUDIT_REASON_COUNT; i++)
                row->info.evicted += info->evicted[i];
        for (const struct cairn_connection *c = server->connections; c; c = c->next)
                row->info.connections += c->session.tenant == info->tenant;
}

static void answer_tenants(struct cairn_request *request, const struct tenant_list *list,
                           size_t count)
{
        Cairn__ListTenantsReply reply = CAIRN__LIST_TENANTS_REPLY__INIT;
        struct cairn_quota fallback;
        Cairn__Quota message;

        reply.default_source =
            (char *)cairn_quota_source_name(cairn_quota_of(request->server, NULL, &fallback));
        quota_to(&fallback, &message);
        reply.default_quota = &message;
        reply.tenants = list->pointers;
        reply.n_tenants = count;
        cairn_request_reply(request, &reply);
}

void cairn_serve_list_tenants(struct cairn_request *request)
{
        struct tenant_list *list = cairn_request_op(request, sizeof(*list), tenant_list_end);
        const struct cairn_server *server = request->server;
        size_t most = cairn_store_tenants_count(server->store) + 1;
        bool all = cairn_request_from_operator(request);
        uint32_t own = request->session->tenant;
        bool own_listed = false;
        size_t count = 0;

        if (list) {
                list->pointers = calloc(most, sizeof(list->pointers[0]));
                list->rows = calloc(most, sizeof(list->rows[0]));
        }
        if (!list || !list->pointers || !list->rows) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        for (size_t i = 0; i < most; i++) {
                struct cairn_store_tenant_info info = {.tenant = own};

                if (i + 1 < most)
                        cairn_store_tenant_info(server->store, i, &info);
                else if (own_listed)
                        break; // the store knows who asks
                if (!all && info.tenant != own)
                        continue;
                own_listed |= info.tenant == own;
                fill_tenant(server, &info, &list->rows[count]);
                list->pointers[count] = &list->rows[count].info;
                count++;
        }
        answer_tenants(request, list, count);
}

// ---- holds ----

struct hold_op {
        struct cairn_request *request;
        struct cairn_hold hold;
        bool lift;
        uint64_t blocks;
};

static void on_hold_changed(void *arg, int status)
{
        struct hold_op *op = arg;
        Cairn__SetHoldReply reply = CAIRN__SET_HOLD_REPLY__INIT;
        struct cairn_audit_record record = {
            .action = CAIRN_AUDIT_HOLD,
            .reason = CAIRN_AUDIT_REQUEST,
            .tenant = op->hold.kind == CAIRN_HOLD_TENANT ? op->hold.tenant : 0,
            .space = op->hold.space,
            .key = op->hold.key,
            .layer = CAIRN_AUDIT_ALL,
            .head = CAIRN_AUDIT_ALL,
            .numbers = {op->lift ? 0 : 1, op->hold.kind},
        };

        if (status != CAIRN_OK) {
                cairn_request_fail(op->request, status,
                                   status == CAIRN_EEXIST ? "a hold \"%s\" is there; lift it "
                                                            "first, or give another name"
                                   : status == CAIRN_ENOENT && op->lift
                                       ? "there is no hold \"%s\"; list them"
                                   : status == CAIRN_ENOENT
                                       ? "hold \"%s\": no such space, or no such block in it"
                                       : NULL,
                                   op->hold.name);
                return;
        }
        if (!op->lift)
                op->blocks = cairn_store_hold_blocks(op->request->server->store, &op->hold);
        record.count = op->blocks > UINT32_MAX ? UINT32_MAX : (uint32_t)op->blocks;
        (void)snprintf(record.policy, sizeof(record.policy), "%.*s", CAIRN_AUDIT_POLICY_BYTES_MAX,
                       op->hold.name); // cut is fine: see the list
        cairn_request_audit(op->request, &record);
        reply.blocks = op->blocks;
        cairn_request_reply(op->request, &reply);
}

// What it is on. False: answered.
static bool read_scope(struct cairn_request *request, const Cairn__SetHoldRequest *message,
                       struct cairn_hold *hold)
{
        bool tenant = message->tenant[0] != '\0';
        bool chain = message->key.len > 0;

        if (tenant == (message->space != 0) || (chain && message->key.len != CAIRN_KEY_BYTES) ||
            (chain && tenant)) {
                cairn_request_fail(request, CAIRN_EINVAL,
                                   "a hold is on a tenant, on a space, or on a space and a key of "
                                   "%d bytes",
                                   CAIRN_KEY_BYTES);
                return false;
        }
        if (tenant && !find_tenant(request, message->tenant, &hold->tenant))
                return false;
        hold->kind = tenant ? CAIRN_HOLD_TENANT : chain ? CAIRN_HOLD_CHAIN : CAIRN_HOLD_SPACE;
        hold->space = message->space;
        if (chain)
                memcpy(hold->key.bytes, message->key.data, CAIRN_KEY_BYTES);
        hold->since_ms = cairn_clock_wall_ms();
        return true;
}

void cairn_serve_set_hold(struct cairn_request *request)
{
        const Cairn__SetHoldRequest *message = request->message;
        struct hold_op *op = cairn_request_op(request, sizeof(*op), NULL);
        struct cairn_store *store = request->server->store;

        if (!op) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        op->request = request;
        op->lift = message->lift;
        if (message->name[0] == '\0' || strlen(message->name) > CAIRN_HOLD_NAME_BYTES_MAX ||
            strlen(message->note) > CAIRN_HOLD_NOTE_BYTES_MAX) {
                cairn_request_fail(request, CAIRN_EINVAL,
                                   "a hold has a name of 1 to %d bytes, and a note of up to %d",
                                   CAIRN_HOLD_NAME_BYTES_MAX, CAIRN_HOLD_NOTE_BYTES_MAX);
                return;
        }
        memcpy(op->hold.name, message->name, strlen(message->name) + 1);
        memcpy(op->hold.note, message->note, strlen(message->note) + 1);
        if (message->lift) {
                const struct cairn_hold *hold = cairn_store_hold_find(store, message->name);

                if (hold) {
                        op->hold = *hold;
                        op->blocks = cairn_store_hold_blocks(store, hold);
                }
                cairn_store_hold_lift(store, op->hold.name, on_hold_changed, op);
                return;
        }
        if (read_scope(request, message, &op->hold))
                cairn_store_hold_set(store, &op->hold, on_hold_changed, op);
}

struct hold_row {
        Cairn__HoldInfo info;
        struct cairn_hold hold;
        char tenant[CAIRN_TENANT_NAME_BYTES];
};

struct hold_list {
        Cairn__HoldInfo **pointers;
        struct hold_row *rows;
};

static void hold_list_end(void *arg)
{
        struct hold_list *list = arg;

        free(list->pointers);
        free(list->rows);
}

static void fill_hold(const struct cairn_server *server, const struct cairn_hold *hold,
                      struct hold_row *row)
{
        cairn__hold_info__init(&row->info);
        row->hold = *hold;
        if (hold->kind == CAIRN_HOLD_TENANT)
                cairn_tenants_name(&server->config->tenants_named, hold->tenant, row->tenant);
        row->info.name = row->hold.name;
        row->info.note = row->hold.note;
        row->info.tenant = row->tenant;
        row->info.space = hold->space;
        row->info.key.data = row->hold.key.bytes;
        row->info.key.len = hold->kind == CAIRN_HOLD_CHAIN ? CAIRN_KEY_BYTES : 0;
        row->info.since_ms = hold->since_ms;
        row->info.blocks = cairn_store_hold_blocks(server->store, hold);
}

void cairn_serve_list_holds(struct cairn_request *request)
{
        struct hold_list *list = cairn_request_op(request, sizeof(*list), hold_list_end);
        const struct cairn_server *server = request->server;
        Cairn__ListHoldsReply reply = CAIRN__LIST_HOLDS_REPLY__INIT;
        size_t count = cairn_store_holds_count(server->store);

        if (list) {
                list->pointers = calloc(count + 1, sizeof(list->pointers[0]));
                list->rows = calloc(count + 1, sizeof(list->rows[0]));
        }
        if (!list || !list->pointers || !list->rows) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        for (size_t i = 0; i < count; i++) {
                fill_hold(server, cairn_store_hold_at(server->store, i), &list->rows[i]);
                list->pointers[i] = &list->rows[i].info;
        }
        reply.holds = list->pointers;
        reply.n_holds = count;
        cairn_request_reply(request, &reply);
}
