// Get of views: each block is brought into RAM and pinned there until its lease ends; the answer
// says where the worker, which maps our segments read-only, finds it.
#include <assert.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/connection.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "proto/status.h"

enum {
        VIEWS_AT_ONCE_MAX = 64
};

struct view_op;

struct view_slot {
        struct cairn_acquire acquire;
        struct cairn_work work;
        struct view_op *op;
        size_t index;
        bool check; // its sums are to be taken again
        int status;
};

struct view_op {
        struct cairn_request *request;
        const struct cairn_space_entry *entry;
        const struct cairn_key *keys;
        uint64_t lease;
        uint64_t block_bytes; // what a view counts for
        uint32_t layer_first;
        uint32_t layer_count;
        size_t count;
        size_t next;
        size_t running;
        int32_t *statuses;
        struct cairn_block **blocks; // the lease's, where the status is CAIRN_OK
        Cairn__View *views;
        Cairn__View **view_pointers;
        Cairn__ViewSegment segments[CAIRN_VIEW_DESCRIPTORS_MAX];
        Cairn__ViewSegment *segment_pointers[CAIRN_VIEW_DESCRIPTORS_MAX];
        int *descriptors;
        uint32_t segments_count;
        struct view_slot slots[VIEWS_AT_ONCE_MAX];
};

static void view_end(void *arg)
{
        struct view_op *op = arg;

        free(op->statuses);
        free(op->blocks);
        free(op->views);
        free(op->view_pointers);
        cairn_descriptors_close(op->descriptors, op->descriptors ? op->segments_count : 0);
}

// ---- the answer ----

// A descriptor of the segment for a worker: a read-only one, with which not even memory can be
// allocated in its holes. Without /proc a copy of ours, whose seals forbid writing all the same.
static int open_descriptor(int fd)
{
        char path[32];
        int descriptor;

        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        descriptor = open(path, O_RDONLY | O_CLOEXEC);
        return descriptor >= 0 ? descriptor : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

// Adds the view's segment to the answer, unless the worker has it.
static int show_segment(struct view_op *op, const struct cairn_block_view *view)
{
        struct cairn_session *session = op->request->session;
        uint32_t at = op->segments_count;
        int descriptor;
        int status;

        if (session->view_segments && session->view_segments[view->index] == view->segment)
                return CAIRN_OK;
        if (at == CAIRN_VIEW_DESCRIPTORS_MAX)
                return CAIRN_EAGAIN;
        if (view->segment > UINT32_MAX)
                return CAIRN_EUNSUPPORTED; // four thousand million segments later: start anew
        descriptor = open_descriptor(view->fd);
        if (descriptor < 0)
                return CAIRN_EBUSY;
        status = cairn_session_show_segment(session, view->index, view->segment);
        if (status != CAIRN_OK) {
                (void)close(descriptor); // not written
                return status;
        }
        op->descriptors[at] = descriptor;
        op->segments[at] = (Cairn__ViewSegment)CAIRN__VIEW_SEGMENT__INIT;
        op->segments[at].segment = (uint32_t)view->segment;
        op->segments[at].bytes = view->segment_bytes;
        op->segment_pointers[at] = &op->segments[at];
        op->segments_count++;
        return CAIRN_OK;
}

static int describe(struct view_op *op, const struct cairn_block *block, Cairn__View *ret_view)
{
        uint64_t layer_bytes = op->entry->shape.raw_layer_bytes;
        struct cairn_block_view view;
        int status = cairn_block_view(op->request->server->store, block, CAIRN_PART_RAW, &view);

        if (status == CAIRN_OK)
                status = show_segment(op, &view);
        if (status != CAIRN_OK)
                return status;
        ret_view->segment = (uint32_t)view.segment;
        ret_view->offset = view.offset + op->layer_first * layer_bytes;
        ret_view->bytes = op->layer_count * layer_bytes;
        ret_view->generation = view.generation;
        ret_view->slot = view.generation_offset / sizeof(uint64_t);
        return CAIRN_OK;
}

// What a segment's descriptor rides with must be queued in the order in which it was shown: all of
// it happens here.
static void finish(struct view_op *op)
{
        struct cairn_request *request = op->request;
        Cairn__GetReply reply = CAIRN__GET_REPLY__INIT;
        const struct cairn_lease *lease =
            cairn_lease_find(&request->session->leases, op->lease, cairn_clock_ms());
        int *descriptors = op->descriptors;

        for (size_t i = 0; i < op->count; i++) {
                op->views[i] = (Cairn__View)CAIRN__VIEW__INIT;
                op->view_pointers[i] = &op->views[i];
                if (op->statuses[i] != CAIRN_OK)
                        continue;
                op->statuses[i] = lease ? describe(op, op->blocks[i], &op->views[i]) : CAIRN_ESTALE;
        }
        cairn_stats_add_blocks(request->server->counters.get_blocks,
                               &request->server->counters.get_bytes, op->statuses, op->count,
                               op->layer_count * op->entry->shape.raw_layer_bytes);
        reply.statuses = op->statuses;
        reply.n_statuses = op->count;
        reply.views = op->view_pointers;
        reply.n_views = op->count;
        reply.segments = op->segment_pointers;
        reply.n_segments = op->segments_count;
        if (op->segments_count == 0) {
                cairn_request_reply(request, &reply);
                return;
        }
        op->descriptors = NULL; // the reply's
        cairn_request_reply_descriptors(request, &reply, descriptors, op->segments_count);
}

// ---- one block after the other ----

static void start_views(struct view_op *op, struct view_slot *slot);

static void give_back(struct view_op *op, struct cairn_block *block, bool pinned)
{
        struct cairn_server *server = op->request->server;

        server->counters.view_bytes -= op->block_bytes;
        if (pinned)
                cairn_store_unpin(server->store, block, CAIRN_PART_RAW);
        cairn_store_unhold(server->store, block);
}

static void view_done(struct view_slot *slot, int status)
{
        struct view_op *op = slot->op;

        assert(op->running > 0);
        op->running--;
        op->statuses[slot->index] = status;
        start_views(op, slot);
        if (op->next == op->count && op->running == 0)
                finish(op);
}

// In RAM, pinned and, if asked, checked: it becomes the lease's.
static void take(struct view_slot *slot)
{
        struct view_op *op = slot->op;
        struct cairn_server *server = op->request->server;
        struct cairn_lease_view view = {slot->acquire.block, op->block_bytes};
        int status =
            cairn_lease_add_view(&op->request->session->leases, op->lease, cairn_clock_ms(), &view);

        cairn_store_touch(server->store, view.block);
        op->blocks[slot->index] = view.block;
        if (status == CAIRN_OK)
                server->counters.views++;
        else
                give_back(op, view.block, true);
        view_done(slot, status == CAIRN_EEXIST ? CAIRN_OK : status);
}

static void run_check(struct cairn_work *work)
{
        struct view_slot *slot =
            (struct view_slot *)((uint8_t *)work - offsetof(struct view_slot, work));
        const struct view_op *op = slot->op;

        slot->status = cairn_block_verify(slot->acquire.block, CAIRN_PART_RAW, op->layer_first,
                                          op->layer_count);
}

static void on_checked(struct cairn_work *work)
{
        struct view_slot *slot =
            (struct view_slot *)((uint8_t *)work - offsetof(struct view_slot, work));
        struct view_op *op = slot->op;
        struct cairn_store *store = op->request->server->store;

        if (slot->status == CAIRN_OK) {
                take(slot);
                return;
        }
        slot->check = false; // the next copy is checked as it comes from NVMe
        if (cairn_store_drop_corrupt_copy(store, slot->acquire.block, CAIRN_PART_RAW) == CAIRN_OK) {
                cairn_store_acquire(store, &slot->acquire);
                return;
        }
        give_back(op, slot->acquire.block, false);
        view_done(slot, CAIRN_ECORRUPT);
}

static void on_ready(struct cairn_acquire *acquire, int status)
{
        struct view_slot *slot =
            (struct view_slot *)((uint8_t *)acquire - offsetof(struct view_slot, acquire));

        if (status != CAIRN_OK) {
                give_back(slot->op, acquire->block, false);
                view_done(slot, status);
        } else if (slot->check) {
                slot->work = (struct cairn_work){.run = run_check, .on_done = on_checked};
                cairn_scorer_submit(slot->op->request->server->scorer, &slot->work);
        } else {
                take(slot);
        }
}

static uint64_t limit_bytes(const struct cairn_config *config)
{
        return config->view_bytes > 0 ? config->view_bytes : config->ram_bytes / 2;
}

// Holds the block, if this worker may see it in place. CAIRN_EEXIST: the lease has it already.
static int begin_view(struct view_op *op, const struct cairn_key *key,
                      struct cairn_block **ret_block)
{
        struct cairn_request *request = op->request;
        struct cairn_server *server = request->server;
        const struct cairn_lease *lease;
        int status;

        if (cairn_request_abandoned(request))
                return CAIRN_ECANCELLED;
        if (cairn_request_late(request))
                return CAIRN_EDEADLINE;
        lease = cairn_lease_find(&request->session->leases, op->lease, cairn_clock_ms());
        if (!lease)
                return CAIRN_ESTALE;
        status = cairn_store_hold(server->store, op->entry->id, key, ret_block);
        if (status != CAIRN_OK)
                return status;
        // Its segment holds other blocks of whoever put it.
        if (cairn_block_tenant(*ret_block) != request->session->tenant)
                status = CAIRN_EPERM;
        else if (cairn_lease_has_view(lease, *ret_block))
                status = CAIRN_EEXIST;
        else if (op->block_bytes > limit_bytes(server->config) ||
                 server->counters.view_bytes > limit_bytes(server->config) - op->block_bytes)
                status = CAIRN_EBUSY;
        if (status == CAIRN_OK)
                server->counters.view_bytes += op->block_bytes;
        else
                cairn_store_unhold(server->store, *ret_block);
        return status;
}

// Starts the next block in the slot; what can be answered at once is, so this goes on to the first
// that cannot.
static void start_views(struct view_op *op, struct view_slot *slot)
{
        struct cairn_server *server = op->request->server;

        while (op->next < op->count) {
                size_t index = op->next++;
                struct cairn_block *block = NULL;
                int status = begin_view(op, &op->keys[index], &block);

                if (status != CAIRN_OK) {
                        op->blocks[index] = block; // EEXIST: the lease keeps it
                        op->statuses[index] = status == CAIRN_EEXIST ? CAIRN_OK : status;
                        continue;
                }
                slot->op = op;
                slot->index = index;
                slot->check =
                    cairn_block_tier(block) == CAIRN_TIER_RAM && cairn_serve_ram_check(server);
                slot->acquire = (struct cairn_acquire){.on_ready = on_ready,
                                                       .block = block,
                                                       .parts = CAIRN_PART_RAW,
                                                       .deadline_ms = op->request->deadline_ms};
                op->running++;
                cairn_store_acquire(server->store, &slot->acquire);
                return;
        }
}

// ---- the request ----

static bool take_memory(struct view_op *op)
{
        size_t count = op->count ? op->count : 1;

        op->statuses = calloc(count, sizeof(op->statuses[0]));
        op->blocks = calloc(count, sizeof(struct cairn_block *));
        op->views = calloc(count, sizeof(op->views[0]));
        op->view_pointers = calloc(count, sizeof(Cairn__View *));
        op->descriptors = calloc(CAIRN_VIEW_DESCRIPTORS_MAX, sizeof(op->descriptors[0]));
        return op->statuses && op->blocks && op->views && op->view_pointers && op->descriptors;
}

// False: answered.
static bool may_view(struct cairn_request *request, const Cairn__GetRequest *message)
{
        if (!request->server->config->views) {
                cairn_request_fail(request, CAIRN_EUNSUPPORTED,
                                   "this daemon serves no views; set views = yes in its "
                                   "configuration, or get into an arena");
                return false;
        }
        if (message->lease == 0) {
                cairn_request_fail(request, CAIRN_EINVAL,
                                   "a view needs a lease, and ends with it; look the keys up with "
                                   "a lease first");
                return false;
        }
        if (message->n_offsets > 0 || message->destination) {
                cairn_request_fail(request, CAIRN_EINVAL,
                                   "a view is read where it lies; leave destination and offsets "
                                   "out");
                return false;
        }
        return true;
}

void cairn_serve_view(struct cairn_request *request)
{
        const Cairn__GetRequest *message = request->message;
        const struct cairn_space_entry *entry;
        const struct cairn_key *keys;
        struct view_op *op;
        size_t count;

        if (!may_view(request, message) ||
            !cairn_serve_keys(request, message->space, &message->keys, &entry, &keys, &count))
                return;
        op = cairn_request_op(request, sizeof(*op), view_end);
        if (op)
                op->count = count;
        if (!op || !take_memory(op)) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        op->request = request;
        op->entry = entry;
        op->keys = keys;
        op->lease = message->lease;
        op->block_bytes = entry->shape.layers * entry->shape.raw_layer_bytes;
        if (!cairn_serve_layers(request, entry, &op->layer_first, &op->layer_count))
                return;
        for (size_t i = 0; i < VIEWS_AT_ONCE_MAX && op->next < count; i++)
                start_views(op, &op->slots[i]);
        if (op->running == 0)
                finish(op);
}
