// Views through the client, against a fake daemon that shows segments of its own: what is mapped,
// what is refused, and what stays readable until when.
#include "tests/unit/fake_daemon.h"

#include <dirent.h>

#include "cairn/cairn.h"
#include "proto/limits.h"

enum {
        BLOCK = 8192,
        SEGMENT = 1 << 20,
        BASE = 4096, // of slot 1's block
};

// What the fake daemon shall do wrong, and what it did.
struct script {
        int segments;    // made, each with a descriptor, until it is told again
        uint32_t number; // of the last one
        int fds[128];
        uint64_t *words[128]; // the fake's own mapping
        int seals;
        int missing_fds; // descriptors that do not come though they are named
        int extra_fds;
        int64_t offset;   // added
        int64_t bytes;    // added
        int64_t slot;     // added
        uint64_t claimed; // size of a segment in the reply; 0: the true one
        int views_short;  // views that are left out
        bool again;       // more segments than a reply may show: CAIRN_EAGAIN for the rest
        bool silent;      // no answer now
        bool split;       // a byte at a time
        uint32_t segment_named;
};

static uint64_t *make_segment(struct script *script)
{
        int at = script->segments++;
        int fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        cr_assert_eq(ftruncate(fd, SEGMENT), 0);
        script->words[at] = mmap(NULL, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        cr_assert_neq(script->words[at], MAP_FAILED);
        for (int slot = 1; slot < 100; slot++)
                script->words[at][slot] = 7;
        memset((uint8_t *)script->words[at] + BASE, 0x40 + at % 64, SEGMENT - BASE);
        cr_assert_eq(fcntl(fd, F_ADD_SEALS, script->seals), 0);
        script->fds[at] = fd;
        script->number++;
        return script->words[at];
}

static void send_with_fds(struct fake_daemon *fake, const uint8_t *bytes, size_t size, int *fds,
                          uint32_t count)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(200 * sizeof(int))];
        } control = {0};
        size_t first = ((struct script *)fake->arg)->split ? 1 : size;
        struct iovec part = {(void *)bytes, first};
        struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
        struct cmsghdr *rights;

        if (count > 0) {
                header.msg_control = &control;
                header.msg_controllen = CMSG_SPACE(count * sizeof(int));
                rights = CMSG_FIRSTHDR(&header);
                rights->cmsg_level = SOL_SOCKET;
                rights->cmsg_type = SCM_RIGHTS;
                rights->cmsg_len = CMSG_LEN(count * sizeof(int));
                memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
        }
        cr_assert_eq(sendmsg(fake->connection, &header, MSG_NOSIGNAL), (ssize_t)first);
        fake->byte_by_byte = ((struct script *)fake->arg)->split;
        fake_write(fake, bytes + first, size - first);
}

// A segment a key while `segments` asks for it; else all in the last one.
static void serve_views(struct fake_daemon *fake, const struct cairn_frame *frame,
                        const Cairn__GetRequest *request)
{
        struct script *script = fake->arg;
        size_t count = request->keys.len / CAIRN_KEY_BYTES;
        Cairn__GetReply reply = CAIRN__GET_REPLY__INIT;
        struct cairn_frame_header header = {.version = CAIRN_PROTOCOL_VERSION,
                                            .kind = CAIRN_KIND_GET,
                                            .reply = true,
                                            .id = frame->header.id};
        Cairn__View *views = calloc(count, sizeof(*views));
        Cairn__View **view_pointers = calloc(count, sizeof(*view_pointers));
        Cairn__ViewSegment segments[CAIRN_VIEW_DESCRIPTORS_MAX];
        Cairn__ViewSegment *segment_pointers[CAIRN_VIEW_DESCRIPTORS_MAX];
        int32_t *statuses = calloc(count, sizeof(*statuses));
        int fds[200];
        uint32_t shown = 0;
        uint8_t *bytes;
        size_t size;

        for (size_t i = 0; i < count; i++) {
                views[i] = (Cairn__View)CAIRN__VIEW__INIT;
                view_pointers[i] = &views[i];
                if (i == 0 || script->again) {
                        if (shown == CAIRN_VIEW_DESCRIPTORS_MAX) {
                                statuses[i] = CAIRN_EAGAIN;
                                continue;
                        }
                        if (script->again || script->segment_named == 0) {
                                make_segment(script);
                                fds[shown] = script->fds[script->segments - 1];
                                segments[shown] = (Cairn__ViewSegment)CAIRN__VIEW_SEGMENT__INIT;
                                segments[shown].segment = script->number;
                                segments[shown].bytes =
                                    script->claimed ? script->claimed : (uint64_t)SEGMENT;
                                segment_pointers[shown] = &segments[shown];
                                script->segment_named = script->number;
                                shown++;
                        }
                }
                views[i].segment = script->segment_named;
                views[i].offset = (uint64_t)((int64_t)BASE + script->offset);
                views[i].bytes = (uint64_t)((int64_t)BLOCK + script->bytes);
                views[i].slot = (uint64_t)((int64_t)1 + script->slot);
                views[i].generation = 7;
        }
        reply.statuses = statuses;
        reply.n_statuses = count;
        reply.views = view_pointers;
        reply.n_views = count - (size_t)script->views_short;
        reply.segments = segment_pointers;
        reply.n_segments = shown;
        cr_assert_eq(cairn_codec_frame(&header, &reply, 0, &bytes, &size, NULL), 0);
        for (int i = 0; i < script->extra_fds; i++)
                fds[shown + (uint32_t)i] = fds[0];
        send_with_fds(fake, bytes, size, fds,
                      shown + (uint32_t)script->extra_fds - (uint32_t)script->missing_fds);
        free(bytes);
        free(views);
        free(view_pointers);
        free(statuses);
}

static bool on_request(struct fake_daemon *fake, const struct cairn_frame *frame,
                       const void *message)
{
        struct script *script = fake->arg;

        if (frame->header.kind == CAIRN_KIND_RELEASE) {
                Cairn__ReleaseReply reply = CAIRN__RELEASE_REPLY__INIT;

                fake_reply(fake, frame, &reply);
                return true;
        }
        if (frame->header.kind != CAIRN_KIND_GET)
                return false;
        cr_assert(((const Cairn__GetRequest *)message)->view);
        if (script->silent) {
                script->silent = false;
                usleep(1500 * 1000); // longer than the client waits
        }
        serve_views(fake, frame, message);
        return true;
}

static uint32_t open_descriptors(void)
{
        DIR *folder = opendir("/proc/self/fd");
        uint32_t count = 0;

        while (readdir(folder))
                count++;
        closedir(folder);
        return count;
}

struct setup {
        struct script script;
        struct fake_daemon *fake;
        struct cairn_client *client;
        struct cairn_lease lease;
        struct cairn_key keys[200];
        uint32_t space;
        uint32_t descriptors; // open before
};

static void start(struct setup *s)
{
        struct cairn_client_options options = {.timeout_ms = 200};
        struct cairn_space_config config = {.kind = CAIRN_SPACE_OPAQUE,
                                            .model = "views",
                                            .block_tokens = 16,
                                            .tp_size = 1,
                                            .block_bytes = BLOCK};
        size_t found;

        s->script.seals = F_SEAL_SHRINK | F_SEAL_GROW;
        s->descriptors = open_descriptors();
        s->fake = fake_start(on_request);
        s->fake->arg = &s->script;
        options.socket_path = s->fake->path;
        for (uint32_t i = 0; i < 200; i++)
                memset(&s->keys[i], (int)i + 1, sizeof(s->keys[i]));
        cr_assert_eq(cairn_client_create(&options, &s->client, NULL, 0), 0);
        cr_assert_eq(cairn_client_open_space(s->client, &config, &s->space), 0);
        cr_assert_eq(cairn_lookup(s->client, NULL, s->space, s->keys, 3, 1000, &found, &s->lease),
                     0);
}

static int get(struct setup *s, size_t count, struct cairn_view *views, int *statuses)
{
        struct cairn_get_args args = {
            .space = s->space, .keys = s->keys, .count = count, .lease = s->lease};

        return cairn_get_views(s->client, NULL, &args, views, statuses);
}

static void stop(struct setup *s)
{
        cairn_client_destroy(s->client);
        fake_stop(s->fake);
        for (int i = 0; i < s->script.segments; i++) {
                munmap(s->script.words[i], SEGMENT);
                close(s->script.fds[i]);
        }
        cr_assert_eq(open_descriptors(), s->descriptors, "every descriptor is closed");
}

Test(client_views, are_mapped_once_and_tell_when_they_ended)
{
        struct setup s = {0};
        struct cairn_view views[6];
        int statuses[6];

        s.script.split = true;
        start(&s);
        cr_assert_eq(get(&s, 3, views, statuses), 0);
        cr_assert_eq(get(&s, 3, views + 3, statuses + 3), 0);
        cr_assert_eq(s.script.segments, 1);
        cr_assert_eq(views[0].bytes, views[3].bytes, "one mapping");
        cr_assert_eq(views[0].size_bytes, BLOCK);
        for (int i = 0; i < BLOCK; i++)
                cr_assert_eq(((const uint8_t *)views[0].bytes)[i], 0x40);
        cr_assert(cairn_view_valid(&views[5]));
        __atomic_store_n(&s.script.words[0][1], 8, __ATOMIC_RELEASE);
        for (int i = 0; i < 6; i++)
                cr_assert_not(cairn_view_valid(&views[i]));
        for (int i = 0; i < 6; i++)
                cairn_view_release(&views[i]);
        cr_assert_not(cairn_view_valid(&views[0]), "an empty view");
        cairn_view_release(&views[0]);
        stop(&s);
}

Test(client_views, outlive_connection_and_client)
{
        struct setup s = {0};
        struct cairn_view views[2];

        start(&s);
        cr_assert_eq(get(&s, 2, views, NULL), 0);
        cairn_client_hang_up(s.client);
        cr_assert_not(cairn_view_valid(&views[0]));
        cr_assert_eq(*(const uint8_t *)views[0].bytes, 0x40);
        cairn_view_release(&views[0]);
        cairn_client_destroy(s.client);
        s.client = NULL;
        cr_assert_eq(*(const uint8_t *)views[1].bytes, 0x40);
        cr_assert_not(cairn_view_valid(&views[1]));
        cairn_view_release(&views[1]);
        stop(&s);
}

Test(client_views, let_go_of_a_segment_that_has_ended)
{
        struct setup s = {0};
        struct cairn_view view, again;
        struct cairn_ping_info info;

        start(&s);
        cr_assert_eq(get(&s, 1, &view, NULL), 0);
        __atomic_store_n(&s.script.words[0][0], 1, __ATOMIC_RELEASE);
        cr_assert_eq(cairn_ping(s.client, NULL, &info), 0);
        cr_assert_eq(*(const uint8_t *)view.bytes, 0x40, "mapped for as long as a view needs it");
        s.script.segment_named = 0;
        cr_assert_eq(get(&s, 1, &again, NULL), 0);
        cr_assert_neq(again.bytes, view.bytes);
        cr_assert_eq(*(const uint8_t *)again.bytes, 0x41);
        cairn_view_release(&view);
        cairn_view_release(&again);
        stop(&s);
}

Test(client_views, more_segments_than_a_reply_shows_are_asked_for_again)
{
        struct setup s = {0};
        struct cairn_view views[150];
        int statuses[150];

        s.script.again = true;
        start(&s);
        cr_assert_eq(get(&s, 100, views, statuses), 0);
        cr_assert_eq(s.script.segments, 100);
        for (int i = 0; i < 100; i++) {
                cr_assert_eq(statuses[i], 0);
                cr_assert_eq(*(const uint8_t *)views[i].bytes, 0x40 + i % 64);
                cairn_view_release(&views[i]);
        }
        stop(&s);
}

Test(client_views, a_reply_that_came_too_late_still_shows_its_segment)
{
        struct setup s = {0};
        struct cairn_view view;

        start(&s);
        s.script.silent = true;
        cr_assert_eq(get(&s, 1, &view, NULL), CAIRN_EDEADLINE);
        usleep(600 * 1000);
        cr_assert_eq(get(&s, 1, &view, NULL), 0, "%s", cairn_client_error(s.client));
        cr_assert_eq(s.script.segments, 1, "named by the first reply alone");
        cr_assert_eq(*(const uint8_t *)view.bytes, 0x40);
        cairn_view_release(&view);
        stop(&s);
}

static void refused(void (*spoil)(struct script *script))
{
        struct setup s = {0};
        struct cairn_view view = {0};
        int status;

        start(&s);
        spoil(&s.script);
        status = get(&s, 1, &view, NULL);
        cr_assert_lt(status, 0);
        cr_assert_null(view.bytes);
        cairn_view_release(&view);
        stop(&s);
}

static void offset_below(struct script *script)
{
        script->offset = -BASE - 1;
}
static void offset_above(struct script *script)
{
        script->offset = SEGMENT;
}
static void offset_across(struct script *script)
{
        script->offset = SEGMENT - BASE - BLOCK + 1;
}
static void too_large(struct script *script)
{
        script->bytes = 1;
}
static void too_small(struct script *script)
{
        script->bytes = -1;
}
static void slot_above(struct script *script)
{
        script->slot = SEGMENT / 8 - 1;
}
static void slot_of_the_ended_word(struct script *script)
{
        script->slot = -1;
}
static void can_shrink(struct script *script)
{
        script->seals = 0;
}
static void claims_more(struct script *script)
{
        script->claimed = SEGMENT + 1;
}
static void claims_nothing(struct script *script)
{
        script->claimed = 1;
}
static void without_its_descriptor(struct script *script)
{
        script->missing_fds = 1;
}
static void unknown_segment(struct script *script)
{
        script->segment_named = 77;
}
static void fewer_views(struct script *script)
{
        script->views_short = 1;
}
static void too_many_descriptors(struct script *script)
{
        script->extra_fds = CAIRN_VIEW_DESCRIPTORS_MAX;
}

Test(client_views, what_a_daemon_must_not_say_is_refused)
{
        refused(offset_below);
        refused(offset_above);
        refused(offset_across);
        refused(too_large);
        refused(too_small);
        refused(slot_above);
        refused(slot_of_the_ended_word);
        refused(can_shrink);
        refused(claims_more);
        refused(claims_nothing);
        refused(without_its_descriptor);
        refused(unknown_segment);
        refused(fewer_views);
        refused(too_many_descriptors);
}

Test(client_views, what_a_caller_must_not_ask_is_refused)
{
        struct setup s = {0};
        struct cairn_view view;
        struct cairn_get_args args;
        struct cairn_call call = {0};
        int status;

        start(&s);
        args = (struct cairn_get_args){.space = s.space, .keys = s.keys, .count = 1};
        cr_assert_eq(cairn_get_views(s.client, NULL, &args, &view, &status), CAIRN_EINVAL);
        args.lease = s.lease;
        args.blocks = &view;
        cr_assert_eq(cairn_get_views(s.client, NULL, &args, &view, &status), CAIRN_EINVAL);
        args.blocks = NULL;
        cr_assert_eq(cairn_get_views(s.client, &call, &args, &view, NULL), CAIRN_EINVAL);
        args.layer_first = 1;
        cr_assert_eq(cairn_get_views(s.client, NULL, &args, &view, &status), CAIRN_EINVAL);
        args.layer_first = 0;
        args.lease.connection++;
        cr_assert_eq(cairn_get_views(s.client, NULL, &args, &view, &status), CAIRN_ESTALE);
        stop(&s);
}
