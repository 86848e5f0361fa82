// Stores a prompt's blocks, finds them again. cc example.c $(pkg-config --cflags --libs cairn)
#include <cairn/cairn.h>
#include <stdio.h>

int main(void)
{
        static char blocks[4][2 * 2 * 256 * (64 + 64) * 2]; // each [layer][KV head]{K, V}, f16
        uint32_t tokens[4 * 256] = {1, 2, 3}, space;
        struct cairn_space_config config;
        struct cairn_client *client;
        struct cairn_key id, keys[4];
        size_t found = 0;
        char text[512];

        cairn_space_config_init(&config); // f16, blocks of 256 tokens, 2-bit landmarks
        snprintf(config.model, sizeof(config.model), "example");
        config.layers = config.kv_heads = 2, config.k_dim = config.v_dim = 64;
        if (cairn_client_create(NULL, &client, text, sizeof(text)) < 0)
                return fprintf(stderr, "%s\n", text), 1;
        cairn_space_config_fingerprint(&config, &id);
        cairn_chain_keys(&id, 256, NULL, 0, NULL, 0, NULL, tokens, 4 * 256, keys);
        struct cairn_put_args put = {.keys = keys, .count = 4, .blocks = blocks};
        if (cairn_client_open_space(client, &config, &space) < 0 ||
            (put.space = space, cairn_put(client, NULL, &put, NULL)) < 0 ||
            cairn_lookup(client, NULL, space, keys, 4, 0, &found, NULL) < 0)
                fprintf(stderr, "%s\n", cairn_client_error(client));
        printf("%zu of 4 blocks found\n", found);
        cairn_client_destroy(client);
        return found != 4;
}
