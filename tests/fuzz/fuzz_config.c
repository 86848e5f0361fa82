// Fuzzes the configuration: a file, then its values. What is accepted prints to a file that is
// accepted again and means the same; what is refused is refused with a sentence.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/config.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

// The bytes as a file with a path.
static int as_file(const void *bytes, size_t size, char ret_path[64])
{
        int fd = memfd_create("fuzz", MFD_CLOEXEC);

        FUZZ_CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
        (void)snprintf(ret_path, 64, "/proc/self/fd/%d", fd);
        FUZZ_CHECK(lseek(fd, 0, SEEK_SET) == 0);
        return fd;
}

static int read_bytes(struct cairn_config *config, const void *bytes, size_t size, char *ret_text)
{
        char path[64];
        int fd = as_file(bytes, size, path);
        int status = cairn_config_read_file(config, path, ret_text);

        (void)close(fd); // was only read
        return status;
}

static char *printed(const struct cairn_config *config, size_t *ret_size)
{
        char *text = NULL;
        FILE *to = open_memstream(&text, ret_size);

        FUZZ_CHECK(to && cairn_config_print(config, to) && fclose(to) == 0);
        return text;
}

static void check_units(const uint8_t *bytes, size_t size)
{
        char text[64] = {0};
        uint64_t value;

        memcpy(text, bytes, size < sizeof(text) - 1 ? size : sizeof(text) - 1);
        (void)cairn_config_parse_bytes(text, 0, &value); // any answer, no crash
        if (cairn_config_parse_bytes(text, 1000, &value) == CAIRN_OK && strchr(text, '%'))
                FUZZ_CHECK(value <= 1000);
        (void)cairn_config_parse_duration_us(text, &value); // as above
}

// But for what a line of the file cannot begin or end with, where a long value was cut into lines.
static void check_same(const struct cairn_config *a, const struct cairn_config *b)
{
        struct cairn_config_setting x, y;

        for (size_t i = 0; cairn_config_setting(a, i, &x); i++) {
                FUZZ_CHECK(cairn_config_setting(b, i, &y));
                FUZZ_CHECK(strcmp(x.value, y.value) == 0 || strpbrk(x.value, " \t\v\f\r;#"));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        struct cairn_config config;
        struct cairn_config again;
        char text[CAIRN_TEXT_BYTES_MAX] = "";

        check_units(bytes, size);
        cairn_config_init(&config);
        if (read_bytes(&config, bytes, size, text) != CAIRN_OK ||
            cairn_config_resolve(&config, text) != CAIRN_OK) {
                FUZZ_CHECK(text[0] != '\0' && strlen(text) < sizeof(text));
                cairn_config_finish(&config);
                return 0;
        }
        size_t first_size;
        size_t second_size;
        char *first = printed(&config, &first_size);

        cairn_config_init(&again);
        if (read_bytes(&again, first, first_size, text) == CAIRN_OK) {
                FUZZ_CHECK(cairn_config_resolve(&again, text) == CAIRN_OK);
                FUZZ_CHECK(again.ram_bytes == config.ram_bytes);
                FUZZ_CHECK(again.stop_timeout_ms == config.stop_timeout_ms);
                check_same(&config, &again);
                char *second = printed(&again, &second_size);

                free(second);
        } else {
                abort();
        }
        free(first);
        cairn_config_finish(&again);
        cairn_config_finish(&config);
        return 0;
}
