// The table of configuration keys and the parsing of their values. Private to config*.c.
#ifndef CAIRN_CONFIG_TABLE_H
#define CAIRN_CONFIG_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/config.h"

enum cairn_config_type {
        CAIRN_CONFIG_TEXT,
        CAIRN_CONFIG_LIST,   // of directories, with colons
        CAIRN_CONFIG_BYTES,  // 64GiB; with a `whole` also 5%
        CAIRN_CONFIG_MS,     // 250ms
        CAIRN_CONFIG_US,     // 500us
        CAIRN_CONFIG_COUNT,  // 8
        CAIRN_CONFIG_BOOL,   // yes or no
        CAIRN_CONFIG_CHOICE, // one of `choices`
};

enum cairn_config_whole {
        CAIRN_CONFIG_WHOLE_NONE,
        CAIRN_CONFIG_WHOLE_MEMORY,
        CAIRN_CONFIG_WHOLE_DISK, // the file system of the first data directory
};

struct cairn_config_choice {
        const char *name;
        uint64_t value;
};

struct cairn_config_key {
        const char *name;
        enum cairn_config_type type;
        enum cairn_config_whole whole;
        size_t offset;
        const char *fallback;
        uint64_t min; // in the unit of the type
        uint64_t max;
        const struct cairn_config_choice *choices; // ends with a NULL name
        const char *help;
        bool live; // Reload changes it while the daemon runs
};

extern const struct cairn_config_key cairn_config_keys[];
extern const size_t cairn_config_keys_count;

// CAIRN_OK, or CAIRN_EINVAL and a sentence in ret_why. TEXT and LIST give 0.
int cairn_config_parse(const struct cairn_config_key *key, const char *text, uint64_t whole,
                       uint64_t *ret_value, char *ret_why, size_t why_bytes);
// What 100% of the key is on this machine.
uint64_t cairn_config_whole(const struct cairn_config_key *key, const char *directory);
uint64_t cairn_config_scorers_default(void);
const char *cairn_config_type_name(enum cairn_config_type type);
// What a key is when nobody says: depends on who runs the daemon.
const char *cairn_config_default_text(const struct cairn_config *config, size_t key);
const char *cairn_config_source_name(enum cairn_config_source source);

#endif
