// Pages of the catalog damaged where LMDB trusts them: bounds, offsets, lists of free pages. Such a
// file is noticed at the start, or writing to it later keeps it sound; sound files pass whatever
// was written to them.
#include <fcntl.h>

#include "store_fixture.h"

#include "storage/catalog_file.h"
#include "storage/note.h"

enum {
        PAGE_BYTES = 4096,
        RECORDS = 1500,
        AT_ONCE = 100,
};

struct damage_fixture {
        struct fixture f;
        struct cairn_catalog_options options;
        struct cairn_catalog_file *file;
        char path[512];
        uint64_t state; // of the random numbers
        uint64_t seed;
        uint64_t blocks;
        uint64_t notes;
};

static uint64_t next(struct damage_fixture *d)
{
        return fixture_random(&d->state);
}

static void init(struct damage_fixture *d)
{
        memset(d, 0, sizeof(*d));
        fixture_init(&d->f);
        snprintf(d->path, sizeof(d->path), "%s/catalog.mdb", d->f.directory);
        d->options =
            (struct cairn_catalog_options){.path = d->path, .map_bytes = 8 << 20, .no_sync = true};
        const char *text = getenv("CAIRN_TEST_SEED");
        d->seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL) * 2654435761u + 1;
        d->state = d->seed;
        fprintf(stderr, "CAIRN_TEST_SEED=%lu\n", (unsigned long)d->seed);
}

static int open_file(struct damage_fixture *d)
{
        char text[CAIRN_TEXT_BYTES_MAX];
        return cairn_catalog_file_open(&d->options, &d->file, text);
}

static void close_file(struct damage_fixture *d)
{
        cairn_catalog_file_close(d->file);
        d->file = NULL;
}

static struct cairn_catalog_op op_of(uint64_t number, bool put)
{
        return (struct cairn_catalog_op){
            .kind = put ? CAIRN_CATALOG_PUT : CAIRN_CATALOG_DELETE,
            .block = {.key = fixture_key(number),
                      .parent = fixture_key(number / 2),
                      .generation = number + 7,
                      .space_id = 1 + (uint32_t)(number % 3),
                      .slot = (uint32_t)number},
        };
}

// One transaction of `count` random changes. True: committed.
static bool change(struct damage_fixture *d, uint32_t count)
{
        struct cairn_catalog_op ops[AT_ONCE];
        struct cairn_note note = {.key_bytes = 9};
        static const char description[CAIRN_DESCRIPTION_BYTES_MAX] = {1};
        bool recorded;
        cr_assert_leq(count, AT_ONCE);
        for (uint32_t i = 0; i < count; i++) {
                ops[i] = op_of(next(d) % RECORDS, next(d) % 3 > 0);
                if (next(d) % 60 == 0) // long ones have pages of their own
                        ops[i] = (struct cairn_catalog_op){
                            .kind = CAIRN_CATALOG_SPACE,
                            .space = {.id = 1 + (uint32_t)(next(d) % 4),
                                      .description_bytes =
                                          (uint32_t)(next(d) % CAIRN_DESCRIPTION_BYTES_MAX),
                                      .shape = {1, 4096, 0},
                                      .description = description}};
                if (next(d) % 40 == 0) {
                        memcpy(note.key, "Hdamaged-", 9);
                        note.key[8] = (uint8_t)('a' + next(d) % 8);
                        note.value_bytes = (uint32_t)(next(d) % CAIRN_NOTE_VALUE_BYTES_MAX);
                        memset(note.value, 7, note.value_bytes);
                        ops[i] =
                            (struct cairn_catalog_op){.kind = CAIRN_CATALOG_NOTE, .note = &note};
                }
                ops[i].next = i + 1 < count ? &ops[i + 1] : NULL;
        }
        return cairn_catalog_file_write(d->file, ops, NULL, 0, &recorded);
}

static int on_space(void *arg, const struct cairn_catalog_space *space)
{
        (void)arg;
        (void)space;
        return CAIRN_OK;
}

static int on_block(void *arg, const struct cairn_catalog_block *block)
{
        struct damage_fixture *d = arg;
        struct cairn_catalog_block expected = op_of(block->slot, true).block;
        cr_assert_eq(memcmp(&expected, block, sizeof(expected)), 0);
        d->blocks++;
        return CAIRN_OK;
}

static int on_note(void *arg, const struct cairn_note *note)
{
        struct damage_fixture *d = arg;
        cr_assert_eq(note->key[0], 'H');
        d->notes++;
        return CAIRN_OK;
}

static void load(struct damage_fixture *d)
{
        const struct cairn_catalog_visitor visitor = {
            .on_space = on_space, .on_block = on_block, .on_note = on_note, .arg = d};
        uint64_t bad = 0;
        d->blocks = d->notes = 0;
        cr_assert_eq(cairn_catalog_file_load(d->file, &visitor, &bad), CAIRN_OK);
}

static uint64_t size_of(const char *path)
{
        struct stat info;
        cr_assert_eq(stat(path, &info), 0);
        return (uint64_t)info.st_size;
}

// A file with branches, long values and free pages. *ret_bytes: all that it holds.
static uint64_t make(struct damage_fixture *d, uint8_t **ret_bytes)
{
        cr_assert_eq(open_file(d), CAIRN_OK);
        for (int i = 0; i < 60; i++)
                cr_assert(change(d, 1 + (uint32_t)(next(d) % AT_ONCE)));
        load(d);
        cr_assert_gt(d->blocks, 200);
        close_file(d);
        uint64_t size = size_of(d->path), used = 0;
        uint8_t *bytes = malloc(size);
        int fd = open(d->path, O_RDONLY | O_CLOEXEC);
        cr_assert_eq(read(fd, bytes, size), (ssize_t)size);
        close(fd);
        for (uint64_t i = 0; i < size; i += PAGE_BYTES)
                used = bytes[i + 10] != 0 ? i + PAGE_BYTES : used;
        *ret_bytes = bytes;
        return used;
}

static void write_file(struct damage_fixture *d, const uint8_t *bytes, uint64_t used)
{
        int fd = open(d->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        cr_assert_geq(fd, 0);
        cr_assert_eq(write(fd, bytes, used), (ssize_t)used);
        cr_assert_eq(ftruncate(fd, 8 << 20), 0);
        close(fd);
}

// A number of a page's start, of a node, or any: small, large, or off by a little.
static void damage(struct damage_fixture *d, uint8_t *bytes, uint64_t used)
{
        uint8_t *page = bytes + next(d) % (used / PAGE_BYTES) * PAGE_BYTES;
        uint64_t kind = next(d) % 8;
        uint64_t at = kind < 2   ? 10 + next(d) % 3 * 2  // flags, lower, upper
                      : kind < 4 ? 16 + next(d) % 64 * 2 // offsets, records of tables
                      : kind < 5 ? next(d) % 8 * 2       // the page's number
                                 : next(d) % (PAGE_BYTES / 2) * 2;
        uint16_t value;
        memcpy(&value, page + at, 2);
        switch (next(d) % 4) {
        case 0: value = (uint16_t)next(d); break;
        case 1: value ^= (uint16_t)(1 << next(d) % 16); break;
        case 2: value = (uint16_t)(value + next(d) % 9 - 4); break;
        default: value = (uint16_t)(next(d) % 2 ? 0xfff0 : 0); break;
        }
        memcpy(page + at, &value, 2);
}

Test(catalog_damage, sound_files_pass, .timeout = 120)
{
        struct damage_fixture d;
        init(&d);
        for (int round = 0; round < 40; round++) {
                cr_assert_eq(open_file(&d), CAIRN_OK);
                cr_assert_eq(cairn_catalog_file_fresh(d.file), round == 0);
                for (uint64_t i = next(&d) % 30; i > 0; i--)
                        cr_assert(change(&d, 1 + (uint32_t)(next(&d) % AT_ONCE)));
                load(&d);
                close_file(&d);
                cr_assert(cairn_catalog_check(d.path, size_of(d.path)));
        }
        fixture_finish(&d.f);
}

Test(catalog_damage, damaged_pages_end_no_daemon, .timeout = 120)
{
        struct damage_fixture d;
        uint32_t noticed = 0;
        const char *text = getenv("CAIRN_TEST_ROUNDS");
        int rounds = text ? atoi(text) : 200;
        uint8_t *sound;
        init(&d);
        uint64_t used = make(&d, &sound);
        uint8_t *bytes = malloc(used);
        for (int round = 0; round < rounds; round++) {
                memcpy(bytes, sound, used);
                damage(&d, bytes, used);
                write_file(&d, bytes, used);
                cr_assert_eq(open_file(&d), CAIRN_OK);
                noticed += cairn_catalog_file_fresh(d.file);
                load(&d);
                for (int i = 0; i < 20; i++)
                        cr_assert(change(&d, AT_ONCE), "round %d", round);
                load(&d);
                close_file(&d);
                cr_assert(cairn_catalog_check(d.path, size_of(d.path)), "round %d", round);
        }
        fprintf(stderr, "%u of %d noticed at the start\n", noticed, rounds);
        cr_assert_gt(noticed, 0);
        free(bytes);
        free(sound);
        fixture_finish(&d.f);
}

// The map's bytes are gone: reading them raises SIGBUS.
Test(catalog_damage, cut_while_it_is_open, .timeout = 120)
{
        struct damage_fixture d;
        uint32_t refused = 0;
        uint8_t *sound;
        init(&d);
        uint64_t used = make(&d, &sound);
        for (uint64_t pages = 0; pages * PAGE_BYTES < used; pages += 1 + next(&d) % 8) {
                write_file(&d, sound, used);
                cr_assert_eq(open_file(&d), CAIRN_OK);
                cr_assert_not(cairn_catalog_file_fresh(d.file));
                cr_assert(change(&d, AT_ONCE));
                cr_assert_eq(truncate(d.path, (off_t)(pages * PAGE_BYTES)), 0);
                bool all = true;
                for (int i = 0; i < 5; i++) {
                        bool done = change(&d, AT_ONCE);
                        cr_assert(all || !done, "what broke stays so until it is opened again");
                        all = all && done;
                }
                refused += !all;
                close_file(&d);
                cr_assert_eq(open_file(&d), CAIRN_OK);
                cr_assert(change(&d, AT_ONCE));
                load(&d);
                close_file(&d);
                cr_assert(cairn_catalog_check(d.path, size_of(d.path)));
        }
        fprintf(stderr, "refused %u times\n", refused);
        cr_assert_gt(refused, 0);
        d.f.fds_before += 2 * (int)refused; // LMDB's two are kept: see cairn_catalog_file_close
        free(sound);
        fixture_finish(&d.f);
}
