// Requests in flight: slots, submission, replies, deadlines.
#include "client/src/client.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>

enum {
        SLOT_BITS = 8
};
_Static_assert(CAIRN_CLIENT_SLOTS <= 1 << SLOT_BITS, "the slot is the low byte of an id");

// ---- slots ----

static struct cairn_client_request *take_slot(struct cairn_client *client)
{
        if (client->slots_used >= client->inflight_max)
                return NULL;
        // The lowest free one, so that loops over the used ones end early.
        for (uint32_t slot = 0; slot < CAIRN_CLIENT_SLOTS; slot++) {
                struct cairn_client_request *request = &client->slots[slot];

                if (request->state != CAIRN_CLIENT_FREE)
                        continue;
                client->slots_used++;
                client->id_serial++;
                request->id = client->id_serial << SLOT_BITS | slot;
                request->state = CAIRN_CLIENT_SENT;
                return request;
        }
        return NULL;
}

void cairn_client_release_slot(struct cairn_client *client, struct cairn_client_request *request)
{
        assert(request->state != CAIRN_CLIENT_FREE);
        assert(client->slots_used > 0);
        request->state = CAIRN_CLIENT_FREE;
        request->id = 0;
        request->call = NULL;
        client->slots_used--;
}

static struct cairn_client_request *slot_of(struct cairn_client *client, uint64_t id)
{
        uint64_t slot = id & ((1u << SLOT_BITS) - 1);

        if (slot >= CAIRN_CLIENT_SLOTS || client->slots[slot].state != CAIRN_CLIENT_SENT ||
            client->slots[slot].id != id)
                return NULL;
        return &client->slots[slot];
}

// ---- ends ----

static void end(struct cairn_client *client, struct cairn_client_request *request, int status,
                const char *text)
{
        assert(request->state == CAIRN_CLIENT_SENT);
        request->state = CAIRN_CLIENT_ENDED;
        request->status = status;
        request->text[0] = '\0';
        if (status < 0 && text && *text)
                (void)snprintf(request->text, sizeof(request->text), "%s", text);
        else if (status < 0)
                (void)snprintf(request->text, sizeof(request->text), "%s: %s; %s",
                               cairn_kind_name(request->kind), cairn_status_text(status),
                               cairn_status_remedy(status));
        for (size_t i = 0; i < 2; i++) {
                if (request->arenas[i])
                        request->arenas[i]->users--;
                request->arenas[i] = NULL;
        }
        request->next_ended = NULL;
        if (client->ended_last)
                client->ended_last->next_ended = request;
        else
                client->ended_first = request;
        client->ended_last = request;
}

void cairn_client_end_all(struct cairn_client *client, int status, const char *why)
{
        bool any = false;

        for (uint32_t i = 0; i < CAIRN_CLIENT_SLOTS; i++) {
                if (client->slots[i].state != CAIRN_CLIENT_SENT)
                        continue;
                end(client, &client->slots[i], status, why);
                any = true;
        }
        if (any)
                cairn_client_arm_timer(client, cairn_client_now_ms()); // wakes who polls
}

void cairn_client_expire(struct cairn_client *client, int64_t now_ms)
{
        uint32_t left = client->slots_used;

        for (uint32_t i = 0; left > 0; i++) {
                struct cairn_client_request *request = &client->slots[i];

                if (request->state == CAIRN_CLIENT_FREE)
                        continue;
                left--;
                if (request->state == CAIRN_CLIENT_SENT && request->expires_ms <= now_ms)
                        end(client, request, CAIRN_EDEADLINE, NULL);
        }
}

int64_t cairn_client_next_deadline_ms(const struct cairn_client *client)
{
        uint32_t left = client->slots_used;
        int64_t next = -1;

        for (uint32_t i = 0; left > 0; i++) {
                const struct cairn_client_request *request = &client->slots[i];

                if (request->state == CAIRN_CLIENT_FREE)
                        continue;
                left--;
                if (request->state == CAIRN_CLIENT_SENT && (next < 0 || request->expires_ms < next))
                        next = request->expires_ms;
        }
        return next;
}

void cairn_client_arm_timer(struct cairn_client *client, int64_t at_ms)
{
        struct itimerspec spec = {0};

        if (client->timer_at_ms != 0 && client->timer_at_ms <= at_ms)
                return;
        spec.it_value.tv_sec = at_ms / 1000;
        spec.it_value.tv_nsec = at_ms % 1000 * 1000000 + 1; // never zero, which would disarm
        (void)timerfd_settime(client->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL); // args are legal
        client->timer_at_ms = at_ms;
}

// ---- replies ----

// A daemon's text goes to terminals and logs: control characters are made harmless.
static void copy_text(char *ret_text, size_t size, const char *text)
{
        size_t i = 0;

        for (; i + 1 < size && text[i]; i++)
                ret_text[i] = (unsigned char)text[i] < ' ' || text[i] == 127 ? ' ' : text[i];
        ret_text[i] = '\0';
}

// A reply whose descriptors cannot be taken leaves those after it without a meaning.
static int adopt_segments(struct cairn_client *client, const Cairn__GetReply *reply)
{
        int status = cairn_client_segments_adopt(client, reply);

        client->lost_track = client->lost_track || status != CAIRN_OK;
        return status;
}

// request NULL: nobody waits for it, but what it shows may be named by later ones.
static int take_reply(struct cairn_client *client, struct cairn_client_request *request,
                      const struct cairn_frame *frame, char *ret_text, size_t text_bytes)
{
        struct cairn_codec_arena memory;
        void *message = NULL;
        int status;

        cairn_codec_arena_init(&memory, CAIRN_DECODE_BYTES_MAX);
        status = cairn_codec_unpack(frame->header.kind, true, frame->header.status, frame->message,
                                    frame->header.message_bytes, &memory, &message);
        if (status == CAIRN_OK && frame->header.status == CAIRN_OK &&
            frame->header.kind == CAIRN_KIND_GET)
                status = adopt_segments(client, message);
        if (status != CAIRN_OK && frame->header.status < 0) {
                status = frame->header.status; // the daemon's own failure matters more
        } else if (status == CAIRN_OK && frame->header.status < 0) {
                const Cairn__ErrorReply *error = message;

                copy_text(ret_text, text_bytes, error->text);
                status = frame->header.status;
        } else if (status == CAIRN_OK && request) {
                status = request->decode(client, request, message, frame->payload,
                                         frame->header.payload_bytes);
        }
        cairn_codec_arena_finish(&memory);
        return status;
}

void cairn_client_on_frame(struct cairn_client *client, const struct cairn_frame *frame)
{
        struct cairn_client_request *request = slot_of(client, frame->header.id);
        char text[CAIRN_CLIENT_ERROR_BYTES] = "";
        int status = CAIRN_OK;

        if (!request) { // given up at its deadline, or a refusal of bytes that were no request
                if (frame->header.kind == CAIRN_KIND_GET && client->received_count > 0)
                        (void)take_reply(client, NULL, frame, text, sizeof(text));
        } else {
                if (frame->header.kind != request->kind || frame->header.status > 0)
                        status = CAIRN_EPROTO;
                else
                        status = take_reply(client, request, frame, text, sizeof(text));
                end(client, request, status < 0 ? status : CAIRN_OK, text);
        }
        if (client->lost_track)
                cairn_client_disconnect(client, CAIRN_EDISCONNECTED,
                                        "a reply's descriptors could not be taken; call again to "
                                        "connect anew");
}

// ---- submission ----

static int build_frame(struct cairn_client *client, const struct cairn_client_submission *s,
                       uint64_t id, uint32_t deadline_ms, uint8_t **ret_bytes, size_t *ret_size)
{
        struct cairn_frame_header header = {
            .version = CAIRN_PROTOCOL_VERSION,
            .kind = (uint16_t)s->kind,
            .id = id,
            .status = (int32_t)deadline_ms,
        };
        size_t payload_bytes = 0;
        uint8_t *payload = NULL;
        int status;

        for (size_t i = 0; i < s->payload_count; i++)
                payload_bytes += s->payload[i].iov_len;
        if (payload_bytes > client->payload_bytes_max)
                return cairn_client_fail(client, CAIRN_ERANGE,
                                         "%zu bytes do not fit into one request (%u may); let them "
                                         "lie in an arena",
                                         payload_bytes, client->payload_bytes_max);
        status =
            cairn_codec_frame_traced(&header, s->message, client->traced ? &client->trace : NULL,
                                     payload_bytes, ret_bytes, ret_size, &payload);
        if (status != CAIRN_OK)
                return cairn_client_fail(client, status, NULL);
        for (size_t i = 0; i < s->payload_count; i++) {
                if (s->payload[i].iov_len > 0)
                        memcpy(payload, s->payload[i].iov_base, s->payload[i].iov_len);
                payload += s->payload[i].iov_len;
        }
        return CAIRN_OK;
}

static int start(struct cairn_client *client, struct cairn_call *call,
                 const struct cairn_client_submission *s, struct cairn_client_request **ret_request)
{
        uint32_t deadline_ms = call->deadline_ms ? call->deadline_ms : client->timeout_ms;
        struct cairn_client_request *request;
        uint8_t *bytes = NULL;
        size_t size = 0;
        int status;

        if (client->socket_fd < 0)
                return cairn_client_fail(client, CAIRN_EDISCONNECTED, NULL);
        if (deadline_ms > INT32_MAX)
                deadline_ms = INT32_MAX;
        request = client->unsent_bytes > CAIRN_CLIENT_UNSENT_BYTES_MAX ? NULL : take_slot(client);
        if (!request)
                return cairn_client_fail(client, CAIRN_EBUSY,
                                         "%u requests are under way, the limit of a connection; "
                                         "poll until some have ended",
                                         client->slots_used);
        status = build_frame(client, s, request->id, deadline_ms, &bytes, &size);
        if (status != CAIRN_OK) {
                cairn_client_release_slot(client, request);
                return status;
        }
        request->kind = s->kind;
        request->call = call;
        request->decode = s->decode;
        request->outputs = s->outputs;
        request->expires_ms = cairn_client_now_ms() + deadline_ms + CAIRN_CLIENT_GRACE_MS;
        for (size_t i = 0; i < 2; i++) {
                request->arenas[i] = s->arenas[i];
                if (s->arenas[i])
                        s->arenas[i]->users++;
        }
        call->id = request->id;
        *ret_request = request;
        cairn_client_send(client, bytes, size, s->fd > 0 ? s->fd : -1);
        return CAIRN_OK;
}

struct waiter {
        struct cairn_call call;
        bool done;
        int status;
};

static void on_waited(struct cairn_call *call, int status)
{
        struct waiter *waiter = call->arg;

        waiter->done = true;
        waiter->status = status;
}

int cairn_client_submit(struct cairn_client *client, struct cairn_call *call,
                        const struct cairn_client_submission *submission)
{
        struct waiter waiter = {.call = {.on_done = on_waited, .arg = &waiter}};
        struct cairn_client_request *request = NULL;
        int status;

        if (call) {
                status = start(client, call, submission, &request);
                if (status == CAIRN_OK)
                        cairn_client_arm_timer(client, request->expires_ms);
                return status;
        }
        if (client->in_callback)
                return cairn_client_fail(client, CAIRN_EBUSY,
                                         "a blocking call inside on_done; give it a cairn_call");
        status = start(client, &waiter.call, submission, &request);
        if (status != CAIRN_OK)
                return status;
        client->awaited = submission->kind;
        while (!waiter.done) {
                if (!client->ended_first)
                        cairn_client_turn(client, -1);
                else
                        cairn_client_run_one(client); // ours, or somebody's who ended before
        }
        client->awaited = 0;
        if (client->ended_first)
                cairn_client_arm_timer(client, cairn_client_now_ms()); // the rest: at the next poll
        return waiter.status;
}

// Others have nothing in flight on a connection that is being introduced: what ends here and is not
// ours ended with the old connection, and waits for the next poll.
int cairn_client_submit_quietly(struct cairn_client *client,
                                const struct cairn_client_submission *submission)
{
        struct cairn_call call = {.deadline_ms = 5000};
        struct cairn_client_request *request = NULL;
        struct cairn_client_request **link = &client->ended_first;
        struct cairn_client_request *before = NULL;
        int status = start(client, &call, submission, &request);

        if (status != CAIRN_OK)
                return status;
        while (request->state == CAIRN_CLIENT_SENT)
                cairn_client_turn(client, -1);
        for (; *link != request; link = &(*link)->next_ended)
                before = *link;
        *link = request->next_ended;
        if (client->ended_last == request)
                client->ended_last = before;
        status = request->status;
        if (status < 0)
                (void)cairn_client_fail(client, status, "%s", request->text);
        cairn_client_release_slot(client, request);
        if (client->ended_first)
                cairn_client_arm_timer(client, cairn_client_now_ms()); // others': at the next poll
        return status;
}

bool cairn_client_may_retry(const struct cairn_client *client, const struct cairn_call *call,
                            int status)
{
        return !call && status == CAIRN_EDISCONNECTED && !client->gave_up && !client->in_callback;
}
