// The ways values get in and out. The table of keys: config_table.c; the file: config_file.c.
#include "daemon/config.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/address.h"
#include "daemon/config_table.h"
#include "daemon/log.h"
#include "daemon/numa.h"
#include "daemon/tuning.h"
#include "proto/status.h"

#define REFUSE(ret_text, ...) \
        ((void)snprintf((ret_text), CAIRN_TEXT_BYTES_MAX, __VA_ARGS__), CAIRN_EINVAL)

static char *copy_text(const char *text)
{
        char *copy = strdup(text);

        if (!copy)
                abort(); // a few bytes, before the daemon serves anyone
        return copy;
}

static char *join(const char *directory, const char *rest)
{
        size_t size = strlen(directory) + strlen(rest) + 1;
        char *path = malloc(size);

        if (!path)
                abort(); // as above
        (void)snprintf(path, size, "%s%s", directory, rest);
        return path;
}

// ---- defaults that depend on who runs it ----

static char *default_socket(void)
{
        const char *runtime = getenv("XDG_RUNTIME_DIR");
        const char *given = getenv("RUNTIME_DIRECTORY"); // systemd's RuntimeDirectory=

        if (given && given[0] == '/' && !strchr(given, ':'))
                return join(given, "/cairnd.sock");
        if (geteuid() != 0 && runtime && runtime[0] == '/')
                return join(runtime, "/cairn/cairnd.sock");
        return copy_text("/run/cairn/cairnd.sock");
}

static char *default_data_dir(void)
{
        const char *state = getenv("XDG_STATE_HOME");
        const char *home = getenv("HOME");
        const char *given = getenv("STATE_DIRECTORY"); // systemd's StateDirectory=

        if (given && given[0] == '/')
                return copy_text(given);
        if (geteuid() == 0)
                return copy_text("/var/lib/cairn");
        if (state && state[0] == '/')
                return join(state, "/cairn");
        return home && home[0] == '/' ? join(home, "/.local/state/cairn")
                                      : copy_text("/var/lib/cairn");
}

void cairn_config_init(struct cairn_config *config)
{
        assert(cairn_config_keys_count <= CAIRN_CONFIG_KEYS_MAX);
        *config = (struct cairn_config){.socket_default = default_socket(),
                                        .data_dir_default = default_data_dir()};
}

void cairn_config_finish(struct cairn_config *config)
{
        for (size_t i = 0; i < CAIRN_CONFIG_KEYS_MAX; i++)
                free(config->texts[i]);
        free(config->directories);
        free(config->socket_default);
        free(config->data_dir_default);
        *config = (struct cairn_config){0};
}

const char *cairn_config_default_text(const struct cairn_config *config, size_t key)
{
        const char *name = cairn_config_keys[key].name;

        if (strcmp(name, "socket") == 0)
                return config->socket_default;
        if (strcmp(name, "data_dir") == 0)
                return config->data_dir_default;
        return cairn_config_keys[key].fallback;
}

// ---- names ----

// Flags may be written with dashes: --ram-bytes is ram_bytes.
static bool name_matches(const char *key, const char *name)
{
        for (; *key != '\0' && *name != '\0'; key++, name++)
                if (*key != (*name == '-' ? '_' : *name))
                        return false;
        return *key == *name;
}

static int find_key(const char *name, size_t *ret_key)
{
        for (size_t i = 0; i < cairn_config_keys_count; i++) {
                if (name_matches(cairn_config_keys[i].name, name)) {
                        *ret_key = i;
                        return CAIRN_OK;
                }
        }
        return CAIRN_ENOENT;
}

static size_t least(size_t a, size_t b, size_t c)
{
        size_t m = a < b ? a : b;

        return m < c ? m : c;
}

// Levenshtein's distance, of names up to 63 bytes.
static size_t distance(const char *a, const char *b)
{
        size_t row[64];
        size_t b_size = strnlen(b, 63);
        size_t a_size = strnlen(a, 63);

        for (size_t j = 0; j <= b_size; j++)
                row[j] = j;
        for (size_t i = 1; i <= a_size; i++) {
                size_t corner = row[0];

                row[0] = i;
                for (size_t j = 1; j <= b_size; j++) {
                        size_t above = row[j];
                        char x = a[i - 1] == '-' ? '_' : a[i - 1];

                        row[j] = least(above + 1, row[j - 1] + 1, corner + (x != b[j - 1]));
                        corner = above;
                }
        }
        return row[b_size];
}

static const char *nearest_key(const char *name, size_t *ret_distance)
{
        const char *best = cairn_config_keys[0].name;
        size_t best_distance = distance(name, best);

        for (size_t i = 1; i < cairn_config_keys_count; i++) {
                size_t d = distance(name, cairn_config_keys[i].name);

                if (d < best_distance) {
                        best = cairn_config_keys[i].name;
                        best_distance = d;
                }
        }
        *ret_distance = best_distance;
        return best;
}

// ---- one value ----

// data_dir may be given more than once as a flag: the directories add up.
static char *append_directory(char *list, const char *more)
{
        size_t size = strlen(list) + strlen(more) + 2;
        char *both = realloc(list, size);

        if (!both)
                abort(); // a few bytes, before the daemon serves anyone
        (void)snprintf(both + strlen(both), size - strlen(both), ":%s", more);
        return both;
}

int cairn_config_set(struct cairn_config *config, const char *name, const char *value,
                     enum cairn_config_source source, char *ret_text)
{
        const struct cairn_config_key *key;
        char why[128];
        uint64_t ignored;
        size_t index;
        size_t far;

        if (find_key(name, &index) != CAIRN_OK)
                return REFUSE(ret_text,
                              "configuration: no key \"%.64s\" (%s); did you mean \"%s\"?", name,
                              cairn_config_source_name(source), nearest_key(name, &far));
        key = &cairn_config_keys[index];
        if (cairn_config_parse(key, value, UINT64_MAX / 2, &ignored, why, sizeof(why)) != CAIRN_OK)
                return REFUSE(ret_text, "configuration: %s = \"%.64s\" (%s): %s", key->name, value,
                              cairn_config_source_name(source), why);
        if (source == CAIRN_CONFIG_FILE && config->sources[index] == CAIRN_CONFIG_FILE)
                return REFUSE(ret_text, "configuration: %s is set twice in the file; remove one",
                              key->name);
        if (key->type == CAIRN_CONFIG_LIST && source == CAIRN_CONFIG_FLAG &&
            config->sources[index] == CAIRN_CONFIG_FLAG) {
                config->texts[index] = append_directory(config->texts[index], value);
                return CAIRN_OK;
        }
        free(config->texts[index]);
        config->texts[index] = copy_text(value);
        config->sources[index] = source;
        return CAIRN_OK;
}

// ---- the environment ----

int cairn_config_read_environment(struct cairn_config *config, char *const *environment,
                                  char *ret_text)
{
        for (; environment && *environment; environment++) {
                const char *entry = *environment;
                const char *equals = strchr(entry, '=');
                char name[64];
                size_t size;
                size_t key;
                size_t far;

                if (strncmp(entry, "CAIRN_", 6) != 0 || !equals)
                        continue;
                size = (size_t)(equals - entry) - 6;
                if (size == 0 || size >= sizeof(name))
                        continue;
                for (size_t i = 0; i < size; i++)
                        name[i] = (char)tolower((unsigned char)entry[6 + i]);
                name[size] = '\0';
                if (find_key(name, &key) != CAIRN_OK) {
                        const char *near = nearest_key(name, &far);

                        if (strcmp(name, "config") != 0 && far <= 2 && size > 5)
                                return REFUSE(ret_text,
                                              "configuration: CAIRN_ variable \"%s\" is no key; "
                                              "did you mean \"%s\"?",
                                              name, near);
                        continue; // other programs have CAIRN_ variables of their own
                }
                if (cairn_config_set(config, name, equals + 1, CAIRN_CONFIG_ENVIRONMENT,
                                     ret_text) != CAIRN_OK)
                        return CAIRN_EINVAL;
        }
        return CAIRN_OK;
}

// ---- flags ----

static bool is_switch(const char *flag, enum cairn_config_action *ret_action)
{
        static const struct {
                const char *flag;
                enum cairn_config_action action;
        } switches[] = {
            {"--help", CAIRN_CONFIG_HELP},          {"-h", CAIRN_CONFIG_HELP},
            {"--version", CAIRN_CONFIG_VERSION},    {"--check-config", CAIRN_CONFIG_CHECK},
            {"--dump-config", CAIRN_CONFIG_DUMP},   {"--example-config", CAIRN_CONFIG_EXAMPLE},
            {"--manual-keys", CAIRN_CONFIG_MANUAL}, // for the man page alone
        };

        for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++) {
                if (strcmp(flag, switches[i].flag) == 0) {
                        *ret_action = switches[i].action;
                        return true;
                }
        }
        return false;
}

// The value of argv[*index], in it after '=' or in the next one; a bare flag of a yes/no key means
// yes. NULL: none.
static const char *flag_value(int argc, char *const *argv, int *index, const char *equals,
                              const char *name)
{
        size_t key;

        if (equals)
                return equals + 1;
        if (find_key(name, &key) == CAIRN_OK && cairn_config_keys[key].type == CAIRN_CONFIG_BOOL)
                return "yes";
        if (*index + 1 >= argc)
                return NULL;
        *index += 1;
        return argv[*index];
}

static int read_flags(struct cairn_config *config, int argc, char *const *argv, bool only_file,
                      const char **ret_file, enum cairn_config_action *ret_action, char *ret_text)
{
        for (int i = 1; i < argc; i++) {
                const char *flag = argv[i];
                const char *equals = strchr(flag, '=');
                const char *value;
                char name[64];
                size_t size;

                if (is_switch(flag, ret_action))
                        continue;
                size = equals ? (size_t)(equals - flag) : strlen(flag);
                if (strncmp(flag, "--", 2) != 0 || size - 2 >= sizeof(name))
                        return REFUSE(ret_text, "flags: \"%.64s\" is none; see cairnd --help",
                                      flag);
                memcpy(name, flag + 2, size - 2);
                name[size - 2] = '\0';
                value = flag_value(argc, argv, &i, equals, name);
                if (!value)
                        return REFUSE(ret_text, "flags: --%s needs a value", name);
                if (strcmp(name, "config") == 0)
                        *ret_file = value;
                else if (!only_file && cairn_config_set(config, name, value, CAIRN_CONFIG_FLAG,
                                                        ret_text) != CAIRN_OK)
                        return CAIRN_EINVAL;
        }
        return CAIRN_OK;
}

int cairn_config_load(struct cairn_config *config, int argc, char *const *argv,
                      char *const *environment, enum cairn_config_action *ret_action,
                      char *ret_text)
{
        const char *file = getenv("CAIRN_CONFIG");
        int status;

        config->argc = argc;
        config->argv = argv;
        config->environment = environment;
        *ret_action = CAIRN_CONFIG_RUN;
        status = read_flags(config, argc, argv, true, &file, ret_action, ret_text);
        config->file = file;
        if (status == CAIRN_OK && file)
                status = cairn_config_read_file(config, file, ret_text);
        if (status == CAIRN_OK)
                status = cairn_config_read_environment(config, environment, ret_text);
        if (status == CAIRN_OK)
                status = read_flags(config, argc, argv, false, &file, ret_action, ret_text);
        return status;
}

// ---- resolving ----

static int split_directories(struct cairn_config *config, const char *list, char *ret_text)
{
        char *rest;

        free(config->directories);
        config->directories = copy_text(list);
        config->data_dirs_count = 0;
        rest = config->directories;
        while (rest) {
                char *directory = strsep(&rest, ":");

                if (directory[0] == '\0')
                        continue;
                if (config->data_dirs_count == CAIRN_CONFIG_DIRECTORIES_MAX)
                        return REFUSE(ret_text,
                                      "configuration: data_dir names more than %d; "
                                      "name fewer directories",
                                      CAIRN_CONFIG_DIRECTORIES_MAX);
                config->data_dirs[config->data_dirs_count++] = directory;
        }
        if (config->data_dirs_count == 0)
                return REFUSE(ret_text, "configuration: data_dir is empty; name a directory");
        return CAIRN_OK;
}

static int resolve_access(struct cairn_config *config, char *ret_text)
{
        struct cairn_access *access = &config->access;
        char word[64] = "";

        if (cairn_ids_parse(config->allowed_uids, false, &access->uids, word) != CAIRN_OK)
                return REFUSE(ret_text, "configuration: allowed_uids: no user \"%s\" here", word);
        if (cairn_ids_parse(config->allowed_gids, true, &access->gids, word) != CAIRN_OK)
                return REFUSE(ret_text, "configuration: allowed_gids: no group \"%s\" here", word);
        if (cairn_ids_parse(config->operator_gids, true, &access->operators, word) != CAIRN_OK)
                return REFUSE(ret_text, "configuration: operator_gids: no group \"%s\" here", word);
        return CAIRN_OK;
}

static int resolve_tenants(struct cairn_config *config, char *ret_text)
{
        char why[CAIRN_TEXT_BYTES_MAX];

        if (cairn_tenants_parse(config->tenants, &config->tenants_named, why) != CAIRN_OK)
                return REFUSE(ret_text, "configuration: tenants: %.400s", why);
        if (cairn_quotas_parse(config->quotas, &config->tenants_named, config->ram_bytes,
                               config->nvme_bytes, &config->quota_table, why) != CAIRN_OK)
                return REFUSE(ret_text, "configuration: quotas: %.400s", why);
        if (!cairn_tuning_target(config->retain_targets, NULL, NULL))
                return REFUSE(ret_text,
                              "configuration: retain_targets: give models and their targets in "
                              "thousandths below 1000, like Qwen2.5-Coder-0.5B=990");
        return CAIRN_OK;
}

// Where threads run and memory lies, and how many scorers that makes.
static int resolve_processors(struct cairn_config *config, char *ret_text)
{
        const struct cairn_cpu_list *nodes = &config->numa_node_list;
        uint64_t most = cairn_config_scorers_default();

        if (cairn_cpu_list_parse(config->scorer_cpus, &config->scorer_cpu_list) != CAIRN_OK)
                return REFUSE(ret_text,
                              "configuration: scorer_cpus = \"%.128s\": give numbers and ranges, "
                              "each processor once, like 0,2-5",
                              config->scorer_cpus);
        if (cairn_cpu_list_parse(config->numa_nodes, &config->numa_node_list) != CAIRN_OK)
                return REFUSE(ret_text,
                              "configuration: numa_nodes = \"%.128s\": give numbers and ranges, "
                              "each memory node once, like 0 or 0-1",
                              config->numa_nodes);
        if (nodes->count > 0) {
                if (cairn_numa_processors(nodes, &config->numa_cpus, ret_text) != CAIRN_OK)
                        return CAIRN_EINVAL;
                most = config->numa_cpus.count > 1 ? config->numa_cpus.count - 1 : 1;
        }
        if (config->scorers == 0)
                config->scorers =
                    config->scorer_cpu_list.count > 0 ? config->scorer_cpu_list.count : most;
        return CAIRN_OK;
}

int cairn_config_resolve(struct cairn_config *config, char *ret_text)
{
        struct cairn_address address;

        for (size_t i = 0; i < cairn_config_keys_count; i++) {
                const struct cairn_config_key *key = &cairn_config_keys[i];
                const char *text =
                    config->texts[i] ? config->texts[i] : cairn_config_default_text(config, i);
                uint8_t *field = (uint8_t *)config + key->offset;
                char why[128];
                uint64_t value;

                if (key->type == CAIRN_CONFIG_TEXT) {
                        memcpy(field, &text, sizeof(text));
                        continue;
                }
                if (key->type == CAIRN_CONFIG_LIST) {
                        if (split_directories(config, text, ret_text) != CAIRN_OK)
                                return CAIRN_EINVAL;
                        continue;
                }
                if (cairn_config_parse(key, text, cairn_config_whole(key, config->data_dirs[0]),
                                       &value, why, sizeof(why)) != CAIRN_OK)
                        return REFUSE(ret_text, "configuration: %s = \"%.64s\": %s", key->name,
                                      text, why);
                memcpy(field, &value, sizeof(value));
        }
        if (strlen(config->socket) > CAIRN_SOCKET_PATH_BYTES_MAX)
                return REFUSE(ret_text,
                              "configuration: the socket's path has %zu bytes, and a Unix socket "
                              "takes %d; choose a shorter one",
                              strlen(config->socket), CAIRN_SOCKET_PATH_BYTES_MAX);
        if (resolve_access(config, ret_text) != CAIRN_OK ||
            resolve_tenants(config, ret_text) != CAIRN_OK)
                return CAIRN_EINVAL;
        if (config->metrics_address[0] != '\0' &&
            cairn_address_parse(config->metrics_address, &address) != CAIRN_OK)
                return REFUSE(ret_text,
                              "configuration: metrics_address = \"%.128s\": give /a/path, "
                              "127.0.0.1:9464 or [::1]:9464",
                              config->metrics_address);
        if (config->socket[0] == '\0')
                return REFUSE(ret_text, "configuration: socket is empty; name a path");
        return resolve_processors(config, ret_text);
}
