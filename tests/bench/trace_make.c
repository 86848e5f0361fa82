// Traces made from a seed: popularity alone (zipf), popularity under scans (scan), conversations
// that grow turn by turn on models of different cost (chat), long shared prompts with endings of
// their own (shared).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/trace.h"

enum {
        MIB = 1 << 20
};

struct maker {
        struct cairn_trace *trace;
        uint64_t random;
        uint64_t next_id;
        uint64_t time_ms;
};

static uint64_t next_random(struct maker *maker)
{
        uint64_t z = (maker->random += 0x9e3779b97f4a7c15ull);

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
}

static double uniform(struct maker *maker)
{
        return ((double)(next_random(maker) >> 12) + 0.5) * 0x1p-52;
}

static double exponential(struct maker *maker, double mean)
{
        return -mean * log(uniform(maker));
}

// Sums of 1/rank^alpha, to draw ranks by.
static double *zipf_sums(uint32_t count, double alpha)
{
        double *sums = malloc(count * sizeof(double));
        double sum = 0;

        if (!sums)
                abort();
        for (uint32_t i = 0; i < count; i++) {
                sum += pow((double)i + 1, -alpha);
                sums[i] = sum;
        }
        return sums;
}

static uint32_t zipf_draw(struct maker *maker, const double *sums, uint32_t count)
{
        double at = uniform(maker) * sums[count - 1];
        uint32_t low = 0;
        uint32_t high = count - 1;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (sums[middle] < at)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

static uint32_t new_block(struct maker *maker, uint64_t size_bytes, double recompute_us,
                          uint32_t parent)
{
        uint64_t id = ++maker->next_id;

        id = (id ^ 0x5bf03635ull) * 0x9e3779b97f4a7c15ull; // evenly spread, like a key
        return cairn_trace_add_block(maker->trace, id ? id : 1, size_bytes, (uint64_t)recompute_us,
                                     parent);
}

static void use(struct maker *maker, uint32_t block)
{
        cairn_trace_add_use(maker->trace, maker->time_ms, block);
}

// Popular blocks of equal size, costs of 1 to 16 ms; `scan_share` of the uses are of blocks that
// come once, in runs of a fifth of the popular ones.
static void make_zipf(struct maker *maker, uint32_t n_uses, double scan_share)
{
        uint32_t popular = n_uses / 15 + 1;
        uint32_t run = popular / 5 + 1;
        double *sums = zipf_sums(popular, 0.9);
        uint32_t *blocks = malloc(popular * sizeof(uint32_t));

        if (!blocks)
                abort();
        memset(blocks, 0xff, popular * sizeof(uint32_t));
        while (maker->trace->n_uses < n_uses) {
                uint32_t normal =
                    scan_share > 0 ? (uint32_t)(run * (1 - scan_share) / scan_share) : n_uses;

                for (uint32_t i = 0; i < normal && maker->trace->n_uses < n_uses; i++) {
                        uint32_t rank = zipf_draw(maker, sums, popular);

                        if (blocks[rank] == CAIRN_TRACE_NONE)
                                blocks[rank] =
                                    new_block(maker, MIB, 1000 * exp2(4 * uniform(maker)),
                                              CAIRN_TRACE_NONE);
                        maker->time_ms++;
                        use(maker, blocks[rank]);
                }
                for (uint32_t i = 0; i < run && scan_share > 0 && maker->trace->n_uses < n_uses;
                     i++) {
                        maker->time_ms++;
                        use(maker, new_block(maker, MIB, 1000 * exp2(4 * uniform(maker)),
                                             CAIRN_TRACE_NONE));
                }
        }
        free(sums);
        free(blocks);
}

// What a block of 128 tokens weighs and costs: about a 1 B, an 8 B and a 70 B model of today.
struct model {
        double share;
        uint64_t block_bytes;
        double block_us; // at the beginning of the context
};
static const struct model models[] = {
    {0.4, 4 * MIB, 700}, {0.4, 16 * MIB, 5000}, {0.2, 40 * MIB, 45000}};

enum {
        MODELS = sizeof(models) / sizeof(models[0]),
        PERSONAS = 6, // system prompts a model
        SYSTEM_BLOCKS = 8,
        CHAT_BLOCKS_MAX = 120,
        CHATS = 300 // at a time
};

struct chat {
        const struct model *model;
        double next_ms;
        uint32_t blocks[CHAT_BLOCKS_MAX];
        uint32_t n_blocks;
        uint32_t turns_left;
};

// Attention makes later blocks dearer: twice the cost at 32 K tokens.
static uint32_t chain_block(struct maker *maker, const struct model *model, uint32_t depth,
                            uint32_t parent)
{
        return new_block(maker, model->block_bytes,
                         model->block_us * (1 + (double)depth * 128 / 32768), parent);
}

static const struct model *draw_model(struct maker *maker)
{
        double at = uniform(maker);

        for (int m = 0; m < MODELS - 1; m++) {
                if (at < models[m].share)
                        return &models[m];
                at -= models[m].share;
        }
        return &models[MODELS - 1];
}

static void begin_chat(struct maker *maker, struct chat *chat,
                       uint32_t systems[MODELS][PERSONAS][SYSTEM_BLOCKS])
{
        const double *sums = (const double[PERSONAS]){1, 1.5, 1.833, 2.083, 2.283, 2.45};
        uint32_t persona = zipf_draw(maker, sums, PERSONAS);

        chat->model = draw_model(maker);
        chat->n_blocks = SYSTEM_BLOCKS;
        memcpy(chat->blocks, systems[chat->model - models][persona], sizeof(systems[0][0]));
        chat->turns_left = 1 + (uint32_t)exponential(maker, 6);
        chat->next_ms = (double)maker->time_ms + exponential(maker, 60000);
}

static void take_turn(struct maker *maker, struct chat *chat)
{
        uint32_t more = 1 + (uint32_t)exponential(maker, 2.5);

        while (more-- > 0 && chat->n_blocks < CHAT_BLOCKS_MAX) {
                chat->blocks[chat->n_blocks] = chain_block(maker, chat->model, chat->n_blocks,
                                                           chat->blocks[chat->n_blocks - 1]);
                chat->n_blocks++;
        }
        for (uint32_t b = 0; b < chat->n_blocks; b++)
                use(maker, chat->blocks[b]);
        // Most answer within minutes; some come back much later.
        chat->next_ms += exponential(maker, uniform(maker) < 0.15 ? 1200000 : 60000);
        chat->turns_left--;
}

static void make_chat(struct maker *maker, uint32_t n_uses)
{
        static uint32_t systems[MODELS][PERSONAS][SYSTEM_BLOCKS];
        struct chat *chats = calloc(CHATS, sizeof(*chats));

        if (!chats)
                abort();
        for (int m = 0; m < MODELS; m++) {
                for (int p = 0; p < PERSONAS; p++) {
                        uint32_t parent = CAIRN_TRACE_NONE;

                        for (uint32_t b = 0; b < SYSTEM_BLOCKS; b++)
                                systems[m][p][b] = parent =
                                    chain_block(maker, &models[m], b, parent);
                }
        }
        for (int c = 0; c < CHATS; c++)
                begin_chat(maker, &chats[c], systems);
        while (maker->trace->n_uses < n_uses) {
                struct chat *next = &chats[0];

                for (int c = 1; c < CHATS; c++) {
                        if (chats[c].next_ms < next->next_ms)
                                next = &chats[c];
                }
                maker->time_ms = (uint64_t)next->next_ms;
                take_turn(maker, next);
                if (next->turns_left == 0)
                        begin_chat(maker, next, systems);
        }
        free(chats);
}

enum {
        PROMPTS = 400,
        PROMPT_BLOCKS_MAX = 60
};

// Prompts of 5 to 60 blocks (tools, few-shot examples, documents), popular by rank, each request
// with an ending of 1 to 5 blocks that nobody asks for again.
static void make_shared(struct maker *maker, uint32_t n_uses)
{
        static uint32_t prompts[PROMPTS][PROMPT_BLOCKS_MAX];
        static uint32_t lengths[PROMPTS];
        const struct model *model = &models[1];
        double *sums = zipf_sums(PROMPTS, 0.8);

        for (int p = 0; p < PROMPTS; p++) {
                uint32_t parent = CAIRN_TRACE_NONE;

                lengths[p] = 5 + (uint32_t)(uniform(maker) * (PROMPT_BLOCKS_MAX - 4));
                for (uint32_t b = 0; b < lengths[p]; b++)
                        prompts[p][b] = parent = chain_block(maker, model, b, parent);
        }
        while (maker->trace->n_uses < n_uses) {
                uint32_t p = zipf_draw(maker, sums, PROMPTS);
                uint32_t parent = prompts[p][lengths[p] - 1];
                uint32_t more = 1 + (uint32_t)(uniform(maker) * 5);

                maker->time_ms += (uint64_t)exponential(maker, 200);
                for (uint32_t b = 0; b < lengths[p]; b++)
                        use(maker, prompts[p][b]);
                for (uint32_t b = 0; b < more; b++) {
                        parent = chain_block(maker, model, lengths[p] + b, parent);
                        use(maker, parent);
                }
        }
        free(sums);
}

int cairn_trace_make(struct cairn_trace *trace, const char *name, uint64_t seed, uint32_t n_uses)
{
        struct maker maker = {.trace = trace, .random = seed};

        if (strcmp(name, "zipf") == 0)
                make_zipf(&maker, n_uses, 0);
        else if (strcmp(name, "scan") == 0)
                make_zipf(&maker, n_uses, 0.5);
        else if (strcmp(name, "chat") == 0)
                make_chat(&maker, n_uses);
        else if (strcmp(name, "shared") == 0)
                make_shared(&maker, n_uses);
        else
                return -1;
        cairn_trace_seal(trace);
        return 0;
}
