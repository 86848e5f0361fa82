// The configuration: one table of keys, filled from defaults, an INI file, the environment
// (CAIRN_*) and flags; later wins. Values keep their text and their source until `resolve` turns
// them into numbers. May be used by: daemon, tests. May use: proto, inih. Threads: one; constant
// once resolved.
#ifndef CAIRN_CONFIG_H
#define CAIRN_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/access.h"
#include "daemon/cpu_list.h"
#include "daemon/quota.h"
#include "daemon/tenant.h"
#include "proto/limits.h"

enum {
        CAIRN_CONFIG_KEYS_MAX = 64,
        CAIRN_CONFIG_DIRECTORIES_MAX = 8,
};

enum cairn_config_admission {
        CAIRN_CONFIG_ALWAYS = 0,
        CAIRN_CONFIG_SECOND_USE = 1,
        CAIRN_CONFIG_TINYLFU = 2,
};

enum cairn_config_source {
        CAIRN_CONFIG_DEFAULT,
        CAIRN_CONFIG_FILE,
        CAIRN_CONFIG_ENVIRONMENT,
        CAIRN_CONFIG_FLAG,
};

enum cairn_config_action {
        CAIRN_CONFIG_RUN,
        CAIRN_CONFIG_HELP,
        CAIRN_CONFIG_VERSION,
        CAIRN_CONFIG_CHECK,
        CAIRN_CONFIG_DUMP,
        CAIRN_CONFIG_EXAMPLE,
        CAIRN_CONFIG_MANUAL,
};

// All texts belong to the configuration.
struct cairn_config {
        const char *socket;
        const char *data_dirs[CAIRN_CONFIG_DIRECTORIES_MAX];
        uint64_t data_dirs_count;
        uint64_t ram_bytes;
        uint64_t nvme_bytes;
        uint64_t slab_bytes;
        uint64_t eviction;      // index of cairn_eviction_name
        uint64_t admission;     // enum cairn_config_admission
        uint64_t context_bytes; // tails of open contexts, all together
        uint64_t request_bytes; // received requests under way, all together
        uint64_t scorers;
        const char *scorer_cpus;
        struct cairn_cpu_list scorer_cpu_list; // what it names
        const char *numa_nodes;
        struct cairn_cpu_list numa_node_list; // what it names
        struct cairn_cpu_list numa_cpus;      // processors of these that may be used
        uint64_t scratch_bytes;               // of each scorer
        uint64_t queue_depth;
        uint64_t spin_us; // that the loop looks for work before it sleeps
        uint64_t ack;     // enum cairn_ack: what puts get at least
        uint64_t commit_delay_us;
        uint64_t connections_max;
        uint64_t lease_max_ms;
        uint64_t frame_timeout_ms;
        uint64_t request_timeout_ms;
        uint64_t reply_timeout_ms;
        uint64_t stop_timeout_ms;
        uint64_t log_level; // enum cairn_log_level
        uint64_t force_sync_device;
        uint64_t force_buffered;
        uint64_t views;
        uint64_t view_bytes;  // that leases may pin
        uint64_t ram_check;   // one of so many blocks from RAM is summed again; 0: none
        uint64_t verify_rate; // bytes a second
        uint64_t audit_bytes;
        uint64_t retain_target_permille; // 0: no auto-tuning
        const char *retain_targets;      // of single models
        uint64_t log_format;             // 1: JSON
        uint64_t slow_request_ms;
        const char *metrics_address;
        const char *allowed_uids;
        const char *allowed_gids;
        const char *operator_gids;
        struct cairn_access access; // the three above, read
        const char *tenants;
        struct cairn_tenants tenants_named; // what it says
        const char *quotas;
        struct cairn_quota_table quota_table; // what it says
        const char *isa;
        uint64_t sandbox;
        const char *file; // the file read, or NULL
        // What was said, by key of the table: NULL for the default.
        char *texts[CAIRN_CONFIG_KEYS_MAX];
        enum cairn_config_source sources[CAIRN_CONFIG_KEYS_MAX];
        char *directories; // data_dirs point into it
        char *socket_default;
        char *data_dir_default;
        int argc; // where the values came from, for a reload
        char *const *argv;
        char *const *environment;
};

// Every function below that returns int gives CAIRN_OK or CAIRN_EINVAL with a sentence in
// ret_text[CAIRN_TEXT_BYTES_MAX].

void cairn_config_init(struct cairn_config *config);
void cairn_config_finish(struct cairn_config *config);

// Takes one value, checked by its type. An unknown key is refused with the nearest name.
int cairn_config_set(struct cairn_config *config, const char *name, const char *value,
                     enum cairn_config_source source, char *ret_text);
int cairn_config_read_file(struct cairn_config *config, const char *path, char *ret_text);
// `environment` as in environ. CAIRN_ variables that are no key are left alone, unless one looks
// like a misspelt key.
int cairn_config_read_environment(struct cairn_config *config, char *const *environment,
                                  char *ret_text);
// Reads the flags, and before them the file named by --config or CAIRN_CONFIG and the environment.
int cairn_config_load(struct cairn_config *config, int argc, char *const *argv,
                      char *const *environment, enum cairn_config_action *ret_action,
                      char *ret_text);
// Fills the fields above. Call once, after the last set.
int cairn_config_resolve(struct cairn_config *config, char *ret_text);

// Reads everything again from where it came and takes over what may change while the daemon runs.
// ret_text says what changed and what needs a restart; on CAIRN_EINVAL, what is wrong, and nothing
// has changed.
int cairn_config_reload(struct cairn_config *config, char *ret_text);

void cairn_config_print_help(FILE *to);
// The resolved values as an INI file, each with its source. False if it could not be written.
bool cairn_config_print(const struct cairn_config *config, FILE *to);

// The i-th key as it stands; texts are the configuration's. False: there is none.
struct cairn_config_setting {
        const char *name;
        const char *value; // as it was said, or the default
        const char *source;
        const char *help;
        bool computed;   // `value` is a share, or "auto": see `number`
        uint64_t number; // what it comes to
        bool live;       // a reload changes it
};
bool cairn_config_setting(const struct cairn_config *config, size_t i,
                          struct cairn_config_setting *ret_setting);

// A file with every key commented out; the list of keys in mdoc(7), for cairn.conf(5).
void cairn_config_print_example(FILE *to);
void cairn_config_print_manual(FILE *to);

// The parts that tests look at: "64GiB", "1.5K", "250ms"; a share ("5%") is of `whole`.
int cairn_config_parse_bytes(const char *text, uint64_t whole, uint64_t *ret_bytes);
int cairn_config_parse_duration_us(const char *text, uint64_t *ret_us);

#endif
