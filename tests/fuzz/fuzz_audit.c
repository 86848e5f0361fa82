// Fuzzes audit records and chains of them: what reads as a record is one that cairn_audit_append
// would write.
#include <string.h>

#include "proto/audit_record.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

enum {
        RECORDS_MAX = 8
};

static void check_record(const uint8_t *bytes)
{
        struct cairn_audit_record record;
        struct cairn_audit_end end;
        struct cairn_audit_record again;
        uint8_t written[CAIRN_AUDIT_RECORD_BYTES];

        if (cairn_audit_read(bytes, &record) != CAIRN_OK)
                return;
        FUZZ_CHECK(memchr(record.policy, 0, sizeof(record.policy)) != NULL);
        FUZZ_CHECK(cairn_audit_action_name(record.action) != NULL);
        FUZZ_CHECK(cairn_audit_reason_name(record.reason) != NULL);
        FUZZ_CHECK(cairn_audit_end_after(bytes, &end) == CAIRN_OK);
        FUZZ_CHECK(end.count == record.sequence + 1);
        end = (struct cairn_audit_end){.count = record.sequence};
        cairn_audit_append(&end, &record, written);
        FUZZ_CHECK(cairn_audit_read(written, &again) == CAIRN_OK);
        FUZZ_CHECK(again.sequence == record.sequence && again.action == record.action);
        FUZZ_CHECK(again.bytes == record.bytes && again.count == record.count);
        FUZZ_CHECK(strcmp(again.policy, record.policy) == 0);
        FUZZ_CHECK(cairn_key_equal(&again.key, &record.key));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        size_t count = size / CAIRN_AUDIT_RECORD_BYTES;
        struct cairn_audit_end end = {0};
        int status;

        if (count > RECORDS_MAX)
                count = RECORDS_MAX;
        for (size_t i = 0; i < count; i++)
                check_record(bytes + i * CAIRN_AUDIT_RECORD_BYTES);
        status = cairn_audit_verify(&end, bytes, count);
        FUZZ_CHECK(end.count <= count);
        FUZZ_CHECK((status == CAIRN_OK) == (end.count == count));
        return 0;
}
