// The filters behind proto/admission.h: a second use while the block is in RAM, and TinyLFU, which
// also remembers uses of copies that are gone.
#include "policy/admission/admission.h"

#include "policy/admission/tinylfu.h"

static size_t no_bytes(uint64_t blocks)
{
        (void)blocks; // a copy's uses say all
        return 0;
}

static void no_init(void *state, uint64_t blocks)
{
        (void)state, (void)blocks; // there is none
}

static void no_use(void *state, uint64_t id)
{
        (void)state, (void)id; // a copy's uses say all
}

static bool second_use_admit(void *state, uint64_t id, uint32_t uses)
{
        (void)state, (void)id; // a copy's uses say all
        return uses > 0;
}

const struct cairn_admission_ops cairn_admission_second_use = {.name = "second-use",
                                                               .state_bytes = no_bytes,
                                                               .init = no_init,
                                                               .use = no_use,
                                                               .admit = second_use_admit};

static struct cairn_tinylfu_options options_of(uint64_t blocks)
{
        return (struct cairn_tinylfu_options){.mode = CAIRN_ADMISSION_TINYLFU, .counters = blocks};
}

// The filter itself, then its tables.
static size_t filter_bytes(void)
{
        return (sizeof(struct cairn_tinylfu) + 15) / 16 * 16;
}

static size_t tinylfu_state_bytes(uint64_t blocks)
{
        struct cairn_tinylfu_options options = options_of(blocks);
        return filter_bytes() + cairn_tinylfu_bytes(&options);
}

static void tinylfu_init(void *state, uint64_t blocks)
{
        struct cairn_tinylfu_options options = options_of(blocks);
        cairn_tinylfu_init(state, &options, (uint8_t *)state + filter_bytes());
}

static void tinylfu_use(void *state, uint64_t id)
{
        cairn_tinylfu_use(state, id);
}

static bool tinylfu_admit(void *state, uint64_t id, uint32_t uses)
{
        (void)uses; // the sketch has them
        return cairn_tinylfu_admit(state, id);
}

const struct cairn_admission_ops cairn_admission_tinylfu = {.name = "tinylfu",
                                                            .state_bytes = tinylfu_state_bytes,
                                                            .init = tinylfu_init,
                                                            .use = tinylfu_use,
                                                            .admit = tinylfu_admit};
