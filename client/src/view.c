// Views: the daemon's RAM segments, mapped here read-only, and the places of leased blocks in them.
#include "client/src/client.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
        AGAIN_KEYS_MAX = CAIRN_VIEW_DESCRIPTORS_MAX // these bring no more segments than a reply may
};

// One mapping. It stays while the client or a view needs it; views outlive their client.
struct cairn_segment {
        _Atomic uint32_t users; // views, and the client while it is in its list
        _Atomic bool lost;      // the connection that showed it has ended
        const uint8_t *base;    // NULL: the system had no room for it
        uint64_t bytes;
        uint32_t number;            // the daemon's, of this connection
        struct cairn_segment *next; // the client's list
};

// ---- segments ----

// Any thread, since views are let go of by whoever has them.
static void segment_release(struct cairn_segment *segment)
{
        if (atomic_fetch_sub_explicit(&segment->users, 1, memory_order_acq_rel) != 1)
                return;
        if (segment->base)
                (void)munmap((void *)segment->base, segment->bytes); // as it was mapped
        free(segment);
}

// The u64 at 8 * `slot`: 0 for the word that says whether the segment has ended.
static uint64_t segment_word(const struct cairn_segment *segment, uint64_t slot)
{
        const _Atomic uint64_t *words = (const void *)segment->base;

        return atomic_load_explicit(&words[slot], memory_order_acquire);
}

void cairn_client_segments_drop(struct cairn_client *client)
{
        while (client->segments) {
                struct cairn_segment *segment = client->segments;

                client->segments = segment->next;
                atomic_store_explicit(&segment->lost, true, memory_order_release);
                segment_release(segment);
        }
        for (uint32_t i = 0; i < client->received_count; i++)
                (void)close(client->received[i]); // never written
        client->received_count = 0;
        client->lost_track = false;
}

void cairn_client_segments_sweep(struct cairn_client *client)
{
        struct cairn_segment **link = &client->segments;

        while (*link) {
                struct cairn_segment *segment = *link;

                if (!segment->base || segment_word(segment, 0) == 0) {
                        link = &segment->next;
                        continue;
                }
                *link = segment->next;
                segment_release(segment);
        }
}

// CAIRN_EPROTO: it is no segment: too small, or it could be cut short under our feet.
static int segment_map(int fd, uint64_t bytes, const uint8_t **ret_base)
{
        struct stat info;
        int seals = fcntl(fd, F_GET_SEALS);
        void *base;

        *ret_base = NULL;
        if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &info) != 0 ||
            bytes < sizeof(uint64_t) || (uint64_t)info.st_size < bytes)
                return CAIRN_EPROTO;
        base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (base != MAP_FAILED)
                *ret_base = base;
        return CAIRN_OK;
}

static struct cairn_segment *segment_of(const struct cairn_client *client, uint32_t number)
{
        struct cairn_segment *segment = client->segments;

        while (segment && segment->number != number)
                segment = segment->next;
        return segment;
}

// Descriptors come in the order in which replies name them.
static int adopt(struct cairn_client *client, const Cairn__ViewSegment *shown, int fd)
{
        struct cairn_segment *segment = calloc(1, sizeof(*segment));
        int status;

        if (!segment)
                return CAIRN_ENOMEM;
        status = segment_of(client, shown->segment) ? CAIRN_EPROTO
                                                    : segment_map(fd, shown->bytes, &segment->base);
        if (status != CAIRN_OK) {
                free(segment);
                return status;
        }
        segment->users = 1;
        segment->bytes = shown->bytes;
        segment->number = shown->segment;
        segment->next = client->segments;
        client->segments = segment;
        return CAIRN_OK;
}

int cairn_client_segments_adopt(struct cairn_client *client, const Cairn__GetReply *reply)
{
        uint32_t count = (uint32_t)reply->n_segments;
        int status = CAIRN_OK;

        if (reply->n_segments > client->received_count)
                return CAIRN_EPROTO;
        for (uint32_t i = 0; i < count; i++) {
                if (status == CAIRN_OK)
                        status = adopt(client, reply->segments[i], client->received[i]);
                (void)close(client->received[i]); // a mapping needs it no more
        }
        client->received_count -= count;
        memmove(client->received, client->received + count,
                client->received_count * sizeof(client->received[0]));
        return status;
}

// ---- the request ----

// Inside its segment, and as large as what was asked for.
static bool view_is_sound(const struct cairn_segment *segment, const Cairn__View *view,
                          uint64_t piece_bytes)
{
        return segment && view->bytes == piece_bytes && piece_bytes <= segment->bytes &&
               view->offset <= segment->bytes - piece_bytes && view->slot > 0 &&
               view->slot < segment->bytes / sizeof(uint64_t);
}

static int decode_views(struct cairn_client *client, struct cairn_client_request *request,
                        const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__GetReply *reply = message;
        const size_t count = request->outputs.views.count;
        struct cairn_view *views = request->outputs.views.ret_views;
        int *statuses = request->outputs.views.ret_statuses;

        (void)payload, (void)payload_bytes; // it has none
        if (reply->n_views != count || reply->n_statuses != count)
                return CAIRN_EPROTO;
        for (size_t i = 0; i < count; i++) {
                if (reply->statuses[i] == CAIRN_OK &&
                    !view_is_sound(segment_of(client, reply->views[i]->segment), reply->views[i],
                                   request->outputs.views.piece_bytes))
                        return CAIRN_EPROTO;
        }
        if (cairn_client_copy_statuses(reply->n_statuses, reply->statuses, count, statuses) !=
            CAIRN_OK)
                return CAIRN_EPROTO;
        for (size_t i = 0; i < count; i++) {
                const Cairn__View *view = reply->views[i];
                struct cairn_segment *segment = segment_of(client, view->segment);

                views[i] = (struct cairn_view){0};
                if (reply->statuses[i] != CAIRN_OK)
                        continue;
                if (!segment->base) {
                        statuses[i] = CAIRN_ENOMEM;
                        continue;
                }
                atomic_fetch_add_explicit(&segment->users, 1, memory_order_relaxed);
                views[i] = (struct cairn_view){.bytes = segment->base + view->offset,
                                               .size_bytes = view->bytes,
                                               .segment = segment,
                                               .slot = view->slot,
                                               .generation = view->generation};
        }
        return CAIRN_OK;
}

static int send_views(struct cairn_client *client, struct cairn_call *call,
                      const struct cairn_get_args *args, const struct cairn_key *keys, size_t count,
                      uint64_t piece_bytes, struct cairn_view *ret_views, int *ret_statuses)
{
        Cairn__GetRequest message = CAIRN__GET_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_GET,
            .message = &message,
            .decode = decode_views,
            .outputs.views = {.count = count,
                              .piece_bytes = piece_bytes,
                              .ret_views = ret_views,
                              .ret_statuses = ret_statuses},
        };
        int status = cairn_client_ready(client);

        if (status == CAIRN_OK)
                status = cairn_client_lease_check(client, &args->lease);
        if (status != CAIRN_OK)
                return status;
        message.space = client->spaces[args->space - 1].wire_id;
        message.lease = args->lease.id;
        message.layer_first = args->layer_first;
        message.layer_count = args->layer_count;
        message.view = true;
        cairn_client_keys_field(keys, count, &message.keys);
        return cairn_client_submit(client, call, &submission);
}

// One reply brings so many new segments and no more: asks again for what was left out, a few keys
// at a time.
static int ask_again(struct cairn_client *client, const struct cairn_get_args *args, size_t count,
                     uint64_t piece_bytes, struct cairn_view *views, int *statuses)
{
        struct cairn_key keys[AGAIN_KEYS_MAX];
        size_t places[AGAIN_KEYS_MAX];
        struct cairn_view some[AGAIN_KEYS_MAX];
        int got[AGAIN_KEYS_MAX];

        for (size_t next = 0; next < count;) {
                size_t n = 0;
                int status;

                for (; next < count && n < AGAIN_KEYS_MAX; next++) {
                        if (statuses[next] != CAIRN_EAGAIN)
                                continue;
                        places[n] = next;
                        keys[n++] = args->keys[next];
                }
                if (n == 0)
                        break;
                status = send_views(client, NULL, args, keys, n, piece_bytes, some, got);
                if (status != CAIRN_OK)
                        return status;
                for (size_t i = 0; i < n; i++) {
                        views[places[i]] = some[i];
                        statuses[places[i]] = got[i];
                }
        }
        return CAIRN_OK;
}

static int views_blocking(struct cairn_client *client, const struct cairn_get_args *args,
                          uint64_t piece_bytes, struct cairn_view *views, int *statuses)
{
        int status = CAIRN_OK;

        for (size_t first = 0; first < args->count && status == CAIRN_OK; first += CAIRN_KEYS_MAX) {
                size_t left = args->count - first;
                size_t count = left < CAIRN_KEYS_MAX ? left : CAIRN_KEYS_MAX;

                status = send_views(client, NULL, args, args->keys + first, count, piece_bytes,
                                    views + first, statuses + first);
        }
        if (status == CAIRN_OK)
                status = ask_again(client, args, args->count, piece_bytes, views, statuses);
        return status;
}

// All or, if nobody asked for statuses and one is bad, none.
static int get_views_blocking(struct cairn_client *client, const struct cairn_get_args *args,
                              uint64_t piece_bytes, struct cairn_view *ret_views, int *ret_statuses)
{
        struct cairn_view *views = calloc(args->count + 1, sizeof(*views));
        int *statuses = calloc(args->count + 1, sizeof(*statuses));
        int status = CAIRN_ENOMEM;

        if (views && statuses)
                status = views_blocking(client, args, piece_bytes, views, statuses);
        else
                (void)cairn_client_fail(client, CAIRN_ENOMEM, NULL);
        for (size_t i = 0; i < args->count && status == CAIRN_OK && !ret_statuses; i++)
                if (statuses[i] != CAIRN_OK)
                        status = cairn_client_fail(client, statuses[i], NULL);
        if (status == CAIRN_OK) {
                memcpy(ret_views, views, args->count * sizeof(*views));
                if (ret_statuses)
                        memcpy(ret_statuses, statuses, args->count * sizeof(*statuses));
        } else if (views) {
                for (size_t i = 0; i < args->count; i++)
                        cairn_view_release(&views[i]);
        }
        free(views);
        free(statuses);
        return status;
}

int cairn_get_views(struct cairn_client *client, struct cairn_call *call,
                    const struct cairn_get_args *args, struct cairn_view *ret_views,
                    int *ret_statuses)
{
        uint64_t piece_bytes = cairn_client_piece_bytes(client, args);
        int status = CAIRN_OK;

        if (piece_bytes == 0)
                return CAIRN_EINVAL;
        if (args->blocks || args->blocks_at)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "views: bytes stay where they are; leave blocks out");
        if (args->lease.id == 0)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "views need a lease, and end with it; look the keys up "
                                         "with one first");
        cairn_client_segments_sweep(client);
        if (call && !ret_statuses)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "an asynchronous call needs room for the statuses");
        if (!call && client->in_callback)
                return cairn_client_fail(client, CAIRN_EBUSY,
                                         "a blocking call inside on_done; give it a cairn_call");
        if (!call)
                return get_views_blocking(client, args, piece_bytes, ret_views, ret_statuses);
        status = cairn_client_keys_check(client, args->count);
        if (status != CAIRN_OK)
                return status;
        return send_views(client, call, args, args->keys, args->count, piece_bytes, ret_views,
                          ret_statuses);
}

// ---- views ----

bool cairn_view_valid(const struct cairn_view *view)
{
        if (!view->segment || atomic_load_explicit(&view->segment->lost, memory_order_acquire))
                return false;
        atomic_thread_fence(memory_order_acquire); // what was read was read before this
        return segment_word(view->segment, view->slot) == view->generation;
}

void cairn_view_release(struct cairn_view *view)
{
        struct cairn_segment *segment = view->segment;

        *view = (struct cairn_view){0};
        if (segment)
                segment_release(segment);
}
