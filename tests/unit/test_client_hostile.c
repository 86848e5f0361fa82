// A daemon whose replies are damaged at random: whatever comes, the client returns a status and
// touches nothing beyond the caller's memory (ASan and the guards watch). CAIRN_TEST_SEED replays a
// run.
#include "tests/unit/fake_daemon.h"

#include <time.h>

#include "cairn/cairn.h"

enum {
        ROUNDS = 2000,
        KEYS = 5,
        LAYERS = 2,
        HEADS = 2,
        DIM = 16,
        QUERIES = 4
};

static uint64_t next_random(uint64_t *state)
{
        *state = *state * 6364136223846793005ull + 1442695040888963407ull;
        return *state >> 33;
}

static void serve_retrieve(struct fake_daemon *fake, const struct cairn_frame *frame,
                           const Cairn__RetrieveRequest *request, const uint8_t *payload)
{
        Cairn__RetrieveReply reply = CAIRN__RETRIEVE_REPLY__INIT;
        struct cairn_result_shape shape = {.pairs = 1,
                                           .steps = 1,
                                           .kv_heads = HEADS,
                                           .query_heads = QUERIES,
                                           .k_max = 8,
                                           .k_dim = DIM,
                                           .v_dim = DIM,
                                           .row_dtype = CAIRN_DTYPE_F32,
                                           .attend = frame->header.kind == CAIRN_KIND_ATTEND,
                                           .rest = request->rest,
                                           .rows = request->rows};
        struct cairn_result_layout layout;

        cr_assert_eq(cairn_result_layout(&shape, &layout), 0);
        reply.k_max = 8;
        reply.result_bytes = layout.total_bytes;
        fake_reply_to(fake, frame->header.kind, frame->header.id, 0, &reply, payload,
                      layout.total_bytes);
}

// What the fake answers before it is damaged: good replies to all that this test asks.
static bool serve(struct fake_daemon *fake, const struct cairn_frame *frame, const void *message)
{
        static int32_t statuses[KEYS];
        static uint8_t payload[1 << 18];

        switch (frame->header.kind) {
        case CAIRN_KIND_PUT: {
                Cairn__PutReply reply = CAIRN__PUT_REPLY__INIT;

                reply.n_statuses = KEYS;
                reply.statuses = statuses;
                fake_reply(fake, frame, &reply);
                return true;
        }
        case CAIRN_KIND_GET: {
                const Cairn__GetRequest *request = message;
                Cairn__GetReply reply = CAIRN__GET_REPLY__INIT;

                reply.n_statuses = KEYS;
                reply.statuses = statuses;
                fake_reply_to(fake, CAIRN_KIND_GET, frame->header.id, 0, &reply, payload,
                              request->destination->bytes);
                return true;
        }
        case CAIRN_KIND_STATS: {
                Cairn__StatsReply reply = CAIRN__STATS_REPLY__INIT;
                Cairn__Metric metric = CAIRN__METRIC__INIT;
                Cairn__Metric *metrics[3] = {&metric, &metric, &metric};

                metric.name = metric.labels = "metric";
                reply.n_metrics = 3;
                reply.metrics = metrics;
                fake_reply(fake, frame, &reply);
                return true;
        }
        case CAIRN_KIND_LIST_SPACES: {
                Cairn__ListSpacesReply reply = CAIRN__LIST_SPACES_REPLY__INIT;
                Cairn__SpaceInfo info = CAIRN__SPACE_INFO__INIT;
                Cairn__SpaceInfo *infos[2] = {&info, &info};
                Cairn__Space space = CAIRN__SPACE__INIT;
                struct cairn_space plain;

                cairn_space_defaults(&plain);
                cairn_codec_space_to(&plain, &space);
                info.space = &space;
                info.fingerprint = (ProtobufCBinaryData){32, payload};
                reply.n_spaces = 2;
                reply.spaces = infos;
                fake_reply(fake, frame, &reply);
                return true;
        }
        case CAIRN_KIND_RETRIEVE:
        case CAIRN_KIND_ATTEND: serve_retrieve(fake, frame, message, payload); return true;
        default: return false;
        }
}

// Flips bits of status, message and payload; shortens either with a header that agrees. Id and kind
// stay, so that the client does not have to wait for a deadline.
static void spoil(struct fake_daemon *fake, uint8_t *bytes, size_t *size)
{
        uint64_t *state = fake->arg;
        uint32_t message_bytes = cairn_get_u32(bytes + 20);
        uint32_t payload_bytes = cairn_get_u32(bytes + 24);
        uint64_t flips = next_random(state) % 4;

        if (cairn_get_u16(bytes + 6) == (CAIRN_KIND_REPLY | CAIRN_KIND_HELLO) ||
            cairn_get_u16(bytes + 6) == (CAIRN_KIND_REPLY | CAIRN_KIND_OPEN_SPACE))
                return; // or nothing else would be reached
        for (uint64_t i = 0; i<flips && * size> 32; i++)
                bytes[32 + next_random(state) % (*size - 32 < 96 ? *size - 32 : 96)] ^=
                    (uint8_t)(1u << next_random(state) % 8);
        if (next_random(state) % 8 == 0)
                bytes[16 + next_random(state) % 4] ^= (uint8_t)(1u << next_random(state) % 8);
        if (next_random(state) % 8 == 0 && payload_bytes > 0) {
                uint32_t cut = (uint32_t)(1 + next_random(state) % payload_bytes);

                cairn_put_u32(bytes + 24, payload_bytes - cut);
                *size -= cut;
        } else if (next_random(state) % 8 == 0 && payload_bytes == 0 && message_bytes > 0) {
                uint32_t cut = (uint32_t)(1 + next_random(state) % message_bytes);

                cairn_put_u32(bytes + 20, message_bytes - cut);
                *size -= cut;
        }
}

static void on_metric(void *arg, const char *name, const char *labels, double value)
{
        (void)value;
        *(size_t *)arg += strlen(name) + strlen(labels);
}

static void on_space(void *arg, const struct cairn_space_info *info)
{
        *(size_t *)arg += strlen(info->config.model) + strlen(info->config.layout);
}

struct guarded {
        uint8_t before[64];
        uint8_t bytes[1 << 17];
        uint8_t after[64];
};

static void check_guards(const struct guarded *memory, uint64_t round)
{
        for (int i = 0; i < 64; i++) {
                cr_assert_eq(memory->before[i], 0xa5, "round %lu", round);
                cr_assert_eq(memory->after[i], 0xa5, "round %lu", round);
        }
}

static int ask(struct cairn_client *client, uint32_t space, const struct cairn_context *context,
               struct guarded *memory, uint64_t what)
{
        static float queries[QUERIES * DIM];
        struct cairn_key keys[KEYS] = {{{1}}, {{2}}, {{3}}, {{4}}, {{5}}};
        int statuses[KEYS + 2];
        uint32_t layer = 1;
        size_t found, seen = 0;
        struct cairn_lease lease;
        struct cairn_ping_info info;
        struct cairn_selection selection;
        struct cairn_put_args put = {
            .space = space, .keys = keys, .count = KEYS, .blocks = memory->bytes};
        struct cairn_get_args get = {
            .space = space, .keys = keys, .count = KEYS, .blocks = memory->bytes};
        struct cairn_retrieve_args retrieve = {.contexts = context,
                                               .contexts_count = 1,
                                               .layers = &layer,
                                               .layers_count = 1,
                                               .query_heads = QUERIES,
                                               .queries = queries,
                                               .budget = {.count = 8},
                                               .rows = true,
                                               .rest = what % 2};
        uint64_t bytes = cairn_retrieve_bytes(client, &retrieve, what == 7);

        switch (what) {
        case 0: return cairn_ping(client, NULL, &info);
        case 1: return cairn_stats(client, NULL, on_metric, &seen);
        case 2: return cairn_list_spaces(client, NULL, on_space, &seen);
        case 3: return cairn_lookup(client, NULL, space, keys, KEYS, 10, &found, &lease);
        case 4: return cairn_put(client, NULL, &put, statuses);
        case 5: return cairn_get(client, NULL, &get, statuses);
        case 6: return cairn_retrieve(client, NULL, &retrieve, memory->bytes, bytes, &selection);
        default: return cairn_attend(client, NULL, &retrieve, memory->bytes, bytes, &selection);
        }
}

Test(client_hostile, damaged_replies_are_statuses, .timeout = 250)
{
        const char *seed_text = getenv("CAIRN_TEST_SEED");
        uint64_t state = seed_text ? strtoull(seed_text, NULL, 10) : (uint64_t)time(NULL);
        struct fake_daemon *fake = fake_start(serve);
        struct cairn_client_options options = {
            .socket_path = fake->path, .timeout_ms = 1000, .reconnect_wait_ms = 1000};
        struct guarded *memory = malloc(sizeof(*memory));
        struct cairn_client *client = NULL;
        struct cairn_space_config config;
        struct cairn_context context;
        uint32_t space;
        uint64_t good = 0, bad = 0;

        printf("CAIRN_TEST_SEED=%lu\n", state);
        memset(memory, 0xa5, sizeof(*memory));
        cairn_space_config_init(&config);
        strcpy(config.model, "hostile");
        config.layers = LAYERS;
        config.kv_heads = HEADS;
        config.k_dim = config.v_dim = DIM;
        config.dtype = CAIRN_DTYPE_F32;
        config.block_tokens = config.run_tokens = 16;
        cr_assert_eq(cairn_client_create(&options, &client, NULL, 0), 0);
        cr_assert_eq(cairn_client_open_space(client, &config, &space), 0);
        cr_assert_eq(cairn_open_context(client, NULL, space, NULL, 0, &context), 0);
        fake->arg = &state;
        fake->spoil = spoil;
        for (uint64_t round = 0; round < ROUNDS; round++) {
                for (uint64_t what = 0; what < 8; what++) {
                        int status = ask(client, space, &context, memory, what);

                        cr_assert_leq(status, 0);
                        good += status == CAIRN_OK;
                        bad += status != CAIRN_OK;
                        check_guards(memory, round);
                }
        }
        cr_expect_gt(good, ROUNDS, "undamaged and harmlessly damaged replies still count");
        cr_expect_gt(bad, ROUNDS, "damage is seen");
        fake->spoil = NULL;
        cr_expect_eq(cairn_ping(client, NULL, NULL), CAIRN_OK, "and the client is none the worse");
        cairn_client_destroy(client);
        free(memory);
        fake_stop(fake);
}
