// The configuration, printed: help, values with their sources, an example file, the list in the man
// page. All come from the one table.
#include <stdlib.h>
#include <string.h>

#include "daemon/config.h"
#include "daemon/config_table.h"

enum {
        TYPE_BYTES = 128,
        EXAMPLE_COLUMNS = 100,
        PIECE_COLUMNS = 120 // with name and source less than a line of the file may have
};

const char *cairn_config_source_name(enum cairn_config_source source)
{
        static const char *const names[] = {"default", "file", "environment", "flag"};

        return names[source];
}

// "BYTES or %", "memory|disk", "COUNT|auto".
static const char *type_text(const struct cairn_config_key *key, char ret_text[TYPE_BYTES])
{
        size_t used = 0;

        if (key->type == CAIRN_CONFIG_CHOICE) {
                for (const struct cairn_config_choice *c = key->choices; c->name; c++)
                        used += (size_t)snprintf(ret_text + used, TYPE_BYTES - used, "%s%s",
                                                 used ? "|" : "", c->name); // a few short words
                return ret_text;
        }
        (void)snprintf(ret_text, TYPE_BYTES, "%s%s", cairn_config_type_name(key->type),
                       key->whole                           ? " or %"
                       : strcmp(key->fallback, "auto") == 0 ? "|auto"
                                                            : "");
        return ret_text;
}

static const char *fallback_text(const struct cairn_config_key *key)
{
        return key->fallback[0] ? key->fallback : "empty";
}

void cairn_config_print_help(FILE *to)
{
        (void)fprintf(
            to, "cairnd - KV-cache storage daemon\n\nUsage: cairnd [--config FILE] "
                "[--KEY VALUE]...\n\n  --help            this text\n  --version         the "
                "version\n  --check-config    read the configuration, say what is wrong, exit\n"
                "  --dump-config     print every value and where it comes from, exit\n"
                "  --example-config  print a configuration file with every key, exit\n\nKeys (in"
                " the file: key = value; in the environment: CAIRN_KEY; [r]: Reload or SIGHUP "
                "changes it):\n\n");
        for (size_t i = 0; i < cairn_config_keys_count; i++) {
                const struct cairn_config_key *key = &cairn_config_keys[i];
                char type[TYPE_BYTES];

                (void)fprintf(to, "  --%s %s%s\n      %s Default: %s.\n", key->name,
                              type_text(key, type), key->live ? " [r]" : "", key->help,
                              fallback_text(key));
        }
}

bool cairn_config_setting(const struct cairn_config *config, size_t i,
                          struct cairn_config_setting *ret_setting)
{
        const struct cairn_config_key *key;

        if (i >= cairn_config_keys_count)
                return false;
        key = &cairn_config_keys[i];
        *ret_setting = (struct cairn_config_setting){
            .name = key->name,
            .value = config->texts[i] ? config->texts[i] : cairn_config_default_text(config, i),
            .source = cairn_config_source_name(config->sources[i]),
            .help = key->help,
            .live = key->live,
        };
        ret_setting->computed =
            (key->whole && strchr(ret_setting->value, '%')) ||
            (key->type == CAIRN_CONFIG_COUNT && strcmp(ret_setting->value, "auto") == 0);
        if (ret_setting->computed)
                memcpy(&ret_setting->number, (const uint8_t *)config + key->offset,
                       sizeof(ret_setting->number));
        return true;
}

// How much of a value goes into a line: a line of the file must not end or begin with what its
// reader leaves out.
static size_t piece_of(const char *value)
{
        size_t size = strlen(value);

        if (size <= PIECE_COLUMNS)
                return size;
        for (size_t n = PIECE_COLUMNS; n > 1; n--) {
                if (!strchr(" \t", value[n - 1]) && !strchr(" \t;#", value[n]))
                        return n;
        }
        return PIECE_COLUMNS;
}

// Behind a blank, a semicolon begins a comment.
static const char *blank_before(const char *value)
{
        return value[0] == ';' ? "" : " ";
}

static bool print_long(const struct cairn_config_setting *setting, FILE *to)
{
        const char *value = setting->value;
        size_t size = piece_of(value);
        bool written = fprintf(to, "; from %s\n%s =%s%.*s\n", setting->source, setting->name,
                               blank_before(value), (int)size, value) >= 0;

        for (value += size; *value; value += size) {
                size = piece_of(value);
                written = fprintf(to, "    %.*s\n", (int)size, value) >= 0 && written;
        }
        return written;
}

bool cairn_config_print(const struct cairn_config *config, FILE *to)
{
        bool written = fprintf(to, "[cairnd]\n") >= 0;
        struct cairn_config_setting setting;

        for (size_t i = 0; cairn_config_setting(config, i, &setting); i++) {
                if (strlen(setting.value) > PIECE_COLUMNS) {
                        written = print_long(&setting, to) && written;
                        continue;
                }
                written = fprintf(to, "%s =%s%s", setting.name, blank_before(setting.value),
                                  setting.value) >= 0 &&
                          written;
                if (setting.computed)
                        written = fprintf(to, " ; %llu", (unsigned long long)setting.number) >= 0 &&
                                  written;
                written = fprintf(to, " ; from %s\n", setting.source) >= 0 && written;
        }
        return written;
}

// ---- documents ----

// Words of `text`, in lines that begin with `prefix`.
static void print_wrapped(FILE *to, const char *prefix, const char *text)
{
        size_t column = 0;

        while (*(text += strspn(text, " ")) != '\0') {
                size_t size = strcspn(text, " ");

                if (column > 0 && column + 1 + size > EXAMPLE_COLUMNS) {
                        (void)fputc('\n', to);
                        column = 0;
                }
                if (column == 0)
                        column = (size_t)fprintf(to, "%s%.*s", prefix, (int)size, text);
                else
                        column += (size_t)fprintf(to, " %.*s", (int)size, text);
                text += size;
        }
        (void)fputc('\n', to);
}

void cairn_config_print_example(FILE *to)
{
        (void)fprintf(to,
                      "# cairnd's configuration: every key, with its default. cairn.conf(5) says "
                      "more.\n# After a change: cairnd --check-config --config=THIS_FILE, then "
                      "systemctl reload cairnd\n# for keys marked [r], restart for the others."
                      "\n[cairnd]\n");
        for (size_t i = 0; i < cairn_config_keys_count; i++) {
                const struct cairn_config_key *key = &cairn_config_keys[i];
                char text[1024];
                char type[TYPE_BYTES];

                (void)snprintf(text, sizeof(text), "%s %s%s", key->help, type_text(key, type),
                               key->live ? " [r]" : "");
                (void)fputc('\n', to);
                print_wrapped(to, "# ", text);
                (void)fprintf(to, "#%s =%s%s\n", key->name, key->fallback[0] ? " " : "",
                              key->fallback);
        }
}

// A sentence a line, as mdoc(7) wants it; dots at the start of a line would be requests.
static void print_sentences(FILE *to, const char *text)
{
        for (; *text != '\0'; text++) {
                if (text[0] == ' ' && text[-1] == '.')
                        (void)fputc('\n', to);
                else
                        (void)fputc(*text, to);
        }
        (void)fputc('\n', to);
}

void cairn_config_print_manual(FILE *to)
{
        (void)fprintf(to, ".Bl -tag -width Ds\n");
        for (size_t i = 0; i < cairn_config_keys_count; i++) {
                const struct cairn_config_key *key = &cairn_config_keys[i];
                char type[TYPE_BYTES];

                (void)fprintf(to, ".It Cm %s No = Ar %s\n", key->name, type_text(key, type));
                print_sentences(to, key->help);
                if (key->fallback[0])
                        (void)fprintf(to, "Default:\n.Ql %s .\n", key->fallback);
                else
                        (void)fprintf(to, "Default: empty.\n");
                if (key->live)
                        (void)fprintf(to, "Changed by a reload.\n");
        }
        (void)fprintf(to, ".El\n");
}
