// A daemon to fuzz.
#include "tests/fuzz/live.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/config.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "policy/landmark/landmark.h"
#include "proto/codec.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

enum {
        PATIENCE_MS = 30 * 1000, // a machine under load is no finding
        TOKENS = 16,
        DIM = 16,
        BLOCK_FLOATS = TOKENS * DIM * 2
};

static char directory[] = "/tmp/cairn-fuzz-XXXXXX";
static char socket_path[64];

static void *serve(void *arg)
{
        (void)cairn_server_run(arg); // until the process ends
        FUZZ_CHECK(!"the daemon ended");
        return NULL;
}

static void remove_directory(void)
{
        char command[128];

        (void)snprintf(command, sizeof(command), "rm -rf %s", directory);
        if (system(command) != 0)
                perror(command);
}

void fuzz_live_start(void)
{
        static struct cairn_config config;
        static char data[64];
        static char name[] = "cairnd";
        static char *argv[] = {name, NULL};
        static char *environment[] = {NULL};
        enum cairn_config_action action;
        char text[CAIRN_TEXT_BYTES_MAX];
        pthread_t thread;
        static const char *const settings[][2] = {
            {"ram_bytes", "16MiB"},     {"nvme_bytes", "32MiB"}, {"slab_bytes", "1MiB"},
            {"context_bytes", "8MiB"},  {"scorers", "1"},        {"sandbox", "no"},
            {"scratch_bytes", "16MiB"}, {"log_level", "error"},  {"request_timeout", "5s"},
        };

        FUZZ_CHECK(mkdtemp(directory) != NULL);
        FUZZ_CHECK(atexit(remove_directory) == 0);
        (void)snprintf(socket_path, sizeof(socket_path), "%s/s", directory);
        (void)snprintf(data, sizeof(data), "%s/d", directory);
        cairn_config_init(&config);
        FUZZ_CHECK(cairn_config_load(&config, 1, argv, environment, &action, text) == CAIRN_OK);
        for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
                FUZZ_CHECK(cairn_config_set(&config, settings[i][0], settings[i][1],
                                            CAIRN_CONFIG_FLAG, text) == CAIRN_OK);
        FUZZ_CHECK(cairn_config_set(&config, "socket", socket_path, CAIRN_CONFIG_FLAG, text) == 0);
        FUZZ_CHECK(cairn_config_set(&config, "data_dir", data, CAIRN_CONFIG_FLAG, text) == 0);
        FUZZ_CHECK(cairn_config_resolve(&config, text) == CAIRN_OK);
        cairn_log_init(CAIRN_LOG_ERROR);
        FUZZ_CHECK(cairn_isa_choose("") == CAIRN_OK);
        FUZZ_CHECK(pthread_create(&thread, NULL, serve, &config) == 0);
}

// ---- a connection ----

static void connect_to(int fd)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
        for (int waited_ms = 0; connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0;) {
                FUZZ_CHECK(waited_ms < PATIENCE_MS);
                (void)usleep(10 * 1000); // it starts
                waited_ms += 10;
        }
}

// Waits for events, through the fuzzer's own alarms.
static void wait_for(int fd, short events, short *ret_events)
{
        struct pollfd poll_fd = {.fd = fd, .events = events};
        int ready;

        do
                ready = poll(&poll_fd, 1, PATIENCE_MS);
        while (ready < 0 && errno == EINTR);
        FUZZ_CHECK(ready > 0);
        if (ret_events)
                *ret_events = poll_fd.revents;
}

// Sends all, reading away what comes meanwhile. A daemon that has hung up is fine.
static void send_all(const struct fuzz_link *link, const uint8_t *bytes, size_t size)
{
        static uint8_t sink[65536];

        while (size > 0) {
                short events;
                ssize_t done;

                wait_for(link->fd, POLLIN | POLLOUT, &events);
                if (events & POLLIN) {
                        done = recv(link->fd, sink, sizeof(sink), MSG_DONTWAIT);
                        if (done == 0 || (done < 0 && errno != EAGAIN))
                                return;
                }
                done = send(link->fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (done < 0 && errno != EAGAIN)
                        return;
                if (done > 0) {
                        bytes += done;
                        size -= (size_t)done;
                }
        }
}

// Reads exactly; only for answers to what is right.
static void receive_all(const struct fuzz_link *link, uint8_t *bytes, size_t size)
{
        while (size > 0) {
                ssize_t done;

                wait_for(link->fd, POLLIN, NULL);
                done = recv(link->fd, bytes, size, MSG_DONTWAIT); // ready: not interrupted
                FUZZ_CHECK(done > 0);
                bytes += done;
                size -= (size_t)done;
        }
}

// One request and its reply, which must be good. The message lives in the arena.
static const void *call(struct fuzz_link *link, uint32_t kind, const void *request,
                        const void *payload, size_t payload_bytes, struct cairn_codec_arena *arena)
{
        static uint8_t bytes[CAIRN_MESSAGE_BYTES_MAX];
        uint8_t head[CAIRN_FRAME_HEADER_BYTES];
        struct cairn_frame_header header;
        void *reply;

        cairn_codec_pack(request, bytes);
        fuzz_link_send(link, kind, bytes, cairn_codec_size(request), payload, payload_bytes);
        receive_all(link, head, sizeof(head));
        FUZZ_CHECK(cairn_frame_header_read(head, true, &header) == CAIRN_OK);
        FUZZ_CHECK(header.payload_bytes == 0);
        receive_all(link, bytes, header.message_bytes);
        FUZZ_CHECK(cairn_codec_unpack(kind, true, header.status, bytes, header.message_bytes, arena,
                                      &reply) == CAIRN_OK);
        FUZZ_CHECK(header.status == CAIRN_OK);
        return reply;
}

static void make_ready(struct fuzz_link *link)
{
        Cairn__HelloRequest hello = CAIRN__HELLO_REQUEST__INIT;
        Cairn__OpenSpaceRequest open = CAIRN__OPEN_SPACE_REQUEST__INIT;
        Cairn__PutRequest put = CAIRN__PUT_REQUEST__INIT;
        Cairn__OpenContextRequest context = CAIRN__OPEN_CONTEXT_REQUEST__INIT;
        Cairn__Region source = CAIRN__REGION__INIT;
        Cairn__Space space = CAIRN__SPACE__INIT;
        struct cairn_codec_arena arena;
        static char model[] = "fuzz", layout[] = "lhkv";
        static uint8_t key[CAIRN_KEY_BYTES] = "a block";
        static float block[BLOCK_FLOATS];

        for (size_t i = 0; i < BLOCK_FLOATS; i++)
                block[i] = (float)(i * 7 % 13) - 6;
        space.model = model;
        space.layout = layout;
        space.layers = space.kv_heads = space.tp_size = 1;
        space.k_dim = space.v_dim = DIM;
        space.dtype = CAIRN__DTYPE__F32;
        space.block_tokens = space.run_tokens = TOKENS;
        space.landmark_bits = space.value_bits = 2;
        space.k_codec = space.v_codec = CAIRN__ROW_CODEC__ROW_Q8;
        hello.version_min = hello.version_max = CAIRN_PROTOCOL_VERSION;
        open.space = &space;
        cairn_codec_arena_init(&arena, CAIRN_DECODE_BYTES_MAX);
        (void)call(link, CAIRN_KIND_HELLO, &hello, NULL, 0, &arena);
        link->space = ((const Cairn__OpenSpaceReply *)call(link, CAIRN_KIND_OPEN_SPACE, &open, NULL,
                                                           0, &arena))
                          ->space;
        put.space = context.space = link->space;
        put.keys = context.keys = (ProtobufCBinaryData){sizeof(key), key};
        source.bytes = sizeof(block);
        put.source = &source;
        (void)call(link, CAIRN_KIND_PUT, &put, block, sizeof(block), &arena);
        link->context = ((const Cairn__OpenContextReply *)call(link, CAIRN_KIND_OPEN_CONTEXT,
                                                               &context, NULL, 0, &arena))
                            ->context;
        cairn_codec_arena_finish(&arena);
}

void fuzz_link_open(struct fuzz_link *link, bool ready)
{
        *link = (struct fuzz_link){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
        FUZZ_CHECK(link->fd >= 0);
        connect_to(link->fd);
        if (ready)
                make_ready(link);
}

void fuzz_link_send(struct fuzz_link *link, uint32_t kind, const void *message,
                    size_t message_bytes, const void *payload, size_t payload_bytes)
{
        struct cairn_frame_header header = {.version = CAIRN_PROTOCOL_VERSION,
                                            .kind = (uint16_t)kind,
                                            .id = 1,
                                            .status = 2000,
                                            .message_bytes = (uint32_t)message_bytes,
                                            .payload_bytes = (uint32_t)payload_bytes};
        uint8_t head[CAIRN_FRAME_HEADER_BYTES];

        cairn_frame_header_write(&header, head);
        send_all(link, head, sizeof(head));
        send_all(link, message, message_bytes);
        send_all(link, payload, payload_bytes);
}

void fuzz_link_send_raw(struct fuzz_link *link, const uint8_t *bytes, size_t size)
{
        uint8_t *copy = malloc(size + 1);
        struct cairn_frame_header header;

        FUZZ_CHECK(copy != NULL);
        memcpy(copy, bytes, size);
        for (size_t at = 0; at + CAIRN_FRAME_HEADER_BYTES <= size;) {
                if (cairn_frame_header_read(copy + at, false, &header) != CAIRN_OK)
                        break; // nothing is read beyond it
                if (header.kind == CAIRN_KIND_DRAIN) {
                        header.kind = CAIRN_KIND_PING;
                        cairn_frame_header_write(&header, copy + at);
                }
                at +=
                    CAIRN_FRAME_HEADER_BYTES + (size_t)header.message_bytes + header.payload_bytes;
        }
        send_all(link, copy, size);
        free(copy);
}

void fuzz_link_end(struct fuzz_link *link)
{
        static uint8_t sink[65536];

        (void)shutdown(link->fd, SHUT_WR); // it may have hung up
        for (;;) {
                wait_for(link->fd, POLLIN, NULL);
                if (recv(link->fd, sink, sizeof(sink), MSG_DONTWAIT) <= 0)
                        break;
        }
        (void)close(link->fd); // nothing was left
}
