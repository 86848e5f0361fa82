// Retain and Plan: checked, worked, answered.
#include <assert.h>
#include <stdlib.h>

#include "daemon/connection.h"
#include "daemon/retain.h"
#include "daemon/server.h"
#include "proto/status.h"
#include "storage/legal.h"

static void retain_end(void *arg)
{
        struct cairn_retain *r = arg;

        cairn_retain_stop(r);
        free(r->causal);
        cairn_bulk_finish(&r->queries);
        cairn_result_memory_finish(&r->result);
        if (r->retains)
                r->context->retaining = false;
        if (r->context)
                cairn_context_unref(r->context);
}

static void fail(struct cairn_retain *r)
{
        if (r->status != CAIRN_ENOMEM) {
                cairn_request_fail(r->request, r->status, NULL);
                return;
        }
        cairn_request_fail(r->request, CAIRN_ENOMEM,
                           "the scores of one layer take %llu bytes, more than context_bytes "
                           "leaves: raise it, close contexts, or send fewer proxies",
                           (unsigned long long)cairn_retain_layer_bytes(r));
}

static void reply_with(struct cairn_retain *r, const void *message, uint64_t bytes)
{
        struct cairn_counters *counters = &r->request->server->counters;
        uint8_t *payload = r->result.payload;

        counters->tokens_scanned +=
            (uint64_t)r->tokens * r->layers_count * r->entry->space.kv_heads;
        r->result.payload = NULL;
        if (payload)
                cairn_request_reply_payload(r->request, message, payload, bytes);
        else
                cairn_request_reply(r->request, message);
}

// ---- Retain ----

// Where each head's positions begin. Before the result is written.
static void place_positions(struct cairn_retain *r)
{
        uint64_t heads = (uint64_t)r->layers_count * r->entry->space.kv_heads;
        uint64_t first = 0;

        for (uint64_t i = 0; i < heads; i++) {
                r->outcomes[i].first = first;
                first += r->outcomes[i].kept;
        }
        assert(first <= r->kept_max * heads);
}

static void finish_retain(struct cairn_retain *r)
{
        Cairn__RetainReply reply = CAIRN__RETAIN_REPLY__INIT;
        const uint32_t kv_heads = r->entry->space.kv_heads;
        uint64_t heads = (uint64_t)r->layers_count * kv_heads;
        struct cairn_retain_layout layout;

        reply.mass_lowest = 2;
        for (uint64_t i = 0; i < heads; i++) {
                const struct cairn_retain_outcome *outcome = &r->outcomes[i];

                reply.kept += outcome->kept;
                reply.removed += outcome->removed;
                reply.mass += outcome->mass / (double)heads;
                if (outcome->mass >= reply.mass_lowest)
                        continue;
                reply.mass_lowest = outcome->mass;
                reply.lowest_layer = r->layers[i / kv_heads];
                reply.lowest_head = (uint32_t)(i % kv_heads);
        }
        if (r->status == CAIRN_OK) {
                r->status = r->drop ? cairn_context_drop(r->context, r->kept)
                                    : cairn_context_demote(r->context, r->kept);
                if (r->status == CAIRN_OK)
                        r->kept = NULL;
        }
        if (r->status != CAIRN_OK) {
                fail(r);
                return;
        }
        cairn_retain_audit(r);
        if (!r->drop)
                cairn_retain_cool(r);
        (void)cairn_retain_layout(r->layers_count, kv_heads, reply.kept, &layout); // it fits
        reply.tokens = r->tokens;
        reply.result_bytes = layout.total_bytes;
        reply.kernel_ns = r->kernel_ns;
        reply_with(r, &reply, layout.total_bytes);
}

// ---- Plan ----

static void set_point(const struct cairn_retain *r, const struct cairn_plan_total *total,
                      Cairn__PlanPoint *ret_point)
{
        cairn__plan_point__init(ret_point);
        ret_point->share = total->share;
        ret_point->mass = total->mass;
        ret_point->mass_lowest = total->mass_lowest;
        ret_point->lowest_layer = r->layers[total->lowest / r->entry->space.kv_heads];
        ret_point->lowest_head = total->lowest % r->entry->space.kv_heads;
}

static void finish_plan(struct cairn_retain *r)
{
        const Cairn__PlanRequest *message = r->request->message;
        Cairn__PlanReply reply = CAIRN__PLAN_REPLY__INIT;
        Cairn__PlanPoint points[1 + CAIRN_BUDGETS_MAX + CAIRN_PLAN_POINTS];
        Cairn__PlanPoint *pointers[CAIRN_BUDGETS_MAX + CAIRN_PLAN_POINTS];
        uint32_t heads = r->layers_count * r->entry->space.kv_heads;
        uint32_t budgets = (uint32_t)message->n_budgets;
        struct cairn_plan_total total;

        if (r->status != CAIRN_OK) {
                fail(r);
                return;
        }
        cairn_tuning_observe(r->request->server, r->entry, r->plans, heads);
        cairn_plan_total(r->plans, heads, r->target_mass, &total);
        set_point(r, &total, &points[0]);
        for (uint32_t i = 0; i < budgets + CAIRN_PLAN_POINTS; i++) {
                double share = i < budgets ? message->budgets[i] : cairn_plan_share(i - budgets);

                cairn_plan_total_at(r->plans, heads, share, &total);
                set_point(r, &total, &points[1 + i]);
                pointers[i] = &points[1 + i];
        }
        reply.needed = &points[0];
        reply.n_budgets = budgets;
        reply.budgets = pointers;
        reply.n_curve = CAIRN_PLAN_POINTS;
        reply.curve = pointers + budgets;
        reply.tokens = r->tokens;
        reply.result_bytes = r->layout.plan.total_bytes;
        reply.kernel_ns = r->kernel_ns;
        reply_with(r, &reply, reply.result_bytes);
}

// ---- both ----

static void on_done(struct cairn_retain *r)
{
        if (r->plan)
                finish_plan(r);
        else
                finish_retain(r);
}

// Rows of a chain under legal hold are not dropped. False: answered.
static bool may_drop(struct cairn_retain *r)
{
        const struct cairn_chain *chain = r->context->chain;
        struct cairn_audit_record record = {
            .action = CAIRN_AUDIT_REFUSE,
            .reason = CAIRN_AUDIT_LEGAL_HOLD,
            .tenant = r->request->session->tenant,
            .space = r->entry->id,
            .context = r->context->id,
            .layer = CAIRN_AUDIT_ALL,
            .head = CAIRN_AUDIT_ALL,
        };

        for (uint32_t i = 0; r->drop && chain && i < chain->count; i++) {
                if (!cairn_block_legal(chain->blocks[i]))
                        continue;
                record.key = *cairn_block_key(chain->blocks[i]);
                record.count = chain->count;
                cairn_request_audit(r->request, &record);
                cairn_request_fail_at(
                    r->request, CAIRN_EHELD, i,
                    "block %u of the context is under legal hold, so that nothing "
                    "of it may be dropped; demote, or have an operator lift the "
                    "hold",
                    i);
                return false;
        }
        return true;
}

static void serve(struct cairn_request *request, bool plan)
{
        struct cairn_retain *r = cairn_request_op(request, sizeof(*r), retain_end);
        int status;

        if (!r) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        r->request = request;
        r->plan = plan;
        r->on_scored = plan ? NULL : place_positions;
        if (!cairn_retain_check(r) || !may_drop(r))
                return;
        status = cairn_retain_start(r, on_done);
        if (status == CAIRN_OK)
                return;
        r->status = status;
        fail(r);
}

void cairn_serve_retain(struct cairn_request *request)
{
        serve(request, false);
}

void cairn_serve_plan(struct cairn_request *request)
{
        serve(request, true);
}
