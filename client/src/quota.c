// SetQuota and ListTenants.
#include "client/src/client.h"
#include "cairn/tenant.h"

static void limits_from(const Cairn__Quota *message, struct cairn_quota_limits *ret_limits)
{
        *ret_limits = (struct cairn_quota_limits){0};
        if (!message)
                return;
        ret_limits->ram_bytes = message->ram_bytes;
        ret_limits->nvme_bytes = message->nvme_bytes;
        ret_limits->ram_guaranteed_bytes = message->ram_guaranteed_bytes;
        ret_limits->nvme_guaranteed_bytes = message->nvme_guaranteed_bytes;
}

static int decode_set(struct cairn_client *client, struct cairn_client_request *request,
                      const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__SetQuotaReply *reply = message;

        (void)client, (void)payload, (void)payload_bytes; // it has no payload
        if (request->outputs.tenant.ret_quota)
                limits_from(reply->quota, request->outputs.tenant.ret_quota);
        return CAIRN_OK;
}

static int set_quota(struct cairn_client *client, struct cairn_call *call,
                     Cairn__SetQuotaRequest *message, const char *tenant,
                     struct cairn_quota_limits *ret_quota)
{
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_SET_QUOTA,
            .message = message,
            .decode = decode_set,
            .outputs.tenant = {.ret_quota = ret_quota},
        };
        int status = cairn_client_ready(client);

        message->tenant = (char *)tenant; // packed, not written to
        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}

int cairn_set_quota(struct cairn_client *client, struct cairn_call *call, const char *tenant,
                    const struct cairn_quota_limits *limits, uint32_t keep,
                    struct cairn_quota_limits *ret_quota)
{
        Cairn__SetQuotaRequest message = CAIRN__SET_QUOTA_REQUEST__INIT;

        message.ram_bytes = limits->ram_bytes;
        message.nvme_bytes = limits->nvme_bytes;
        message.ram_guaranteed_bytes = limits->ram_guaranteed_bytes;
        message.nvme_guaranteed_bytes = limits->nvme_guaranteed_bytes;
        message.keep = keep;
        return set_quota(client, call, &message, tenant, ret_quota);
}

int cairn_reset_quota(struct cairn_client *client, struct cairn_call *call, const char *tenant,
                      struct cairn_quota_limits *ret_quota)
{
        Cairn__SetQuotaRequest message = CAIRN__SET_QUOTA_REQUEST__INIT;

        message.reset = true;
        return set_quota(client, call, &message, tenant, ret_quota);
}

static void info_from(const Cairn__TenantInfo *message, struct cairn_tenant_info *ret_info)
{
        *ret_info = (struct cairn_tenant_info){
            .name = message->name,
            .tenant = message->tenant,
            .source = message->source,
            .ram_bytes = message->ram_bytes,
            .nvme_bytes = message->nvme_bytes,
            .blocks = message->blocks,
            .evicted = message->evicted,
            .refused = message->refused,
            .connections = message->connections,
            .held = message->held,
        };
        limits_from(message->quota, &ret_info->quota);
}

static int decode_list(struct cairn_client *client, struct cairn_client_request *request,
                       const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__ListTenantsReply *reply = message;
        struct cairn_tenant_info info;

        (void)payload, (void)payload_bytes; // it has no payload
        client->in_callback = true;         // on_tenant, like on_done, may not block
        for (size_t i = 0; i < reply->n_tenants; i++) {
                info_from(reply->tenants[i], &info);
                request->outputs.tenant.on_tenant(request->outputs.tenant.arg, &info);
        }
        info = (struct cairn_tenant_info){
            .name = "default", .tenant = UINT32_MAX, .source = reply->default_source};
        limits_from(reply->default_quota, &info.quota);
        request->outputs.tenant.on_tenant(request->outputs.tenant.arg, &info);
        client->in_callback = false;
        return CAIRN_OK;
}

int cairn_list_tenants(struct cairn_client *client, struct cairn_call *call,
                       void (*on_tenant)(void *arg, const struct cairn_tenant_info *info),
                       void *arg)
{
        Cairn__ListTenantsRequest message = CAIRN__LIST_TENANTS_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_LIST_TENANTS,
            .message = &message,
            .decode = decode_list,
            .outputs.tenant = {.on_tenant = on_tenant, .arg = arg},
        };
        int status = cairn_client_ready(client);

        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}
