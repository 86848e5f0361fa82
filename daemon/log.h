// The daemon's log: lines on stderr (with journald's priority prefix under systemd), each naming
// cause and remedy, limited in rate a call site. Only the daemon logs, and only its loop thread.
// May be used by: daemon. May use: nothing.
#ifndef CAIRN_LOG_H
#define CAIRN_LOG_H

#include <stdbool.h>
#include <stdint.h>

// The numbers are syslog's.
enum cairn_log_level {
        CAIRN_LOG_ERROR = 3,
        CAIRN_LOG_WARNING = 4,
        CAIRN_LOG_INFO = 6,
        CAIRN_LOG_DEBUG = 7,
};

// Lines less urgent than `level` are dropped. Reads JOURNAL_STREAM.
void cairn_log_init(enum cairn_log_level level);
void cairn_log_set_level(enum cairn_log_level level);
// One JSON object a line: time, level, message, and remedy and suppressed where there are some.
void cairn_log_set_json(bool json);

// At most 10 lines a format and 10 seconds; what was left out is counted in the next line of that
// format. `remedy` is what the operator can do; NULL where nothing is wrong.
__attribute__((format(printf, 3, 4))) void cairn_log(enum cairn_log_level level, const char *remedy,
                                                     const char *format, ...);

#endif
