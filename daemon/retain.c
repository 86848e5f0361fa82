// The work of a Retain or Plan: layers go through their steps, scorers take the items. As many
// layers are at work at once as keep the scorers busy; their memory counts against context_bytes.
#include "daemon/retain.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#include "daemon/clock.h"
#include "daemon/connection.h"
#include "daemon/scorer.h"
#include "daemon/secret.h"
#include "daemon/server.h"
#include "proto/status.h"

static void dispatch(struct cairn_retain *r);

static uint64_t rounded(uint64_t bytes)
{
        return (bytes + 63) & ~63ull;
}

static uint64_t head_bytes(const struct cairn_retain *r)
{
        uint64_t queries = (uint64_t)r->proxies * r->group;

        return rounded(cairn_context_pieces(&r->view) * sizeof(struct cairn_landmark_piece)) +
               rounded(queries * r->entry->space.k_dim * sizeof(float)) +
               rounded(r->spans * queries * sizeof(struct cairn_nacl_partial)) +
               rounded(queries * sizeof(double)) + rounded(r->tokens * sizeof(float)) +
               rounded(cairn_choose_words(r->tokens) * sizeof(uint64_t));
}

uint64_t cairn_retain_layer_bytes(const struct cairn_retain *r)
{
        return head_bytes(r) * r->entry->space.kv_heads;
}

static uint8_t *take(uint8_t **at, uint64_t bytes)
{
        uint8_t *memory = *at;

        *at += rounded(bytes);
        return memory;
}

static void carve(const struct cairn_retain *r, struct cairn_retain_layer *layer)
{
        uint64_t queries = (uint64_t)r->proxies * r->group;
        uint8_t *at = layer->memory;

        for (uint32_t h = 0; h < r->entry->space.kv_heads; h++) {
                struct cairn_retain_head *head = &layer->heads[h];

                head->pieces = (void *)take(&at, cairn_context_pieces(&r->view) *
                                                     sizeof(struct cairn_landmark_piece));
                head->queries = (void *)take(&at, queries * r->entry->space.k_dim * sizeof(float));
                head->partials =
                    (void *)take(&at, r->spans * queries * sizeof(struct cairn_nacl_partial));
                head->lse = (void *)take(&at, queries * sizeof(double));
                head->scores = (void *)take(&at, r->tokens * sizeof(float));
                head->present = (void *)take(&at, cairn_choose_words(r->tokens) * sizeof(uint64_t));
        }
        assert(at == (uint8_t *)layer->memory + layer->bytes);
}

// Begins the next layer in an idle slot. CAIRN_ENOMEM.
static int start_layer(struct cairn_retain *r, struct cairn_retain_layer *layer)
{
        struct cairn_server *server = r->request->server;
        uint64_t limit = server->config->context_bytes;
        uint64_t bytes = cairn_retain_layer_bytes(r);

        if (bytes > limit || server->counters.context_bytes > limit - bytes)
                return CAIRN_ENOMEM;
        layer->memory = cairn_secret_alloc(bytes);
        if (!layer->memory)
                return CAIRN_ENOMEM;
        layer->bytes = bytes;
        server->counters.context_bytes += bytes;
        layer->active = true;
        layer->index = r->layers_next++;
        layer->step = CAIRN_RETAIN_LOAD;
        layer->next = 0;
        carve(r, layer);
        return CAIRN_OK;
}

static void end_layer(struct cairn_retain *r, struct cairn_retain_layer *layer)
{
        assert(layer->running == 0);
        r->request->server->counters.context_bytes -= layer->bytes;
        free(layer->memory);
        layer->memory = NULL;
        layer->bytes = 0;
        layer->active = false;
}

static bool any_active(const struct cairn_retain *r)
{
        for (uint32_t i = 0; i < r->slots_count; i++)
                if (r->slots[i].active)
                        return true;
        return false;
}

// One layer at least is at work while there are any; more if memory allows.
static void start_layers(struct cairn_retain *r)
{
        for (uint32_t i = 0; i < r->slots_count && r->status == CAIRN_OK; i++) {
                if (r->slots[i].active || r->layers_next == r->layers_count)
                        continue;
                if (start_layer(r, &r->slots[i]) != CAIRN_OK) {
                        if (!any_active(r))
                                r->status = CAIRN_ENOMEM;
                        return;
                }
        }
        if (r->status == CAIRN_OK && !any_active(r) && !r->writer.active &&
            r->writer.step == CAIRN_RETAIN_LOAD) {
                if (r->on_scored)
                        r->on_scored(r);
                r->writer.step = CAIRN_RETAIN_WRITE;
                r->writer.active = true;
        }
}

static void advance(struct cairn_retain *r, struct cairn_retain_layer *layer)
{
        if (layer->next < cairn_retain_items(r, layer->step) || layer->running > 0)
                return;
        if (layer->step == CAIRN_RETAIN_WRITE) {
                layer->active = false;
                return;
        }
        layer->next = 0;
        do
                layer->step++;
        while (layer->step < CAIRN_RETAIN_ENDED && cairn_retain_items(r, layer->step) == 0);
        if (layer->step == CAIRN_RETAIN_ENDED) {
                end_layer(r, layer);
                start_layers(r);
        }
}

static void run(struct cairn_work *work)
{
        struct cairn_retain_worker *worker =
            (struct cairn_retain_worker *)((uint8_t *)work -
                                           offsetof(struct cairn_retain_worker, work));
        uint64_t begun_ns = cairn_clock_ns();

        worker->status = cairn_retain_run(worker->retain, worker);
        worker->ns = cairn_clock_ns() - begun_ns;
}

static void submit(struct cairn_retain *r, struct cairn_retain_worker *worker)
{
        r->running++;
        worker->layer->running++;
        cairn_scorer_submit(r->request->server->scorer, &worker->work);
}

// Gives an item to each idle worker while there are any.
static void dispatch(struct cairn_retain *r)
{
        for (uint32_t w = 0; w < r->workers_count; w++) {
                struct cairn_retain_worker *worker = &r->workers[w];

                for (uint32_t i = 0; i <= r->slots_count && !worker->layer; i++) {
                        struct cairn_retain_layer *layer =
                            i < r->slots_count ? &r->slots[i] : &r->writer;

                        if (!layer->active || layer->next == cairn_retain_items(r, layer->step))
                                continue;
                        worker->layer = layer;
                        worker->item = layer->next++;
                        worker->slice = 0;
                        submit(r, worker);
                }
        }
}

static void on_ran(struct cairn_work *work)
{
        struct cairn_retain_worker *worker =
            (struct cairn_retain_worker *)((uint8_t *)work -
                                           offsetof(struct cairn_retain_worker, work));
        struct cairn_retain *r = worker->retain;
        struct cairn_retain_layer *layer = worker->layer;

        r->running--;
        layer->running--;
        r->kernel_ns += worker->ns;
        if (r->status == CAIRN_OK)
                r->status = worker->status;
        if (r->status == CAIRN_OK && cairn_request_abandoned(r->request))
                r->status = CAIRN_ECANCELLED;
        if (r->status == CAIRN_OK && cairn_request_late(r->request))
                r->status = CAIRN_EDEADLINE;
        if (r->status == CAIRN_OK && worker->slice + 1 < cairn_retain_slices(r, layer->step)) {
                worker->slice++;
                submit(r, worker);
                return;
        }
        worker->layer = NULL;
        if (r->status == CAIRN_OK)
                advance(r, layer);
        if (r->status == CAIRN_OK)
                dispatch(r);
        if (r->running == 0)
                r->on_done(r);
}

// Layers at a time: two, so that one's serial steps do not leave scorers idle, or more if layers
// have few items.
static uint32_t count_slots(const struct cairn_retain *r, uint32_t threads)
{
        uint32_t items = r->entry->space.kv_heads * r->spans;
        uint32_t slots = 2 * threads / items + 2;

        return slots < r->layers_count ? slots : r->layers_count;
}

int cairn_retain_start(struct cairn_retain *r, void (*on_done)(struct cairn_retain *retain))
{
        const struct cairn_space *space = &r->entry->space;
        uint64_t outcomes = (uint64_t)r->layers_count * space->kv_heads;
        uint32_t threads = cairn_scorer_threads(r->request->server->scorer);

        r->on_done = on_done;
        r->workers_count = threads;
        r->slots_count = count_slots(r, threads);
        r->slots = calloc(r->slots_count, sizeof(r->slots[0]));
        r->heads = calloc((size_t)r->slots_count * space->kv_heads, sizeof(r->heads[0]));
        r->workers = calloc(threads, sizeof(r->workers[0]));
        if (r->plan)
                r->plans = calloc(outcomes, sizeof(r->plans[0]));
        else
                r->outcomes = calloc(outcomes, sizeof(r->outcomes[0]));
        if (!r->slots || !r->heads || !r->workers || (!r->plans && !r->outcomes))
                return CAIRN_ENOMEM;
        if (!r->plan &&
            cairn_present_create(r->request->server, r->entry, r->tokens, &r->kept) != CAIRN_OK)
                return CAIRN_ENOMEM;
        for (uint32_t i = 0; i < r->slots_count; i++)
                r->slots[i].heads = r->heads + (size_t)i * space->kv_heads;
        for (uint32_t i = 0; i < threads; i++)
                r->workers[i] =
                    (struct cairn_retain_worker){.work = {.run = run, .on_done = on_ran},
                                                 .retain = r};
        start_layers(r);
        if (r->status != CAIRN_OK)
                return r->status;
        dispatch(r);
        return CAIRN_OK;
}

void cairn_retain_stop(struct cairn_retain *r)
{
        assert(r->running == 0);
        for (uint32_t i = 0; r->slots && i < r->slots_count; i++) {
                r->slots[i].running = 0;
                if (r->slots[i].active)
                        end_layer(r, &r->slots[i]);
        }
        cairn_present_unref(r->request->server, r->kept);
        free(r->slots);
        free(r->heads);
        free(r->workers);
        free(r->outcomes);
        free(r->plans);
}
