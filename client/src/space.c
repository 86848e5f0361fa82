// Spaces of a client: opening, opening again after a reconnect, listing.
#include "client/src/client.h"
#include "cairn/tenant.h"

#include <stdlib.h>
#include <string.h>

// The public description is proto's, byte for byte.
#define SAME(field)                                                           \
        _Static_assert(offsetof(struct cairn_space_config, field) ==          \
                               offsetof(struct cairn_space, field) &&         \
                           sizeof(((struct cairn_space_config *)0)->field) == \
                               sizeof(((struct cairn_space *)0)->field),      \
                       #field)
SAME(kind);
SAME(model);
SAME(revision);
SAME(layout);
SAME(layers);
SAME(kv_heads);
SAME(k_dim);
SAME(v_dim);
SAME(dtype);
SAME(block_tokens);
SAME(cache_group);
SAME(tp_rank);
SAME(tp_size);
SAME(rope);
SAME(landmark_bits);
SAME(outliers);
SAME(run_tokens);
SAME(value_bits);
SAME(k_codec);
SAME(v_codec);
SAME(block_bytes);
SAME(shared);
SAME(v_prefix);
_Static_assert(sizeof(struct cairn_space_config) == sizeof(struct cairn_space), "no field more");

// Strings of the worker need not end: cut at the last byte.
void cairn_client_config_to_space(const struct cairn_space_config *config,
                                  struct cairn_space *ret_space)
{
        memcpy(ret_space, config, sizeof(*ret_space));
        ret_space->model[CAIRN_NAME_BYTES_MAX] = '\0';
        ret_space->revision[CAIRN_NAME_BYTES_MAX] = '\0';
        ret_space->layout[CAIRN_NAME_BYTES_MAX] = '\0';
}

void cairn_space_config_init(struct cairn_space_config *ret_config)
{
        struct cairn_space space;

        cairn_space_defaults(&space);
        memcpy(ret_config, &space, sizeof(*ret_config));
}

int cairn_space_config_check(const struct cairn_space_config *config, char *ret_text,
                             size_t text_bytes)
{
        struct cairn_space space;

        cairn_client_config_to_space(config, &space);
        return cairn_space_check(&space, ret_text, text_bytes);
}

uint64_t cairn_space_config_block_bytes(const struct cairn_space_config *config)
{
        struct cairn_space space;

        cairn_client_config_to_space(config, &space);
        return cairn_space_block_bytes(&space);
}

void cairn_space_config_fingerprint(const struct cairn_space_config *config,
                                    struct cairn_key *ret_fingerprint)
{
        struct cairn_space space;

        cairn_client_config_to_space(config, &space);
        cairn_space_fingerprint(&space, ret_fingerprint);
}

struct cairn_client_space *cairn_client_space_of(struct cairn_client *client, uint32_t space)
{
        if (space == 0 || space > client->spaces_count) {
                (void)cairn_client_fail(client, CAIRN_EINVAL,
                                        "space %u was not opened by this client; open it first",
                                        space);
                return NULL;
        }
        return &client->spaces[space - 1];
}

// ---- OpenSpace ----

static int decode_open(struct cairn_client *client, struct cairn_client_request *request,
                       const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__OpenSpaceReply *reply = message;
        struct cairn_client_space *space = request->outputs.open_space.space;

        (void)client, (void)payload, (void)payload_bytes; // it has no payload
        if (reply->fingerprint.len != CAIRN_KEY_BYTES ||
            memcmp(reply->fingerprint.data, space->fingerprint.bytes, CAIRN_KEY_BYTES) != 0 ||
            reply->block_bytes != space->block_bytes)
                return CAIRN_EMISMATCH;
        space->wire_id = reply->space;
        space->stored_bytes = reply->stored_bytes;
        return CAIRN_OK;
}

int cairn_client_space_register(struct cairn_client *client, struct cairn_client_space *space,
                                bool again)
{
        Cairn__OpenSpaceRequest message = CAIRN__OPEN_SPACE_REQUEST__INIT;
        Cairn__Space description = CAIRN__SPACE__INIT;
        struct cairn_space plain;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_OPEN_SPACE,
            .message = &message,
            .decode = decode_open,
            .outputs.open_space = {.space = space},
        };

        cairn_client_config_to_space(&space->config, &plain);
        cairn_codec_space_to(&plain, &description);
        message.space = &description;
        message.fingerprint.data = space->fingerprint.bytes;
        message.fingerprint.len = CAIRN_KEY_BYTES;
        message.id = space->number;
        // Others' callbacks may run while a caller waits, but not inside the reconnect of another
        // call.
        return again ? cairn_client_submit_quietly(client, &submission)
                     : cairn_client_submit(client, NULL, &submission);
}

static int reserve_space(struct cairn_client *client)
{
        uint32_t capacity = client->spaces_capacity ? 2 * client->spaces_capacity : 4;
        struct cairn_client_space *spaces;

        if (client->spaces_count < client->spaces_capacity)
                return CAIRN_OK;
        if (client->spaces_count >= CAIRN_CLIENT_SPACES_MAX)
                return cairn_client_fail(client, CAIRN_EBUSY,
                                         "%u spaces are open, the most that a client may have",
                                         client->spaces_count);
        spaces = realloc(client->spaces, capacity * sizeof(*spaces));
        if (!spaces)
                return cairn_client_fail(client, CAIRN_ENOMEM, NULL);
        client->spaces = spaces;
        client->spaces_capacity = capacity;
        return CAIRN_OK;
}

static int open_space(struct cairn_client *client, const struct cairn_client_space *wanted,
                      uint32_t *ret_space)
{
        struct cairn_client_space space = *wanted;
        int status = cairn_client_ready(client);

        if (status == CAIRN_OK)
                status = reserve_space(client);
        if (status == CAIRN_OK)
                status = cairn_client_space_register(client, &space, false);
        if (status != CAIRN_OK)
                return status;
        client->spaces[client->spaces_count++] = space;
        *ret_space = client->spaces_count;
        return CAIRN_OK;
}

static int open_config(struct cairn_client *client, const struct cairn_space_config *config,
                       uint32_t number, uint32_t *ret_space)
{
        struct cairn_client_space space = {.config = *config, .number = number};
        struct cairn_space plain;
        int status;

        cairn_client_config_to_space(config, &plain);
        memcpy(&space.config, &plain, sizeof(plain)); // with its strings ended
        status = cairn_space_check(&plain, client->error, sizeof(client->error));
        if (status != CAIRN_OK)
                return status;
        cairn_space_fingerprint(&plain, &space.fingerprint);
        space.block_bytes = cairn_space_block_bytes(&plain);
        for (uint32_t i = 0; i < client->spaces_count; i++) {
                if (client->spaces[i].number == number &&
                    cairn_key_equal(&client->spaces[i].fingerprint, &space.fingerprint)) {
                        *ret_space = i + 1; // open already
                        return CAIRN_OK;
                }
        }
        status = open_space(client, &space, ret_space);
        if (cairn_client_may_retry(client, NULL, status))
                status = open_space(client, &space, ret_space);
        return status;
}

int cairn_client_open_space(struct cairn_client *client, const struct cairn_space_config *config,
                            uint32_t *ret_space)
{
        return open_config(client, config, 0, ret_space);
}

int cairn_client_open_stored_space(struct cairn_client *client, const struct cairn_space_info *info,
                                   uint32_t *ret_space)
{
        return open_config(client, &info->config, info->id, ret_space);
}

int cairn_client_space(const struct cairn_client *client, uint32_t space,
                       struct cairn_space_info *ret_info)
{
        const struct cairn_client_space *found;

        if (space == 0 || space > client->spaces_count)
                return CAIRN_EINVAL;
        found = &client->spaces[space - 1];
        *ret_info = (struct cairn_space_info){
            .config = found->config,
            .fingerprint = found->fingerprint,
            .block_bytes = found->block_bytes,
        };
        return CAIRN_OK;
}

// ---- ListSpaces ----

static int decode_info(const Cairn__SpaceInfo *info, struct cairn_space_info *ret_info)
{
        struct cairn_space plain;

        if (!info->space || info->fingerprint.len != CAIRN_KEY_BYTES ||
            cairn_codec_space_from(info->space, &plain) != CAIRN_OK)
                return CAIRN_EPROTO;
        memset(ret_info, 0, sizeof(*ret_info));
        memcpy(&ret_info->config, &plain, sizeof(plain));
        memcpy(ret_info->fingerprint.bytes, info->fingerprint.data, CAIRN_KEY_BYTES);
        ret_info->block_bytes = cairn_space_block_bytes(&plain);
        ret_info->blocks = info->blocks;
        ret_info->ram_bytes = info->ram_bytes;
        ret_info->nvme_bytes = info->nvme_bytes;
        ret_info->id = info->id;
        return CAIRN_OK;
}

static int decode_list(struct cairn_client *client, struct cairn_client_request *request,
                       const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__ListSpacesReply *reply = message;
        struct cairn_space_info info;

        (void)payload, (void)payload_bytes; // it has no payload
        for (size_t i = 0; i < reply->n_spaces; i++) {
                if (decode_info(reply->spaces[i], &info) != CAIRN_OK)
                        return CAIRN_EPROTO;
        }
        client->in_callback = true; // on_space, like on_done, may not block
        for (size_t i = 0; i < reply->n_spaces; i++) {
                (void)decode_info(reply->spaces[i], &info); // checked above
                request->outputs.visit.on_space(request->outputs.visit.arg, &info);
        }
        client->in_callback = false;
        return CAIRN_OK;
}

static int list_spaces(struct cairn_client *client, struct cairn_call *call,
                       void (*on_space)(void *arg, const struct cairn_space_info *info), void *arg)
{
        Cairn__ListSpacesRequest message = CAIRN__LIST_SPACES_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_LIST_SPACES,
            .message = &message,
            .decode = decode_list,
            .outputs.visit = {.on_space = on_space, .arg = arg},
        };
        int status = cairn_client_ready(client);

        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}

int cairn_list_spaces(struct cairn_client *client, struct cairn_call *call,
                      void (*on_space)(void *arg, const struct cairn_space_info *info), void *arg)
{
        int status = list_spaces(client, call, on_space, arg);

        if (cairn_client_may_retry(client, call, status))
                status = list_spaces(client, call, on_space, arg);
        return status;
}
