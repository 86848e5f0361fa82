// Configuration keys: the one table that makes --help, --dump-config and the checks; units of
// values.
#include "daemon/config_table.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "daemon/config.h"
#include "daemon/log.h"
#include "proto/limits.h"
#include "proto/status.h"
#include "storage/store.h"

#define AT(field) offsetof(struct cairn_config, field)
#define KIB       (1ull << 10)
#define MIB       (1ull << 20)
#define TIB       (1ull << 40)
#define LIVE      true
#define FIXED     false // until the next start

static const struct cairn_config_choice acks[] = {
    {"memory", CAIRN_ACK_MEMORY}, {"disk", CAIRN_ACK_DISK}, {NULL, 0}};
static const struct cairn_config_choice levels[] = {{"error", CAIRN_LOG_ERROR},
                                                    {"warning", CAIRN_LOG_WARNING},
                                                    {"info", CAIRN_LOG_INFO},
                                                    {"debug", CAIRN_LOG_DEBUG},
                                                    {NULL, 0}};

static const struct cairn_config_choice formats[] = {{"text", 0}, {"json", 1}, {NULL, 0}};

// In the order of cairn_eviction_name.
static const struct cairn_config_choice evictions[] = {
    {"lru", 0}, {"s3fifo", 1}, {"cost", 2}, {NULL, 0}};
static const struct cairn_config_choice admissions[] = {{"always", CAIRN_CONFIG_ALWAYS},
                                                        {"second-use", CAIRN_CONFIG_SECOND_USE},
                                                        {"tinylfu", CAIRN_CONFIG_TINYLFU},
                                                        {NULL, 0}};

const struct cairn_config_key cairn_config_keys[] = {
    {"socket", CAIRN_CONFIG_TEXT, 0, AT(socket), "/run/cairn/cairnd.sock", 0, 0, NULL,
     "The Unix socket to listen on, at most 107 bytes (not root: "
     "$XDG_RUNTIME_DIR/cairn/cairnd.sock; as a service: in its runtime directory).",
     FIXED},
    {"data_dir", CAIRN_CONFIG_LIST, 0, AT(data_dirs), "/var/lib/cairn", 0, 0, NULL,
     "Where blocks are kept: one directory, or several with colons (not root: "
     "$XDG_STATE_HOME/cairn; as a service: its state directory). The first holds the catalog.",
     FIXED},
    {"ram_bytes", CAIRN_CONFIG_BYTES, CAIRN_CONFIG_WHOLE_MEMORY, AT(ram_bytes), "12.5%", 1 * MIB,
     1024 * TIB, NULL, "Bound of the RAM tier, or a share of the memory.", FIXED},
    {"nvme_bytes", CAIRN_CONFIG_BYTES, CAIRN_CONFIG_WHOLE_DISK, AT(nvme_bytes), "25%", 0,
     1024 * 1024 * TIB, NULL, "Bound of the NVMe tier, or a share of the disk; 0 for RAM only.",
     FIXED},
    {"slab_bytes", CAIRN_CONFIG_BYTES, 0, AT(slab_bytes), "0", 0, 1 * TIB, NULL,
     "Size of one slab file; 0 lets the store choose.", FIXED},
    {"context_bytes", CAIRN_CONFIG_BYTES, CAIRN_CONFIG_WHOLE_MEMORY, AT(context_bytes), "6.25%",
     1 * MIB, 1024 * TIB, NULL, "Bound of what workers append to open contexts, all together.",
     LIVE},
    {"request_bytes", CAIRN_CONFIG_BYTES, 0, AT(request_bytes), "256MiB", 8 * MIB, 64 * TIB, NULL,
     "Bound of received requests under way and unsent replies, all together; readers wait above "
     "it.",
     LIVE},
    {"scorers", CAIRN_CONFIG_COUNT, 0, AT(scorers), "auto", 1, 1024, NULL,
     "Threads that copy, encode and score (auto: cores, of numa_nodes if named, less one; or one "
     "each of scorer_cpus).",
     FIXED},
    {"scorer_cpus", CAIRN_CONFIG_TEXT, 0, AT(scorer_cpus), "", 0, 0, NULL,
     "Processors that scorers run on, like 0,2-5: each scorer on one, in this order, over and over "
     "(empty: wherever the kernel puts them). Name those of the memory node of the GPU.",
     FIXED},
    {"numa_nodes", CAIRN_CONFIG_TEXT, 0, AT(numa_nodes), "", 0, 0, NULL,
     "Memory nodes, like 0 or 0-1: all threads run on their processors (scorers where scorer_cpus "
     "says, if it does) and memory comes from them alone, so that codes lie where they are scored "
     "(empty: wherever the kernel puts both). Name that of the GPU.",
     FIXED},
    {"scratch_bytes", CAIRN_CONFIG_BYTES, 0, AT(scratch_bytes), "1GiB", 16 * MIB, 1 * TIB, NULL,
     "Bound of the working memory of each scorer: what a search of one long context may take.",
     FIXED},
    {"queue_depth", CAIRN_CONFIG_COUNT, 0, AT(queue_depth), "64", 1, 4096, NULL,
     "Reads and writes in flight on the disk.", FIXED},
    {"spin", CAIRN_CONFIG_US, 0, AT(spin_us), "100us", 0, 10 * 1000, NULL,
     "How long the loop looks for the next request before it sleeps, where the last one came as "
     "soon: being woken costs more than many an answer. It takes a processor that nobody else "
     "wants; 0 (and with a single processor): never.",
     FIXED},
    {"ack", CAIRN_CONFIG_CHOICE, 0, AT(ack), "memory", 0, 0, acks,
     "When a put is answered at the earliest: whole in RAM, or durable on disk.", LIVE},
    {"commit_delay", CAIRN_CONFIG_US, 0, AT(commit_delay_us), "500us", 0, 1000 * 1000, NULL,
     "The longest that a commit waits for company.", FIXED},
    {"connections_max", CAIRN_CONFIG_COUNT, 0, AT(connections_max), "1024", 1,
     CAIRN_CONNECTIONS_MAX, NULL, "Connections at once.", LIVE},
    {"lease_max", CAIRN_CONFIG_MS, 0, AT(lease_max_ms), "10min", 1, CAIRN_LEASE_MS_MAX, NULL,
     "The longest lease that a worker gets.", LIVE},
    {"frame_timeout", CAIRN_CONFIG_MS, 0, AT(frame_timeout_ms), "10s", 10, 3600 * 1000, NULL,
     "A frame begun must be whole within this, and a new connection must say Hello.", LIVE},
    {"request_timeout", CAIRN_CONFIG_MS, 0, AT(request_timeout_ms), "60s", 10, 3600 * 1000, NULL,
     "Deadline of requests that name none: so long they wait for memory or the disk.", LIVE},
    {"reply_timeout", CAIRN_CONFIG_MS, 0, AT(reply_timeout_ms), "30s", 10, 3600 * 1000, NULL,
     "A worker that takes no byte of its replies for this long is disconnected.", LIVE},
    {"stop_timeout", CAIRN_CONFIG_MS, 0, AT(stop_timeout_ms), "10s", 0, 3600 * 1000, NULL,
     "The time that SIGTERM leaves for requests under way and for writing back.", LIVE},
    {"log_level", CAIRN_CONFIG_CHOICE, 0, AT(log_level), "info", 0, 0, levels,
     "The least urgent line that is logged.", LIVE},
    {"log_format", CAIRN_CONFIG_CHOICE, 0, AT(log_format), "text", 0, 0, formats,
     "Log lines for people, or one JSON object a line.", LIVE},
    {"slow_request", CAIRN_CONFIG_MS, 0, AT(slow_request_ms), "1s", 0, 3600 * 1000, NULL,
     "Requests that take longer are logged; 0: none.", LIVE},
    {"metrics_address", CAIRN_CONFIG_TEXT, 0, AT(metrics_address), "", 0, 0, NULL,
     "Where metrics are served over HTTP: a path (a Unix socket), or 127.0.0.1:9464 (empty: "
     "nowhere).",
     FIXED},
    {"allowed_uids", CAIRN_CONFIG_TEXT, 0, AT(allowed_uids), "", 0, 0, NULL,
     "Users that may connect, by number or name, with commas (both lists empty: whoever the "
     "socket's mode lets in). Root and the daemon's own user always may.",
     LIVE},
    {"allowed_gids", CAIRN_CONFIG_TEXT, 0, AT(allowed_gids), "", 0, 0, NULL,
     "Groups whose members may connect too.", LIVE},
    {"operator_gids", CAIRN_CONFIG_TEXT, 0, AT(operator_gids), "", 0, 0, NULL,
     "Groups whose members may audit, verify, drain, reload and set quotas, as root and the "
     "daemon's own user may.",
     LIVE},
    {"tenants", CAIRN_CONFIG_TEXT, 0, AT(tenants), "", 0, 0, NULL,
     "Names of tenants, each with the users it is, like alice:1001, bob:1002+1003. A user under no "
     "name is a tenant of its own. Tenants see nothing of each other but shared spaces.",
     LIVE},
    {"audit_bytes", CAIRN_CONFIG_BYTES, 0, AT(audit_bytes), "256MiB", 0, 1 * TIB, NULL,
     "Bound of the audit's files, which say what was removed, refused or changed, and why; the "
     "oldest goes first. 256 bytes a record; less than 64KiB counts as that. 0: no audit.",
     FIXED},
    {"quotas", CAIRN_CONFIG_TEXT, 0, AT(quotas), "", 0, 0, NULL,
     "What tenants may take, like alice ram=4GiB nvme=100GiB ram_guaranteed=1GiB, default "
     "nvme=10GiB: hard limits, and guarantees (ram_guaranteed, nvme_guaranteed) that nobody else "
     "takes. default: those that have none of their own. What cairnctl quota set goes before it.",
     LIVE},
    {"retain_target_permille", CAIRN_CONFIG_COUNT, 0, AT(retain_target_permille), "0", 0, 999, NULL,
     "Attention mass, in thousandths, that a Retain without shares is to hold: each space's Plans "
     "say "
     "what share that takes, and the daemon follows them within 2 % to 50 % of the tokens. 0: the "
     "paper's shares.",
     LIVE},
    {"retain_targets", CAIRN_CONFIG_TEXT, 0, AT(retain_targets), "", 0, 0, NULL,
     "The same for the spaces of single models, by the model's name, like "
     "Qwen2.5-Coder-0.5B=990, SmolLM2-135M=0: these go before retain_target_permille.",
     LIVE},
    {"sandbox", CAIRN_CONFIG_BOOL, 0, AT(sandbox), "yes", 0, 1, NULL,
     "Give up other files (Landlock) and system calls (seccomp) that are not needed, where the "
     "kernel has that.",
     FIXED},
    {"force_sync_device", CAIRN_CONFIG_BOOL, 0, AT(force_sync_device), "no", 0, 1, NULL,
     "Use pread and pwrite though io_uring is there.", FIXED},
    {"force_buffered", CAIRN_CONFIG_BOOL, 0, AT(force_buffered), "no", 0, 1, NULL,
     "Do not use O_DIRECT.", FIXED},
    {"views", CAIRN_CONFIG_BOOL, 0, AT(views), "no", 0, 1, NULL,
     "Let workers map the RAM tier, read-only, and read leased blocks in place. Memory then moves "
     "between spaces and users by whole segments, each a 64th of ram_bytes.",
     FIXED},
    {"view_bytes", CAIRN_CONFIG_BYTES, 0, AT(view_bytes), "0", 0, 1024 * TIB, NULL,
     "Bound of the blocks that leases pin in RAM for views, all together; 0: half of ram_bytes.",
     LIVE},
    {"ram_check", CAIRN_CONFIG_COUNT, 0, AT(ram_check), "64", 0, 1000 * 1000, NULL,
     "Of so many blocks that RAM gives, one, chosen at random, has its checksums taken again; 1: "
     "each, 0: none. A bad copy is read from NVMe again.",
     LIVE},
    {"eviction", CAIRN_CONFIG_CHOICE, 0, AT(eviction), "cost", 0, 0, evictions,
     "Who leaves RAM, and NVMe, when room is needed: the longest unused (lru), what was not used "
     "again (s3fifo), or what saves the fewest recompute seconds a byte (cost). Leaves before "
     "their parents, always.",
     FIXED},
    {"admission", CAIRN_CONFIG_CHOICE, 0, AT(admission), "always", 0, 0, admissions,
     "Which blocks are written back to NVMe: all (always), those used again while in RAM "
     "(second-use), or those put or used twice of late (tinylfu). Puts that ask for the disk are "
     "written whatever it is.",
     FIXED},
    {"verify_rate", CAIRN_CONFIG_BYTES, 0, AT(verify_rate), "200MiB", 1 * MIB, 1 * TIB, NULL,
     "Bytes a second that Verify reads when it is asked for no other rate.", LIVE},
    {"isa", CAIRN_CONFIG_TEXT, 0, AT(isa), "", 0, 0, NULL,
     "Force the kernels: scalar, avx2, avx512, amx or neon (empty: the best there is).", FIXED},
};
const size_t cairn_config_keys_count = sizeof(cairn_config_keys) / sizeof(cairn_config_keys[0]);

// ---- units ----

struct unit {
        const char *name;
        double factor;
};

static const struct unit byte_units[] = {
    {"", 1},         {"B", 1},      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
    {"TiB", 0x1p40}, {"K", 0x1p10}, {"M", 0x1p20},   {"G", 0x1p30},   {"T", 0x1p40},
    {"KB", 1e3},     {"MB", 1e6},   {"GB", 1e9},     {"TB", 1e12},    {NULL, 0},
};
static const struct unit time_units[] = {
    {"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"min", 60e6}, {"h", 3600e6}, {NULL, 0},
};

// Digits with at most one point; no sign, no exponent, no hexadecimal. CAIRN_EINVAL: none there.
static int parse_number(const char *text, double *ret_number, const char **ret_rest)
{
        size_t digits = strspn(text, "0123456789");
        size_t size = digits;
        char *end;

        if (text[size] == '.')
                size += 1 + strspn(text + size + 1, "0123456789");
        if (digits == 0 || size > 30)
                return CAIRN_EINVAL;
        *ret_number = strtod(text, &end);
        if (end != text + size)
                return CAIRN_EINVAL;
        *ret_rest = end + strspn(end, " ");
        return CAIRN_OK;
}

static int parse_with_units(const char *text, const struct unit *units, double *ret_value)
{
        double number;
        const char *rest;

        if (parse_number(text, &number, &rest) != CAIRN_OK)
                return CAIRN_EINVAL;
        for (const struct unit *unit = units; unit->name; unit++) {
                if (strcmp(rest, unit->name) == 0) {
                        *ret_value = number * unit->factor;
                        return *ret_value < 0x1p63 ? CAIRN_OK : CAIRN_EINVAL;
                }
        }
        return CAIRN_EINVAL;
}

int cairn_config_parse_bytes(const char *text, uint64_t whole, uint64_t *ret_bytes)
{
        double value;
        const char *rest;

        if (whole > 0 && parse_number(text, &value, &rest) == CAIRN_OK && strcmp(rest, "%") == 0) {
                if (value > 100)
                        return CAIRN_EINVAL;
                *ret_bytes = (uint64_t)((double)whole * value / 100);
                return CAIRN_OK;
        }
        if (parse_with_units(text, byte_units, &value) != CAIRN_OK)
                return CAIRN_EINVAL;
        *ret_bytes = (uint64_t)value;
        return CAIRN_OK;
}

int cairn_config_parse_duration_us(const char *text, uint64_t *ret_us)
{
        double value;

        if (strcmp(text, "0") == 0) {
                *ret_us = 0;
                return CAIRN_OK;
        }
        if (parse_with_units(text, time_units, &value) != CAIRN_OK)
                return CAIRN_EINVAL;
        *ret_us = (uint64_t)value;
        return CAIRN_OK;
}

static int parse_choice(const struct cairn_config_choice *choices, const char *text,
                        uint64_t *ret_value)
{
        for (; choices->name; choices++) {
                if (strcmp(choices->name, text) == 0) {
                        *ret_value = choices->value;
                        return CAIRN_OK;
                }
        }
        return CAIRN_EINVAL;
}

static int parse_bool(const char *text, uint64_t *ret_value)
{
        static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};

        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
                if (strcmp(text, words[i]) == 0) {
                        *ret_value = i % 2;
                        return CAIRN_OK;
                }
        }
        return CAIRN_EINVAL;
}

static int parse_count(const char *text, uint64_t *ret_value)
{
        if (strcmp(text, "auto") == 0) {
                *ret_value = 0;
                return CAIRN_OK;
        }
        if (text[0] == '\0' || strspn(text, "0123456789") != strlen(text) || strlen(text) > 18)
                return CAIRN_EINVAL;
        *ret_value = strtoull(text, NULL, 10);
        return CAIRN_OK;
}

// The value by its type; *ret_expected says what it should have been.
static int parse_typed(const struct cairn_config_key *key, const char *text, uint64_t whole,
                       uint64_t *ret_value, const char **ret_expected)
{
        int status = CAIRN_OK;

        switch (key->type) {
        case CAIRN_CONFIG_TEXT:
        case CAIRN_CONFIG_LIST: *ret_value = 0; return CAIRN_OK;
        case CAIRN_CONFIG_BYTES:
                *ret_expected = key->whole ? "give bytes like 64GiB or a share like 5%"
                                           : "give bytes like 64GiB";
                return cairn_config_parse_bytes(text, key->whole ? whole : 0, ret_value);
        case CAIRN_CONFIG_MS:
                *ret_expected = "give a time like 250ms or 10s";
                status = cairn_config_parse_duration_us(text, ret_value);
                *ret_value /= 1000;
                return status;
        case CAIRN_CONFIG_US:
                *ret_expected = "give a time like 500us or 2ms";
                return cairn_config_parse_duration_us(text, ret_value);
        case CAIRN_CONFIG_COUNT:
                *ret_expected = "give a whole number, or auto where the help names it";
                return parse_count(text, ret_value);
        case CAIRN_CONFIG_BOOL:
                *ret_expected = "give yes or no";
                return parse_bool(text, ret_value);
        case CAIRN_CONFIG_CHOICE:
                *ret_expected = "give one of the words that the help names";
                return parse_choice(key->choices, text, ret_value);
        }
        return CAIRN_EINVAL;
}

int cairn_config_parse(const struct cairn_config_key *key, const char *text, uint64_t whole,
                       uint64_t *ret_value, char *ret_why, size_t why_bytes)
{
        const char *expected = "";
        bool automatic = strcmp(text, "auto") == 0 && strcmp(key->fallback, "auto") == 0;
        bool share = strchr(text, '%') != NULL; // its size is known only on the machine

        *ret_value = 0;
        if (parse_typed(key, text, whole, ret_value, &expected) != CAIRN_OK ||
            (strcmp(text, "auto") == 0 && !automatic && key->type == CAIRN_CONFIG_COUNT)) {
                (void)snprintf(ret_why, why_bytes, "%s", expected);
                return CAIRN_EINVAL;
        }
        if (key->max == 0 || automatic || share)
                return CAIRN_OK;
        if (*ret_value < key->min || *ret_value > key->max) {
                (void)snprintf(ret_why, why_bytes, "it may be %llu to %llu (%s)",
                               (unsigned long long)key->min, (unsigned long long)key->max,
                               cairn_config_type_name(key->type));
                return CAIRN_EINVAL;
        }
        return CAIRN_OK;
}

const char *cairn_config_type_name(enum cairn_config_type type)
{
        static const char *const names[] = {"TEXT",       "DIRECTORIES", "BYTES",  "TIME in ms",
                                            "TIME in us", "COUNT",       "YES|NO", "WORD"};

        return names[type];
}

// ---- the machine ----

// The limit of a memory control group, if it is below the machine's memory.
static uint64_t memory_limit(uint64_t memory_bytes)
{
        FILE *file = fopen("/sys/fs/cgroup/memory.max", "re");
        unsigned long long limit;

        if (!file)
                return memory_bytes;
        if (fscanf(file, "%llu", &limit) == 1 && limit < memory_bytes)
                memory_bytes = limit;
        (void)fclose(file); // was only read
        return memory_bytes;
}

// Of the directory, or of its nearest parent that exists.
static uint64_t disk_bytes(const char *directory)
{
        char path[4096];
        struct statvfs info;

        (void)snprintf(path, sizeof(path), "%s", directory);
        while (statvfs(path, &info) != 0) {
                char *slash = strrchr(path, '/');

                if (errno != ENOENT || !slash)
                        return 64ull << 30;
                slash[slash == path ? 1 : 0] = '\0';
                if (slash == path && statvfs(path, &info) != 0)
                        return 64ull << 30;
        }
        return (uint64_t)info.f_blocks * info.f_frsize;
}

uint64_t cairn_config_whole(const struct cairn_config_key *key, const char *directory)
{
        if (key->whole == CAIRN_CONFIG_WHOLE_MEMORY)
                return memory_limit((uint64_t)sysconf(_SC_PHYS_PAGES) *
                                    (uint64_t)sysconf(_SC_PAGESIZE));
        return key->whole == CAIRN_CONFIG_WHOLE_DISK ? disk_bytes(directory) : 0;
}

uint64_t cairn_config_scorers_default(void)
{
        cpu_set_t set;
        int cores = sched_getaffinity(0, sizeof(set), &set) == 0
                        ? CPU_COUNT(&set)
                        : (int)sysconf(_SC_NPROCESSORS_ONLN);

        return cores > 1 ? (uint64_t)cores - 1 : 1;
}
