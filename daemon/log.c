// Log lines on stderr.
#include "daemon/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
        bool journal;
        bool json;
        struct site sites[SITES_MAX];
} state = {.level = CAIRN_LOG_INFO};

void cairn_log_init(enum cairn_log_level level)
{
        state.level = level;
        state.journal = getenv("JOURNAL_STREAM") != NULL;
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

static void write_json(enum cairn_log_level level, const char *line, const char *remedy,
                       uint64_t suppressed)
{
        char stamp[32];
        struct timespec now;
        struct tm parts;

        (void)clock_gettime(CLOCK_REALTIME, &now); // cannot fail for this clock
        (void)gmtime_r(&now.tv_sec, &parts);
        (void)strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &parts);
        (void)fprintf(stderr, "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"message\":", stamp,
                      now.tv_nsec / 1000000, level_name(level));
        put_quoted(line);
        if (remedy) {
                (void)fputs(",\"remedy\":", stderr);
                put_quoted(remedy);
        }
        if (suppressed > 0)
                (void)fprintf(stderr, ",\"suppressed\":%llu", (unsigned long long)suppressed);
        (void)fputs("}\n", stderr);
}

static void write_text(const char *line, const char *remedy, uint64_t suppressed)
{
        char tail[64] = "";

        if (suppressed > 0)
                (void)snprintf(tail, sizeof(tail), " (%llu such lines left out)",
                               (unsigned long long)suppressed);
        (void)fprintf(stderr, "cairnd: %s%s%s%s\n", line, remedy ? "; " : "", remedy ? remedy : "",
                      tail);
}

void cairn_log(enum cairn_log_level level, const char *remedy, const char *format, ...)
{
        char line[LINE_BYTES_MAX];
        uint64_t suppressed;
        va_list args;

        if (level > state.level || !admit(format, &suppressed))
                return;
        va_start(args, format);
        (void)vsnprintf(line, sizeof(line), format, args); // cut short is fine
        va_end(args);
        for (char *c = line; *c != '\0'; c++) // names come from peers: one line stays one line
                if ((unsigned char)*c < ' ')
                        *c = '?';
        if (state.journal)
                (void)fprintf(stderr, "<%d>", (int)level);
        if (state.json)
                write_json(level, line, remedy, suppressed);
        else
                write_text(line, remedy, suppressed);
}
