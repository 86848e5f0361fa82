// A daemon of a few lines for the client's unit tests: a thread that answers frames as the test
// tells it to.
#ifndef CAIRN_FAKE_DAEMON_H
#define CAIRN_FAKE_DAEMON_H

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/bytes.h"
#include "proto/codec.h"
#include "proto/frame.h"
#include "proto/result.h"
#include "proto/status.h"

enum {
        FAKE_ARENAS_MAX = 16
};

struct fake_daemon {
        char folder[64];
        char path[108];
        int listener;
        int connection; // -1: none
        pthread_t thread;
        atomic_bool stop;
        atomic_bool hang_up; // close the connection before the next frame is answered
        // Says what to do with a request: true: answered (or left unanswered on purpose), false:
        // the default.
        bool (*on_request)(struct fake_daemon *fake, const struct cairn_frame *frame,
                           const void *message);
        // Counters and state that tests look at.
        atomic_uint connections;
        atomic_uint arenas_registered;
        atomic_uint spaces_opened;
        atomic_uint requests[CAIRN_KIND_COUNT];
        uint8_t *arena[FAKE_ARENAS_MAX]; // of this connection, by id - 1
        size_t arena_bytes[FAKE_ARENAS_MAX];
        int arena_seals;
        uint32_t arenas;
        int pending_fd;
        uint32_t space_id; // given to the next OpenSpace
        bool byte_by_byte;
        // Changes a reply's frame in place, and may make it shorter; NULL: none does.
        void (*spoil)(struct fake_daemon *fake, uint8_t *bytes, size_t *size);
        uint64_t held_id; // for tests that answer later
        uint32_t held_kind;
        void *arg;
};

static inline void fake_write(struct fake_daemon *fake, const uint8_t *bytes, size_t size)
{
        size_t step = fake->byte_by_byte ? 1 : size;

        for (size_t at = 0; at < size;) {
                size_t part = size - at < step ? size - at : step;
                ssize_t sent = send(fake->connection, bytes + at, part, MSG_NOSIGNAL);

                if (sent <= 0)
                        return;
                at += (size_t)sent;
        }
}

static inline void fake_reply_to(struct fake_daemon *fake, uint32_t kind, uint64_t id, int status,
                                 const void *message, const void *payload, size_t payload_bytes)
{
        struct cairn_frame_header header = {.version = CAIRN_PROTOCOL_VERSION,
                                            .kind = (uint16_t)kind,
                                            .reply = true,
                                            .id = id,
                                            .status = status};
        uint8_t *bytes, *room;
        size_t size;

        cr_assert_eq(cairn_codec_frame(&header, message, payload_bytes, &bytes, &size, &room), 0);
        if (payload_bytes > 0)
                memcpy(room, payload, payload_bytes);
        if (fake->spoil)
                fake->spoil(fake, bytes, &size);
        fake_write(fake, bytes, size);
        free(bytes);
}

static inline void fake_reply(struct fake_daemon *fake, const struct cairn_frame *frame,
                              const void *message)
{
        fake_reply_to(fake, frame->header.kind, frame->header.id, 0, message, NULL, 0);
}

static inline void fake_fail(struct fake_daemon *fake, const struct cairn_frame *frame, int status,
                             const char *text)
{
        Cairn__ErrorReply reply = CAIRN__ERROR_REPLY__INIT;

        reply.text = (char *)text;
        fake_reply_to(fake, frame->header.kind, frame->header.id, status, &reply, NULL, 0);
}

static inline void fake_register(struct fake_daemon *fake, const struct cairn_frame *frame,
                                 const Cairn__RegisterArenaRequest *request)
{
        Cairn__RegisterArenaReply reply = CAIRN__REGISTER_ARENA_REPLY__INIT;
        uint32_t slot = fake->arenas++ % FAKE_ARENAS_MAX;

        if (fake->pending_fd < 0) {
                fake_fail(fake, frame, CAIRN_EINVAL, "no descriptor came");
                return;
        }
        fake->arena_seals = fcntl(fake->pending_fd, F_GET_SEALS);
        fake->arena[slot] = mmap(NULL, request->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                 fake->pending_fd, 0);
        fake->arena_bytes[slot] = request->size_bytes;
        close(fake->pending_fd);
        fake->pending_fd = -1;
        atomic_fetch_add(&fake->arenas_registered, 1);
        reply.arena = slot + 1;
        fake_reply(fake, frame, &reply);
}

static inline void fake_default(struct fake_daemon *fake, const struct cairn_frame *frame,
                                const void *message)
{
        switch (frame->header.kind) {
        case CAIRN_KIND_HELLO: {
                Cairn__HelloReply reply = CAIRN__HELLO_REPLY__INIT;

                reply.version = 1;
                reply.incarnation = 100 + atomic_load(&fake->connections);
                reply.server = "fake";
                reply.isa = "none";
                fake_reply(fake, frame, &reply);
                return;
        }
        case CAIRN_KIND_PING: {
                Cairn__PingReply reply = CAIRN__PING_REPLY__INIT;

                reply.incarnation = 100 + atomic_load(&fake->connections);
                reply.state = 1;
                reply.uptime_ms = 7;
                fake_reply(fake, frame, &reply);
                return;
        }
        case CAIRN_KIND_REGISTER_ARENA: fake_register(fake, frame, message); return;
        case CAIRN_KIND_RELEASE_ARENA: {
                Cairn__ReleaseArenaReply reply = CAIRN__RELEASE_ARENA_REPLY__INIT;

                fake_reply(fake, frame, &reply);
                return;
        }
        case CAIRN_KIND_OPEN_SPACE: {
                const Cairn__OpenSpaceRequest *request = message;
                Cairn__OpenSpaceReply reply = CAIRN__OPEN_SPACE_REPLY__INIT;
                struct cairn_space space;

                cr_assert_eq(cairn_codec_space_from(request->space, &space), 0);
                reply.space = ++fake->space_id;
                reply.fingerprint = request->fingerprint;
                reply.block_bytes = cairn_space_block_bytes(&space);
                atomic_fetch_add(&fake->spaces_opened, 1);
                fake_reply(fake, frame, &reply);
                return;
        }
        case CAIRN_KIND_LOOKUP: {
                const Cairn__LookupRequest *request = message;
                Cairn__LookupReply reply = CAIRN__LOOKUP_REPLY__INIT;

                reply.found = (uint32_t)(request->keys.len / CAIRN_KEY_BYTES);
                reply.lease = 5;
                fake_reply(fake, frame, &reply);
                return;
        }
        case CAIRN_KIND_OPEN_CONTEXT: {
                Cairn__OpenContextReply reply = CAIRN__OPEN_CONTEXT_REPLY__INIT;

                reply.context = 9;
                reply.tokens = 64;
                fake_reply(fake, frame, &reply);
                return;
        }
        default: fake_fail(fake, frame, CAIRN_EUNSUPPORTED, "the fake does not know this");
        }
}

static inline void fake_on_frame(struct fake_daemon *fake, const struct cairn_frame *frame)
{
        struct cairn_codec_arena memory;
        void *message = NULL;

        cairn_codec_arena_init(&memory, CAIRN_DECODE_BYTES_MAX);
        cr_assert_eq(cairn_codec_unpack(frame->header.kind, false, 0, frame->message,
                                        frame->header.message_bytes, &memory, &message),
                     0);
        atomic_fetch_add(&fake->requests[frame->header.kind], 1);
        if (!fake->on_request || !fake->on_request(fake, frame, message))
                fake_default(fake, frame, message);
        cairn_codec_arena_finish(&memory);
}

static inline ssize_t fake_receive(struct fake_daemon *fake, uint8_t *bytes, size_t size)
{
        struct iovec part = {bytes, size};
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control;
        struct msghdr header = {.msg_iov = &part,
                                .msg_iovlen = 1,
                                .msg_control = &control,
                                .msg_controllen = sizeof(control)};
        ssize_t got = recvmsg(fake->connection, &header, 0);
        struct cmsghdr *rights = got > 0 ? CMSG_FIRSTHDR(&header) : NULL;

        if (rights && rights->cmsg_type == SCM_RIGHTS)
                memcpy(&fake->pending_fd, CMSG_DATA(rights), sizeof(int));
        return got;
}

static inline void fake_drop_connection(struct fake_daemon *fake)
{
        close(fake->connection);
        fake->connection = -1;
        for (int i = 0; i < FAKE_ARENAS_MAX; i++) {
                if (fake->arena[i])
                        munmap(fake->arena[i], fake->arena_bytes[i]);
                fake->arena[i] = NULL;
        }
        fake->arenas = 0;
}

static inline void fake_serve(struct fake_daemon *fake)
{
        struct cairn_frame_parser parser;
        uint8_t *bytes = malloc(1 << 16);
        bool over = false;

        cairn_frame_parser_init(&parser, false);
        while (!atomic_load(&fake->stop) && !over) {
                struct pollfd poller = {.fd = fake->connection, .events = POLLIN};
                ssize_t got;

                if (atomic_exchange(&fake->hang_up, false))
                        break;
                if (poll(&poller, 1, 10) <= 0)
                        continue;
                got = fake_receive(fake, bytes, 1 << 16);
                if (got <= 0)
                        break;
                for (size_t at = 0; at < (size_t)got && !over;) {
                        struct cairn_frame frame;
                        size_t used;
                        int whole = cairn_frame_parser_feed(&parser, bytes + at, (size_t)got - at,
                                                            &used, &frame);

                        cr_assert_geq(whole, 0);
                        at += used;
                        over = atomic_exchange(&fake->hang_up, false);
                        if (whole == 1 && !over)
                                fake_on_frame(fake, &frame);
                }
        }
        cairn_frame_parser_finish(&parser);
        free(bytes);
        fake_drop_connection(fake);
}

static inline void *fake_run(void *arg)
{
        struct fake_daemon *fake = arg;

        while (!atomic_load(&fake->stop)) {
                struct pollfd poller = {.fd = fake->listener, .events = POLLIN};

                if (poll(&poller, 1, 10) <= 0)
                        continue;
                fake->connection = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
                if (fake->connection < 0)
                        continue;
                atomic_fetch_add(&fake->connections, 1);
                fake_serve(fake);
        }
        return NULL;
}

static inline struct fake_daemon *fake_start(bool (*on_request)(struct fake_daemon *,
                                                                const struct cairn_frame *,
                                                                const void *))
{
        struct fake_daemon *fake = calloc(1, sizeof(*fake));
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        fake->on_request = on_request;
        fake->connection = fake->pending_fd = -1;
        strcpy(fake->folder, "/tmp/cairn-fake-XXXXXX");
        cr_assert_not_null(mkdtemp(fake->folder));
        snprintf(fake->path, sizeof(fake->path), "%s/sock", fake->folder);
        fake->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        strcpy(address.sun_path, fake->path);
        cr_assert_eq(bind(fake->listener, (struct sockaddr *)&address, sizeof(address)), 0);
        cr_assert_eq(listen(fake->listener, 8), 0);
        cr_assert_eq(pthread_create(&fake->thread, NULL, fake_run, fake), 0);
        return fake;
}

static inline void fake_stop(struct fake_daemon *fake)
{
        atomic_store(&fake->stop, true);
        pthread_join(fake->thread, NULL);
        close(fake->listener);
        unlink(fake->path);
        rmdir(fake->folder);
        free(fake);
}

#endif
