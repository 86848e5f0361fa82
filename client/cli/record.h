// Records of the audit on the terminal, for audit and why.
// May be used by: client/cli. May use: the public API.
#ifndef CAIRN_CLI_RECORD_H
#define CAIRN_CLI_RECORD_H

#include <stdint.h>

#include "cairn/audit.h"

// "2026-11-30 16:20:01.123" of the local clock, in ret_text[32].
void cairn_cli_time(uint64_t time_ms, char ret_text[32]);
void cairn_cli_record_json(const struct cairn_audit_entry *entry);
// One line, for lists.
void cairn_cli_record_row(const struct cairn_audit_entry *entry);
// One sentence: when, what, why, by whom.
void cairn_cli_record_words(const struct cairn_audit_entry *entry, uint64_t now_ms);

#endif
