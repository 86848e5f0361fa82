// libcairn, for operators: what the daemon removed, refused or changed, and why; where a block is.
// Workers may ask why of their own blocks.
#ifndef CAIRN_AUDIT_H
#define CAIRN_AUDIT_H

#include "cairn/cairn.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
        CAIRN_AUDIT_ENTRY_NUMBERS = 4
};

// A record. Texts live for the call that hands it over. What the numbers are depends on action and
// policy: storage/README.md has the table.
struct cairn_audit_entry {
        uint64_t sequence;
        uint64_t time_ms;   // since 1970
        const char *action; // "evict", "demote", "drop", "delete", "purge", "refuse", "quota",
                            // "hold", "retain", "begin", "lost"
        const char *reason; // "capacity", "quota", "ttl", "request", "corrupt", "retention",
                            // "admission", "legal-hold", "permission", "pinned", "started",
                            // "device", "stopped"
        uint32_t tenant;
        const char *tenant_name; // of the configuration, or the number in digits
        uint32_t space;
        struct cairn_key key; // zero: the record is about no single block
        uint64_t context;     // 0: none
        int32_t layer;        // -1: all
        int32_t head;         // -1: all
        uint32_t count;       // of tokens, rows, blocks or records
        uint64_t bytes;
        double score;
        double numbers[CAIRN_AUDIT_ENTRY_NUMBERS];
        const char *policy; // "" where none decided
        uint64_t request;   // 0: the daemon itself
        uint64_t connection;
        uint32_t tier_from; // 0: none, 1: RAM, 2: NVMe, 3: remote
        uint32_t tier_to;
        bool damaged; // its bytes fail their digest: the fields above are all zero
};

// What to look for; zero or NULL: anything.
struct cairn_audit_query {
        uint64_t since_ms; // since 1970
        uint64_t until_ms;
        const char *tenant; // name or number
        const char *action;
        const char *reason;
        const struct cairn_key *key;
        uint32_t space;
        uint64_t context;
        uint64_t cursor; // what the page before gave
        uint32_t max;    // 0: 256; at most 1024
        bool newest_first;
};

// One page. *ret_cursor: where the next begins; *ret_more: there may be one (a page may be empty
// and not the last). CAIRN_EUNSUPPORTED: the daemon keeps no audit.
CAIRN_API int cairn_read_audit(struct cairn_client *client, struct cairn_call *call,
                               const struct cairn_audit_query *query,
                               void (*on_entry)(void *arg, const struct cairn_audit_entry *entry),
                               void *arg, uint64_t *ret_cursor, bool *ret_more);

// A log's end: how many records there were, and the digest of the last. Whoever notes it elsewhere
// can tell later that nothing before it was rewritten.
struct cairn_audit_mark {
        uint64_t count;
        struct cairn_key digest;
};
struct cairn_audit_state {
        uint64_t records;   // that were checked
        uint64_t first;     // sequence of the oldest that is left
        uint64_t bad;       // places where the chain does not hold
        uint64_t lost;      // records that could not be kept, by the log's own word
        uint64_t continued; // times that the chain went on without its catalog
        struct cairn_audit_mark end;
};
// Checks the whole chain. on_problem (may be NULL): the first 64 bad places, "SEQUENCE: what".
// `noted` may be NULL; kept until the call has ended.
CAIRN_API int cairn_check_audit(struct cairn_client *client, struct cairn_call *call,
                                const struct cairn_audit_mark *noted,
                                void (*on_problem)(void *arg, const char *text), void *arg,
                                struct cairn_audit_state *ret_state);

// A block that is there.
struct cairn_where {
        struct cairn_block_info info;
        const char *tenant_name;
        bool pinned;
        const char *legal_hold; // the name of one that it is under, or ""
};
// Where the block of this key is now (on_where: once a space that has it), and its last `max`
// records, newest first (0: 8). `space` 0: every space. ret_text[512] (may be NULL): what is known
// beside that. All kept until the call has ended.
CAIRN_API int cairn_why(struct cairn_client *client, struct cairn_call *call, uint32_t space,
                        const struct cairn_key *key, uint32_t max,
                        void (*on_where)(void *arg, const struct cairn_where *where),
                        void (*on_entry)(void *arg, const struct cairn_audit_entry *entry),
                        void *arg, char *ret_text);

#ifdef __cplusplus
}
#endif

#endif
