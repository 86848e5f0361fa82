// Verify: walks all blocks, a block at a time and no faster than asked, and checks every copy of
// every part: the slot on disk, read again, and the bytes in RAM. What does not fit its checksums
// becomes a miss. One at a time in a daemon; it ends with its connection, its deadline or the
// daemon's stop.
#include <stddef.h>
#include <stdlib.h>
#include <uv.h>

#include "daemon/clock.h"
#include "daemon/connection.h"
#include "daemon/log.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "proto/status.h"

enum {
        COPIES = 4, // of a block: each part on disk, then in RAM
        READ_WAIT_MS = 10000,
        NAP_MS_MAX = 200, // between looks at whether anybody still waits
        SLICE_BYTES = 4 << 20,
};

#define BURST_NS 100000000u // that a slow read may make up for

struct verify_op {
        struct cairn_request *request;
        struct cairn_block *block; // held
        uint32_t cursor;           // of the walk
        uint32_t copy;             // of the block: the next to check
        struct cairn_block_shape shape;
        struct cairn_range range;
        struct cairn_work work;
        uint32_t layer; // of a copy in RAM: the next to check
        int status;     // of that
        bool unread;    // a copy of this block could not be
        uint64_t rate_bytes;
        uint64_t due_ns;   // when what was read so far may have been read
        uv_timer_t *timer; // outlives the op, since closing takes a turn
        uint64_t blocks;
        uint64_t corrupt;
        uint64_t unread_blocks;
        uint64_t bytes;
};

static void step(struct verify_op *op);

static void on_timer_closed(uv_handle_t *handle)
{
        free(handle);
}

static void verify_end(void *arg)
{
        struct verify_op *op = arg;

        if (!op->timer)
                return;
        op->request->server->verifying = false;
        uv_close((uv_handle_t *)op->timer, on_timer_closed);
}

// ---- the end ----

static void finish(struct verify_op *op)
{
        Cairn__VerifyReply reply = CAIRN__VERIFY_REPLY__INIT;

        cairn_log(op->corrupt > 0 ? CAIRN_LOG_WARNING : CAIRN_LOG_INFO,
                  op->corrupt > 0 ? "check the disk and the memory; the blocks can be put again"
                                  : NULL,
                  "verify: %llu blocks, %llu corrupt, %llu not read, %llu bytes",
                  (unsigned long long)op->blocks, (unsigned long long)op->corrupt,
                  (unsigned long long)op->unread_blocks, (unsigned long long)op->bytes);
        reply.blocks = op->blocks;
        reply.corrupt = op->corrupt;
        reply.bytes = op->bytes;
        reply.unread = op->unread_blocks;
        cairn_request_reply(op->request, &reply);
}

// True: the op has ended, and is gone.
static bool must_stop(struct verify_op *op)
{
        const struct cairn_request *request = op->request;
        int status = CAIRN_OK;

        if (cairn_request_abandoned(request) || request->server->state >= CAIRN_SERVER_DRAINING)
                status = CAIRN_ECANCELLED;
        else if (cairn_request_late(request))
                status = CAIRN_EDEADLINE;
        if (status == CAIRN_OK)
                return false;
        cairn_request_fail(op->request, status,
                           "%s after %llu blocks, %llu of them corrupt; ask with a later deadline "
                           "or a higher rate",
                           cairn_status_text(status), (unsigned long long)op->blocks,
                           (unsigned long long)op->corrupt);
        return true;
}

static void block_done(struct verify_op *op)
{
        op->unread_blocks += op->unread;
        op->unread = false;
        op->copy = 0;
        cairn_store_unhold(op->request->server->store, op->block);
        op->block = NULL;
}

// ---- one copy after the other ----

static void on_timer(uv_timer_t *timer)
{
        step(timer->data);
}

static void copy_done(struct verify_op *op, bool corrupt)
{
        if (corrupt) {
                op->corrupt++;
                op->copy = COPIES; // it is a miss now
        } else {
                op->copy++;
        }
        step(op);
}

static uint64_t layer_bytes(const struct verify_op *op, enum cairn_part part)
{
        return part == CAIRN_PART_RAW ? op->shape.raw_layer_bytes : op->shape.code_layer_bytes;
}

// On a scorer: bytes in RAM, by slices.
static void run_check(struct cairn_work *work)
{
        struct verify_op *op =
            (struct verify_op *)((uint8_t *)work - offsetof(struct verify_op, work));
        uint64_t bytes = 0;

        while (op->status == CAIRN_OK && op->layer < op->shape.layers && bytes < SLICE_BYTES) {
                op->status = cairn_block_verify(op->block, op->range.part, op->layer, 1);
                op->layer++;
                bytes += layer_bytes(op, op->range.part);
        }
}

static void on_checked(struct cairn_work *work)
{
        struct verify_op *op =
            (struct verify_op *)((uint8_t *)work - offsetof(struct verify_op, work));
        struct cairn_server *server = op->request->server;

        if (op->status == CAIRN_OK && op->layer < op->shape.layers) {
                cairn_scorer_submit(server->scorer, &op->work);
                return;
        }
        if (op->status != CAIRN_OK)
                cairn_store_report_corrupt(server->store, op->block);
        cairn_store_range_release(server->store, &op->range);
        copy_done(op, op->status != CAIRN_OK);
}

static void on_read(struct cairn_range *range, int status)
{
        struct verify_op *op =
            (struct verify_op *)((uint8_t *)range - offsetof(struct verify_op, range));
        struct cairn_server *server = op->request->server;
        uint64_t now_ns = cairn_clock_ns();
        uint64_t bytes = op->shape.layers * layer_bytes(op, range->part);

        if (status == CAIRN_OK) {
                op->bytes += bytes;
                op->due_ns = (op->due_ns > now_ns - BURST_NS ? op->due_ns : now_ns - BURST_NS) +
                             (uint64_t)((double)bytes * 1e9 / (double)op->rate_bytes);
        }
        if (status == CAIRN_OK && range->from_ram) {
                op->layer = 0;
                op->status = CAIRN_OK;
                op->work = (struct cairn_work){.run = run_check, .on_done = on_checked};
                cairn_scorer_submit(server->scorer, &op->work);
                return;
        }
        if (status == CAIRN_OK)
                cairn_store_range_release(server->store, range); // the store has checked it
        else if (status != CAIRN_ENOENT && status != CAIRN_ECORRUPT)
                op->unread = true; // the disk refuses, or RAM had no room in time
        copy_done(op, status == CAIRN_ECORRUPT);
}

static void read_copy(struct verify_op *op)
{
        op->range = (struct cairn_range){
            .on_ready = on_read,
            .block = op->block,
            .part = op->copy < 2 ? CAIRN_PART_RAW : CAIRN_PART_CODE,
            .count = op->shape.layers,
            .from_nvme = op->copy % 2 == 0,
            .from_ram = op->copy % 2 == 1,
            .deadline_ms = cairn_clock_ms() + READ_WAIT_MS,
        };
        cairn_store_range_read(op->request->server->store, &op->range);
}

// The next thing to do, or the end. Nothing is held while the rate makes it wait.
static void step(struct verify_op *op)
{
        struct cairn_store *store = op->request->server->store;
        uint64_t now_ns = cairn_clock_ns();

        if (op->block && op->copy >= (op->shape.code_layer_bytes > 0 ? COPIES : COPIES / 2))
                block_done(op);
        if (op->block) {
                read_copy(op);
                return;
        }
        if (must_stop(op))
                return;
        if (op->due_ns > now_ns) {
                uint64_t nap_ms = (op->due_ns - now_ns) / 1000000 + 1;

                (void)uv_timer_start(op->timer, on_timer, nap_ms < NAP_MS_MAX ? nap_ms : NAP_MS_MAX,
                                     0);
                return;
        }
        op->cursor = cairn_store_walk(store, op->cursor, &op->block);
        if (op->cursor == 0) {
                finish(op);
                return;
        }
        op->blocks++;
        cairn_block_shape(store, op->block, &op->shape);
        read_copy(op);
}

void cairn_serve_verify(struct cairn_request *request)
{
        const Cairn__VerifyRequest *message = request->message;
        struct cairn_server *server = request->server;
        struct verify_op *op;

        if (server->verifying) {
                cairn_request_fail(request, CAIRN_EBUSY,
                                   "another Verify is under way; wait for it, or end its client");
                return;
        }
        op = cairn_request_op(request, sizeof(*op), verify_end);
        if (op)
                op->timer = calloc(1, sizeof(*op->timer));
        if (!op || !op->timer) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        (void)uv_timer_init(&server->loop, op->timer); // cannot fail
        op->timer->data = op;
        server->verifying = true;
        op->request = request;
        op->rate_bytes = message->rate_bytes ? message->rate_bytes : server->config->verify_rate;
        step(op);
}
