// Ping and Stats.
#include "client/src/client.h"

static int decode_ping(struct cairn_client *client, struct cairn_client_request *request,
                       const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__PingReply *reply = message;

        (void)client, (void)payload, (void)payload_bytes; // it has no payload
        if (request->outputs.ping)
                *request->outputs.ping = (struct cairn_ping_info){
                    .incarnation = reply->incarnation,
                    .state = reply->state,
                    .uptime_ms = reply->uptime_ms,
                };
        return CAIRN_OK;
}

static int ping(struct cairn_client *client, struct cairn_call *call,
                struct cairn_ping_info *ret_info)
{
        Cairn__PingRequest message = CAIRN__PING_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_PING,
            .message = &message,
            .decode = decode_ping,
            .outputs.ping = ret_info,
        };
        int status = cairn_client_ready(client);

        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}

int cairn_ping(struct cairn_client *client, struct cairn_call *call,
               struct cairn_ping_info *ret_info)
{
        int status = ping(client, call, ret_info);

        if (cairn_client_may_retry(client, call, status))
                status = ping(client, call, ret_info);
        return status;
}

static int decode_stats(struct cairn_client *client, struct cairn_client_request *request,
                        const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__StatsReply *reply = message;

        (void)payload, (void)payload_bytes; // it has no payload
        client->in_callback = true;         // on_metric, like on_done, may not block
        for (size_t i = 0; i < reply->n_metrics; i++) {
                const Cairn__Metric *metric = reply->metrics[i];

                request->outputs.visit.on_metric(request->outputs.visit.arg, metric->name,
                                                 metric->labels, metric->value);
        }
        client->in_callback = false;
        return CAIRN_OK;
}

static int stats(struct cairn_client *client, struct cairn_call *call,
                 void (*on_metric)(void *arg, const char *name, const char *labels, double value),
                 void *arg)
{
        Cairn__StatsRequest message = CAIRN__STATS_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_STATS,
            .message = &message,
            .decode = decode_stats,
            .outputs.visit = {.on_metric = on_metric, .arg = arg},
        };
        int status = cairn_client_ready(client);

        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}

int cairn_stats(struct cairn_client *client, struct cairn_call *call,
                void (*on_metric)(void *arg, const char *name, const char *labels, double value),
                void *arg)
{
        int status = stats(client, call, on_metric, arg);

        if (cairn_client_may_retry(client, call, status))
                status = stats(client, call, on_metric, arg);
        return status;
}
