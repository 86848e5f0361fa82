// Records of the audit, as rows, sentences and JSON.
#include "client/cli/record.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/cli/cli.h"

static const char *tier_name(uint32_t tier)
{
        static const char *const names[] = {"-", "ram", "nvme", "remote"};

        return tier < sizeof(names) / sizeof(names[0]) ? names[tier] : "?";
}

static bool has_key(const struct cairn_audit_entry *entry)
{
        static const struct cairn_key zero;

        return memcmp(&entry->key, &zero, sizeof(zero)) != 0;
}

static bool has_numbers(const struct cairn_audit_entry *entry)
{
        bool any = entry->score != 0;

        for (int i = 0; i < CAIRN_AUDIT_ENTRY_NUMBERS; i++)
                any = any || entry->numbers[i] != 0;
        return any;
}

void cairn_cli_time(uint64_t time_ms, char ret_text[32])
{
        time_t seconds = (time_t)(time_ms / 1000);
        struct tm local;
        char text[24] = "?";

        if (localtime_r(&seconds, &local))
                (void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local);
        (void)snprintf(ret_text, 32, "%s.%03u", text, (unsigned)(time_ms % 1000));
}

void cairn_cli_record_json(const struct cairn_audit_entry *entry)
{
        char key[65];

        if (entry->damaged) {
                fputs("{\"damaged\": true}", stdout);
                return;
        }
        cairn_key_to_text(&entry->key, key);
        printf("{\"sequence\": %llu, \"time_ms\": %llu, \"action\": \"%s\", \"reason\": \"%s\", "
               "\"tenant\": %u, \"tenant_name\": ",
               (unsigned long long)entry->sequence, (unsigned long long)entry->time_ms,
               entry->action, entry->reason, entry->tenant);
        cairn_cli_json_text(stdout, entry->tenant_name);
        printf(", \"space\": %u, \"key\": ", entry->space);
        printf(has_key(entry) ? "\"%s\"" : "null", key);
        printf(", \"context\": %llu, \"layer\": %d, \"head\": %d, \"count\": %u, \"bytes\": %llu, "
               "\"score\": ",
               (unsigned long long)entry->context, entry->layer, entry->head, entry->count,
               (unsigned long long)entry->bytes);
        cairn_cli_json_number(stdout, entry->score);
        for (int i = 0; i < CAIRN_AUDIT_ENTRY_NUMBERS; i++) {
                fputs(i ? ", " : ", \"numbers\": [", stdout);
                cairn_cli_json_number(stdout, entry->numbers[i]);
        }
        fputs("], \"policy\": ", stdout);
        cairn_cli_json_text(stdout, entry->policy);
        printf(", \"request\": %llu, \"connection\": %llu, \"tier_from\": \"%s\", \"tier_to\": "
               "\"%s\"}",
               (unsigned long long)entry->request, (unsigned long long)entry->connection,
               tier_name(entry->tier_from), tier_name(entry->tier_to));
}

static void print_decision(const struct cairn_audit_entry *entry)
{
        if (entry->policy[0])
                printf(" by %s", entry->policy);
        if (!has_numbers(entry))
                return;
        printf(" (score %g; numbers", entry->score);
        for (int i = 0; i < CAIRN_AUDIT_ENTRY_NUMBERS; i++)
                printf(" %g", entry->numbers[i]);
        putchar(')');
}

void cairn_cli_record_row(const struct cairn_audit_entry *entry)
{
        char time[32], bytes[16], key[65] = "-";

        if (entry->damaged) {
                puts("a damaged record: run cairnctl audit --verify");
                return;
        }
        cairn_cli_time(entry->time_ms, time);
        cairn_cli_bytes((double)entry->bytes, bytes);
        if (has_key(entry))
                cairn_key_to_text(&entry->key, key);
        printf("%8llu %s %-7s %-10s %-12s %5u %10s %-4s %-4s %s",
               (unsigned long long)entry->sequence, time, entry->action, entry->reason,
               entry->tenant_name, entry->space, bytes, tier_name(entry->tier_from),
               tier_name(entry->tier_to), key);
        if (entry->context)
                printf(" context %llu", (unsigned long long)entry->context);
        print_decision(entry);
        putchar('\n');
}

static const char *action_words(const struct cairn_audit_entry *entry)
{
        static const char *const words[][2] = {
            {"evict", "was evicted"},
            {"demote", "was moved to a slower tier"},
            {"drop", "lost rows for good"},
            {"delete", "was deleted"},
            {"purge", "was deleted and overwritten"},
            {"refuse", "had a request refused"},
            {"hold", "came under a legal hold, or out of it"},
            {"retain", "was chosen from by a retention"},
        };

        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
                if (strcmp(entry->action, words[i][0]) == 0)
                        return words[i][1];
        }
        return entry->action;
}

static const char *reason_words(const struct cairn_audit_entry *entry)
{
        static const char *const words[][2] = {
            {"capacity", "the tier was full"},
            {"quota", "its tenant was over its quota"},
            {"ttl", "its time to live had ended"},
            {"request", "somebody asked for it"},
            {"corrupt", "its bytes failed their checksum"},
            {"retention", "a retention chose others"},
            {"admission", "it was not used often enough for the tier"},
            {"legal-hold", "of a legal hold"},
            {"permission", "who asked may not"},
            {"pinned", "somebody has it pinned"},
            {"device", "the device failed, or lost it"},
            {"stopped", "the daemon stopped, and memory alone had it"},
        };

        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
                if (strcmp(entry->reason, words[i][0]) == 0)
                        return words[i][1];
        }
        return entry->reason;
}

void cairn_cli_record_words(const struct cairn_audit_entry *entry, uint64_t now_ms)
{
        char time[32], age[16], bytes[16];

        if (entry->damaged) {
                puts("a record about it is damaged: run cairnctl audit --verify");
                return;
        }
        cairn_cli_time(entry->time_ms, time);
        cairn_cli_duration(now_ms > entry->time_ms ? (double)(now_ms - entry->time_ms) : 0, age);
        cairn_cli_bytes((double)entry->bytes, bytes);
        printf("%s, %s ago: it %s, since %s", time, age, action_words(entry), reason_words(entry));
        if (entry->tier_from)
                printf("; it left %s", tier_name(entry->tier_from));
        if (entry->tier_to)
                printf(" for %s", tier_name(entry->tier_to));
        print_decision(entry);
        printf("; %s of tenant %s in space %u", bytes, entry->tenant_name, entry->space);
        if (entry->connection)
                printf("; asked by request %llu of connection %llu",
                       (unsigned long long)entry->request, (unsigned long long)entry->connection);
        printf(" [record %llu]\n", (unsigned long long)entry->sequence);
}
