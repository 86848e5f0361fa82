// Log lines on stderr, and entries of journald.
#include "daemon/log.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include "daemon/clock.h"

enum {
        SITES_MAX = 64,
        WINDOW_MS = 10 * 1000,
        WINDOW_LINES_MAX = 10,
        LINE_BYTES_MAX = 1024
};

// One call site, known by its format's address.
struct site {
        const char *format;
        uint64_t window_ms; // when the window began
        uint32_t lines;
        uint64_t suppressed;
};

// The log level, and what belongs to it. Touched by the loop thread alone.
static struct {
        enum cairn_log_level level;
        bool journal; // lines carry its prefix
        bool native;  // entries go to journald itself
        bool json;
        struct site sites[SITES_MAX];
} state = {.level = CAIRN_LOG_INFO};

// Whether stderr is the stream to journald that the variable names, and journald is there.
static bool is_journald(const char *stream)
{
        struct stat info;
        unsigned long long device;
        unsigned long long inode;

        return sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
               fstat(STDERR_FILENO, &info) == 0 && info.st_dev == device && info.st_ino == inode &&
               access("/run/systemd/journal/socket", W_OK) == 0;
}

void cairn_log_init(enum cairn_log_level level)
{
        const char *stream = getenv("JOURNAL_STREAM");

        state.level = level;
        state.journal = stream != NULL;
        state.native = stream && is_journald(stream);
        (void)setvbuf(stderr, NULL, _IOLBF, 2 * LINE_BYTES_MAX); // a line is one write
}

void cairn_log_set_level(enum cairn_log_level level)
{
        state.level = level;
}

void cairn_log_set_json(bool json)
{
        state.json = json;
}

// True if the line may go out; then *ret_suppressed says how many before it did not.
static bool admit(const char *format, uint64_t *ret_suppressed)
{
        struct site *site = &state.sites[((uintptr_t)format >> 3) % SITES_MAX];
        uint64_t now_ms = cairn_clock_ms();

        *ret_suppressed = 0;
        if (site->format != format) {
                *site = (struct site){.format = format, .window_ms = now_ms, .lines = 1};
                return true;
        }
        if (now_ms - site->window_ms >= WINDOW_MS) {
                *ret_suppressed = site->suppressed;
                *site = (struct site){.format = format, .window_ms = now_ms, .lines = 1};
                return true;
        }
        if (site->lines < WINDOW_LINES_MAX) {
                site->lines++;
                return true;
        }
        site->suppressed++;
        return false;
}

// The text in quotes, as JSON has it; bytes that are no ASCII pass as they are.
static void put_quoted(const char *text)
{
        (void)fputc('"', stderr);
        for (; *text != '\0'; text++) {
                if (*text == '"' || *text == '\\')
                        (void)fputc('\\', stderr);
                (void)fputc(*text, stderr);
        }
        (void)fputc('"', stderr);
}

static const char *level_name(enum cairn_log_level level)
{
        switch (level) {
        case CAIRN_LOG_ERROR: return "error";
        case CAIRN_LOG_WARNING: return "warning";
        case CAIRN_LOG_INFO: return "info";
        case CAIRN_LOG_DEBUG: return "debug";
        }
        return "unknown";
}

// What a line is made of.
struct line {
        enum cairn_log_level level;
        const char *text;
        const char *remedy; // NULL: none
        uint64_t suppressed;
        const struct cairn_log_field *fields;
        size_t fields_count;
};

static void write_json(const struct line *line)
{
        char stamp[32];
        struct timespec now;
        struct tm parts;

        (void)clock_gettime(CLOCK_REALTIME, &now); // cannot fail for this clock
        (void)gmtime_r(&now.tv_sec, &parts);
        (void)strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &parts);
        (void)fprintf(stderr, "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"message\":", stamp,
                      now.tv_nsec / 1000000, level_name(line->level));
        put_quoted(line->text);
        if (line->remedy) {
                (void)fputs(",\"remedy\":", stderr);
                put_quoted(line->remedy);
        }
        for (size_t i = 0; i < line->fields_count; i++) {
                (void)fprintf(stderr, ",\"%s\":", line->fields[i].name);
                put_quoted(line->fields[i].value);
        }
        if (line->suppressed > 0)
                (void)fprintf(stderr, ",\"suppressed\":%llu", (unsigned long long)line->suppressed);
        (void)fputs("}\n", stderr);
}

static void write_text(const struct line *line)
{
        (void)fprintf(stderr, "cairnd: %s%s%s", line->text, line->remedy ? "; " : "",
                      line->remedy ? line->remedy : "");
        for (size_t i = 0; i < line->fields_count; i++)
                if (line->fields[i].in_text)
                        (void)fprintf(stderr, " %s=%s", line->fields[i].name,
                                      line->fields[i].value);
        if (line->suppressed > 0)
                (void)fprintf(stderr, " (%llu such lines left out)",
                              (unsigned long long)line->suppressed);
        (void)fputc('\n', stderr);
}

// ---- journald ----

enum {
        ENTRY_FIELDS_MAX = CAIRN_LOG_FIELDS_MAX + 5
};

struct entry {
        struct iovec fields[ENTRY_FIELDS_MAX];
        int count;
        size_t used;
        char bytes[4 * LINE_BYTES_MAX];
};

// NAME=value; one that does not fit is left out.
static void add(struct entry *entry, const char *prefix, const char *name, const char *value)
{
        char *at = entry->bytes + entry->used;
        size_t room = sizeof(entry->bytes) - entry->used;
        int size = snprintf(at, room, "%s%s=%s", prefix, name, value);

        assert(entry->count < ENTRY_FIELDS_MAX);
        if (size < 0 || (size_t)size >= room)
                return;
        for (char *c = at; *c != '='; c++)
                *c = (char)toupper((unsigned char)*c);
        entry->fields[entry->count++] = (struct iovec){at, (size_t)size};
        entry->used += (size_t)size;
}

static void write_entry(const struct line *line)
{
        struct entry entry = {.count = 0};
        char number[24];

        (void)snprintf(number, sizeof(number), "%d", (int)line->level);
        add(&entry, "", "MESSAGE", line->text);
        add(&entry, "", "PRIORITY", number);
        add(&entry, "", "SYSLOG_IDENTIFIER", "cairnd");
        if (line->remedy)
                add(&entry, "CAIRN_", "remedy", line->remedy);
        if (line->suppressed > 0) {
                (void)snprintf(number, sizeof(number), "%llu",
                               (unsigned long long)line->suppressed);
                add(&entry, "CAIRN_", "suppressed", number);
        }
        for (size_t i = 0; i < line->fields_count; i++)
                add(&entry, "CAIRN_", line->fields[i].name, line->fields[i].value);
        if (sd_journal_sendv(entry.fields, entry.count) < 0)
                write_text(line); // stderr leads to the same place
}

static void write_line(const struct line *line)
{
        if (state.native && !state.json) {
                write_entry(line);
                return;
        }
        if (state.journal)
                (void)fprintf(stderr, "<%d>", (int)line->level);
        if (state.json)
                write_json(line);
        else
                write_text(line);
}

// ---- lines ----

static void log_line(struct line *line, const char *format, va_list args)
{
        char text[LINE_BYTES_MAX];

        (void)vsnprintf(text, sizeof(text), format, args); // cut short is fine
        for (char *c = text; *c != '\0'; c++) // names come from peers: one line stays one line
                if ((unsigned char)*c < ' ')
                        *c = '?';
        line->text = text;
        write_line(line);
        line->text = NULL;
}

void cairn_log(enum cairn_log_level level, const char *remedy, const char *format, ...)
{
        struct line line = {.level = level, .remedy = remedy};
        va_list args;

        if (level > state.level || !admit(format, &line.suppressed))
                return;
        va_start(args, format);
        log_line(&line, format, args);
        va_end(args);
}

void cairn_log_fields(enum cairn_log_level level, const char *remedy,
                      const struct cairn_log_field *fields, size_t count, const char *format, ...)
{
        struct line line = {
            .level = level, .remedy = remedy, .fields = fields, .fields_count = count};
        va_list args;

        assert(count <= CAIRN_LOG_FIELDS_MAX);
        if (level > state.level || !admit(format, &line.suppressed))
                return;
        va_start(args, format);
        log_line(&line, format, args);
        va_end(args);
}
