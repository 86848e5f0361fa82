// Checking data directories without serving them: arguments, and what is printed.
#include "daemon/verify_offline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "proto/status.h"
#include "storage/verify.h"

enum {
        BAD_SHOWN_MAX = 100
};

struct report {
        bool json;
        uint32_t bad_count;
};

static void on_bad(void *arg, uint32_t slab, uint32_t slot, const char *what)
{
        struct report *report = arg;
        bool whole_file = slot == UINT32_MAX;

        if (report->bad_count++ >= BAD_SHOWN_MAX)
                return;
        if (!report->json && whole_file)
                printf("%08x.slab: %s\n", slab, what);
        else if (!report->json)
                printf("%08x.slab slot %u: %s\n", slab, slot, what);
        else if (whole_file)
                printf("%s{\"slab\": %u, \"what\": \"%s\"}", report->bad_count > 1 ? ", " : "",
                       slab, what);
        else
                printf("%s{\"slab\": %u, \"slot\": %u, \"what\": \"%s\"}",
                       report->bad_count > 1 ? ", " : "", slab, slot, what);
}

static const char *catalog_name(enum cairn_verify_catalog catalog)
{
        static const char *const names[] = {"sound", "damaged", "absent"};

        return names[catalog];
}

static void print_json(const struct cairn_verify_result *result)
{
        printf("], \"blocks\": %llu, \"corrupt\": %llu, \"lost\": %llu, \"unnamed\": %llu, "
               "\"bytes\": %llu, \"slabs\": %llu, \"slabs_bad\": %llu, \"catalog\": \"%s\", "
               "\"records_bad\": %llu}\n",
               (unsigned long long)result->blocks, (unsigned long long)result->corrupt,
               (unsigned long long)result->lost, (unsigned long long)result->unnamed,
               (unsigned long long)result->bytes, (unsigned long long)result->slabs,
               (unsigned long long)result->slabs_bad, catalog_name(result->catalog),
               (unsigned long long)result->records_bad);
}

static void print_text(const struct report *report, const struct cairn_verify_result *result)
{
        if (report->bad_count > BAD_SHOWN_MAX)
                printf("... and %u more\n", report->bad_count - BAD_SHOWN_MAX);
        printf("%llu blocks, %.1f MiB in %llu slab files: %llu corrupt, %llu lost\n",
               (unsigned long long)result->blocks, (double)result->bytes / 0x1p20,
               (unsigned long long)result->slabs, (unsigned long long)result->corrupt,
               (unsigned long long)result->lost);
        printf("the catalog is %s", catalog_name(result->catalog));
        if (result->catalog != CAIRN_VERIFY_CATALOG_SOUND)
                printf(": every slot that was written counts, and a start makes it anew from them");
        else if (result->records_bad > 0)
                printf(", but for %llu records", (unsigned long long)result->records_bad);
        printf("\n");
        if (result->corrupt + result->lost > 0)
                puts("cairnd answers for these as misses; workers put them again");
}

static int split(char *list, struct cairn_verify_options *options)
{
        for (char *rest = list; rest;) {
                char *directory = strsep(&rest, ":");

                if (directory[0] == '\0')
                        continue;
                if (options->directories_count == CAIRN_STORE_DIRECTORIES_MAX)
                        return CAIRN_EINVAL;
                options->directories[options->directories_count++] = directory;
        }
        return options->directories_count > 0 ? CAIRN_OK : CAIRN_EINVAL;
}

static int verify(const char *list, bool json)
{
        struct report report = {.json = json};
        struct cairn_verify_options options = {.on_bad = on_bad, .on_bad_arg = &report};
        struct cairn_verify_result result;
        char text[CAIRN_TEXT_BYTES_MAX];
        char *copy = strdup(list);
        int status = copy ? split(copy, &options) : CAIRN_ENOMEM;

        if (status != CAIRN_OK) {
                (void)fprintf(stderr,
                              "cairnd: --verify-offline takes 1 to %d directories, with "
                              "colons, as data_dir does\n",
                              CAIRN_STORE_DIRECTORIES_MAX);
                free(copy);
                return 2;
        }
        if (json)
                printf("{\"bad\": [");
        (void)fflush(stdout); // a process of its own reads the catalog: not twice
        status = cairn_verify_directories(&options, &result, text);
        free(copy);
        if (status != CAIRN_OK) {
                if (json)
                        puts("], \"error\": true}"); // the text follows where errors go
                (void)fprintf(stderr, "cairnd: %s\n", text);
                return 1;
        }
        if (json)
                print_json(&result);
        else
                print_text(&report, &result);
        if (fflush(stdout) != 0)
                return 1;
        return result.corrupt + result.lost + result.slabs_bad + result.records_bad > 0 ||
                       result.catalog == CAIRN_VERIFY_CATALOG_DAMAGED
                   ? 1
                   : 0;
}

bool cairn_verify_offline_main(int argc, char *const *argv, int *ret_code)
{
        static const char flag[] = "--verify-offline";

        if (argc < 2 || strcmp(argv[1], flag) != 0)
                return false;
        bool json = argc == 4 && strcmp(argv[3], "--json") == 0;

        if (argc != 3 && !json) {
                (void)fprintf(stderr, "usage: cairnd %s DIR[:DIR...] [--json]\n", flag);
                *ret_code = 2;
                return true;
        }
        *ret_code = verify(argv[2], json);
        return true;
}
