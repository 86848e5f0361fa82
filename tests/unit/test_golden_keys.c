// Golden vectors of keys and fingerprints, which the Python package is held to as well. Case 7.
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/key.h"
#include "proto/space.h"

enum {
        LINE_BYTES = 1 << 16,
        TOKENS_MAX = 1024
};

// The file has one vector a line and no escapes: fields are found by their names.
static const char *field(const char *line, const char *name)
{
        char quoted[64];
        const char *at;

        snprintf(quoted, sizeof(quoted), "\"%s\":", name);
        at = strstr(line, quoted);
        cr_assert_not_null(at, "no %s in %.40s", name, line);
        return at + strlen(quoted);
}

static void text_of(const char *line, const char *name, char *ret_text, size_t size)
{
        const char *at = field(line, name);
        const char *end = strchr(at + 1, '"');

        cr_assert_eq(*at, '"');
        cr_assert_leq((size_t)(end - at), size);
        memcpy(ret_text, at + 1, (size_t)(end - at - 1));
        ret_text[end - at - 1] = '\0';
}

static size_t numbers_of(const char *line, const char *name, uint64_t *ret_numbers, size_t max)
{
        const char *at = field(line, name);
        size_t count = 0;

        cr_assert_eq(*at++, '[');
        while (*at != ']') {
                char *end;

                cr_assert_lt(count, max);
                ret_numbers[count++] = strtoull(at, &end, 10);
                at = *end == ',' ? end + 1 : end;
        }
        return count;
}

static size_t bytes_of(const char *line, const char *name, uint8_t *ret_bytes)
{
        char text[512];
        size_t count;

        text_of(line, name, text, sizeof(text));
        count = strlen(text) / 2;
        for (size_t i = 0; i < count; i++) {
                unsigned byte;

                cr_assert_eq(sscanf(text + 2 * i, "%2x", &byte), 1);
                ret_bytes[i] = (uint8_t)byte;
        }
        return count;
}

static void space_of(const char *line, struct cairn_space *ret_space)
{
        uint64_t n[18];

        memset(ret_space, 0, sizeof(*ret_space));
        cr_assert_eq(numbers_of(line, "numbers", n, 18), 18);
        text_of(line, "model", ret_space->model, sizeof(ret_space->model));
        text_of(line, "revision", ret_space->revision, sizeof(ret_space->revision));
        text_of(line, "layout", ret_space->layout, sizeof(ret_space->layout));
        ret_space->kind = (uint32_t)n[0];
        ret_space->layers = (uint32_t)n[1];
        ret_space->kv_heads = (uint32_t)n[2];
        ret_space->k_dim = (uint32_t)n[3];
        ret_space->v_dim = (uint32_t)n[4];
        ret_space->dtype = (uint32_t)n[5];
        ret_space->block_tokens = (uint32_t)n[6];
        ret_space->cache_group = (uint32_t)n[7];
        ret_space->tp_rank = (uint32_t)n[8];
        ret_space->tp_size = (uint32_t)n[9];
        ret_space->rope = (uint32_t)n[10];
        ret_space->landmark_bits = (uint32_t)n[11];
        ret_space->outliers = (uint32_t)n[12];
        ret_space->run_tokens = (uint32_t)n[13];
        ret_space->value_bits = (uint32_t)n[14];
        ret_space->k_codec = (uint32_t)n[15];
        ret_space->v_codec = (uint32_t)n[16];
        ret_space->block_bytes = n[17];
}

// Compares one line; returns how many keys it held, and the first of them (or the fingerprint) for
// the test of distinctness.
static size_t check_vector(const char *line, char ret_first[65])
{
        struct cairn_space space;
        struct cairn_key keys[TOKENS_MAX];
        struct cairn_key_seed seed;
        uint64_t numbers[TOKENS_MAX];
        uint32_t tokens[TOKENS_MAX];
        uint8_t salt[256], adapter[256];
        char name[64], expected[65], got[65];
        const char *at;
        size_t count, blocks;

        text_of(line, "name", name, sizeof(name));
        space_of(line, &space);
        cairn_space_fingerprint(&space, &seed.space);
        cairn_key_hex(&seed.space, got);
        text_of(line, "fingerprint", expected, sizeof(expected));
        cr_expect_str_eq(got, expected, "fingerprint of: %s", name);
        seed.salt = salt;
        seed.salt_bytes = bytes_of(line, "salt", salt);
        seed.adapter = adapter;
        seed.adapter_bytes = bytes_of(line, "adapter", adapter);
        count = numbers_of(line, "tokens", numbers, TOKENS_MAX);
        for (size_t i = 0; i < count; i++)
                tokens[i] = (uint32_t)numbers[i];
        blocks = cairn_key_chain(&seed, tokens, count,
                                 (uint32_t)strtoul(field(line, "block_tokens"), NULL, 10), keys);
        at = field(line, "keys") + 1;
        strcpy(ret_first, got);
        for (size_t i = 0; i < blocks; i++) {
                cairn_key_hex(&keys[i], got);
                cr_expect_eq(*at, '"', "fewer keys than blocks: %s", name);
                cr_expect_eq(strncmp(at + 1, got, 64), 0, "key %zu of: %s", i, name);
                at += 1 + 64 + 2;
                if (i == 0)
                        strcpy(ret_first, got);
        }
        cr_expect_eq(*(blocks ? at - 1 : at), ']', "more keys than blocks: %s", name);
        return blocks;
}

Test(golden_keys, case_7_match_the_checked_in_vectors)
{
        char path[4096], first[64][65];
        char *line = malloc(LINE_BYTES);
        size_t vectors = 0, keys = 0;
        FILE *file;

        // Beside this source, wherever the test runs.
        snprintf(path, sizeof(path), "%s", __FILE__);
        *strrchr(path, '/') = '\0';
        strcat(path, "/../e2e/golden_keys.json");
        file = fopen(path, "r");
        cr_assert_not_null(file, "%s", path);
        while (fgets(line, LINE_BYTES, file)) {
                if (line[0] != '{')
                        continue;
                cr_assert_lt(vectors, 64);
                keys += check_vector(line, first[vectors++]);
        }
        fclose(file);
        free(line);
        cr_expect_geq(vectors, 30);
        cr_expect_geq(keys, 60);
        // Cases 5 and 6: whatever differs in a field, or only in where fields end, has another key.
        for (size_t i = 5; i < vectors; i++)
                for (size_t j = 5; j < i; j++)
                        cr_expect_str_neq(first[i], first[j], "vectors %zu and %zu", i, j);
}
