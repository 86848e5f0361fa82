// Checking the audit of a directory that nobody serves.
#include "daemon/audit_offline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "proto/status.h"
#include "storage/audit_read.h"

enum {
        SHOWN_MAX = 64
};

struct report {
        bool json;
        uint64_t shown;
};

static void on_bad(void *arg, uint64_t sequence, const char *text)
{
        struct report *report = arg;

        if (report->shown++ >= SHOWN_MAX)
                return;
        if (report->json)
                printf("%s\"%llu: %s\"", report->shown > 1 ? ", " : "",
                       (unsigned long long)sequence, text);
        else
                printf("record %llu: %s\n", (unsigned long long)sequence, text);
}

static void print(const struct report *report, const struct cairn_audit_snapshot *snapshot,
                  const struct cairn_audit_check *check)
{
        char digest[2 * CAIRN_KEY_BYTES + 1];

        cairn_key_hex(&check->end.digest, digest);
        if (report->json) {
                printf("], \"records\": %llu, \"first\": %llu, \"bad\": %llu, \"lost\": %llu, "
                       "\"continued\": %llu, \"catalog\": %s, \"end\": \"%llu:%s\"}\n",
                       (unsigned long long)check->records, (unsigned long long)check->first,
                       (unsigned long long)check->bad, (unsigned long long)check->lost,
                       (unsigned long long)check->continued, snapshot->anchored ? "true" : "false",
                       (unsigned long long)check->end.count, digest);
                return;
        }
        printf("%llu records from number %llu on: %llu bad places\n",
               (unsigned long long)check->records, (unsigned long long)check->first,
               (unsigned long long)check->bad);
        if (!snapshot->anchored)
                puts("the catalog cannot be read: whether records are missing at the end is "
                     "unknown");
        if (check->lost > 0)
                printf("%llu records could not be kept, by the log's own word\n",
                       (unsigned long long)check->lost);
        printf("its end, to be noted elsewhere (--noted): %llu:%s\n",
               (unsigned long long)check->end.count, digest);
}

static int check_directory(const char *directory, bool json, const struct cairn_audit_end *noted)
{
        struct report report = {.json = json};
        struct cairn_audit_snapshot snapshot;
        struct cairn_audit_check check;
        char text[CAIRN_TEXT_BYTES_MAX];
        int status = cairn_audit_snapshot_offline(directory, &snapshot, text);

        if (status != CAIRN_OK) {
                (void)fprintf(stderr, "cairnd: %s\n", text);
                return 1;
        }
        if (json)
                printf("{\"problems\": [");
        status = cairn_audit_snapshot_verify(&snapshot, noted, on_bad, &report, &check);
        if (status == CAIRN_OK)
                print(&report, &snapshot, &check);
        else
                (void)fprintf(stderr, "cairnd: the audit of %s cannot be read: %s\n", directory,
                              cairn_status_text(status));
        cairn_audit_snapshot_finish(&snapshot);
        return fflush(stdout) != 0 || status != CAIRN_OK || check.bad > 0 ? 1 : 0;
}

static bool parse_noted(const char *text, struct cairn_audit_end *ret_noted)
{
        char *end;

        ret_noted->count = strtoull(text, &end, 10);
        return text[0] >= '0' && text[0] <= '9' && *end == ':' && ret_noted->count > 0 &&
               cairn_key_parse(end + 1, &ret_noted->digest) == CAIRN_OK;
}

bool cairn_audit_offline_main(int argc, char *const *argv, int *ret_code)
{
        static const char flag[] = "--audit-offline";
        struct cairn_audit_end noted = {0};
        bool json = false, good = argc >= 3;

        if (argc < 2 || strcmp(argv[1], flag) != 0)
                return false;
        for (int i = 3; i < argc; i++) {
                if (strcmp(argv[i], "--json") == 0)
                        json = true;
                else if (strcmp(argv[i], "--noted") == 0 && i + 1 < argc)
                        good = good && parse_noted(argv[++i], &noted);
                else
                        good = false;
        }
        if (!good) {
                (void)fprintf(stderr, "usage: cairnd %s DIR [--json] [--noted COUNT:DIGEST]\n",
                              flag);
                *ret_code = 2;
                return true;
        }
        *ret_code = check_directory(argv[2], json, noted.count > 0 ? &noted : NULL);
        return true;
}
