// The client against a fake daemon: connection, asynchronous calls, deadlines, reconnects.
#include "tests/unit/fake_daemon.h"

#include <time.h>

#include "cairn/cairn.h"

static struct cairn_client *connect_to(const char *path)
{
        struct cairn_client_options options = {.socket_path = path, .name = "test"};
        struct cairn_client *client = NULL;
        char text[512] = "";
        int status = cairn_client_create(&options, &client, text, sizeof(text));

        cr_assert_eq(status, CAIRN_OK, "%s", text);
        return client;
}

static double now_s(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static struct cairn_space_config config_of(uint32_t layers)
{
        struct cairn_space_config config;

        cairn_space_config_init(&config);
        strcpy(config.model, "toy");
        config.layers = layers;
        config.kv_heads = 2;
        config.k_dim = config.v_dim = 16;
        config.dtype = CAIRN_DTYPE_F32;
        config.block_tokens = config.run_tokens = 16;
        return config;
}

Test(client, says_hello_and_pings)
{
        struct fake_daemon *fake = fake_start(NULL);
        struct cairn_client *client = connect_to(fake->path);
        struct cairn_server_info server;
        struct cairn_ping_info info = {0};

        cairn_client_server(client, &server);
        cr_expect_eq(server.incarnation, 101);
        cr_expect_str_eq(server.server, "fake");
        cr_assert_eq(cairn_ping(client, NULL, &info), CAIRN_OK);
        cr_expect_eq(info.incarnation, 101);
        cr_expect_eq(info.uptime_ms, 7);
        cr_expect_eq(cairn_client_pending(client), 0);
        cairn_client_destroy(client);
        fake_stop(fake);
}

Test(client, case_27_socket_path_above_107_bytes_is_a_clear_error)
{
        struct cairn_client *client = NULL;
        char path[201], text[512];
        const size_t sizes[] = {107, 108, 109, 200};

        for (int i = 0; i < 4; i++) {
                struct cairn_client_options options = {.socket_path = path};
                int status;

                memset(path, 'a', sizes[i]);
                memcpy(path, "/tmp/", 5);
                path[sizes[i]] = '\0';
                status = cairn_client_create(&options, &client, text, sizeof(text));
                cr_expect_eq(status, sizes[i] == 107 ? CAIRN_EDISCONNECTED : CAIRN_EINVAL);
                if (sizes[i] > 107)
                        cr_expect_not_null(strstr(text, "107"), "%s", text);
        }
}

Test(client, nobody_there_names_the_path_and_the_remedy)
{
        struct cairn_client_options options = {.socket_path = "/tmp/cairn-no-such.sock"};
        struct cairn_client *client = NULL;
        char text[512];

        cr_expect_eq(cairn_client_create(&options, &client, text, sizeof(text)),
                     CAIRN_EDISCONNECTED);
        cr_expect_not_null(strstr(text, "/tmp/cairn-no-such.sock"));
        cr_expect_not_null(strstr(text, "start cairnd"));
        cr_expect_null(client);
}

Test(client, socket_comes_from_the_environment)
{
        struct fake_daemon *fake = fake_start(NULL);
        struct cairn_client *client;

        setenv("CAIRN_SOCKET", fake->path, 1);
        client = connect_to(NULL);
        cr_expect_str_eq(cairn_client_socket(client), fake->path);
        cairn_client_destroy(client);
        fake_stop(fake);
}

static bool refuse_version(struct fake_daemon *fake, const struct cairn_frame *frame,
                           const void *message)
{
        (void)message;
        fake_fail(fake, frame, CAIRN_EVERSION, "this daemon speaks 7 to 9; use another client");
        return true;
}

Test(client, case_30_daemon_of_another_version_is_refused)
{
        struct fake_daemon *fake = fake_start(refuse_version);
        struct cairn_client_options options = {.socket_path = fake->path};
        struct cairn_client *client = NULL;
        char text[512];

        cr_expect_eq(cairn_client_create(&options, &client, text, sizeof(text)), CAIRN_EVERSION);
        cr_expect_not_null(strstr(text, "7 to 9"));
        fake_stop(fake);
}

// ---- asynchronous calls ----

struct order {
        struct cairn_call call;
        int *sequence;
        int *count;
        int number;
        int status;
};

static void on_order(struct cairn_call *call, int status)
{
        struct order *order = call->arg;

        order->status = status;
        order->sequence[(*order->count)++] = order->number;
}

// Answers the first ping last.
static bool hold_first_ping(struct fake_daemon *fake, const struct cairn_frame *frame,
                            const void *message)
{
        Cairn__PingReply reply = CAIRN__PING_REPLY__INIT;

        (void)message;
        if (frame->header.kind != CAIRN_KIND_PING)
                return false;
        if (atomic_load(&fake->requests[CAIRN_KIND_PING]) == 1) {
                fake->held_id = frame->header.id;
                return true;
        }
        fake_reply(fake, frame, &reply);
        if (atomic_load(&fake->requests[CAIRN_KIND_PING]) == 3)
                fake_reply_to(fake, CAIRN_KIND_PING, fake->held_id, 0, &reply, NULL, 0);
        return true;
}

Test(client, replies_in_any_order_end_their_own_calls)
{
        struct fake_daemon *fake = fake_start(hold_first_ping);
        struct cairn_client *client = connect_to(fake->path);
        struct order orders[3];
        int sequence[3], count = 0;

        for (int i = 0; i < 3; i++) {
                orders[i] = (struct order){.sequence = sequence, .count = &count, .number = i};
                orders[i].call = (struct cairn_call){.on_done = on_order, .arg = &orders[i]};
                cr_assert_eq(cairn_ping(client, &orders[i].call, NULL), CAIRN_OK);
                cr_expect_eq(count, 0, "no callback inside the call that starts");
        }
        cr_expect_eq(cairn_client_pending(client), 3);
        while (cairn_client_pending(client) > 0) {
                struct pollfd poller = {.fd = cairn_client_fd(client), .events = POLLIN};

                cr_assert_eq(poll(&poller, 1, 5000), 1, "the descriptor says when to poll");
                cr_assert_geq(cairn_client_poll(client, 0), 0);
        }
        cr_expect_eq(count, 3);
        cr_expect_eq(sequence[0], 1);
        cr_expect_eq(sequence[1], 2);
        cr_expect_eq(sequence[2], 0);
        cairn_client_destroy(client);
        fake_stop(fake);
}

static void on_done_blocks(struct cairn_call *call, int status)
{
        int *seen = call->arg;

        cr_expect_eq(status, CAIRN_OK);
        *seen = 1;
}

struct nested {
        struct cairn_client *client;
        int blocking;
        int polling;
};

static void on_done_nests(struct cairn_call *call, int status)
{
        struct nested *nested = call->arg;

        (void)status;
        nested->blocking = cairn_ping(nested->client, NULL, NULL);
        nested->polling = cairn_client_poll(nested->client, 0);
}

Test(client, blocking_inside_on_done_is_refused)
{
        struct fake_daemon *fake = fake_start(NULL);
        struct nested nested = {.client = connect_to(fake->path)};
        struct cairn_call call = {.on_done = on_done_nests, .arg = &nested};
        struct cairn_call other = {.on_done = on_done_blocks};
        int seen = 0;

        other.arg = &seen;
        cr_assert_eq(cairn_ping(nested.client, &call, NULL), CAIRN_OK);
        cr_assert_eq(cairn_ping(nested.client, &other, NULL), CAIRN_OK);
        cr_expect_eq(cairn_ping(nested.client, NULL, NULL), CAIRN_OK);
        while (cairn_client_pending(nested.client) > 0)
                cairn_client_poll(nested.client, 100);
        cr_expect_eq(nested.blocking, CAIRN_EBUSY);
        cr_expect_eq(nested.polling, CAIRN_EBUSY);
        cr_expect_eq(seen, 1);
        cairn_client_destroy(nested.client);
        fake_stop(fake);
}

static bool never_ping(struct fake_daemon *fake, const struct cairn_frame *frame,
                       const void *message)
{
        (void)fake, (void)message;
        return frame->header.kind == CAIRN_KIND_PING;
}

Test(client, a_silent_daemon_runs_into_the_deadline)
{
        struct fake_daemon *fake = fake_start(never_ping);
        struct cairn_client *client = connect_to(fake->path);
        int sequence[1], count = 0;
        struct order order = {.sequence = sequence, .count = &count};
        double begin = now_s();
        Cairn__PingReply late = CAIRN__PING_REPLY__INIT;

        order.call = (struct cairn_call){.on_done = on_order, .arg = &order, .deadline_ms = 50};
        cr_assert_eq(cairn_ping(client, &order.call, NULL), CAIRN_OK);
        while (count == 0) {
                struct pollfd poller = {.fd = cairn_client_fd(client), .events = POLLIN};

                cr_assert_eq(poll(&poller, 1, 5000), 1, "the descriptor wakes at the deadline");
                cairn_client_poll(client, 0);
        }
        cr_expect_eq(order.status, CAIRN_EDEADLINE);
        cr_expect_lt(now_s() - begin, 3.0);
        // A reply after that is nobody's.
        fake_reply_to(fake, CAIRN_KIND_PING, 3u << 8, 0, &late, NULL, 0);
        cr_expect_geq(cairn_client_poll(client, 100), 0);
        fake->on_request = NULL;
        cr_expect_eq(cairn_ping(client, NULL, NULL), CAIRN_OK);
        cairn_client_destroy(client);
        fake_stop(fake);
}

Test(client, more_than_the_limit_under_way_is_busy)
{
        struct fake_daemon *fake = fake_start(never_ping);
        struct cairn_client *client = connect_to(fake->path);
        static struct cairn_call calls[CAIRN_INFLIGHT_MAX + 1];
        int busy = 0;

        for (int i = 0; i <= CAIRN_INFLIGHT_MAX; i++)
                busy += cairn_ping(client, &calls[i], NULL) == CAIRN_EBUSY;
        cr_expect_eq(busy, 1);
        cr_expect_not_null(strstr(cairn_client_error(client), "poll"));
        cairn_client_destroy(client);
        fake_stop(fake);
}

// ---- reconnects ----

Test(client, case_29_reconnects_and_introduces_itself_anew)
{
        struct fake_daemon *fake = fake_start(NULL);
        struct cairn_client *client = connect_to(fake->path);
        struct cairn_space_config config = config_of(2);
        struct cairn_key keys[2] = {{{1}}, {{2}}};
        struct cairn_arena *arena = NULL;
        struct cairn_context context;
        struct cairn_lease lease;
        uint32_t space = 0;
        size_t found = 0;

        cr_assert_eq(cairn_client_arena_create(client, 8192, &arena), CAIRN_OK);
        cr_assert_eq(cairn_client_open_space(client, &config, &space), CAIRN_OK);
        cr_assert_eq(cairn_lookup(client, NULL, space, keys, 2, 1000, &found, &lease), CAIRN_OK);
        cr_assert_eq(cairn_open_context(client, NULL, space, keys, 2, &context), CAIRN_OK);
        cr_expect_eq(found, 2);

        atomic_store(&fake->hang_up, true);
        cr_assert_eq(cairn_ping(client, NULL, NULL), CAIRN_OK, "a blocking ping tries again");
        cr_expect_eq(atomic_load(&fake->connections), 2);
        cr_expect_eq(atomic_load(&fake->arenas_registered), 2);
        cr_expect_eq(atomic_load(&fake->spaces_opened), 2);
        cr_assert_eq(cairn_lookup(client, NULL, space, keys, 2, 1000, &found, NULL), CAIRN_OK);
        cr_expect_eq(cairn_release(client, NULL, &lease), CAIRN_ESTALE);
        cr_expect_eq(cairn_append(client, NULL, &context, keys, 1), CAIRN_ESTALE);
        cr_expect_not_null(strstr(cairn_client_error(client), "open it again"));
        // The arena is the same memory, known under its new number.
        memcpy(cairn_client_arena_data(arena), "seen", 5);
        cr_expect_str_eq((char *)fake->arena[0], "seen");
        cairn_client_destroy(client);
        fake_stop(fake);
}

Test(client, calls_under_way_end_with_the_connection)
{
        struct fake_daemon *fake = fake_start(never_ping);
        struct cairn_client *client = connect_to(fake->path);
        int sequence[1], count = 0;
        struct order order = {.sequence = sequence, .count = &count};

        order.call = (struct cairn_call){.on_done = on_order, .arg = &order};
        cr_assert_eq(cairn_ping(client, &order.call, NULL), CAIRN_OK);
        atomic_store(&fake->hang_up, true);
        while (count == 0)
                cr_assert_geq(cairn_client_poll(client, 1000), 0);
        cr_expect_eq(order.status, CAIRN_EDISCONNECTED);
        fake->on_request = NULL;
        cr_expect_eq(cairn_ping(client, NULL, NULL), CAIRN_OK);
        cairn_client_destroy(client);
        fake_stop(fake);
}

Test(client, a_daemon_that_is_gone_is_waited_for_once)
{
        struct fake_daemon *fake = fake_start(NULL);
        struct cairn_client_options options = {.socket_path = fake->path, .reconnect_wait_ms = 200};
        struct cairn_client *client = NULL;
        double begin;

        cr_assert_eq(cairn_client_create(&options, &client, NULL, 0), CAIRN_OK);
        fake_stop(fake);
        begin = now_s();
        cr_expect_eq(cairn_ping(client, NULL, NULL), CAIRN_EDISCONNECTED);
        cr_expect_geq(now_s() - begin, 0.15);
        cr_expect_lt(now_s() - begin, 2.0);
        begin = now_s();
        cr_expect_eq(cairn_ping(client, NULL, NULL), CAIRN_EDISCONNECTED);
        cr_expect_lt(now_s() - begin, 0.18, "the wait is not paid again");
        cairn_client_destroy(client);
}

// ---- hostile daemons ----

static bool send_garbage(struct fake_daemon *fake, const struct cairn_frame *frame,
                         const void *message)
{
        static const uint8_t garbage[64] = "this is no frame at all, but it is as long as one";

        (void)message;
        if (frame->header.kind != CAIRN_KIND_PING)
                return false;
        fake_write(fake, garbage, sizeof(garbage));
        return true;
}

Test(client, garbage_ends_the_connection_and_the_call)
{
        struct fake_daemon *fake = fake_start(send_garbage);
        struct cairn_client *client = connect_to(fake->path);

        cr_expect_eq(cairn_ping(client, NULL, NULL), CAIRN_EPROTO);
        fake->on_request = NULL;
        cr_expect_eq(cairn_ping(client, NULL, NULL), CAIRN_OK, "and the next connects anew");
        cairn_client_destroy(client);
        fake_stop(fake);
}

static bool wrong_kind(struct fake_daemon *fake, const struct cairn_frame *frame,
                       const void *message)
{
        Cairn__PingReply reply = CAIRN__PING_REPLY__INIT;

        (void)message;
        if (frame->header.kind != CAIRN_KIND_STATS)
                return false;
        fake_reply_to(fake, CAIRN_KIND_PING, frame->header.id, 0, &reply, NULL, 0);
        return true;
}

static void on_metric(void *arg, const char *name, const char *labels, double value)
{
        (void)name, (void)labels, (void)value;
        ++*(int *)arg;
}

Test(client, a_reply_of_another_kind_is_no_answer)
{
        struct fake_daemon *fake = fake_start(wrong_kind);
        struct cairn_client *client = connect_to(fake->path);
        int metrics = 0;

        cr_expect_eq(cairn_stats(client, NULL, on_metric, &metrics), CAIRN_EPROTO);
        cr_expect_eq(metrics, 0);
        cairn_client_destroy(client);
        fake_stop(fake);
}

static bool fail_with_escape(struct fake_daemon *fake, const struct cairn_frame *frame,
                             const void *message)
{
        (void)message;
        if (frame->header.kind != CAIRN_KIND_PING)
                return false;
        fake_fail(fake, frame, CAIRN_EPERM, "no\033[2J\nentry");
        return true;
}

Test(client, texts_of_the_daemon_carry_no_control_characters)
{
        struct fake_daemon *fake = fake_start(fail_with_escape);
        struct cairn_client *client = connect_to(fake->path);

        cr_expect_eq(cairn_ping(client, NULL, NULL), CAIRN_EPERM);
        cr_expect_str_eq(cairn_client_error(client), "no [2J entry");
        cairn_client_destroy(client);
        fake_stop(fake);
}

Test(client, case_13_replies_a_byte_at_a_time)
{
        struct fake_daemon *fake = fake_start(NULL);
        struct cairn_client *client = connect_to(fake->path);

        fake->byte_by_byte = true;
        for (int i = 0; i < 20; i++)
                cr_assert_eq(cairn_ping(client, NULL, NULL), CAIRN_OK);
        cairn_client_destroy(client);
        fake_stop(fake);
}
