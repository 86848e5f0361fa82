// Configuration: units, sources and their order, misspelt keys, limits of values.
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config.h"
#include "proto/status.h"

static char text[CAIRN_TEXT_BYTES_MAX];

Test(config, bytes_take_units_and_fractions)
{
        static const struct {
                const char *text;
                uint64_t bytes;
        } good[] = {
            {"0", 0},
            {"7", 7},
            {"7B", 7},
            {"64GiB", 64ull << 30},
            {"1.5KiB", 1536},
            {"2K", 2048},
            {"3MB", 3000000},
            {"1TiB", 1ull << 40},
            {"10 MiB", 10u << 20},
            {"50%", 500},
        };
        static const char *const bad[] = {"",     "-1",         "GiB", "1gib", "0x10", "1e9",
                                          "1..5", "101%",       "1 2", "nan",  "inf",  "+1",
                                          ".5",   "9999999TiB", "5%%", "1KiBs"};
        uint64_t bytes;

        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
                cr_assert_eq(cairn_config_parse_bytes(good[i].text, 1000, &bytes), CAIRN_OK, "%s",
                             good[i].text);
                cr_assert_eq(bytes, good[i].bytes, "%s", good[i].text);
        }
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                cr_assert_eq(cairn_config_parse_bytes(bad[i], 1000, &bytes), CAIRN_EINVAL, "%s",
                             bad[i]);
        cr_assert_eq(cairn_config_parse_bytes("5%", 0, &bytes), CAIRN_EINVAL, "a share of nothing");
}

Test(config, times_need_a_unit)
{
        uint64_t us;

        cr_assert_eq(cairn_config_parse_duration_us("250ms", &us), CAIRN_OK);
        cr_assert_eq(us, 250000);
        cr_assert_eq(cairn_config_parse_duration_us("2min", &us), CAIRN_OK);
        cr_assert_eq(us, 120000000);
        cr_assert_eq(cairn_config_parse_duration_us("0", &us), CAIRN_OK);
        cr_assert_eq(us, 0);
        cr_assert_eq(cairn_config_parse_duration_us("250", &us), CAIRN_EINVAL);
        cr_assert_eq(cairn_config_parse_duration_us("-1s", &us), CAIRN_EINVAL);
        cr_assert_eq(cairn_config_parse_duration_us("1 day", &us), CAIRN_EINVAL);
}

static void set_ok(struct cairn_config *config, const char *name, const char *value)
{
        cr_assert_eq(cairn_config_set(config, name, value, CAIRN_CONFIG_FLAG, text), CAIRN_OK, "%s",
                     text);
}

Test(config, case_38_misspelt_keys_name_the_nearest)
{
        struct cairn_config config;

        cairn_config_init(&config);
        cr_assert_eq(cairn_config_set(&config, "ram_byte", "1GiB", CAIRN_CONFIG_FLAG, text),
                     CAIRN_EINVAL);
        cr_assert(strstr(text, "ram_bytes"), "%s", text);
        cr_assert_eq(cairn_config_set(&config, "data-dri", "/x", CAIRN_CONFIG_FLAG, text),
                     CAIRN_EINVAL);
        cr_assert(strstr(text, "data_dir"), "%s", text);
        cairn_config_finish(&config);
}

Test(config, case_38_bad_values_say_what_may_be)
{
        static const char *const bad[][2] = {
            {"ram_bytes", "-5"},     {"ram_bytes", "12 bananas"},
            {"ram_bytes", "1KiB"},   {"ack", "both"},
            {"scorers", "0"},        {"scorers", "many"},
            {"queue_depth", "auto"}, {"force_buffered", "maybe"},
            {"frame_timeout", "10"}, {"lease_max", "11min"},
            {"commit_delay", "2s"},
        };
        struct cairn_config config;

        cairn_config_init(&config);
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                cr_assert_eq(cairn_config_set(&config, bad[i][0], bad[i][1], CAIRN_CONFIG_FLAG,
                                              text),
                             CAIRN_EINVAL, "%s=%s", bad[i][0], bad[i][1]);
                cr_assert(strstr(text, bad[i][0]), "%s", text);
        }
        cairn_config_finish(&config);
}

Test(config, values_reach_their_fields)
{
        struct cairn_config config;

        cairn_config_init(&config);
        set_ok(&config, "socket", "/tmp/s");
        set_ok(&config, "data-dir", "/tmp/a:/tmp/b");
        set_ok(&config, "data_dir", "/tmp/c");
        set_ok(&config, "ram_bytes", "2GiB");
        set_ok(&config, "ack", "disk");
        set_ok(&config, "frame_timeout", "250ms");
        set_ok(&config, "commit_delay", "2ms");
        set_ok(&config, "force_buffered", "yes");
        cr_assert_eq(cairn_config_resolve(&config, text), CAIRN_OK, "%s", text);
        cr_assert_str_eq(config.socket, "/tmp/s");
        cr_assert_eq(config.data_dirs_count, 3);
        cr_assert_str_eq(config.data_dirs[0], "/tmp/a");
        cr_assert_str_eq(config.data_dirs[2], "/tmp/c");
        cr_assert_eq(config.ram_bytes, 2ull << 30);
        cr_assert_eq(config.ack, 1);
        cr_assert_eq(config.frame_timeout_ms, 250);
        cr_assert_eq(config.commit_delay_us, 2000);
        cr_assert_eq(config.force_buffered, 1);
        cr_assert_eq(config.force_sync_device, 0);
        cr_assert_gt(config.scorers, 0);
        cr_assert_gt(config.nvme_bytes, 0);
        cairn_config_finish(&config);
}

Test(config, case_27_socket_paths_up_to_107_bytes)
{
        static const size_t sizes[] = {107, 108, 109, 200};

        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                struct cairn_config config;
                char path[256];
                int wanted = sizes[i] <= 107 ? CAIRN_OK : CAIRN_EINVAL;

                memset(path, 'x', sizeof(path));
                path[0] = '/';
                path[sizes[i]] = '\0';
                cairn_config_init(&config);
                set_ok(&config, "socket", path);
                cr_assert_eq(cairn_config_resolve(&config, text), wanted, "%zu", sizes[i]);
                cr_assert(wanted == CAIRN_OK || strstr(text, "107"), "%s", text);
                cairn_config_finish(&config);
        }
}

static void write_file(char path[32], const char *content)
{
        FILE *file;
        int fd;

        (void)strcpy(path, "/tmp/cairn-config-XXXXXX");
        fd = mkstemp(path);
        cr_assert_geq(fd, 0);
        file = fdopen(fd, "w");
        cr_assert(fputs(content, file) >= 0 && fclose(file) == 0);
}

Test(config, later_sources_win)
{
        char *const environment[] = {"CAIRN_RAM_BYTES=3MiB", "CAIRN_QUEUE_DEPTH=3",
                                     "CAIRN_TEST_SEED=1", "HOME=/", NULL};
        char path[32];
        char *argv[] = {"cairnd", "--config", path, "--ram-bytes=4MiB", "--force-buffered", NULL};
        enum cairn_config_action action;
        struct cairn_config config;

        write_file(path, "; a comment\n[cairnd]\nram_bytes = 2MiB\nqueue_depth = 2\n"
                         "commit_delay = 1ms\n");
        cairn_config_init(&config);
        cr_assert_eq(cairn_config_load(&config, 5, argv, environment, &action, text), CAIRN_OK,
                     "%s", text);
        cr_assert_eq(action, CAIRN_CONFIG_RUN);
        cr_assert_eq(cairn_config_resolve(&config, text), CAIRN_OK, "%s", text);
        cr_assert_eq(config.ram_bytes, 4u << 20, "the flag");
        cr_assert_eq(config.queue_depth, 3, "the environment");
        cr_assert_eq(config.commit_delay_us, 1000, "the file");
        cr_assert_eq(config.force_buffered, 1, "a bare flag means yes");
        cairn_config_finish(&config);
        (void)unlink(path);
}

Test(config, case_38_files_refuse_duplicates_and_strangers)
{
        static const char *const bad[] = {"ram_bytes = 1GiB\nram_bytes = 2GiB\n",
                                          "[other]\nram_bytes = 1GiB\n", "rambytes = 1GiB\n",
                                          "no equals sign\n"};
        struct cairn_config config;
        char path[32];

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                write_file(path, bad[i]);
                cairn_config_init(&config);
                cr_assert_eq(cairn_config_read_file(&config, path, text), CAIRN_EINVAL, "%s",
                             bad[i]);
                cr_assert(strstr(text, path), "%s", text);
                cairn_config_finish(&config);
                (void)unlink(path);
        }
        cairn_config_init(&config);
        cr_assert_eq(cairn_config_read_file(&config, "/nowhere/at/all", text), CAIRN_EINVAL);
        cairn_config_finish(&config);
}

Test(config, case_38_misspelt_environment_is_refused)
{
        char *const environment[] = {"CAIRN_RAM_BYTE=3MiB", NULL};
        struct cairn_config config;

        cairn_config_init(&config);
        cr_assert_eq(cairn_config_read_environment(&config, environment, text), CAIRN_EINVAL);
        cr_assert(strstr(text, "ram_bytes"), "%s", text);
        cairn_config_finish(&config);
}

Test(config, what_is_printed_reads_the_same)
{
        struct cairn_config first;
        struct cairn_config second;
        char path[32];
        FILE *file;

        write_file(path, "");
        cairn_config_init(&first);
        set_ok(&first, "ram_bytes", "3GiB");
        set_ok(&first, "isa", "scalar");
        cr_assert_eq(cairn_config_resolve(&first, text), CAIRN_OK);
        file = fopen(path, "w");
        cr_assert(cairn_config_print(&first, file) && fclose(file) == 0);
        cairn_config_init(&second);
        cr_assert_eq(cairn_config_read_file(&second, path, text), CAIRN_OK, "%s", text);
        cr_assert_eq(cairn_config_resolve(&second, text), CAIRN_OK, "%s", text);
        cr_assert_eq(second.ram_bytes, first.ram_bytes);
        cr_assert_eq(second.nvme_bytes, first.nvme_bytes);
        cr_assert_eq(second.lease_max_ms, first.lease_max_ms);
        cr_assert_str_eq(second.isa, first.isa);
        cr_assert_str_eq(second.socket, first.socket);
        cairn_config_finish(&first);
        cairn_config_finish(&second);
        (void)unlink(path);
}

// A line of the file holds less than 200 bytes: a long value was cut, and the rest of it read as a
// setting of its own.
Test(config, long_values_go_on_in_indented_lines)
{
        struct cairn_config config;
        char path[32];

        write_file(path, "[cairnd]\ntenants = one:1,\n   two:2,   ; a comment\n\tthree:3\n"
                         "ram_bytes = 3GiB\n");
        cairn_config_init(&config);
        cr_assert_eq(cairn_config_read_file(&config, path, text), CAIRN_OK, "%s", text);
        cr_assert_eq(cairn_config_resolve(&config, text), CAIRN_OK, "%s", text);
        FILE *file = fopen(path, "w+");
        cr_assert(cairn_config_print(&config, file));
        rewind(file);
        char line[512];
        bool found = false;
        while (fgets(line, sizeof(line), file))
                found = found || strncmp(line, "tenants = one:1,two:2,three:3 ;", 31) == 0;
        cr_assert(found);
        (void)fclose(file);
        cr_assert_eq(config.ram_bytes, 3ull << 30);
        cairn_config_finish(&config);
        (void)unlink(path);
}

Test(config, lines_too_long_are_refused_by_number)
{
        struct cairn_config config;
        char path[32];
        char bytes[400];

        // From the 200th byte on stands what would be a setting.
        (void)snprintf(bytes, sizeof(bytes), "\nsocket = /tmp/%0185dram_bytes = 1GiB\n", 7);
        write_file(path, bytes);
        cairn_config_init(&config);
        cr_assert_eq(cairn_config_read_file(&config, path, text), CAIRN_EINVAL);
        cr_assert(strstr(text, "more than 198 bytes") && strstr(text, ":2]"), "%s", text);
        cairn_config_finish(&config);
        (void)unlink(path);
}

Test(config, long_values_that_are_printed_read_the_same)
{
        struct cairn_config first, second;
        char path[32];
        char value[700] = "";
        FILE *file;

        for (int i = 0; i < 40; i++)
                (void)snprintf(value + strlen(value), sizeof(value) - strlen(value), "%se%d:%d",
                               i ? ", " : "", i, 1000 + i);
        write_file(path, "");
        cairn_config_init(&first);
        set_ok(&first, "tenants", value);
        cr_assert_eq(cairn_config_resolve(&first, text), CAIRN_OK, "%s", text);
        file = fopen(path, "w");
        cr_assert(cairn_config_print(&first, file) && fclose(file) == 0);
        cairn_config_init(&second);
        cr_assert_eq(cairn_config_read_file(&second, path, text), CAIRN_OK, "%s", text);
        cr_assert_eq(cairn_config_resolve(&second, text), CAIRN_OK, "%s", text);
        struct cairn_config_setting setting;
        bool found = false;
        for (size_t i = 0; cairn_config_setting(&second, i, &setting); i++)
                found = found || strcmp(setting.value, value) == 0;
        cr_assert(found);
        cairn_config_finish(&first);
        cairn_config_finish(&second);
        (void)unlink(path);
}
