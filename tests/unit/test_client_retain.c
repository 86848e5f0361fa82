// Retain and Plan of the client against a fake daemon: what goes out, and answers that are none.
#include "tests/unit/fake_daemon.h"

#include "cairn/cairn.h"

enum {
        LAYERS = 3,
        HEADS = 2,
        DIM = 16,
        PROXIES = 2,
        KEPT = 7, // of all heads
};

struct fixture {
        struct fake_daemon *fake;
        struct cairn_client *client;
        struct cairn_context context;
        float queries[LAYERS * PROXIES * HEADS * DIM];
        struct cairn_retain_args args;
};

// What the fake answers with.
static struct {
        uint64_t kept;
        uint64_t counts_off;
        size_t bytes_off;
        size_t curve;
        bool no_needed;
        uint64_t seen_positions[2];
        bool seen_drop;
        double seen_keep;
} script;

static void answer_retain(struct fake_daemon *fake, const struct cairn_frame *frame,
                          const Cairn__RetainRequest *request)
{
        Cairn__RetainReply reply = CAIRN__RETAIN_REPLY__INIT;
        struct cairn_retain_layout layout;
        uint32_t counts[LAYERS * HEADS] = {2, 1, 1, 1, 1, 1};
        uint8_t *result;

        cr_assert_eq(request->proxies->n_positions, 2);
        memcpy(script.seen_positions, request->proxies->positions, sizeof(script.seen_positions));
        script.seen_drop = request->drop;
        script.seen_keep = request->shares->proxy_keep;
        counts[0] += (uint32_t)script.counts_off;
        cr_assert_eq(cairn_retain_layout(LAYERS, HEADS, script.kept, &layout), CAIRN_OK);
        result = calloc(1, layout.total_bytes + 64);
        memcpy(result + layout.counts, counts, sizeof(counts));
        for (uint32_t i = 0; i < script.kept && i < 8; i++)
                memcpy(result + layout.positions + 4 * i, &(uint32_t){10 * i}, 4);
        reply.kept = script.kept;
        reply.removed = 5;
        reply.mass = 0.75;
        reply.result_bytes = layout.total_bytes;
        fake_reply_to(fake, CAIRN_KIND_RETAIN, frame->header.id, 0, &reply, result,
                      layout.total_bytes - script.bytes_off);
        free(result);
}

static void answer_plan(struct fake_daemon *fake, const struct cairn_frame *frame,
                        const Cairn__PlanRequest *request)
{
        Cairn__PlanReply reply = CAIRN__PLAN_REPLY__INIT;
        Cairn__PlanPoint points[CAIRN_CURVE_POINTS + 1];
        Cairn__PlanPoint *pointers[CAIRN_CURVE_POINTS + 1];
        struct cairn_plan_layout layout;
        uint8_t *result;

        for (size_t i = 0; i <= CAIRN_CURVE_POINTS; i++) {
                cairn__plan_point__init(&points[i]);
                points[i].share = (double)(i + 1) / 64;
                pointers[i] = &points[i];
        }
        cr_assert_eq(cairn_plan_layout(LAYERS, HEADS, &layout), CAIRN_OK);
        result = calloc(1, layout.total_bytes);
        for (uint32_t i = 0; i < LAYERS * HEADS; i++)
                memcpy(result + layout.needed + 4 * i, &(uint32_t){100 + i}, 4);
        reply.needed = script.no_needed ? NULL : &points[3];
        reply.n_curve = script.curve;
        reply.curve = pointers;
        reply.n_budgets = request->n_budgets;
        reply.budgets = pointers;
        reply.tokens = 64;
        reply.result_bytes = layout.total_bytes;
        fake_reply_to(fake, CAIRN_KIND_PLAN, frame->header.id, 0, &reply, result,
                      layout.total_bytes - script.bytes_off);
        free(result);
}

static bool answer(struct fake_daemon *fake, const struct cairn_frame *frame, const void *message)
{
        if (frame->header.kind == CAIRN_KIND_RETAIN)
                answer_retain(fake, frame, message);
        else if (frame->header.kind == CAIRN_KIND_PLAN)
                answer_plan(fake, frame, message);
        else
                return false;
        return true;
}

static struct fixture *begin(void)
{
        struct fixture *f = calloc(1, sizeof(*f));
        struct cairn_client_options options = {.name = "test"};
        struct cairn_space_config config;
        char text[512] = "";
        uint32_t space;

        memset(&script, 0, sizeof(script));
        script.kept = KEPT;
        script.curve = CAIRN_CURVE_POINTS;
        f->fake = fake_start(answer);
        options.socket_path = f->fake->path;
        cr_assert_eq(cairn_client_create(&options, &f->client, text, sizeof(text)), CAIRN_OK, "%s",
                     text);
        cairn_space_config_init(&config);
        strcpy(config.model, "toy");
        config.layers = LAYERS;
        config.kv_heads = HEADS;
        config.k_dim = config.v_dim = DIM;
        config.dtype = CAIRN_DTYPE_F32;
        config.block_tokens = config.run_tokens = 16;
        cr_assert_eq(cairn_client_open_space(f->client, &config, &space), CAIRN_OK);
        cr_assert_eq(cairn_open_context(f->client, NULL, space, NULL, 0, &f->context), CAIRN_OK);
        cairn_retain_args_init(&f->args);
        f->args.context = &f->context;
        f->args.queries = f->queries;
        f->args.query_heads = HEADS;
        f->args.proxies_count = PROXIES;
        return f;
}

static void end(struct fixture *f)
{
        cairn_client_destroy(f->client);
        fake_stop(f->fake);
        free(f);
}

Test(client_retain, a_retain_asks_for_the_last_tokens_and_points_into_the_answer)
{
        struct fixture *f = begin();
        _Alignas(64) static uint8_t memory[4096];
        struct cairn_retained kept;

        f->args.drop = true;
        cr_assert_geq(cairn_retain_bytes(f->client, &f->args), 2 * 64 + KEPT * 4);
        cr_assert_eq(cairn_retain(f->client, NULL, &f->args, memory, sizeof(memory), &kept),
                     CAIRN_OK, "%s", cairn_client_error(f->client));
        cr_expect_eq(script.seen_positions[0], 64 - PROXIES);
        cr_expect_eq(script.seen_positions[1], 64);
        cr_expect(script.seen_drop);
        cr_expect_eq(script.seen_keep, 0.12);
        cr_expect_eq(kept.layers, LAYERS);
        cr_expect_eq(kept.counts[0], 2);
        cr_expect_eq(kept.positions[6], 60);
        cr_expect_eq(kept.removed, 5);
        cr_expect_eq(kept.mass_mean, 0.75);
        cr_expect_eq((const uint8_t *)kept.counts, memory);
        end(f);
}

Test(client_retain, answers_that_contradict_themselves_are_none)
{
        struct fixture *f = begin();
        _Alignas(64) static uint8_t memory[4096];
        struct cairn_retained kept = {.kept = 99};

        script.counts_off = 1; // counts that add up to more than is there
        cr_expect_eq(cairn_retain(f->client, NULL, &f->args, memory, sizeof(memory), &kept),
                     CAIRN_EPROTO);
        script.counts_off = 0;
        script.bytes_off = 4; // fewer bytes than said
        cr_expect_eq(cairn_retain(f->client, NULL, &f->args, memory, sizeof(memory), &kept),
                     CAIRN_EPROTO);
        script.bytes_off = 0;
        script.kept = 4000; // more than the memory holds
        cr_expect_eq(cairn_retain(f->client, NULL, &f->args, memory, sizeof(memory), &kept),
                     CAIRN_EPROTO);
        cr_expect_eq(kept.kept, 99, "outputs stay as they were");
        end(f);
}

Test(client_retain, a_plan_has_its_points_and_heads)
{
        struct fixture *f = begin();
        struct cairn_plan_args args = {
            .retain = f->args, .budgets = (const double[]){0.1, 0.2}, .budgets_count = 2};
        _Alignas(64) static uint8_t memory[8192];
        struct cairn_plan *plan = calloc(1, sizeof(*plan));

        cr_assert_leq(cairn_plan_bytes(f->client, &args), sizeof(memory));
        cr_assert_eq(cairn_plan(f->client, NULL, &args, memory, sizeof(memory), plan), CAIRN_OK,
                     "%s", cairn_client_error(f->client));
        cr_expect_eq(plan->needed.share, 4.0 / 64);
        cr_expect_eq(plan->curve[63].share, 1);
        cr_expect_eq(plan->budgets[1].share, 2.0 / 64);
        cr_expect_eq(plan->head_needed[5], 105);
        for (int i = 0; i < 3; i++) {
                script.no_needed = i == 0;
                script.curve = i == 1 ? 63 : 64;
                script.bytes_off = i == 2 ? 1 : 0;
                cr_expect_eq(cairn_plan(f->client, NULL, &args, memory, sizeof(memory), plan),
                             CAIRN_EPROTO);
        }
        free(plan);
        end(f);
}

Test(client_retain, bad_arguments_never_reach_the_daemon)
{
        struct fixture *f = begin();
        _Alignas(64) static uint8_t memory[4096];
        struct cairn_retained kept;
        struct cairn_plan_args plan_args = {.retain = f->args, .budgets_count = 65};
        struct cairn_plan plan;
        struct cairn_context none = {0};

        for (int i = 0; i < 6; i++) {
                struct cairn_retain_args args = f->args;

                switch (i) {
                case 0: args.queries = NULL; break;
                case 1: args.proxies_count = 0; break;
                case 2: args.proxies_count = 65; break; // of 64 tokens
                case 3: args.query_heads = 0; break;
                case 4: args.protected_count = 65; break;
                default: args.context = &none; break;
                }
                cr_expect_eq(cairn_retain(f->client, NULL, &args, memory, sizeof(memory), &kept),
                             CAIRN_EINVAL, "%d", i);
                cr_expect(*cairn_client_error(f->client) != 0);
        }
        cr_expect_eq(cairn_plan(f->client, NULL, &plan_args, memory, sizeof(memory), &plan),
                     CAIRN_EINVAL);
        cr_expect_eq(atomic_load(&f->fake->requests[CAIRN_KIND_RETAIN]), 0);
        cr_expect_eq(atomic_load(&f->fake->requests[CAIRN_KIND_PLAN]), 0);
        end(f);
}
