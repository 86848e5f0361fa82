// The configuration's file, read by inih (the only user). Its lines are short, so a long value goes
// on in indented lines.
#include <ctype.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config.h"
#include "proto/status.h"

// A line is read before inih sees it; a setting is taken when its last line is over.
struct file_reader {
        struct cairn_config *config;
        FILE *file;
        const char *path;
        char *text;  // what is wrong, for the caller
        char *name;  // of the setting; NULL: none yet
        char *value; // so far
        int name_line;
        int line;
        bool indented; // this line
        bool refused;
};

static char *copy_text(const char *text)
{
        char *copy = strdup(text);

        if (!copy)
                abort(); // a few bytes, before the daemon serves anyone
        return copy;
}

// Adds where it is to what is wrong.
static void refuse_at(struct file_reader *reader, int line)
{
        size_t used = strlen(reader->text);

        reader->refused = true;
        (void)snprintf(reader->text + used, CAIRN_TEXT_BYTES_MAX - used, " [%s:%d]", reader->path,
                       line);
}

static void take_setting(struct file_reader *reader)
{
        if (reader->name && !reader->refused &&
            cairn_config_set(reader->config, reader->name, reader->value, CAIRN_CONFIG_FILE,
                             reader->text) != CAIRN_OK)
                refuse_at(reader, reader->name_line);
        free(reader->name);
        free(reader->value);
        reader->name = reader->value = NULL;
}

static char *read_line(char *line, int size, void *arg)
{
        struct file_reader *reader = arg;

        if (reader->refused || !fgets(line, size, reader->file))
                return NULL;
        reader->line++;
        reader->indented = isblank((unsigned char)line[0]);
        if (strchr(line, '\n') || feof(reader->file))
                return line;
        (void)snprintf(reader->text, CAIRN_TEXT_BYTES_MAX,
                       "configuration: a line has more than %d bytes, or a zero byte; let a long "
                       "value go on in the next line, behind a space",
                       size - 2);
        refuse_at(reader, reader->line);
        return NULL;
}

// The value goes on where it ended. inih leaves what follows " ;" to us here.
static void go_on(struct file_reader *reader, const char *more)
{
        const char *comment = strstr(more, " ;");
        size_t more_bytes = comment ? (size_t)(comment - more) : strlen(more);
        size_t bytes = strlen(reader->value);
        char *both = realloc(reader->value, bytes + more_bytes + 1);

        if (!both)
                abort(); // as above
        while (more_bytes > 0 && isspace((unsigned char)more[more_bytes - 1]))
                more_bytes--;
        memcpy(both + bytes, more, more_bytes);
        both[bytes + more_bytes] = '\0';
        reader->value = both;
}

static int on_entry(void *arg, const char *section, const char *name, const char *value)
{
        struct file_reader *reader = arg;

        if (reader->refused)
                return 0; // the first complaint is the one to show
        if (reader->indented && reader->name && strcmp(reader->name, name) == 0) {
                go_on(reader, value);
                return 1;
        }
        take_setting(reader);
        if (reader->refused)
                return 0;
        if (section[0] != '\0' && strcmp(section, "cairnd") != 0) {
                (void)snprintf(reader->text, CAIRN_TEXT_BYTES_MAX,
                               "configuration: no section \"%.64s\"; use [cairnd] or none",
                               section);
                refuse_at(reader, reader->line);
                return 0;
        }
        reader->name = copy_text(name);
        reader->value = copy_text(value);
        reader->name_line = reader->line;
        return 1;
}

int cairn_config_read_file(struct cairn_config *config, const char *path, char *ret_text)
{
        struct file_reader reader = {
            .config = config, .path = path, .text = ret_text, .file = fopen(path, "re")};
        bool failed = !reader.file;
        int line = 0;

        if (reader.file) {
                line = ini_parse_stream(read_line, &reader, on_entry, &reader);
                failed = ferror(reader.file);
                (void)fclose(reader.file); // was only read
        }
        if (line == 0)
                take_setting(&reader);
        free(reader.name);
        free(reader.value);
        if (reader.refused)
                return CAIRN_EINVAL;
        if (failed || line < 0) {
                (void)snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                               "configuration: cannot read %s; check the path", path);
                return CAIRN_EINVAL;
        }
        if (line > 0) {
                (void)snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                               "configuration: %s:%d is no \"key = value\"", path, line);
                return CAIRN_EINVAL;
        }
        return CAIRN_OK;
}
