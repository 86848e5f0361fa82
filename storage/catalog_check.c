// Whether a catalog's file can be read through: in a process of its own, since LMDB trusts its
// pages.
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/status.h"
#include "storage/catalog_file.h"
#include "storage/catalog_pages.h"
#include "storage/catalog_record.h"

enum {
        CHECK_SECONDS_MAX = 120
};

// Reads every record, in a process of its own: LMDB trusts its pages, so a damaged one may end the
// reader.
static bool walk(MDB_txn *txn, MDB_dbi dbi, bool spaces)
{
        MDB_cursor *cursor;
        if (mdb_cursor_open(txn, dbi, &cursor) != 0)
                return false;
        MDB_val key, value;
        int error;
        volatile uint8_t sum = 0; // so that the bytes are read
        while ((error = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
                for (size_t i = 0; i < value.mv_size; i++)
                        sum ^= ((const uint8_t *)value.mv_data)[i];
                struct cairn_catalog_space space;
                if (spaces &&
                    cairn_record_space_read(value.mv_data, value.mv_size, &space) != CAIRN_OK)
                        return false;
        }
        (void)sum;
        mdb_cursor_close(cursor);
        return error == MDB_NOTFOUND;
}

static bool check_meta(MDB_txn *txn, MDB_dbi dbi)
{
        struct cairn_record_meta meta;
        MDB_val key = {6, (void *)(uintptr_t) "format"};
        MDB_val value;
        return mdb_get(txn, dbi, &key, &value) == 0 &&
               cairn_record_meta_read(value.mv_data, value.mv_size, &meta) != CAIRN_ECORRUPT;
}

// Its pages, before LMDB follows them.
static bool check_pages(const char *path, uint64_t size_bytes)
{
        int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return false;
        void *bytes = mmap(NULL, size_bytes, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        return bytes != MAP_FAILED && cairn_catalog_pages_sound(bytes, size_bytes);
}

static bool check_file(const char *path, uint64_t size_bytes)
{
        MDB_env *env;
        MDB_txn *txn;
        MDB_dbi dbi;
        MDB_envinfo info;
        MDB_stat stat;
        if (!check_pages(path, size_bytes))
                return false;
        if (mdb_env_create(&env) != 0 || mdb_env_set_maxdbs(env, CAIRN_CATALOG_DATABASES) != 0 ||
            mdb_env_open(env, path, MDB_NOSUBDIR | MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS, 0600) !=
                0 ||
            mdb_env_info(env, &info) != 0 || mdb_env_stat(env, &stat) != 0 ||
            mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) != 0)
                return false;
        if ((info.me_last_pgno + 1) * stat.ms_psize > size_bytes || stat.ms_psize != 4096)
                return false;
        // The list of free pages, the list of databases, then each of them.
        if (!walk(txn, 0, false) || !walk(txn, 1, false))
                return false;
        if (mdb_dbi_open(txn, "meta", 0, &dbi) != 0 || !check_meta(txn, dbi))
                return false;
        if (mdb_dbi_open(txn, "spaces", 0, &dbi) != 0 || !walk(txn, dbi, true))
                return false;
        if (mdb_dbi_open(txn, "blocks", 0, &dbi) != 0 || !walk(txn, dbi, false))
                return false;
        // Older catalogs lack these.
        static const char *const newer[] = {"audit_tail", "notes"};
        for (size_t i = 0; i < sizeof(newer) / sizeof(newer[0]); i++) {
                int error = mdb_dbi_open(txn, newer[i], 0, &dbi);
                if (error != MDB_NOTFOUND && (error != 0 || !walk(txn, dbi, false)))
                        return false;
        }
        return true;
}

static void check_child(const char *path, uint64_t size_bytes)
{
        const struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none); // a crash here is an answer, not an accident
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        signal(SIGALRM, SIG_DFL);
        alarm(CHECK_SECONDS_MAX);
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (null >= 0)
                (void)dup2(null, STDERR_FILENO);
        _exit(check_file(path, size_bytes) ? 0 : 1);
}

bool cairn_catalog_check(const char *path, uint64_t size_bytes)
{
        pid_t child = fork();
        if (child < 0)
                return true; // cannot be checked: taken as it is
        if (child == 0)
                check_child(path, size_bytes);
        int status = 0;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
                ;
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
