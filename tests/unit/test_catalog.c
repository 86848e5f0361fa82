// The catalog: records that survive, group commit, a map that grows, formats that are refused.
#include "store_fixture.h"

#include "storage/catalog_record.h"

struct catalog_fixture {
        struct fixture f;
        struct cairn_catalog_options options;
        struct cairn_catalog *catalog;
        char path[512];
        uint32_t done;
        uint32_t failed;
        uint64_t blocks;
        uint64_t spaces;
        uint64_t bytes; // of slots named, to compare
        int fault;
};

static struct catalog_fixture *current; // ops carry no argument

static void on_done(struct cairn_catalog_op *op, int status)
{
        (void)op;
        current->done++;
        current->failed += status != CAIRN_OK;
}

static void init(struct catalog_fixture *c)
{
        memset(c, 0, sizeof(*c));
        fixture_init(&c->f);
        snprintf(c->path, sizeof(c->path), "%s/catalog.mdb", c->f.directory);
        c->options = (struct cairn_catalog_options){.path = c->path,
                                                    .map_bytes = 8 << 20,
                                                    .commit_delay_us = 100,
                                                    .commit_batch_max = 1024};
        current = c;
}

static void open_catalog(struct catalog_fixture *c)
{
        char text[CAIRN_TEXT_BYTES_MAX];
        cr_assert_eq(cairn_catalog_open(&c->options, &c->catalog, text), CAIRN_OK, "%s", text);
}

static void close_catalog(struct catalog_fixture *c)
{
        cairn_catalog_destroy(c->catalog);
        c->catalog = NULL;
}

static void wait_for(struct catalog_fixture *c, uint32_t done)
{
        while (c->done < done) {
                struct pollfd fd = {.fd = cairn_catalog_fd(c->catalog), .events = POLLIN};
                cr_assert_geq(poll(&fd, 1, 10000), 1, "no commit in ten seconds");
                cairn_catalog_reap(c->catalog);
        }
}

static struct cairn_catalog_op put_op(uint64_t number)
{
        return (struct cairn_catalog_op){.kind = CAIRN_CATALOG_PUT,
                                         .block = {.key = fixture_key(number),
                                                   .parent = fixture_key(number / 2),
                                                   .generation = number + 7,
                                                   .used = number,
                                                   .ttl_ms = 5,
                                                   .recompute_us = 6,
                                                   .space_id = 3,
                                                   .slab = 9,
                                                   .slot = (uint32_t)number,
                                                   .tenant = 4},
                                         .on_done = on_done};
}

static int on_space(void *arg, const struct cairn_catalog_space *space)
{
        struct catalog_fixture *c = arg;
        c->spaces++;
        cr_assert_eq(space->id, 3);
        cr_assert_eq(space->shape.layers, 2);
        cr_assert_eq(space->description_bytes, 4);
        cr_assert_eq(memcmp(space->description, "abcd", 4), 0);
        return CAIRN_OK;
}

static int on_block(void *arg, const struct cairn_catalog_block *block)
{
        struct catalog_fixture *c = arg;
        struct cairn_catalog_block expected = put_op(block->slot).block;
        cr_assert_eq(memcmp(&expected, block, sizeof(expected)), 0);
        c->blocks++;
        c->bytes += block->slot;
        return CAIRN_OK;
}

static uint64_t load(struct catalog_fixture *c)
{
        const struct cairn_catalog_visitor visitor = {
            .on_space = on_space, .on_block = on_block, .arg = c};
        uint64_t bad = 0;
        c->blocks = c->spaces = c->bytes = 0;
        cr_assert_eq(cairn_catalog_load(c->catalog, &visitor, &bad), CAIRN_OK);
        return bad;
}

Test(catalog, records_survive_in_every_field)
{
        struct catalog_fixture c;
        init(&c);
        open_catalog(&c);
        cr_assert(cairn_catalog_fresh(c.catalog));
        cr_assert_eq(cairn_catalog_start(c.catalog), CAIRN_OK);
        struct cairn_catalog_op space = {
            .kind = CAIRN_CATALOG_SPACE,
            .space = {.id = 3, .description_bytes = 4, .shape = {2, 100, 0}, .description = "abcd"},
            .on_done = on_done};
        struct cairn_catalog_op ops[3] = {put_op(1), put_op(2), put_op(3)};
        cairn_catalog_submit(c.catalog, &space, false);
        for (int i = 0; i < 3; i++)
                cairn_catalog_submit(c.catalog, &ops[i], i < 2);
        wait_for(&c, 4);
        cr_assert_eq(c.failed, 0);
        uint64_t generation = cairn_catalog_generation(c.catalog);
        close_catalog(&c);
        open_catalog(&c);
        cr_assert_not(cairn_catalog_fresh(c.catalog));
        cr_assert_eq(load(&c), 0);
        cr_assert_eq(c.blocks, 3);
        cr_assert_eq(c.spaces, 1);
        cr_assert_gt(cairn_catalog_generation(c.catalog), generation);
        close_catalog(&c);
        fixture_finish(&c.f);
}

Test(catalog, order_of_changes_is_kept)
{
        struct catalog_fixture c;
        init(&c);
        open_catalog(&c);
        cr_assert_eq(cairn_catalog_start(c.catalog), CAIRN_OK);
        struct cairn_catalog_op put = put_op(1), delete = put_op(1), again = put_op(1),
                                last = put_op(2);
        struct cairn_catalog_op gone = put_op(2);
        delete.kind = gone.kind = CAIRN_CATALOG_DELETE;
        cairn_catalog_submit(c.catalog, &put, true);
        cairn_catalog_submit(c.catalog, &delete, true);
        cairn_catalog_submit(c.catalog, &again, true);
        cairn_catalog_submit(c.catalog, &last, true);
        cairn_catalog_submit(c.catalog, &gone, false);
        wait_for(&c, 5);
        close_catalog(&c);
        open_catalog(&c);
        (void)load(&c);
        cr_assert_eq(c.blocks, 1);
        cr_assert_eq(c.bytes, 1);
        close_catalog(&c);
        fixture_finish(&c.f);
}

Test(catalog, many_changes_share_a_commit)
{
        struct catalog_fixture c;
        init(&c);
        c.options.commit_delay_us = 200000;
        open_catalog(&c);
        cr_assert_eq(cairn_catalog_start(c.catalog), CAIRN_OK);
        struct cairn_catalog_op *ops = calloc(500, sizeof(*ops));
        for (uint64_t i = 0; i < 500; i++) {
                ops[i] = put_op(i);
                cairn_catalog_submit(c.catalog, &ops[i], i < 499);
        }
        wait_for(&c, 500);
        cr_assert_leq(cairn_catalog_commits(c.catalog), 3);
        close_catalog(&c);
        free(ops);
        fixture_finish(&c.f);
}

// Case 20: an 8 MiB map: filled beyond it, half deleted, filled again, opened again.
Test(catalog, case_20_map_grows_before_it_is_full, .timeout = 120)
{
        enum {
                ROUNDS = 60,
                BATCH = 1000
        };
        struct catalog_fixture c;
        init(&c);
        c.options.no_sync = true;
        open_catalog(&c);
        cr_assert_eq(cairn_catalog_start(c.catalog), CAIRN_OK);
        struct cairn_catalog_op *ops = calloc(BATCH, sizeof(*ops));
        for (int pass = 0; pass < 3; pass++) {
                for (uint64_t round = 0; round < ROUNDS; round++) {
                        c.done = 0;
                        for (uint64_t i = 0; i < BATCH; i++) {
                                ops[i] = put_op(round * BATCH + i);
                                if (pass == 1)
                                        ops[i].kind = CAIRN_CATALOG_DELETE;
                                if (pass == 1 && i % 2)
                                        ops[i].block.key = fixture_key(UINT32_MAX); // absent: fine
                                cairn_catalog_submit(c.catalog, &ops[i], i < BATCH - 1);
                        }
                        wait_for(&c, BATCH);
                }
        }
        cr_assert_eq(c.failed, 0);
        close_catalog(&c);
        free(ops);
        struct stat status;
        cr_assert_eq(stat(c.path, &status), 0);
        cr_assert_gt(status.st_size, 8 << 20);
        open_catalog(&c);
        cr_assert_eq(load(&c), 0);
        cr_assert_eq(c.blocks, ROUNDS * BATCH);
        close_catalog(&c);
        fixture_finish(&c.f);
}

Test(catalog, bad_record_is_skipped_and_counted)
{
        uint8_t key[CAIRN_RECORD_KEY_BYTES], bytes[CAIRN_RECORD_BLOCK_BYTES];
        struct cairn_catalog_block block = put_op(5).block, read;
        cairn_record_key_write(block.space_id, &block.key, key);
        cr_assert_eq(cairn_record_block_write(&block, bytes), sizeof(bytes));
        cr_assert_eq(cairn_record_block_read(key, sizeof(key), bytes, sizeof(bytes), &read),
                     CAIRN_OK);
        cr_assert_eq(memcmp(&block, &read, sizeof(block)), 0);
        for (size_t i = 0; i < sizeof(bytes); i++) {
                bytes[i] ^= 0x20;
                cr_assert_eq(cairn_record_block_read(key, sizeof(key), bytes, sizeof(bytes), &read),
                             CAIRN_ECORRUPT);
                bytes[i] ^= 0x20;
        }
        key[9] ^= 1; // a record under another key
        cr_assert_eq(cairn_record_block_read(key, sizeof(key), bytes, sizeof(bytes), &read),
                     CAIRN_ECORRUPT);
        cr_assert_eq(cairn_record_block_read(key, sizeof(key), bytes, sizeof(bytes) - 1, &read),
                     CAIRN_ECORRUPT);
}

Test(catalog, another_format_is_refused)
{
        uint8_t bytes[CAIRN_RECORD_META_BYTES];
        struct cairn_record_meta meta = {CAIRN_FORMAT_VERSION + 1, 1}, read;
        (void)cairn_record_meta_write(&meta, bytes);
        cr_assert_eq(cairn_record_meta_read(bytes, sizeof(bytes), &read), CAIRN_EVERSION);
        cr_assert_eq(read.version, CAIRN_FORMAT_VERSION + 1);
        bytes[3] ^= 1;
        cr_assert_eq(cairn_record_meta_read(bytes, sizeof(bytes), &read), CAIRN_ECORRUPT);
}

static int fail_once(void *arg)
{
        struct catalog_fixture *c = arg;
        int fault = c->fault;
        c->fault = CAIRN_OK;
        return fault;
}

Test(catalog, failed_transaction_changes_nothing)
{
        struct catalog_fixture c;
        init(&c);
        c.options.no_thread = true;
        c.options.on_fault = fail_once;
        c.options.on_fault_arg = &c;
        open_catalog(&c);
        struct cairn_catalog_op first = put_op(1), second = put_op(2);
        c.fault = CAIRN_EIO;
        cairn_catalog_submit(c.catalog, &first, false);
        cairn_catalog_reap(c.catalog);
        cr_assert_eq(c.failed, 1);
        cairn_catalog_submit(c.catalog, &second, false);
        cairn_catalog_reap(c.catalog);
        cr_assert_eq(c.failed, 1);
        close_catalog(&c);
        open_catalog(&c);
        (void)load(&c);
        cr_assert_eq(c.blocks, 1);
        cr_assert_eq(c.bytes, 2);
        close_catalog(&c);
        fixture_finish(&c.f);
}
