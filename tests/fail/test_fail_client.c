// A worker's session against a fake daemon, once for every allocation in it: that one fails. No
// crash, no leak, a status with a text, and the session works once there is memory again.
#include "tests/unit/fake_daemon.h"

#include <pthread.h>

#include "cairn/cairn.h"

static struct {
        bool armed;
        pthread_t thread; // the client's: the fake daemon's own allocations succeed
        uint64_t count;
        uint64_t fail_at;
} allocations;

static bool refuse(void)
{
        return allocations.armed && pthread_equal(pthread_self(), allocations.thread) &&
               ++allocations.count == allocations.fail_at;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
        return refuse() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
        return refuse() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
        return refuse() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
        return refuse() ? NULL : __real_aligned_alloc(align, size);
}

char *__wrap_strdup(const char *text)
{
        return refuse() ? NULL : __real_strdup(text);
}

// Good answers to Put and Get; the fake's defaults for the rest.
static bool serve(struct fake_daemon *fake, const struct cairn_frame *frame, const void *message)
{
        static int32_t statuses[2];

        if (frame->header.kind == CAIRN_KIND_PUT) {
                Cairn__PutReply reply = CAIRN__PUT_REPLY__INIT;

                reply.n_statuses = 2;
                reply.statuses = statuses;
                fake_reply(fake, frame, &reply);
                return true;
        }
        if (frame->header.kind == CAIRN_KIND_GET) {
                const Cairn__GetRequest *request = message;
                Cairn__GetReply reply = CAIRN__GET_REPLY__INIT;
                static uint8_t payload[1 << 16];

                reply.n_statuses = 2;
                reply.statuses = statuses;
                cr_assert_leq(request->destination->bytes, sizeof(payload));
                fake_reply_to(fake, CAIRN_KIND_GET, frame->header.id, 0, &reply, payload,
                              request->destination->arena ? 0 : request->destination->bytes);
                return true;
        }
        return false;
}

static void describe(struct cairn_space_config *config, uint32_t layers)
{
        cairn_space_config_init(config);
        strcpy(config->model, "fail");
        config->layers = layers;
        config->kv_heads = 1;
        config->k_dim = config->v_dim = 16;
        config->block_tokens = config->run_tokens = 16;
}

// Returns the first bad status; *ret_text is its text.
static int session(struct cairn_client *client, char *ret_text)
{
        static uint8_t blocks[1 << 16];
        struct cairn_key keys[2] = {{{1}}, {{2}}};
        struct cairn_space_config config;
        struct cairn_arena *arena = NULL;
        struct cairn_ping_info info;
        struct cairn_context context;
        uint32_t spaces[6];
        size_t found = 0;
        int status = CAIRN_OK;

        for (uint32_t i = 0; i < 6 && status == CAIRN_OK; i++) { // the table of spaces grows
                describe(&config, i + 1);
                status = cairn_client_open_space(client, &config, &spaces[i]);
        }
        struct cairn_put_args put = {
            .space = spaces[0], .keys = keys, .count = 2, .blocks = blocks};
        struct cairn_get_args get = {
            .space = spaces[0], .keys = keys, .count = 2, .blocks = blocks};

        if (status == CAIRN_OK)
                status = cairn_ping(client, NULL, &info);
        if (status == CAIRN_OK)
                status = cairn_client_arena_create(client, 4096, &arena);
        if (status == CAIRN_OK)
                status = cairn_put(client, NULL, &put, NULL);
        if (status == CAIRN_OK)
                status = cairn_get(client, NULL, &get, NULL);
        if (status == CAIRN_OK)
                status = cairn_lookup(client, NULL, spaces[0], keys, 2, 0, &found, NULL);
        if (status == CAIRN_OK)
                status = cairn_open_context(client, NULL, spaces[0], keys, 2, &context);
        if (status != CAIRN_OK)
                (void)snprintf(ret_text, 256, "%s", cairn_client_error(client));
        allocations.armed = false; // the clean-up is not what is tested
        (void)cairn_client_arena_destroy(client, arena);
        return status;
}

Test(fail_client, every_allocation_fails_once, .timeout = 250)
{
        struct fake_daemon *fake = fake_start(serve);
        struct cairn_client_options options = {.socket_path = fake->path, .timeout_ms = 200};
        uint64_t failures = 0;

        allocations.thread = pthread_self();
        for (uint64_t at = 1;; at++) {
                struct cairn_client *client = NULL;
                char text[640] = "";
                int status;

                allocations.count = 0;
                allocations.fail_at = at;
                allocations.armed = true;
                status = cairn_client_create(&options, &client, text, sizeof(text));
                if (status == CAIRN_OK)
                        status = session(client, text);
                allocations.armed = false;
                if (allocations.count < at) { // there are no more
                        cr_expect_eq(status, CAIRN_OK, "%s", text);
                        cairn_client_destroy(client);
                        break;
                }
                failures += status != CAIRN_OK;
                cr_expect(status == CAIRN_OK || status == CAIRN_ENOMEM || status == CAIRN_EPROTO ||
                              status == CAIRN_EDISCONNECTED || status == CAIRN_EDEADLINE,
                          "allocation %lu: status %d: %s", at, status, text);
                if (client) {
                        cr_expect(status == CAIRN_OK || text[0], "allocation %lu has no text", at);
                        cr_expect_eq(session(client, text), CAIRN_OK, "after allocation %lu: %s",
                                     at, text);
                        cr_expect_eq(cairn_client_pending(client), 0);
                }
                cairn_client_destroy(client);
        }
        cr_expect_gt(failures, 20);
        fake_stop(fake);
}
