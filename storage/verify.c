// Data directories checked without a daemon. See verify.h.
#include "storage/verify.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/buffer.h"
#include "storage/catalog_file.h"
#include "storage/device.h"

// What the catalog says of a slot.
struct record {
        struct cairn_key key;
        struct cairn_checksum checksum;
        uint64_t generation;
        uint32_t slab;
        uint32_t slot;
        bool seen;
};

struct verify {
        const struct cairn_verify_options *options;
        struct cairn_verify_result *result;
        struct record *records; // by slab and slot
        size_t records_count;
        size_t records_capacity;
        uint8_t *bytes; // a part, or the start of a slab
        uint64_t bytes_capacity;
        int locks[CAIRN_STORE_DIRECTORIES_MAX];
};

// One slab file while it is checked.
struct slab_file {
        int fd;
        uint32_t number;
        uint32_t slots; // that are whole in the file
        struct cairn_key space;
        struct cairn_layout layout;
};

static void bad(const struct verify *verify, uint32_t slab, uint32_t slot, const char *what)
{
        if (verify->options->on_bad)
                verify->options->on_bad(verify->options->on_bad_arg, slab, slot, what);
}

// ---- the catalog ----

static int order(uint32_t slab, uint32_t slot, const struct record *record)
{
        if (slab != record->slab)
                return slab < record->slab ? -1 : 1;
        return slot < record->slot ? -1 : slot > record->slot;
}

static int by_place(const void *a, const void *b)
{
        const struct record *record = a;
        return order(record->slab, record->slot, b);
}

static struct record *record_at(const struct verify *verify, uint32_t slab, uint32_t slot)
{
        const struct record wanted = {.slab = slab, .slot = slot};
        return verify->records_count == 0 ? NULL
                                          : bsearch(&wanted, verify->records, verify->records_count,
                                                    sizeof(wanted), by_place);
}

static int on_space(void *arg, const struct cairn_catalog_space *space)
{
        (void)arg, (void)space; // a slab's own start says what its slots look like
        return CAIRN_OK;
}

static int on_block(void *arg, const struct cairn_catalog_block *block)
{
        struct verify *verify = arg;
        if (verify->records_count == verify->records_capacity) {
                size_t capacity = verify->records_capacity ? verify->records_capacity * 2 : 1024;
                struct record *records = realloc(verify->records, capacity * sizeof(*records));
                if (!records)
                        return CAIRN_ENOMEM;
                verify->records = records;
                verify->records_capacity = capacity;
        }
        verify->records[verify->records_count++] = (struct record){.key = block->key,
                                                                   .checksum = block->checksum,
                                                                   .generation = block->generation,
                                                                   .slab = block->slab,
                                                                   .slot = block->slot};
        return CAIRN_OK;
}

static int read_catalog(struct verify *verify, char *ret_text)
{
        char path[4096];
        const struct cairn_catalog_visitor visitor = {
            .on_space = on_space, .on_block = on_block, .arg = verify};
        struct cairn_verify_result *result = verify->result;
        if (snprintf(path, sizeof(path), "%s/catalog.mdb", verify->options->directories[0]) >=
            (int)sizeof(path)) {
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "the data directory's name is too long");
                return CAIRN_EINVAL;
        }
        int status = cairn_catalog_file_read(path, &visitor, &result->records_bad);
        if (status == CAIRN_ENOENT || status == CAIRN_ECORRUPT) {
                result->catalog = status == CAIRN_ENOENT ? CAIRN_VERIFY_CATALOG_ABSENT
                                                         : CAIRN_VERIFY_CATALOG_DAMAGED;
                verify->records_count = 0;
                result->records_bad = 0;
                return CAIRN_OK;
        }
        if (status != CAIRN_OK) {
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                         status == CAIRN_EVERSION
                             ? "%s has another format; check it with the cairnd that wrote it"
                             : "cannot read %s; check the disk, the memory and its permissions",
                         path);
                return status;
        }
        result->catalog = CAIRN_VERIFY_CATALOG_SOUND;
        if (verify->records_count > 0)
                qsort(verify->records, verify->records_count, sizeof(struct record), by_place);
        return CAIRN_OK;
}

// ---- slots ----

static int room(struct verify *verify, uint64_t bytes)
{
        if (bytes <= verify->bytes_capacity)
                return CAIRN_OK;
        free(verify->bytes);
        verify->bytes = aligned_alloc(CAIRN_DEVICE_ALIGN_BYTES, bytes);
        verify->bytes_capacity = verify->bytes ? bytes : 0;
        return verify->bytes ? CAIRN_OK : CAIRN_ENOMEM;
}

// One part of a slot. NULL: it is fine; else what is wrong with it.
static const char *check_part(struct verify *verify, const struct slab_file *slab, uint32_t slot,
                              uint32_t part, struct cairn_part_identity *ret_identity,
                              struct cairn_checksum *ret_table)
{
        const struct cairn_layout *layout = &slab->layout;
        uint64_t offset = CAIRN_SLAB_HEADER_BYTES + slot * layout->slot_bytes +
                          (part ? layout->part_bytes[0] : 0);
        if (cairn_device_files_read(slab->fd, offset, verify->bytes, layout->part_bytes[part]) !=
            CAIRN_OK)
                return "cannot be read";
        verify->result->bytes += layout->part_bytes[part];
        // What was read once is not wanted again: the page cache stays with those who need it.
        (void)posix_fadvise(slab->fd, (off_t)offset, (off_t)layout->part_bytes[part],
                            POSIX_FADV_DONTNEED);
        if (cairn_part_read(layout, part, verify->bytes, ret_identity, ret_table) != CAIRN_OK)
                return "a header does not fit its checksum";
        if (!cairn_key_equal(&ret_identity->space, &slab->space))
                return "a header names another space";
        if (cairn_part_verify(layout, part, verify->bytes, 0, layout->shape.layers) != CAIRN_OK)
                return "a layer does not fit its checksum";
        return NULL;
}

// record NULL: there is no catalog to ask.
static const char *check_slot(struct verify *verify, const struct slab_file *slab, uint32_t slot,
                              const struct record *record)
{
        struct cairn_part_identity identity[CAIRN_PARTS_COUNT];
        struct cairn_checksum tables[CAIRN_PARTS_COUNT];
        struct cairn_checksum sum;
        uint32_t parts = slab->layout.part_bytes[1] > 0 ? 2 : 1;
        for (uint32_t part = 0; part < parts; part++) {
                const char *what =
                    check_part(verify, slab, slot, part, &identity[part], &tables[part]);
                if (what)
                        return what;
                if (!cairn_key_equal(&identity[part].key, &identity[0].key) ||
                    identity[part].generation != identity[0].generation)
                        return "its parts are of two blocks";
        }
        if (!record)
                return NULL;
        if (!cairn_key_equal(&identity[0].key, &record->key) ||
            identity[0].generation != record->generation)
                return "it holds another block than the catalog says";
        cairn_block_checksum_of(tables, parts, &sum);
        return cairn_checksum_equal(&sum, &record->checksum)
                   ? NULL
                   : "it does not fit the catalog's checksum";
}

// The header of a slot that no record names: whether a block begins there, or anything was written.
static void look_at_slot(struct verify *verify, const struct slab_file *slab, uint32_t slot,
                         bool *ret_whole, bool *ret_written)
{
        const struct cairn_layout *layout = &slab->layout;
        struct cairn_part_identity identity;
        struct cairn_checksum table;
        uint64_t offset = CAIRN_SLAB_HEADER_BYTES + slot * layout->slot_bytes;
        *ret_whole = false;
        *ret_written = true; // what cannot be read is for the check to say
        if (cairn_device_files_read(slab->fd, offset, verify->bytes, layout->header_bytes) !=
            CAIRN_OK)
                return;
        *ret_written = false;
        for (int i = 0; i < CAIRN_PART_HEADER_BYTES; i++)
                *ret_written = *ret_written || verify->bytes[i] != 0;
        *ret_whole = *ret_written &&
                     cairn_part_read(layout, 0, verify->bytes, &identity, &table) == CAIRN_OK;
}

static void verify_slot(struct verify *verify, const struct slab_file *slab, uint32_t slot)
{
        struct cairn_verify_result *result = verify->result;
        struct record *record = record_at(verify, slab->number, slot);
        if (record) {
                record->seen = true;
        } else {
                bool whole, written;
                look_at_slot(verify, slab, slot, &whole, &written);
                if (result->catalog == CAIRN_VERIFY_CATALOG_SOUND)
                        result->unnamed += whole;
                if (result->catalog == CAIRN_VERIFY_CATALOG_SOUND || !written)
                        return;
        }
        const char *what = check_slot(verify, slab, slot, record);
        result->blocks++;
        if (what) {
                result->corrupt++;
                bad(verify, slab->number, slot, what);
        }
}

// ---- files ----

// The start of the file: CAIRN_ECORRUPT if it tells nothing, CAIRN_EVERSION.
static int read_start(struct verify *verify, struct slab_file *slab, uint64_t size_bytes)
{
        struct cairn_slab_header header;
        int status =
            size_bytes < CAIRN_SLAB_HEADER_BYTES
                ? CAIRN_ECORRUPT
                : cairn_device_files_read(slab->fd, 0, verify->bytes, CAIRN_SLAB_HEADER_BYTES);
        if (status == CAIRN_OK)
                status = cairn_slab_header_read(verify->bytes, &header);
        if (status == CAIRN_EVERSION)
                return status;
        if (status != CAIRN_OK || header.slab != slab->number ||
            cairn_layout_of(&header.shape, &slab->layout) != CAIRN_OK)
                return CAIRN_ECORRUPT;
        uint64_t whole = (size_bytes - CAIRN_SLAB_HEADER_BYTES) / slab->layout.slot_bytes;
        slab->slots = header.slots < whole ? header.slots : (uint32_t)whole;
        slab->space = header.space;
        if (slab->slots < header.slots) {
                verify->result->slabs_bad++;
                bad(verify, slab->number, UINT32_MAX, "the file is shorter than its start says");
        }
        return CAIRN_OK;
}

static int verify_file(struct verify *verify, int directory, const char *name, uint32_t number)
{
        struct slab_file slab = {.number = number};
        struct stat info;
        slab.fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (slab.fd < 0 || fstat(slab.fd, &info) != 0 || !S_ISREG(info.st_mode)) {
                verify->result->slabs_bad++;
                bad(verify, number, UINT32_MAX, "the file cannot be opened");
                if (slab.fd >= 0)
                        close(slab.fd);
                return CAIRN_OK;
        }
        verify->result->slabs++;
        int status = room(verify, CAIRN_SLAB_HEADER_BYTES);
        if (status == CAIRN_OK)
                status = read_start(verify, &slab, (uint64_t)info.st_size);
        if (status == CAIRN_ECORRUPT) {
                verify->result->slabs_bad++;
                bad(verify, number, UINT32_MAX, "the file's start is damaged");
                slab.slots = 0; // its records are lost
                status = CAIRN_OK;
        }
        for (int part = 0; status == CAIRN_OK && slab.slots > 0 && part < CAIRN_PARTS_COUNT; part++)
                status = room(verify, slab.layout.part_bytes[part]);
        for (uint32_t slot = 0; status == CAIRN_OK && slot < slab.slots; slot++)
                verify_slot(verify, &slab, slot);
        close(slab.fd);
        return status;
}

static int verify_directory(struct verify *verify, const char *path, char *ret_text)
{
        char name[4096];
        DIR *entries = NULL;
        if (snprintf(name, sizeof(name), "%s/slabs", path) < (int)sizeof(name))
                entries = opendir(name);
        if (!entries) {
                int error = errno;
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                         "%s/slabs: %s; name a data directory of cairnd, as in data_dir", path,
                         strerror(error));
                return cairn_status_from_errno(error);
        }
        int status = CAIRN_OK;
        for (struct dirent *entry = readdir(entries); status == CAIRN_OK && entry;
             entry = readdir(entries)) {
                uint32_t number;
                if (cairn_device_slab_parse(entry->d_name, &number))
                        status = verify_file(verify, dirfd(entries), entry->d_name, number);
        }
        closedir(entries);
        if (status != CAIRN_OK)
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                         status == CAIRN_EVERSION
                             ? "%s holds slab files of another format; check them with the cairnd "
                               "that wrote them"
                             : "out of memory while checking %s",
                         path);
        return status;
}

// Shared, since nothing is written: others may check too, and a daemon may not start meanwhile. A
// directory without a lock file never had a daemon, or is a copy.
static int lock(const char *path, int *ret_fd, char *ret_text)
{
        char name[4096];
        int fd = -1;
        errno = ENAMETOOLONG;
        if (snprintf(name, sizeof(name), "%s/lock", path) < (int)sizeof(name))
                fd = open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT)
                return CAIRN_OK;
        if (fd < 0) {
                int error = errno;
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "cannot open %s/lock: %s", path,
                         strerror(error));
                return cairn_status_from_errno(error);
        }
        if (flock(fd, LOCK_SH | LOCK_NB) != 0) {
                close(fd);
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                         "a daemon has the data directory %s; ask it (cairnctl verify), or stop it "
                         "first",
                         path);
                return CAIRN_EBUSY;
        }
        *ret_fd = fd;
        return CAIRN_OK;
}

int cairn_verify_directories(const struct cairn_verify_options *options,
                             struct cairn_verify_result *ret_result, char *ret_text)
{
        struct cairn_verify_result result = {0};
        struct verify verify = {.options = options, .result = &result};
        uint32_t count = options->directories_count;
        int status = CAIRN_OK;
        ret_text[0] = 0;
        for (uint32_t i = 0; i < count; i++)
                verify.locks[i] = -1;
        for (uint32_t i = 0; status == CAIRN_OK && i < count; i++)
                status = lock(options->directories[i], &verify.locks[i], ret_text);
        if (status == CAIRN_OK)
                status = read_catalog(&verify, ret_text);
        for (uint32_t i = 0; status == CAIRN_OK && i < count; i++)
                status = verify_directory(&verify, options->directories[i], ret_text);
        for (size_t i = 0; status == CAIRN_OK && i < verify.records_count; i++) {
                const struct record *record = &verify.records[i];
                if (record->seen)
                        continue;
                result.lost++;
                bad(&verify, record->slab, record->slot,
                    "the catalog names it, and it is not there");
        }
        for (uint32_t i = 0; i < count; i++) {
                if (verify.locks[i] >= 0)
                        close(verify.locks[i]);
        }
        free(verify.records);
        free(verify.bytes);
        if (status == CAIRN_OK)
                *ret_result = result;
        return status;
}
