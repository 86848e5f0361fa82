// Spaces by number: walls by the stored fingerprint, and directories from before spaces had
// tenants.
#include "daemon/space_table.h"
#include "proto/codec.h"
#include "storage/legal.h"
#include "store_fixture.h"

static struct cairn_space description(const char *model, uint32_t shared)
{
        struct cairn_space space = {.kind = CAIRN_SPACE_OPAQUE,
                                    .block_tokens = 16,
                                    .tp_size = 1,
                                    .block_bytes = 30000,
                                    .shared = shared};
        snprintf(space.model, sizeof(space.model), "%s", model);
        return space;
}

static struct cairn_space_entry entry_of(const struct cairn_space *space, uint32_t tenant)
{
        struct cairn_space_entry entry;
        char text[CAIRN_TEXT_BYTES_MAX];
        cr_assert_eq(cairn_space_entry_init(space, tenant, &entry, text), CAIRN_OK, "%s", text);
        return entry;
}

static uint32_t store_space(struct fixture *f, const struct cairn_key *stored,
                            const struct cairn_block_shape *shape, const uint8_t *bytes,
                            size_t size)
{
        struct fixture_result result = {0};
        cairn_store_space_open(f->store, stored, shape, bytes, size, fixture_on_space, &result);
        fixture_until(f, &result.done);
        cr_assert_eq(result.status, CAIRN_OK);
        return result.space;
}

// As the daemon did before: the public fingerprint, and a request that names the space alone.
static uint32_t store_old(struct fixture *f, const struct cairn_space *space)
{
        struct cairn_space_entry entry = entry_of(space, 0);
        Cairn__OpenSpaceRequest request = CAIRN__OPEN_SPACE_REQUEST__INIT;
        Cairn__Space message;
        uint8_t bytes[512];
        cairn_codec_space_to(space, &message);
        request.space = &message;
        cr_assert_leq(cairn_codec_size(&request), sizeof(bytes));
        cairn_codec_pack(&request, bytes);
        return store_space(f, &entry.fingerprint, &entry.shape, bytes, cairn_codec_size(&request));
}

static uint32_t store_new(struct fixture *f, const struct cairn_space *space, uint32_t tenant)
{
        struct cairn_space_entry entry = entry_of(space, tenant);
        uint8_t *bytes;
        size_t size;
        cr_assert_eq(cairn_space_describe(&entry, &bytes, &size), CAIRN_OK);
        uint32_t id = store_space(f, &entry.stored, &entry.shape, bytes, size);
        free(bytes);
        return id;
}

static void put_by(struct fixture *f, uint32_t space, uint64_t number, uint32_t tenant)
{
        struct fixture_begin begin = {.request = {.on_begun = fixture_on_begun,
                                                  .space = space,
                                                  .key = fixture_key(number),
                                                  .ack = CAIRN_ACK_DISK,
                                                  .tenant = tenant}};
        cairn_store_put_begin(f->store, &begin.request);
        fixture_until(f, &begin.result.done);
        cr_assert_eq(begin.result.status, CAIRN_OK);
        memset(cairn_put_raw(begin.result.put, 0), 1, 30000);
        cairn_put_seal(begin.result.put, CAIRN_PART_RAW, 0);
        struct fixture_result result = {0};
        cairn_store_put_commit(f->store, begin.result.put, fixture_on_status, &result);
        fixture_until(f, &result.done);
        cr_assert_eq(result.status, CAIRN_OK);
}

Test(space_table, tenants_share_nothing_but_shared_spaces)
{
        struct cairn_space own = description("own", 0), shared = description("own", 1);
        struct cairn_space_entry a = entry_of(&own, 1), b = entry_of(&own, 2);
        struct cairn_space_entry c = entry_of(&shared, 1), d = entry_of(&shared, 2);
        cr_assert(cairn_key_equal(&a.fingerprint, &b.fingerprint), "workers' keys are the same");
        cr_assert_not(cairn_key_equal(&a.stored, &b.stored));
        cr_assert_not(cairn_key_equal(&a.stored, &a.fingerprint));
        cr_assert(cairn_key_equal(&c.stored, &d.stored));
        cr_assert_not(cairn_key_equal(&c.stored, &a.fingerprint));
        cr_assert(cairn_space_entry_visible(&a, 1));
        cr_assert_not(cairn_space_entry_visible(&a, 2));
        cr_assert(cairn_space_entry_visible(&c, 2));
}

Test(space_table, directories_from_before_tenants_go_on)
{
        struct fixture f;
        struct cairn_space one = description("one tenant's", 0), mixed = description("mixed", 0);
        struct cairn_space empty = description("empty", 0), fresh = description("fresh", 0);
        struct cairn_space shared = description("shared", 1);
        fixture_init(&f);
        fixture_open(&f);
        uint32_t of_one = store_old(&f, &one), of_two = store_old(&f, &mixed);
        uint32_t of_none = store_old(&f, &empty), of_new = store_new(&f, &fresh, 7);
        uint32_t of_all = store_new(&f, &shared, 9);
        put_by(&f, of_one, 1, 7);
        put_by(&f, of_one, 2, 7);
        put_by(&f, of_two, 3, 7);
        put_by(&f, of_two, 4, 8);
        fixture_close(&f);
        fixture_open(&f);

        struct cairn_space_table table = {.count = 0};
        // The fixture's own space has no description that a daemon wrote.
        cr_assert_eq(cairn_space_table_load(&table, f.store), 1);
        cr_assert_eq(table.count, 5);
        struct cairn_space_entry wanted = entry_of(&one, 7);
        const struct cairn_space_entry *found =
            cairn_space_table_find_old(&table, &wanted.fingerprint, 7);
        cr_assert(found && found->id == of_one, "its tenant goes on with it");
        cr_assert_null(cairn_space_table_find_old(&table, &wanted.fingerprint, 8));
        cr_assert(cairn_space_entry_visible(found, 7));
        cr_assert_not(cairn_space_entry_visible(found, 8));
        for (uint32_t tenant = 0; tenant < 10; tenant++) {
                cr_assert_not(
                    cairn_space_entry_visible(cairn_space_table_find(&table, of_two), tenant));
                cr_assert_not(
                    cairn_space_entry_visible(cairn_space_table_find(&table, of_none), tenant));
                cr_assert(
                    cairn_space_entry_visible(cairn_space_table_find(&table, of_all), tenant));
        }
        wanted = entry_of(&fresh, 7);
        found = cairn_space_table_find(&table, of_new);
        cr_assert(cairn_key_equal(&found->stored, &wanted.stored));
        cr_assert(found->owned && found->tenant == 7);
        cr_assert_null(cairn_space_table_find_old(&table, &wanted.fingerprint, 7));
        cr_assert_eq(cairn_space_table_count(&table, 9), 1, "a shared one counts for its maker");
        cairn_space_table_finish(&table);
        fixture_finish(&f);
}
