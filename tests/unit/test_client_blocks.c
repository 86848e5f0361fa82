// Blocks, contexts and answers through the client, against a fake daemon: where bytes go, and what
// is refused.
#include "tests/unit/fake_daemon.h"

#include <fcntl.h>

#include "cairn/cairn.h"

// What the fake daemon was told and what it shall answer.
struct script {
        uint32_t puts;
        uint32_t keys[16];
        uint8_t parents[16][CAIRN_KEY_BYTES];
        size_t parent_bytes[16];
        uint8_t first_byte[16]; // of each put's payload or arena range
        bool from_arena[16];
        int statuses_offset; // added to the number of statuses that a reply carries
        int32_t status;      // of every key
        int payload_offset;  // added to a reply's payload bytes
        uint32_t found;
        uint32_t k_max;
        uint32_t count; // in every place of counts
        int64_t result_offset;
};

static struct cairn_space_config config_of(uint32_t layers, uint32_t block_tokens)
{
        struct cairn_space_config config;

        cairn_space_config_init(&config);
        strcpy(config.model, "toy");
        config.layers = layers;
        config.kv_heads = 2;
        config.k_dim = config.v_dim = 16;
        config.dtype = CAIRN_DTYPE_F32;
        config.block_tokens = config.run_tokens = block_tokens;
        return config;
}

static const uint8_t *source_of(struct fake_daemon *fake, const Cairn__Region *region,
                                const struct cairn_frame *frame)
{
        if (region->arena == 0)
                return frame->payload;
        cr_assert_leq(region->offset + region->bytes, fake->arena_bytes[region->arena - 1]);
        return fake->arena[region->arena - 1] + region->offset;
}

static void fill_statuses(const struct script *script, size_t keys, int32_t *ret_statuses,
                          size_t *ret_count)
{
        *ret_count = (size_t)((int)keys + script->statuses_offset);
        for (size_t i = 0; i < *ret_count; i++)
                ret_statuses[i] = script->status;
}

static void serve_put(struct fake_daemon *fake, const struct cairn_frame *frame,
                      const Cairn__PutRequest *request)
{
        struct script *script = fake->arg;
        Cairn__PutReply reply = CAIRN__PUT_REPLY__INIT;
        int32_t statuses[64];
        uint32_t n = script->puts++ % 16;
        size_t keys = request->keys.len / CAIRN_KEY_BYTES;

        script->keys[n] = (uint32_t)keys;
        script->parent_bytes[n] = request->parent.len;
        if (request->parent.len == CAIRN_KEY_BYTES)
                memcpy(script->parents[n], request->parent.data, CAIRN_KEY_BYTES);
        script->from_arena[n] = request->source->arena != 0;
        script->first_byte[n] = request->n_offsets
                                    ? fake->arena[request->source->arena - 1][request->offsets[0]]
                                    : *source_of(fake, request->source, frame);
        fill_statuses(script, keys, statuses, &reply.n_statuses);
        reply.statuses = statuses;
        fake_reply(fake, frame, &reply);
}

static void serve_get(struct fake_daemon *fake, const struct cairn_frame *frame,
                      const Cairn__GetRequest *request)
{
        struct script *script = fake->arg;
        Cairn__GetReply reply = CAIRN__GET_REPLY__INIT;
        const Cairn__Region *to = request->destination;
        size_t keys = request->keys.len / CAIRN_KEY_BYTES;
        int32_t statuses[64];
        uint8_t *payload;
        size_t bytes = (size_t)((int64_t)to->bytes + script->payload_offset);

        fill_statuses(script, keys, statuses, &reply.n_statuses);
        reply.statuses = statuses;
        if (to->arena) {
                memset(fake->arena[to->arena - 1] + to->offset, 0x5a, to->bytes);
                fake_reply(fake, frame, &reply);
                return;
        }
        payload = malloc(bytes + 1);
        memset(payload, 0x5a, bytes);
        fake_reply_to(fake, CAIRN_KIND_GET, frame->header.id, 0, &reply, payload, bytes);
        free(payload);
}

static void serve_retrieve(struct fake_daemon *fake, const struct cairn_frame *frame,
                           const Cairn__RetrieveRequest *request)
{
        struct script *script = fake->arg;
        Cairn__RetrieveReply reply = CAIRN__RETRIEVE_REPLY__INIT;
        struct cairn_result_shape shape = {.pairs = (uint32_t)request->n_layers,
                                           .steps = request->steps,
                                           .kv_heads = 2,
                                           .query_heads = request->query_heads,
                                           .k_max = script->k_max,
                                           .k_dim = 16,
                                           .v_dim = 16,
                                           .row_dtype = CAIRN_DTYPE_F32,
                                           .attend = frame->header.kind == CAIRN_KIND_ATTEND,
                                           .rest = request->rest,
                                           .rows = request->rows};
        struct cairn_result_layout layout;
        uint8_t *result;

        cr_assert_eq(cairn_result_layout(&shape, &layout), 0);
        result = calloc(1, layout.total_bytes);
        for (uint32_t i = 0; i < shape.pairs * shape.steps * 2; i++)
                memcpy(result + layout.counts + 4 * i, &script->count, 4);
        for (uint32_t i = 0; i < shape.pairs * shape.steps * 2 * shape.k_max; i++)
                memcpy(result + layout.positions + 4 * i, &i, 4);
        reply.k_max = script->k_max;
        reply.result_bytes = (uint64_t)((int64_t)layout.total_bytes + script->result_offset);
        reply.tokens_scanned = 64;
        if (request->result->arena) {
                if (layout.total_bytes <= request->result->bytes)
                        memcpy(fake->arena[request->result->arena - 1] + request->result->offset,
                               result, layout.total_bytes);
                fake_reply(fake, frame, &reply);
        } else {
                fake_reply_to(fake, frame->header.kind, frame->header.id, 0, &reply, result,
                              layout.total_bytes);
        }
        free(result);
}

static bool serve(struct fake_daemon *fake, const struct cairn_frame *frame, const void *message)
{
        struct script *script = fake->arg;

        switch (frame->header.kind) {
        case CAIRN_KIND_PUT: serve_put(fake, frame, message); return true;
        case CAIRN_KIND_GET: serve_get(fake, frame, message); return true;
        case CAIRN_KIND_RETRIEVE:
        case CAIRN_KIND_ATTEND: serve_retrieve(fake, frame, message); return true;
        case CAIRN_KIND_LOOKUP: {
                Cairn__LookupReply reply = CAIRN__LOOKUP_REPLY__INIT;

                if (!script->found)
                        return false;
                reply.found = script->found;
                fake_reply(fake, frame, &reply);
                return true;
        }
        default: return false;
        }
}

struct setup {
        struct script script;
        struct fake_daemon *fake;
        struct cairn_client *client;
        uint32_t space;
        uint64_t block_bytes;
};

static void begin(struct setup *setup, uint32_t layers, uint32_t block_tokens)
{
        struct cairn_space_config config = config_of(layers, block_tokens);
        struct cairn_client_options options;

        *setup = (struct setup){0};
        setup->fake = fake_start(serve);
        setup->fake->arg = &setup->script;
        options = (struct cairn_client_options){.socket_path = setup->fake->path};
        cr_assert_eq(cairn_client_create(&options, &setup->client, NULL, 0), 0);
        cr_assert_eq(cairn_client_open_space(setup->client, &config, &setup->space), 0);
        setup->block_bytes = cairn_space_config_block_bytes(&config);
}

static void finish(struct setup *setup)
{
        cairn_client_destroy(setup->client);
        fake_stop(setup->fake);
}

Test(client_blocks, small_puts_from_plain_memory_go_inline)
{
        struct setup s;
        struct cairn_key keys[3] = {{{1}}, {{2}}, {{3}}};
        struct cairn_key parent = {{9}};
        int statuses[3] = {1, 1, 1};
        uint8_t *blocks;

        begin(&s, 2, 16);
        blocks = malloc(3 * s.block_bytes);
        memset(blocks, 0x77, 3 * s.block_bytes);
        struct cairn_put_args args = {
            .space = s.space, .keys = keys, .count = 3, .parent = &parent, .blocks = blocks};

        cr_assert_eq(cairn_put(s.client, NULL, &args, statuses), CAIRN_OK);
        cr_expect_eq(s.script.puts, 1);
        cr_expect_eq(s.script.keys[0], 3);
        cr_expect_eq(s.script.from_arena[0], false);
        cr_expect_eq(s.script.first_byte[0], 0x77);
        cr_expect_arr_eq(s.script.parents[0], parent.bytes, CAIRN_KEY_BYTES);
        for (int i = 0; i < 3; i++)
                cr_expect_eq(statuses[i], CAIRN_OK);
        free(blocks);
        finish(&s);
}

Test(client_blocks, large_puts_from_plain_memory_go_in_slices_that_stay_a_chain)
{
        struct setup s;
        struct cairn_key keys[6];
        uint8_t *blocks;

        begin(&s, 64, 1024); // 16 MiB a block, 32 MiB of staging
        blocks = malloc(6 * s.block_bytes);
        for (int i = 0; i < 6; i++) {
                memset(keys[i].bytes, i + 1, CAIRN_KEY_BYTES);
                memset(blocks + (size_t)i * s.block_bytes, i + 1, s.block_bytes);
        }
        struct cairn_put_args args = {.space = s.space, .keys = keys, .count = 6, .blocks = blocks};

        cr_assert_eq(cairn_put(s.client, NULL, &args, NULL), CAIRN_OK);
        cr_expect_eq(s.script.puts, 3);
        cr_expect_eq(s.script.parent_bytes[0], 0, "the first slice begins at the root");
        for (int i = 0; i < 3; i++) {
                cr_expect_eq(s.script.keys[i], 2);
                cr_expect_eq(s.script.from_arena[i], true);
                cr_expect_eq(s.script.first_byte[i], 2 * i + 1);
                if (i > 0)
                        cr_expect_eq(s.script.parents[i][0], 2 * i, "its parent is the key before");
        }
        free(blocks);
        finish(&s);
}

Test(client_blocks, arenas_are_sealed_and_blocks_in_them_move_by_name)
{
        struct setup s;
        struct cairn_arena *arena;
        struct cairn_key keys[2] = {{{1}}, {{2}}};
        uint8_t *memory;
        int seals;

        begin(&s, 2, 16);
        cr_assert_eq(cairn_client_arena_create(s.client, 1 << 20, &arena), CAIRN_OK);
        seals = s.fake->arena_seals;
        cr_expect(seals & F_SEAL_SHRINK);
        cr_expect(seals & F_SEAL_GROW);
        cr_expect(seals & F_SEAL_SEAL);
        memory = cairn_client_arena_data(arena);
        const void *at[2] = {memory + 3 * s.block_bytes, memory + s.block_bytes};
        memset(memory + 3 * s.block_bytes, 0x33, s.block_bytes);
        struct cairn_put_args args = {.space = s.space, .keys = keys, .count = 2, .blocks_at = at};

        cr_assert_eq(cairn_put(s.client, NULL, &args, NULL), CAIRN_OK);
        cr_expect_eq(s.script.from_arena[0], true);
        cr_expect_eq(s.script.first_byte[0], 0x33, "scattered blocks: the first one's offset");

        struct cairn_get_args get = {
            .space = s.space, .keys = keys, .count = 2, .blocks = memory + s.block_bytes};
        cr_assert_eq(cairn_get(s.client, NULL, &get, NULL), CAIRN_OK);
        cr_expect_eq(memory[s.block_bytes - 1], 0);
        cr_expect_eq(memory[s.block_bytes], 0x5a);
        cr_expect_eq(memory[3 * s.block_bytes - 1], 0x5a);
        cr_expect_eq(memory[3 * s.block_bytes], 0x33);
        cr_expect_eq(cairn_client_arena_destroy(s.client, arena), CAIRN_OK);
        finish(&s);
}

Test(client_blocks, get_fills_plain_memory_inline_and_staged)
{
        struct setup s;
        struct cairn_key keys[3] = {{{1}}, {{2}}, {{3}}};

        for (uint32_t layers = 2; layers <= 64; layers += 62) { // 8 KiB and 256 KiB a block
                begin(&s, layers, 16);
                uint8_t *to = calloc(3, s.block_bytes + 1);
                int statuses[3] = {-1, -1, -1};
                struct cairn_get_args get = {
                    .space = s.space, .keys = keys, .count = 3, .blocks = to};

                cr_assert_eq(cairn_get(s.client, NULL, &get, statuses), CAIRN_OK);
                for (size_t i = 0; i < 3 * s.block_bytes; i++)
                        cr_assert_eq(to[i], 0x5a);
                cr_expect_eq(to[3 * s.block_bytes], 0, "not a byte beyond");
                s.script.status = CAIRN_ENOENT;
                memset(to, 0, 3 * s.block_bytes);
                cr_assert_eq(cairn_get(s.client, NULL, &get, statuses), CAIRN_OK);
                for (int i = 0; i < 3; i++)
                        cr_expect_eq(statuses[i], CAIRN_ENOENT);
                cr_expect_eq(to[0], 0, "a missed key leaves its memory alone");
                cr_expect_eq(cairn_get(s.client, NULL, &get, NULL), CAIRN_ENOENT);
                free(to);
                finish(&s);
        }
}

Test(client_blocks, a_range_of_layers_is_a_smaller_piece)
{
        struct setup s;
        struct cairn_key key = {{1}};
        uint8_t *to;

        begin(&s, 8, 16);
        to = calloc(1, s.block_bytes);
        struct cairn_get_args get = {.space = s.space,
                                     .keys = &key,
                                     .count = 1,
                                     .layer_first = 6,
                                     .layer_count = 2,
                                     .blocks = to};

        cr_assert_eq(cairn_get(s.client, NULL, &get, NULL), CAIRN_OK);
        cr_expect_eq(to[s.block_bytes / 4 - 1], 0x5a);
        cr_expect_eq(to[s.block_bytes / 4], 0);
        get.layer_first = 7;
        cr_expect_eq(cairn_get(s.client, NULL, &get, NULL), CAIRN_EINVAL);
        get.layer_first = UINT32_MAX;
        cr_expect_eq(cairn_get(s.client, NULL, &get, NULL), CAIRN_EINVAL);
        free(to);
        finish(&s);
}

Test(client_blocks, replies_that_do_not_fit_the_question_are_refused)
{
        struct setup s;
        struct cairn_key keys[2] = {{{1}}, {{2}}};
        uint8_t *memory;
        int statuses[2] = {7, 7};
        size_t found = 77;

        begin(&s, 2, 16);
        memory = calloc(2, s.block_bytes);
        struct cairn_put_args put = {.space = s.space, .keys = keys, .count = 2, .blocks = memory};
        struct cairn_get_args get = {.space = s.space, .keys = keys, .count = 2, .blocks = memory};

        s.script.statuses_offset = 1;
        cr_expect_eq(cairn_put(s.client, NULL, &put, statuses), CAIRN_EPROTO);
        cr_expect_eq(cairn_get(s.client, NULL, &get, statuses), CAIRN_EPROTO);
        s.script.statuses_offset = -1;
        cr_expect_eq(cairn_get(s.client, NULL, &get, statuses), CAIRN_EPROTO);
        s.script.statuses_offset = 0;
        s.script.status = 3;
        cr_expect_eq(cairn_put(s.client, NULL, &put, statuses), CAIRN_EPROTO);
        s.script.status = CAIRN_OK;
        s.script.payload_offset = 1;
        cr_expect_eq(cairn_get(s.client, NULL, &get, statuses), CAIRN_EPROTO);
        s.script.payload_offset = -1;
        cr_expect_eq(cairn_get(s.client, NULL, &get, statuses), CAIRN_EPROTO);
        s.script.found = 3;
        cr_expect_eq(cairn_lookup(s.client, NULL, s.space, keys, 2, 0, &found, NULL), CAIRN_EPROTO);
        cr_expect_eq(found, 77, "outputs are untouched on failure");
        cr_expect_eq(statuses[0], 7);
        cr_expect_eq(memory[0], 0);
        free(memory);
        finish(&s);
}

Test(client_blocks, arguments_that_contradict_each_other)
{
        struct setup s;
        struct cairn_key keys[2] = {{{1}}, {{2}}};
        struct cairn_space_config config = config_of(0, 16);
        uint8_t bytes[8];
        const void *at[2] = {bytes, bytes};
        uint32_t space;
        size_t found;

        begin(&s, 2, 16);
        struct cairn_put_args put = {.space = s.space, .keys = keys, .count = 2};
        cr_expect_eq(cairn_put(s.client, NULL, &put, NULL), CAIRN_EINVAL);
        put.blocks = bytes;
        put.blocks_at = at;
        cr_expect_eq(cairn_put(s.client, NULL, &put, NULL), CAIRN_EINVAL);
        cr_expect_eq(cairn_client_open_space(s.client, &config, &space), CAIRN_EINVAL);
        cr_expect_not_null(strstr(cairn_client_error(s.client), "layers"));
        cr_expect_eq(cairn_lookup(s.client, NULL, 99, keys, 2, 0, &found, NULL), CAIRN_EINVAL);
        cr_expect_eq(s.script.puts, 0);
        finish(&s);
}

// ---- answers ----

static void ask(struct setup *s, const struct cairn_context *context, uint32_t k, int expected)
{
        static float queries[4 * 16];
        uint32_t layer = 1;
        struct cairn_retrieve_args args = {.contexts = context,
                                           .contexts_count = 1,
                                           .layers = &layer,
                                           .layers_count = 1,
                                           .query_heads = 4,
                                           .queries = queries,
                                           .budget = {.count = k},
                                           .rows = true,
                                           .rest = true};
        struct cairn_selection selection = {0};
        uint64_t bytes = cairn_retrieve_bytes(s->client, &args, false);
        uint8_t *guarded = aligned_alloc(64, (bytes + 127) & ~63ull);

        memset(guarded, 0xee, bytes + 64);
        // Into the library's arena, and into plain memory through the reply.
        cr_expect_eq(cairn_retrieve(s->client, NULL, &args, NULL, 0, &selection), expected);
        cr_expect_eq(cairn_retrieve(s->client, NULL, &args, guarded, bytes, &selection), expected);
        for (uint64_t i = 0; i < 64; i++)
                cr_assert_eq(guarded[bytes + i], 0xee, "beyond the memory at %lu", i);
        if (expected == CAIRN_OK) {
                cr_expect_eq(selection.k_max, s->script.k_max);
                cr_expect_eq((const uint8_t *)selection.counts, guarded);
                cr_expect_eq(selection.counts[1], s->script.count);
                cr_expect_eq(selection.positions[1], 1);
                cr_expect_not_null(selection.k_rows);
                cr_expect_not_null(selection.rest_out);
                cr_expect_null(selection.part_out);
                cr_expect_eq(selection.tokens_scanned, 64);
        }
        free(guarded);
}

Test(client_blocks, an_answer_is_checked_before_it_is_handed_over)
{
        struct setup s;
        struct cairn_context context;

        begin(&s, 2, 16);
        cr_assert_eq(cairn_open_context(s.client, NULL, s.space, NULL, 0, &context), CAIRN_OK);
        cr_expect_eq(context.tokens, 64);
        s.script = (struct script){.k_max = 8, .count = 8};
        ask(&s, &context, 8, CAIRN_OK);
        s.script = (struct script){.k_max = 5, .count = 3}; // fewer than asked for
        ask(&s, &context, 8, CAIRN_OK);
        s.script = (struct script){.k_max = 8, .count = 9}; // more rows than there is room for
        ask(&s, &context, 8, CAIRN_EPROTO);
        s.script = (struct script){.k_max = 8, .count = 8, .result_offset = 64};
        ask(&s, &context, 8, CAIRN_EPROTO);
        s.script = (struct script){.k_max = 60000, .count = 1}; // larger than the memory
        ask(&s, &context, 8, CAIRN_EPROTO);
        finish(&s);
}

Test(client_blocks, retrieve_refuses_what_makes_no_sense)
{
        struct setup s;
        struct cairn_context contexts[2];
        static float queries[4 * 16];
        uint32_t layers[3] = {0, 1, 0};
        struct cairn_selection selection;

        begin(&s, 2, 16);
        cr_assert_eq(cairn_open_context(s.client, NULL, s.space, NULL, 0, &contexts[0]), CAIRN_OK);
        contexts[1] = contexts[0];
        struct cairn_retrieve_args args = {.contexts = contexts,
                                           .contexts_count = 2,
                                           .layers = layers,
                                           .layers_count = 3,
                                           .query_heads = 4,
                                           .queries = queries,
                                           .budget = {.count = 1}};
        cr_expect_eq(cairn_retrieve(s.client, NULL, &args, NULL, 0, &selection), CAIRN_EINVAL);
        args.layers_count = 0;
        cr_expect_eq(cairn_retrieve(s.client, NULL, &args, NULL, 0, &selection), CAIRN_EINVAL);
        args.layers_count = 2;
        args.budget.share = 0.5;
        cr_expect_eq(cairn_retrieve(s.client, NULL, &args, NULL, 0, &selection), CAIRN_EINVAL);
        args.budget.share = 0;
        args.steps = CAIRN_STEPS_MAX + 1;
        cr_expect_eq(cairn_retrieve(s.client, NULL, &args, NULL, 0, &selection), CAIRN_EINVAL);
        cr_expect_eq(atomic_load(&s.fake->requests[CAIRN_KIND_RETRIEVE]), 0);
        finish(&s);
}
