// Reload, Drain and Verify.
#include <stdio.h>

#include "client/src/client.h"

static int decode_reload(struct cairn_client *client, struct cairn_client_request *request,
                         const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__ReloadReply *reply = message;

        (void)client, (void)payload, (void)payload_bytes; // it has no payload
        if (request->outputs.text)
                (void)snprintf(request->outputs.text, CAIRN_TEXT_BYTES_MAX, "%s", reply->text);
        return CAIRN_OK;
}

int cairn_reload(struct cairn_client *client, struct cairn_call *call, char *ret_text)
{
        Cairn__ReloadRequest message = CAIRN__RELOAD_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_RELOAD,
            .message = &message,
            .decode = decode_reload,
            .outputs.text = ret_text,
        };
        int status = cairn_client_ready(client);

        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}

static int decode_nothing(struct cairn_client *client, struct cairn_client_request *request,
                          const void *message, const uint8_t *payload, size_t payload_bytes)
{
        (void)client, (void)request, (void)message, (void)payload, (void)payload_bytes; // empty
        return CAIRN_OK;
}

int cairn_drain(struct cairn_client *client, struct cairn_call *call, uint64_t limit_ms)
{
        Cairn__DrainRequest message = CAIRN__DRAIN_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_DRAIN,
            .message = &message,
            .decode = decode_nothing,
        };
        int status = cairn_client_ready(client);

        message.limit_ms = limit_ms;
        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}

static int decode_verify(struct cairn_client *client, struct cairn_client_request *request,
                         const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__VerifyReply *reply = message;

        (void)client, (void)payload, (void)payload_bytes; // it has no payload
        *request->outputs.verify = (struct cairn_verify_info){.blocks = reply->blocks,
                                                              .corrupt = reply->corrupt,
                                                              .unread = reply->unread,
                                                              .bytes = reply->bytes};
        return CAIRN_OK;
}

int cairn_verify(struct cairn_client *client, struct cairn_call *call, uint64_t rate_bytes,
                 struct cairn_verify_info *ret_info)
{
        Cairn__VerifyRequest message = CAIRN__VERIFY_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_VERIFY,
            .message = &message,
            .decode = decode_verify,
            .outputs.verify = ret_info,
        };
        int status = cairn_client_ready(client);

        message.rate_bytes = rate_bytes;
        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}
