// Opening and closing a store: directories, locks, device, catalog, recovery; and all of it undone.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "storage/note.h"
#include "storage/store_internal.h"

enum {
        BLOCK_BYTES_GUESS = 256 * 1024, // for the first size of the index
        INDEX_GUESS_MAX = 1 << 22,
        CATALOG_MAP_BYTES = 16 << 20,
};

static int fill_options(struct cairn_store *store, const struct cairn_store_options *options,
                        char *ret_text)
{
        if (options->directories_count == 0 ||
            options->directories_count > CAIRN_STORE_DIRECTORIES_MAX || !options->executor ||
            !options->now_ms || options->ram_bytes == 0 || !options->eviction) {
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                         "the store needs 1 to %d directories, ram_bytes above 0 and an eviction "
                         "policy",
                         CAIRN_STORE_DIRECTORIES_MAX);
                return CAIRN_EINVAL;
        }
        store->options = *options;
        for (uint32_t i = 0; i < options->directories_count; i++) {
                store->directories[i] = strdup(options->directories[i]);
                if (!store->directories[i]) {
                        snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                                 "out of memory while opening the store");
                        return CAIRN_ENOMEM;
                }
                store->options.directories[i] = store->directories[i];
        }
        if (store->options.queue_depth == 0)
                store->options.queue_depth = 64;
        if (store->options.commit_delay_us == 0)
                store->options.commit_delay_us = 500;
        if (store->options.commit_batch_max == 0)
                store->options.commit_batch_max = 1024;
        return CAIRN_OK;
}

// One daemon a directory: a lock that dies with its holder.
static int lock_directory(const char *path, int *ret_fd, char *ret_text)
{
        char name[4096];
        int fd = -1;
        if (mkdir(path, 0700) == 0 || errno == EEXIST) {
                if (snprintf(name, sizeof(name), "%s/lock", path) < (int)sizeof(name))
                        fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        }
        if (fd < 0) {
                int error = errno;
                snprintf(
                    ret_text, CAIRN_TEXT_BYTES_MAX,
                    "cannot open the data directory %s: %s; create it, owned by the daemon's user",
                    path, strerror(error));
                return cairn_status_from_errno(error);
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
                snprintf(
                    ret_text, CAIRN_TEXT_BYTES_MAX,
                    "another daemon has the data directory %s; stop it, or give this one its own",
                    path);
                close(fd);
                return CAIRN_EBUSY;
        }
        *ret_fd = fd;
        return CAIRN_OK;
}

static int open_descriptors(struct cairn_store *store)
{
        store->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        store->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        store->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
        int fds[4] = {store->wake_fd, store->timer_fd, store->device->ops->fd(store->device),
                      cairn_catalog_fd(store->catalog)};
        struct epoll_event event = {.events = EPOLLIN};
        for (int i = 0; i < 4; i++) {
                // A simulated device has none: it is polled.
                if (i == 2 && fds[i] < 0)
                        continue;
                if (fds[i] < 0 || epoll_ctl(store->epoll_fd, EPOLL_CTL_ADD, fds[i], &event) != 0)
                        return cairn_status_from_errno(errno);
        }
        return CAIRN_OK;
}

static int open_device(struct cairn_store *store, const struct cairn_store_internal *internal,
                       char *ret_text)
{
        if (internal->device) {
                store->device = internal->device;
                return CAIRN_OK;
        }
        struct cairn_device_options options = {
            .directories = store->options.directories,
            .directories_count = store->options.directories_count,
            .queue_depth = store->options.queue_depth,
            .force_buffered = store->options.force_buffered,
            .on_warning = store->options.on_warning,
            .on_warning_arg = store->options.on_warning_arg,
        };
        store->device_owned = true;
        return cairn_device_create(&options, store->options.force_sync_device, &store->device,
                                   ret_text);
}

static int open_catalog(struct cairn_store *store, const struct cairn_store_internal *internal,
                        char *ret_text)
{
        char path[4096];
        if (snprintf(path, sizeof(path), "%s/catalog.mdb", store->directories[0]) >=
            (int)sizeof(path)) {
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "the data directory's name is too long");
                return CAIRN_EINVAL;
        }
        char audit[sizeof(path)];
        snprintf(audit, sizeof(audit), "%s/audit", store->directories[0]); // shorter than the above
        struct cairn_catalog_options options = {
            .path = path,
            .map_bytes = CATALOG_MAP_BYTES,
            .commit_delay_us = store->options.commit_delay_us,
            .commit_batch_max = store->options.commit_batch_max,
            .audit_directory = store->options.audit_bytes > 0 ? audit : NULL,
            .audit_bytes = store->options.audit_bytes,
            .no_thread = internal->catalog_inline,
            .no_sync = internal->catalog_no_sync,
            .on_fault = internal->on_catalog_fault,
            .on_fault_arg = internal->on_catalog_fault_arg,
            .on_warning = store->options.on_warning,
            .on_warning_arg = store->options.on_warning_arg,
        };
        return cairn_catalog_open(&options, &store->catalog, ret_text);
}

static int open_memory(struct cairn_store *store, const struct cairn_store_internal *internal,
                       char *ret_text)
{
        uint64_t expected =
            (store->options.nvme_bytes + store->options.ram_bytes) / BLOCK_BYTES_GUESS;
        if (expected > INDEX_GUESS_MAX)
                expected = INDEX_GUESS_MAX;
        uint64_t seed = internal->seed;
        if (seed == 0 && getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
                seed = (uint64_t)getpid();
        int status = cairn_table_init(&store->table, expected, seed);
        const struct cairn_admission_ops *admission = store->options.admission;
        if (admission) {
                store->admission =
                    aligned_alloc(16, (admission->state_bytes(expected) + 31) / 16 * 16);
                if (store->admission)
                        admission->init(store->admission, expected);
                else
                        status = CAIRN_ENOMEM;
        }
        if (status == CAIRN_OK)
                status =
                    cairn_ram_create(store->options.ram_bytes, store->options.views, &store->ram);
        store->spaces = calloc(CAIRN_SPACES_MAX, sizeof(*store->spaces));
        store->tenants = calloc(CAIRN_TENANTS_MAX, sizeof(struct cairn_tenant *));
        if (!store->spaces || !store->tenants)
                status = CAIRN_ENOMEM;
        for (int i = 0; status == CAIRN_OK && i < CAIRN_OPS_RESERVE; i++) {
                struct cairn_op *op = calloc(1, sizeof(*op));
                if (!op)
                        status = CAIRN_ENOMEM;
                else
                        op->next = store->free_ops;
                store->free_ops = op ? op : store->free_ops;
                store->free_ops_count += op != NULL;
        }
        if (status != CAIRN_OK)
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "out of memory while opening the store");
        return status;
}

static struct cairn_store *create(void)
{
        struct cairn_store *store = calloc(1, sizeof(*store));
        if (!store)
                return NULL;
        store->epoll_fd = store->wake_fd = store->timer_fd = -1;
        for (int i = 0; i < CAIRN_STORE_DIRECTORIES_MAX; i++)
                store->locks[i] = -1;
        store->written_last = &store->written_first;
        store->wait_last = &store->wait_first;
        store->ready_acquires_last = &store->ready_acquires;
        store->ready_ranges_last = &store->ready_ranges;
        store->ready_begins_last = &store->ready_begins;
        store->ready_ops_last = &store->ready_ops;
        return store;
}

int cairn_store_open_with(const struct cairn_store_options *options,
                          const struct cairn_store_internal *internal,
                          struct cairn_store **ret_store, char *ret_text)
{
        struct cairn_store *store = create();
        if (!store) {
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "out of memory while opening the store");
                return CAIRN_ENOMEM;
        }
        int status = fill_options(store, options, ret_text);
        for (uint32_t i = 0; status == CAIRN_OK && i < options->directories_count; i++)
                status = lock_directory(store->directories[i], &store->locks[i], ret_text);
        if (status == CAIRN_OK)
                status = open_memory(store, internal, ret_text);
        if (status == CAIRN_OK)
                status = open_device(store, internal, ret_text);
        if (status == CAIRN_OK)
                status = open_catalog(store, internal, ret_text);
        if (status == CAIRN_OK) {
                store->generation = cairn_catalog_generation(store->catalog);
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                         "cannot make descriptors; raise the limit of open files");
                status = open_descriptors(store);
        }
        if (status == CAIRN_OK)
                status = cairn_recover(store, ret_text);
        if (status == CAIRN_OK) {
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                         "cannot start the index thread; raise the limit of threads");
                status = cairn_catalog_start(store->catalog);
        }
        if (status != CAIRN_OK) {
                cairn_store_abandon(store);
                return status;
        }
        ret_text[0] = 0;
        cairn_audit_started(store);
        cairn_purge_resume(store);
        cairn_store_wake(store);
        *ret_store = store;
        return CAIRN_OK;
}

int cairn_store_open(const struct cairn_store_options *options, struct cairn_store **ret_store,
                     char *ret_text)
{
        const struct cairn_store_internal internal = {0};
        return cairn_store_open_with(options, &internal, ret_store, ret_text);
}

// ---- closing ----

static void free_blocks(struct cairn_store *store)
{
        uint32_t entries = cairn_table_entries(&store->table);
        for (uint32_t id = 0; id < entries; id++) {
                struct cairn_block *block = cairn_table_at(&store->table, id);
                if (!cairn_block_is(block, CAIRN_BLOCK_LIVE) || !block->resident)
                        continue;
                for (uint32_t i = 0; i < CAIRN_PART_COUNT; i++) {
                        if (block->resident->parts[i].slot.bytes)
                                cairn_ram_free(store->ram, &block->resident->parts[i].slot);
                }
                free(block->resident);
        }
}

static void free_links(struct cairn_link *list, size_t offset)
{
        while (list) {
                struct cairn_link *next = list->next;
                free((char *)list - offset);
                list = next;
        }
}

static void free_ranges(struct cairn_store *store)
{
        while (store->ranges) {
                struct cairn_range_load *load =
                    CAIRN_CONTAINER(store->ranges, struct cairn_range_load, link);
                cairn_link_remove(&load->link);
                if (load->slot.bytes)
                        cairn_ram_free(store->ram, &load->slot);
                free(load);
        }
}

static void free_work(struct cairn_store *store)
{
        cairn_notes_finish(store);
        cairn_purges_finish(store);
        cairn_legal_finish(store);
        free_links(store->all_puts, offsetof(struct cairn_put, link));
        free_links(store->all_ops, offsetof(struct cairn_op, link));
        free_links(store->loads, offsetof(struct cairn_load, link));
        free_ranges(store);
        while (store->free_ops) {
                struct cairn_op *op = store->free_ops;
                store->free_ops = op->next;
                free(op);
        }
        while (store->wait_first) {
                struct cairn_wait *wait = store->wait_first;
                store->wait_first = wait->next;
                free(wait);
        }
}

static void close_descriptor(int fd)
{
        if (fd >= 0)
                close(fd);
}

void cairn_store_abandon(struct cairn_store *store)
{
        cairn_catalog_destroy(store->catalog);
        free_blocks(store);
        for (uint32_t i = 0; i < store->slabs_count; i++) {
                if (!store->slabs[i])
                        continue;
                if (store->slabs[i]->state == CAIRN_SLAB_OPEN)
                        store->device->ops->close(store->device, store->slabs[i]->file);
                cairn_slab_drop(store, i);
        }
        free(store->slabs);
        free_work(store);
        if (store->spaces)
                cairn_spaces_finish(store);
        free(store->spaces);
        if (store->tenants)
                cairn_tenants_finish(store);
        cairn_heap_finish(&store->expiries);
        cairn_evict_nodes_finish(store);
        free(store->admission);
        cairn_ram_destroy(store->ram);
        cairn_table_finish(&store->table);
        cairn_gone_destroy(store->gone);
        if (store->device && store->device_owned)
                store->device->ops->destroy(store->device);
        close_descriptor(store->epoll_fd);
        close_descriptor(store->wake_fd);
        close_descriptor(store->timer_fd);
        for (int i = 0; i < CAIRN_STORE_DIRECTORIES_MAX; i++) {
                close_descriptor(store->locks[i]);
                free(store->directories[i]);
        }
        free(store);
}

// What is queued and not begun will not be.
static void cancel_writes(struct cairn_store *store)
{
        for (uint32_t i = 0; i < store->spaces_count; i++) {
                struct cairn_space_state *space = store->spaces[i];
                struct cairn_put *put = space->write_first;
                space->write_first = NULL;
                space->write_last = &space->write_first;
                store->writes_queued -= space->write_count;
                space->write_count = 0;
                while (put) {
                        struct cairn_put *next = put->next;
                        cairn_block_set_flag(store, put->block, CAIRN_BLOCK_DIRTY, false);
                        if (put->ack == CAIRN_ACK_DISK)
                                cairn_put_discard(store, put, CAIRN_ECANCELLED);
                        else
                                cairn_put_end(store, put, CAIRN_ECANCELLED);
                        put = next;
                }
        }
}

void cairn_store_close(struct cairn_store *store)
{
        if (!store)
                return;
        assert(store->stats.holds == 0 && store->stats.pins == 0);
        store->closing = true;
        cairn_wait_cancel(store);
        do {
                cancel_writes(store);
                cairn_store_poll(store);
                if (store->io_pending == 0 && store->ops_pending == 0 && cairn_writer_idle(store) &&
                    !store->ready_ops && !store->ready_begins && !cairn_purge_busy(store))
                        break;
                struct epoll_event event;
                (void)epoll_wait(store->epoll_fd, &event, 1, 10); // a time-out only polls again
        } while (true);
        cairn_purge_cancel(store);
        cairn_audit_stopping(store);
        cairn_catalog_finish_audit(store->catalog);
        cairn_store_abandon(store);
}
