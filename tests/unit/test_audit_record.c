// Audit records: what goes in comes out; any changed, missing, inserted or moved record shows.
#include <criterion/criterion.h>
#include <string.h>

#include "proto/audit_record.h"
#include "proto/status.h"

enum {
        COUNT = 20
};

static struct cairn_audit_record record_of(unsigned i)
{
        struct cairn_audit_record record = {.action = CAIRN_AUDIT_EVICT,
                                            .reason = CAIRN_AUDIT_OVER_QUOTA,
                                            .time_ms = 1700000000000ull + i,
                                            .tenant = 1000 + i,
                                            .space = 3,
                                            .key = {{(uint8_t)i, 2, 3}},
                                            .context = 0x123456789abcdefull,
                                            .layer = 11,
                                            .head = CAIRN_AUDIT_ALL,
                                            .count = 4096,
                                            .bytes = 5ull << 33,
                                            .score = -1.5e300,
                                            .numbers = {0.25, -0.0, 1e-300, 7},
                                            .policy = "s3fifo",
                                            .request = 99,
                                            .connection = 77,
                                            .tier_from = 1,
                                            .tier_to = 2};
        return record;
}

static void make_log(uint8_t log[COUNT][CAIRN_AUDIT_RECORD_BYTES], struct cairn_audit_end *end)
{
        memset(end, 0, sizeof(*end));
        for (unsigned i = 0; i < COUNT; i++) {
                struct cairn_audit_record record = record_of(i);

                cairn_audit_append(end, &record, log[i]);
        }
}

Test(audit_record, what_goes_in_comes_out)
{
        uint8_t log[COUNT][CAIRN_AUDIT_RECORD_BYTES];
        struct cairn_audit_end end;

        make_log(log, &end);
        cr_assert_eq(end.count, COUNT);
        for (unsigned i = 0; i < COUNT; i++) {
                struct cairn_audit_record in = record_of(i);
                struct cairn_audit_record out;

                cr_assert_eq(cairn_audit_read(log[i], &out), CAIRN_OK);
                cr_assert_eq(out.sequence, i);
                cr_assert_eq(out.action, in.action);
                cr_assert_eq(out.reason, in.reason);
                cr_assert_eq(out.time_ms, in.time_ms);
                cr_assert_eq(out.tenant, in.tenant);
                cr_assert_eq(out.space, in.space);
                cr_assert(cairn_key_equal(&out.key, &in.key));
                cr_assert_eq(out.context, in.context);
                cr_assert_eq(out.layer, in.layer);
                cr_assert_eq(out.head, in.head);
                cr_assert_eq(out.count, in.count);
                cr_assert_eq(out.bytes, in.bytes);
                cr_assert_eq(memcmp(&out.score, &in.score, sizeof(in.score)), 0);
                cr_assert_eq(memcmp(out.numbers, in.numbers, sizeof(in.numbers)), 0);
                cr_assert_str_eq(out.policy, in.policy);
                cr_assert_eq(out.request, in.request);
                cr_assert_eq(out.connection, in.connection);
                cr_assert_eq(out.tier_from, in.tier_from);
                cr_assert_eq(out.tier_to, in.tier_to);
        }
}

Test(audit_record, a_whole_log_verifies_in_pieces)
{
        uint8_t log[COUNT][CAIRN_AUDIT_RECORD_BYTES];
        struct cairn_audit_end end;
        struct cairn_audit_end seen = {0};

        make_log(log, &end);
        cr_assert_eq(cairn_audit_verify(&seen, log[0], 7), CAIRN_OK);
        cr_assert_eq(cairn_audit_verify(&seen, log[7], COUNT - 7), CAIRN_OK);
        cr_assert_eq(seen.count, end.count);
        cr_assert(cairn_key_equal(&seen.digest, &end.digest));
        cr_assert_eq(cairn_audit_end_after(log[4], &seen), CAIRN_OK);
        cr_assert_eq(seen.count, 5);
        cr_assert_eq(cairn_audit_verify(&seen, log[5], COUNT - 5), CAIRN_OK);
}

Test(audit_record, every_changed_byte_shows)
{
        uint8_t log[COUNT][CAIRN_AUDIT_RECORD_BYTES];
        struct cairn_audit_end end;

        make_log(log, &end);
        for (int at = 0; at < CAIRN_AUDIT_RECORD_BYTES; at++) {
                struct cairn_audit_end seen = {0};
                int status;

                log[9][at] ^= 0x10;
                status = cairn_audit_verify(&seen, log[0], COUNT);
                cr_assert_lt(status, 0, "byte %d", at);
                cr_assert_eq(seen.count, 9, "byte %d: the chain holds up to it", at);
                log[9][at] ^= 0x10;
        }
}

Test(audit_record, missing_moved_and_forged_records_show)
{
        uint8_t log[COUNT][CAIRN_AUDIT_RECORD_BYTES];
        uint8_t changed[COUNT][CAIRN_AUDIT_RECORD_BYTES];
        struct cairn_audit_end end;
        struct cairn_audit_end seen = {0};
        struct cairn_audit_record record = record_of(3);

        make_log(log, &end);
        memcpy(changed, log, sizeof(log)); // record 5 is gone
        memmove(changed[5], changed[6], (COUNT - 6) * sizeof(log[0]));
        cr_assert_eq(cairn_audit_verify(&seen, changed[0], COUNT - 1), CAIRN_EMISMATCH);
        cr_assert_eq(seen.count, 5);

        memcpy(changed, log, sizeof(log)); // two change places
        memcpy(changed[3], log[4], sizeof(log[0]));
        memcpy(changed[4], log[3], sizeof(log[0]));
        seen = (struct cairn_audit_end){0};
        cr_assert_eq(cairn_audit_verify(&seen, changed[0], COUNT), CAIRN_EMISMATCH);
        cr_assert_eq(seen.count, 3);

        memcpy(changed, log, sizeof(log)); // a good record with other content in place of one
        cr_assert_eq(cairn_audit_end_after(log[2], &seen), CAIRN_OK);
        record.bytes = 1;
        cairn_audit_append(&seen, &record, changed[3]);
        seen = (struct cairn_audit_end){0};
        cr_assert_eq(cairn_audit_verify(&seen, changed[0], COUNT), CAIRN_EMISMATCH);
        cr_assert_eq(seen.count, 4, "the record after it does not fit");

        seen = (struct cairn_audit_end){0}; // cut at the end: shows against the kept end alone
        cr_assert_eq(cairn_audit_verify(&seen, log[0], COUNT - 1), CAIRN_OK);
        cr_assert_not(cairn_key_equal(&seen.digest, &end.digest));
}

Test(audit_record, garbage_and_other_versions_are_named)
{
        uint8_t log[COUNT][CAIRN_AUDIT_RECORD_BYTES];
        struct cairn_audit_end end;
        struct cairn_audit_record record = {.space = 42};

        make_log(log, &end);
        log[0][0] = 'X';
        cr_assert_eq(cairn_audit_read(log[0], &record), CAIRN_EPROTO);
        log[1][4] = 2;
        cr_assert_eq(cairn_audit_read(log[1], &record), CAIRN_EVERSION);
        log[2][100] ^= 1;
        cr_assert_eq(cairn_audit_read(log[2], &record), CAIRN_ECORRUPT);
        cr_assert_eq(record.space, 42, "untouched on failure");
}

Test(audit_record, words_go_both_ways)
{
        for (int i = 1; i < CAIRN_AUDIT_ACTION_COUNT; i++)
                cr_assert_eq(cairn_audit_action_parse(cairn_audit_action_name(i)), i);
        for (int i = 1; i < CAIRN_AUDIT_REASON_COUNT; i++)
                cr_assert_eq(cairn_audit_reason_parse(cairn_audit_reason_name(i)), i);
        cr_assert_str_eq(cairn_audit_reason_name(CAIRN_AUDIT_OVER_QUOTA), "quota");
        cr_assert_str_eq(cairn_audit_action_name(200), "unknown");
        cr_assert_str_eq(cairn_audit_reason_name(-1), "unknown");
        cr_assert_eq(cairn_audit_reason_parse("unknown"), 0);
}
