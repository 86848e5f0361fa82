// The daemon's log: lines on stderr, each naming cause and remedy, limited in rate a call site.
// Where stderr is journald's, entries go to it with fields (CAIRN_REMEDY, CAIRN_TRACE_ID, ...),
// unless JSON is asked for. Only the daemon logs, and only its loop thread.
// May be used by: daemon. May use: libsystemd.
#ifndef CAIRN_LOG_H
#define CAIRN_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The numbers are syslog's.
enum cairn_log_level {
        CAIRN_LOG_ERROR = 3,
        CAIRN_LOG_WARNING = 4,
        CAIRN_LOG_INFO = 6,
        CAIRN_LOG_DEBUG = 7,
};

// Lines less urgent than `level` are dropped. Reads JOURNAL_STREAM: set, but of another stream than
// stderr, it means a pipe to a journal, and lines carry its priority prefix.
void cairn_log_init(enum cairn_log_level level);
void cairn_log_set_level(enum cairn_log_level level);
// One JSON object a line: time, level, message, and remedy and suppressed where there are some.
void cairn_log_set_json(bool json);

// At most 10 lines a format and 10 seconds; what was left out is counted in the next line of that
// format. `remedy` is what the operator can do; NULL where nothing is wrong.
__attribute__((format(printf, 3, 4))) void cairn_log(enum cairn_log_level level, const char *remedy,
                                                     const char *format, ...);

// A fact of a line: JSON has it as a member, journald as a field CAIRN_NAME. In text it shows as
// name=value if `in_text`; the others repeat what the line says.
struct cairn_log_field {
        const char *name; // lower case
        const char *value;
        bool in_text;
};
enum {
        CAIRN_LOG_FIELDS_MAX = 12
};
__attribute__((format(printf, 5, 6))) void cairn_log_fields(enum cairn_log_level level,
                                                            const char *remedy,
                                                            const struct cairn_log_field *fields,
                                                            size_t count, const char *format, ...);

#endif
