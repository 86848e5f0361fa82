// Bytes and chain of audit records; the table is in audit_record.h.
#include "proto/audit_record.h"

#include <assert.h>
#include <string.h>

#include "proto/bytes.h"
#include "proto/status.h"

enum offset {
        AT_MAGIC = 0,
        AT_VERSION = 4,
        AT_ACTION = 6,
        AT_REASON = 7,
        AT_SEQUENCE = 8,
        AT_TIME = 16,
        AT_TENANT = 24,
        AT_SPACE = 28,
        AT_KEY = 32,
        AT_CONTEXT = 64,
        AT_LAYER = 72,
        AT_HEAD = 74,
        AT_COUNT = 76,
        AT_BYTES = 80,
        AT_SCORE = 88,
        AT_NUMBERS = 96,
        AT_POLICY = 128,
        AT_REQUEST = 144,
        AT_CONNECTION = 152,
        AT_TIER_FROM = 160,
        AT_TIER_TO = 161,
        AT_ZERO = 162,
        AT_BEFORE = 192,
        AT_DIGEST = 224
};

_Static_assert(AT_KEY + CAIRN_KEY_BYTES == AT_CONTEXT, "key");
_Static_assert(AT_NUMBERS + 8 * CAIRN_AUDIT_NUMBERS == AT_POLICY, "numbers");
_Static_assert(AT_POLICY + CAIRN_AUDIT_POLICY_BYTES_MAX + 1 == AT_REQUEST, "policy");
_Static_assert(AT_BEFORE + CAIRN_KEY_BYTES == AT_DIGEST, "digest of the record before");
_Static_assert(AT_DIGEST + CAIRN_KEY_BYTES == CAIRN_AUDIT_RECORD_BYTES, "own digest");
_Static_assert(sizeof(double) == sizeof(uint64_t), "f64");

static const uint8_t magic[4] = {'C', 'A', 'U', '1'};

static const char *const action_names[CAIRN_AUDIT_ACTION_COUNT] = {"unknown", "evict",  "demote",
                                                                   "drop",    "delete", "purge",
                                                                   "refuse",  "quota",  "hold",
                                                                   "retain",  "begin",  "lost"};
static const char *const reason_names[CAIRN_AUDIT_REASON_COUNT] = {
    "unknown",   "capacity",   "quota",      "ttl",    "request", "corrupt", "retention",
    "admission", "legal-hold", "permission", "pinned", "started", "device",  "stopped"};

static void digest_of(const uint8_t *bytes, struct cairn_key *ret_digest);
static int check(const uint8_t *bytes);

static void put_f64(uint8_t *to, double value)
{
        uint64_t bits;

        memcpy(&bits, &value, sizeof(bits));
        cairn_put_u64(to, bits);
}

static double get_f64(const uint8_t *from)
{
        uint64_t bits = cairn_get_u64(from);
        double value;

        memcpy(&value, &bits, sizeof(value));
        return value;
}

void cairn_audit_append(struct cairn_audit_end *end, const struct cairn_audit_record *record,
                        uint8_t ret_bytes[CAIRN_AUDIT_RECORD_BYTES])
{
        assert(record->action > 0 && record->action < CAIRN_AUDIT_ACTION_COUNT);
        assert(record->reason > 0 && record->reason < CAIRN_AUDIT_REASON_COUNT);
        assert(strnlen(record->policy, sizeof(record->policy)) < sizeof(record->policy));
        memset(ret_bytes, 0, CAIRN_AUDIT_RECORD_BYTES);
        memcpy(ret_bytes + AT_MAGIC, magic, sizeof(magic));
        cairn_put_u16(ret_bytes + AT_VERSION, CAIRN_AUDIT_VERSION);
        ret_bytes[AT_ACTION] = (uint8_t)record->action;
        ret_bytes[AT_REASON] = (uint8_t)record->reason;
        cairn_put_u64(ret_bytes + AT_SEQUENCE, end->count);
        cairn_put_u64(ret_bytes + AT_TIME, record->time_ms);
        cairn_put_u32(ret_bytes + AT_TENANT, record->tenant);
        cairn_put_u32(ret_bytes + AT_SPACE, record->space);
        memcpy(ret_bytes + AT_KEY, record->key.bytes, CAIRN_KEY_BYTES);
        cairn_put_u64(ret_bytes + AT_CONTEXT, record->context);
        cairn_put_u16(ret_bytes + AT_LAYER, record->layer);
        cairn_put_u16(ret_bytes + AT_HEAD, record->head);
        cairn_put_u32(ret_bytes + AT_COUNT, record->count);
        cairn_put_u64(ret_bytes + AT_BYTES, record->bytes);
        put_f64(ret_bytes + AT_SCORE, record->score);
        for (int i = 0; i < CAIRN_AUDIT_NUMBERS; i++)
                put_f64(ret_bytes + AT_NUMBERS + 8 * i, record->numbers[i]);
        memcpy(ret_bytes + AT_POLICY, record->policy, strlen(record->policy));
        cairn_put_u64(ret_bytes + AT_REQUEST, record->request);
        cairn_put_u64(ret_bytes + AT_CONNECTION, record->connection);
        ret_bytes[AT_TIER_FROM] = record->tier_from;
        ret_bytes[AT_TIER_TO] = record->tier_to;
        memcpy(ret_bytes + AT_BEFORE, end->digest.bytes, CAIRN_KEY_BYTES);
        digest_of(ret_bytes, &end->digest);
        memcpy(ret_bytes + AT_DIGEST, end->digest.bytes, CAIRN_KEY_BYTES);
        end->count++;
}

int cairn_audit_read(const uint8_t bytes[CAIRN_AUDIT_RECORD_BYTES],
                     struct cairn_audit_record *ret_record)
{
        int status = check(bytes);

        if (status < 0)
                return status;
        *ret_record =
            (struct cairn_audit_record){.action = bytes[AT_ACTION],
                                        .reason = bytes[AT_REASON],
                                        .sequence = cairn_get_u64(bytes + AT_SEQUENCE),
                                        .time_ms = cairn_get_u64(bytes + AT_TIME),
                                        .tenant = cairn_get_u32(bytes + AT_TENANT),
                                        .space = cairn_get_u32(bytes + AT_SPACE),
                                        .context = cairn_get_u64(bytes + AT_CONTEXT),
                                        .layer = cairn_get_u16(bytes + AT_LAYER),
                                        .head = cairn_get_u16(bytes + AT_HEAD),
                                        .count = cairn_get_u32(bytes + AT_COUNT),
                                        .bytes = cairn_get_u64(bytes + AT_BYTES),
                                        .score = get_f64(bytes + AT_SCORE),
                                        .request = cairn_get_u64(bytes + AT_REQUEST),
                                        .connection = cairn_get_u64(bytes + AT_CONNECTION),
                                        .tier_from = bytes[AT_TIER_FROM],
                                        .tier_to = bytes[AT_TIER_TO]};
        memcpy(ret_record->key.bytes, bytes + AT_KEY, CAIRN_KEY_BYTES);
        for (int i = 0; i < CAIRN_AUDIT_NUMBERS; i++)
                ret_record->numbers[i] = get_f64(bytes + AT_NUMBERS + 8 * i);
        memcpy(ret_record->policy, bytes + AT_POLICY, CAIRN_AUDIT_POLICY_BYTES_MAX);
        return CAIRN_OK;
}

int cairn_audit_verify(struct cairn_audit_end *end, const uint8_t *bytes, size_t count)
{
        for (size_t i = 0; i < count; i++, bytes += CAIRN_AUDIT_RECORD_BYTES) {
                int status = check(bytes);

                if (status < 0)
                        return status;
                if (cairn_get_u64(bytes + AT_SEQUENCE) != end->count ||
                    memcmp(bytes + AT_BEFORE, end->digest.bytes, CAIRN_KEY_BYTES) != 0)
                        return CAIRN_EMISMATCH;
                memcpy(end->digest.bytes, bytes + AT_DIGEST, CAIRN_KEY_BYTES);
                end->count++;
        }
        return CAIRN_OK;
}

int cairn_audit_end_after(const uint8_t bytes[CAIRN_AUDIT_RECORD_BYTES],
                          struct cairn_audit_end *ret_end)
{
        int status = check(bytes);

        if (status < 0)
                return status;
        ret_end->count = cairn_get_u64(bytes + AT_SEQUENCE) + 1;
        memcpy(ret_end->digest.bytes, bytes + AT_DIGEST, CAIRN_KEY_BYTES);
        return CAIRN_OK;
}

void cairn_audit_end_before(const uint8_t bytes[CAIRN_AUDIT_RECORD_BYTES],
                            struct cairn_audit_end *ret_end)
{
        ret_end->count = cairn_get_u64(bytes + AT_SEQUENCE);
        memcpy(ret_end->digest.bytes, bytes + AT_BEFORE, CAIRN_KEY_BYTES);
}

void cairn_audit_end_behind(const uint8_t bytes[CAIRN_AUDIT_RECORD_BYTES],
                            struct cairn_audit_end *end)
{
        if (check(bytes) == CAIRN_OK)
                end->count = cairn_get_u64(bytes + AT_SEQUENCE);
        end->count++;
        memcpy(end->digest.bytes, bytes + AT_DIGEST, CAIRN_KEY_BYTES);
}

bool cairn_audit_matches(const uint8_t bytes[CAIRN_AUDIT_RECORD_BYTES],
                         const struct cairn_audit_filter *filter)
{
        uint64_t time_ms = cairn_get_u64(bytes + AT_TIME);

        return time_ms >= filter->since_ms &&
               (filter->until_ms == 0 || time_ms < filter->until_ms) &&
               (filter->action == 0 || bytes[AT_ACTION] == filter->action) &&
               (filter->reason == 0 || bytes[AT_REASON] == filter->reason) &&
               (!filter->tenant || cairn_get_u32(bytes + AT_TENANT) == *filter->tenant) &&
               (!filter->space || cairn_get_u32(bytes + AT_SPACE) == *filter->space) &&
               (!filter->context || cairn_get_u64(bytes + AT_CONTEXT) == *filter->context) &&
               (!filter->key || memcmp(bytes + AT_KEY, filter->key->bytes, CAIRN_KEY_BYTES) == 0);
}

const char *cairn_audit_action_name(int action)
{
        return action_names[action > 0 && action < CAIRN_AUDIT_ACTION_COUNT ? action : 0];
}

const char *cairn_audit_reason_name(int reason)
{
        return reason_names[reason > 0 && reason < CAIRN_AUDIT_REASON_COUNT ? reason : 0];
}

static int parse(const char *name, const char *const *names, int count)
{
        for (int i = 1; i < count; i++) {
                if (strcmp(names[i], name) == 0)
                        return i;
        }
        return 0;
}

int cairn_audit_action_parse(const char *name)
{
        return parse(name, action_names, CAIRN_AUDIT_ACTION_COUNT);
}

int cairn_audit_reason_parse(const char *name)
{
        return parse(name, reason_names, CAIRN_AUDIT_REASON_COUNT);
}

static void digest_of(const uint8_t *bytes, struct cairn_key *ret_digest)
{
        struct cairn_key_hash hash;

        cairn_key_hash_init(&hash, "cairn audit record 1");
        cairn_key_hash_field(&hash, 2, bytes, AT_DIGEST);
        cairn_key_hash_finish(&hash, ret_digest);
}

static int check(const uint8_t *bytes)
{
        struct cairn_key digest;

        if (memcmp(bytes + AT_MAGIC, magic, sizeof(magic)) != 0)
                return CAIRN_EPROTO;
        if (cairn_get_u16(bytes + AT_VERSION) != CAIRN_AUDIT_VERSION)
                return CAIRN_EVERSION;
        digest_of(bytes, &digest);
        if (memcmp(digest.bytes, bytes + AT_DIGEST, CAIRN_KEY_BYTES) != 0)
                return CAIRN_ECORRUPT;
        for (int i = AT_ZERO; i < AT_BEFORE; i++) {
                if (bytes[i] != 0)
                        return CAIRN_EPROTO;
        }
        if (bytes[AT_ACTION] == 0 || bytes[AT_ACTION] >= CAIRN_AUDIT_ACTION_COUNT ||
            bytes[AT_REASON] == 0 || bytes[AT_REASON] >= CAIRN_AUDIT_REASON_COUNT)
                return CAIRN_EPROTO;
        return CAIRN_OK;
}
