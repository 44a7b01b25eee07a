/* Records what a process does to the files of one folder, or makes one of those calls fail.
 *
 *     cc -shared -fPIC -O2 -o calls.so calls.c -ldl -lpthread
 *     LD_PRELOAD=./calls.so python ...
 *
 * The library takes the place of libc's functions that change files. Nothing happens until
 * `disk_calls_begin` names a folder. From then on every call that changes a file below the folder
 * is appended to a record, in the order in which the calls were made: one lock is held over the
 * call itself and its entry. An entry is a `struct entry`, two paths and the bytes that were
 * written; `record.py` reads it. A write to the file of marks becomes an entry of its own kind: it
 * tells at which call the process had reported something.
 *
 * One call can be made to fail, by its number among the recorded ones; the call is not made then.
 * On a full disk (`is_lasting`) all later calls that take space fail too, and the first write that
 * fails writes its first half, as a real one does.
 *
 * Not seen: writes to memory mapped for sharing, and stdio beyond fwrite (printf, fputs). The
 * simulator compares its last state with the folder, which would differ.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN = 1, CREATE, TRUNCATE, WRITE, RENAME, UNLINK, MKDIR, RMDIR, LINK, SYNC, MARK };

struct entry {
    uint32_t kind, error;       /* error: what the call was made to fail with; 0 if it was made */
    uint32_t path, other;       /* lengths of the two paths that follow */
    uint64_t inode;
    int64_t at;                 /* position of a write, size of a truncation */
    uint64_t size;              /* of the data that follows */
} __attribute__((packed));

enum { MOST_FILES = 4096, NOT_SEEN = 0, SEEN, MARKS };

static char folder[PATH_MAX], marks[PATH_MAX];
static unsigned char seen[MOST_FILES]; /* by descriptor */
static int record = -1;
static long fails_at, n_calls;
static int fails_with, is_lasting, has_filled;
static pthread_mutex_t turn = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* libc's own function, looked up when it is first needed: other libraries' constructors run early. */
#define REAL(result, name, ...)                                                                    \
    static result (*real_##name(void))(__VA_ARGS__) {                                              \
        static result (*real)(__VA_ARGS__);                                                        \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name);                                      \
        return real;                                                                               \
    }

REAL(int, openat, int, const char *, int, ...)
REAL(int, close, int)
REAL(int, fclose, FILE *)
REAL(FILE *, fopen, const char *, const char *)
REAL(size_t, fwrite, const void *, size_t, size_t, FILE *)
REAL(ssize_t, write, int, const void *, size_t)
REAL(ssize_t, pwrite, int, const void *, size_t, off_t)
REAL(ssize_t, writev, int, const struct iovec *, int)
REAL(ssize_t, pwritev, int, const struct iovec *, int, off_t)
REAL(int, ftruncate, int, off_t)
REAL(int, truncate, const char *, off_t)
REAL(int, posix_fallocate, int, off_t, off_t)
REAL(int, fallocate, int, int, off_t, off_t)
REAL(int, renameat, int, const char *, int, const char *)
REAL(int, unlinkat, int, const char *, int)
REAL(int, mkdirat, int, const char *, mode_t)
REAL(int, linkat, int, const char *, int, const char *, int)
REAL(int, fsync, int)
REAL(int, fdatasync, int)

/* Whatever is open is forgotten: the process begins to be watched here. `at` 0: nothing fails. */
void disk_calls_begin(const char *watched, const char *marks_file, int record_file, long at,
                      int with, int lasting) {
    pthread_mutex_lock(&turn);
    snprintf(folder, sizeof folder, "%s", watched);
    snprintf(marks, sizeof marks, "%s", marks_file);
    memset(seen, NOT_SEEN, sizeof seen);
    fails_at = at, fails_with = with, is_lasting = lasting;
    n_calls = has_filled = 0;
    record = record_file;
    pthread_mutex_unlock(&turn);
}

/* The absolute path, where it is one that is watched. */
static int is_watched(int at, const char *path, char *whole) {
    if (record < 0 || path == NULL) return NOT_SEEN;
    if (path[0] == '/') {
        if (snprintf(whole, PATH_MAX, "%s", path) >= PATH_MAX) return NOT_SEEN;
    } else {
        char before[PATH_MAX / 2], link[64];
        ssize_t length;
        if (at == AT_FDCWD) {
            snprintf(link, sizeof link, "/proc/self/cwd");
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        }
        length = readlink(link, before, sizeof before - 1);
        if (length < 0) return NOT_SEEN;
        before[length] = 0;
        if (snprintf(whole, PATH_MAX, "%s/%s", before, path) >= PATH_MAX) return NOT_SEEN;
    }
    if (strcmp(whole, marks) == 0) return MARKS;
    size_t length = strlen(folder);
    if (strncmp(whole, folder, length) != 0) return NOT_SEEN;
    return whole[length] == '/' || whole[length] == 0 ? SEEN : NOT_SEEN;
}

static int is_seen(int file) {
    return record >= 0 && file >= 0 && file < MOST_FILES ? seen[file] : NOT_SEEN;
}

static void tell(struct entry entry, const char *path, const char *other, const void *data) {
    struct iovec parts[4];
    entry.path = path ? strlen(path) : 0;
    entry.other = other ? strlen(other) : 0;
    parts[0] = (struct iovec){&entry, sizeof entry};
    parts[1] = (struct iovec){(void *)path, entry.path};
    parts[2] = (struct iovec){(void *)other, entry.other};
    parts[3] = (struct iovec){(void *)data, entry.size};
    for (int part = 0; part < 4; part++) {
        const char *from = parts[part].iov_base;
        for (size_t left = parts[part].iov_len; left;) {
            ssize_t done = real_write()(record, from, left);
            if (done < 0) return;
            from += done, left -= done;
        }
    }
}

/* Whether this call is to fail; its entry is written then, and errno set. */
static int fails(enum kind kind, const char *path) {
    int takes_space = kind == WRITE || kind == CREATE || kind == MKDIR || kind == TRUNCATE;
    n_calls++;
    if (!fails_at || n_calls < fails_at) return 0;
    if (n_calls > fails_at && !(is_lasting && takes_space)) return 0;
    tell((struct entry){.kind = kind, .error = fails_with}, path, NULL, NULL);
    errno = fails_with;
    return 1;
}

static uint64_t inode_of(int file) {
    struct stat status;
    return fstat(file, &status) == 0 ? status.st_ino : 0;
}

static const char *path_of(int file, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return path;
}

/* opening */

static void remember(int file, int how) {
    if (file >= 0 && file < MOST_FILES) seen[file] = how;
}

static int opened(int at, const char *path, int flags, mode_t mode) {
    char whole[PATH_MAX];
    struct stat status;
    int how = is_watched(at, path, whole), file;
    int writes = (flags & O_ACCMODE) != O_RDONLY;
    if (how == NOT_SEEN || (!writes && !(flags & O_CREAT))) {
        file = real_openat()(at, path, flags, mode);
        /* a folder that is opened to be synced, too */
        remember(file, how == SEEN ? SEEN : NOT_SEEN);
        return file;
    }
    pthread_mutex_lock(&turn);
    int is_new = (flags & O_CREAT) && fstatat(at, path, &status, 0) != 0;
    enum kind kind = is_new ? CREATE : OPEN;
    if (how == SEEN && fails(kind, whole)) {
        pthread_mutex_unlock(&turn);
        return -1;
    }
    file = real_openat()(at, path, flags, mode);
    int reason = errno;
    remember(file, how);
    if (file >= 0 && how == SEEN) {
        uint64_t inode = inode_of(file);
        tell((struct entry){.kind = kind, .inode = inode}, whole, NULL, NULL);
        if (!is_new && (flags & O_TRUNC))
            tell((struct entry){.kind = TRUNCATE, .inode = inode}, whole, NULL, NULL);
    }
    pthread_mutex_unlock(&turn);
    errno = reason;
    return file;
}

#define MODE(flags)                                                                                \
    mode_t mode = 0;                                                                               \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                       \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode = va_arg(rest, mode_t);                                                               \
        va_end(rest);                                                                              \
    }

int open(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags) return opened(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags) return opened(at, path, flags, mode); }
int __open_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int creat(const char *path, mode_t mode) {
    return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

int close(int file) {
    if (file >= 0 && file < MOST_FILES) seen[file] = NOT_SEEN;
    return real_close()(file);
}

/* stdio's own buffer would hide the writes: they are made at once instead */

FILE *fopen(const char *path, const char *mode) {
    char whole[PATH_MAX];
    if (is_watched(AT_FDCWD, path, whole) == NOT_SEEN || strpbrk(mode, "wa+") == NULL)
        return real_fopen()(path, mode);
    int flags = strchr(mode, '+') ? O_RDWR : O_WRONLY;
    if (mode[0] == 'r') flags = O_RDWR;
    if (mode[0] == 'w') flags |= O_CREAT | O_TRUNC;
    if (mode[0] == 'a') flags |= O_CREAT | O_APPEND;
    int file = opened(AT_FDCWD, path, flags, 0666);
    return file < 0 ? NULL : fdopen(file, mode);
}
FILE *fopen64(const char *path, const char *mode) { return fopen(path, mode); }

int fclose(FILE *stream) {
    int file = fileno(stream);
    if (file >= 0 && file < MOST_FILES) seen[file] = NOT_SEEN;
    return real_fclose()(stream);
}

size_t fwrite(const void *data, size_t size, size_t n, FILE *stream) {
    int file = fileno(stream);
    if (is_seen(file) == NOT_SEEN || !size || !n) return real_fwrite()(data, size, n, stream);
    for (size_t done = 0; done < size * n;) {
        ssize_t more = write(file, (const char *)data + done, size * n - done);
        if (more < 0) return done / size;
        done += more;
    }
    return n;
}

/* writing */

static ssize_t written(int file, const void *data, size_t size, off_t at, int has_position) {
    struct stat status;
    char path[PATH_MAX];
    pthread_mutex_lock(&turn);
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        pthread_mutex_unlock(&turn);
        return has_position ? real_pwrite()(file, data, size, at) : real_write()(file, data, size);
    }
    if (!has_position)
        at = fcntl(file, F_GETFL) & O_APPEND ? status.st_size : lseek(file, 0, SEEK_CUR);
    if (seen[file] == SEEN && fails(WRITE, path_of(file, path))) {
        if (!is_lasting || has_filled || size < 2) {
            pthread_mutex_unlock(&turn);
            return -1;
        }
        has_filled = 1;
        size /= 2;
    }
    ssize_t done = has_position ? real_pwrite()(file, data, size, at) : real_write()(file, data, size);
    int reason = errno;
    if (done > 0) {
        enum kind kind = seen[file] == MARKS ? MARK : WRITE;
        tell((struct entry){.kind = kind, .inode = status.st_ino, .at = at, .size = done}, NULL,
             NULL, data);
    }
    pthread_mutex_unlock(&turn);
    errno = reason;
    return done;
}

ssize_t write(int file, const void *data, size_t size) {
    return is_seen(file) ? written(file, data, size, 0, 0) : real_write()(file, data, size);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    return is_seen(file) ? written(file, data, size, at, 1) : real_pwrite()(file, data, size, at);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    return pwrite(file, data, size, at);
}

static ssize_t written_parts(int file, const struct iovec *parts, int n, off_t at, int has_position) {
    ssize_t all = 0;
    for (int part = 0; part < n; part++) {
        ssize_t done = has_position ? pwrite(file, parts[part].iov_base, parts[part].iov_len, at + all)
                                    : write(file, parts[part].iov_base, parts[part].iov_len);
        if (done < 0) return all ? all : -1;
        all += done;
        if ((size_t)done < parts[part].iov_len) break;
    }
    return all;
}

ssize_t writev(int file, const struct iovec *parts, int n) {
    return is_seen(file) ? written_parts(file, parts, n, 0, 0) : real_writev()(file, parts, n);
}

ssize_t pwritev(int file, const struct iovec *parts, int n, off_t at) {
    return is_seen(file) ? written_parts(file, parts, n, at, 1) : real_pwritev()(file, parts, n, at);
}
ssize_t pwritev64(int file, const struct iovec *parts, int n, off64_t at) {
    return pwritev(file, parts, n, at);
}

int ftruncate(int file, off_t size) {
    char path[PATH_MAX];
    if (!is_seen(file)) return real_ftruncate()(file, size);
    pthread_mutex_lock(&turn);
    int result = fails(TRUNCATE, path_of(file, path)) ? -1 : real_ftruncate()(file, size);
    int reason = errno;
    if (result == 0)
        tell((struct entry){.kind = TRUNCATE, .inode = inode_of(file), .at = size}, NULL, NULL, NULL);
    pthread_mutex_unlock(&turn);
    errno = reason;
    return result;
}
int ftruncate64(int file, off64_t size) { return ftruncate(file, size); }

int truncate(const char *path, off_t size) {
    char whole[PATH_MAX];
    if (!is_watched(AT_FDCWD, path, whole)) return real_truncate()(path, size);
    int file = opened(AT_FDCWD, path, O_WRONLY, 0);
    if (file < 0) return -1;
    int result = ftruncate(file, size), reason = errno;
    close(file);
    errno = reason;
    return result;
}
int truncate64(const char *path, off64_t size) { return truncate(path, size); }

/* Space is taken by a longer file of zeros, as a file system without fallocate does it. */
int fallocate(int file, int mode, off_t at, off_t size) {
    struct stat status;
    if (!is_seen(file)) return real_fallocate()(file, mode, at, size);
    if (mode != 0) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (fstat(file, &status) != 0) return -1;
    return status.st_size >= at + size ? 0 : ftruncate(file, at + size);
}
int fallocate64(int file, int mode, off64_t at, off64_t size) {
    return fallocate(file, mode, at, size);
}
int posix_fallocate(int file, off_t at, off_t size) {
    if (!is_seen(file)) return real_posix_fallocate()(file, at, size);
    return fallocate(file, 0, at, size) == 0 ? 0 : errno;
}
int posix_fallocate64(int file, off64_t at, off64_t size) {
    return posix_fallocate(file, at, size);
}

/* names */

int renameat(int from_at, const char *from, int to_at, const char *to) {
    char old[PATH_MAX], new[PATH_MAX];
    int is_old = is_watched(from_at, from, old), is_new = is_watched(to_at, to, new);
    if (!is_old && !is_new) return real_renameat()(from_at, from, to_at, to);
    pthread_mutex_lock(&turn);
    int result = fails(RENAME, new) ? -1 : real_renameat()(from_at, from, to_at, to);
    int reason = errno;
    if (result == 0) tell((struct entry){.kind = RENAME}, old, new, NULL);
    pthread_mutex_unlock(&turn);
    errno = reason;
    return result;
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }
int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    if (flags) {
        errno = EINVAL;
        return -1;
    }
    return renameat(from_at, from, to_at, to);
}

int unlinkat(int at, const char *path, int flags) {
    char whole[PATH_MAX];
    if (!is_watched(at, path, whole)) return real_unlinkat()(at, path, flags);
    enum kind kind = flags & AT_REMOVEDIR ? RMDIR : UNLINK;
    struct stat status;
    if (fstatat(at, path, &status, AT_SYMLINK_NOFOLLOW) != 0) return -1;
    pthread_mutex_lock(&turn);
    int result = fails(kind, whole) ? -1 : real_unlinkat()(at, path, flags);
    int reason = errno;
    if (result == 0) tell((struct entry){.kind = kind}, whole, NULL, NULL);
    pthread_mutex_unlock(&turn);
    errno = reason;
    return result;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    struct stat status;
    if (lstat(path, &status) != 0) return -1;
    return S_ISDIR(status.st_mode) ? rmdir(path) : unlink(path);
}

int mkdirat(int at, const char *path, mode_t mode) {
    char whole[PATH_MAX];
    struct stat status;
    if (!is_watched(at, path, whole) || fstatat(at, path, &status, 0) == 0)
        return real_mkdirat()(at, path, mode);
    pthread_mutex_lock(&turn);
    int result = fails(MKDIR, whole) ? -1 : real_mkdirat()(at, path, mode);
    int reason = errno;
    if (result == 0) tell((struct entry){.kind = MKDIR}, whole, NULL, NULL);
    pthread_mutex_unlock(&turn);
    errno = reason;
    return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    char old[PATH_MAX], new[PATH_MAX];
    if (!is_watched(to_at, to, new)) return real_linkat()(from_at, from, to_at, to, flags);
    is_watched(from_at, from, old);
    pthread_mutex_lock(&turn);
    int result = fails(LINK, new) ? -1 : real_linkat()(from_at, from, to_at, to, flags);
    int reason = errno;
    if (result == 0) tell((struct entry){.kind = LINK}, old, new, NULL);
    pthread_mutex_unlock(&turn);
    errno = reason;
    return result;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

/* syncing */

static int synced(int file, int (*real)(int)) {
    char path[PATH_MAX];
    if (!is_seen(file)) return real(file);
    pthread_mutex_lock(&turn);
    path_of(file, path);
    int result = fails(SYNC, path) ? -1 : real(file);
    int reason = errno;
    if (result == 0)
        tell((struct entry){.kind = SYNC, .inode = inode_of(file)}, path, NULL, NULL);
    pthread_mutex_unlock(&turn);
    errno = reason;
    return result;
}
int fsync(int file) { return synced(file, real_fsync()); }
int fdatasync(int file) { return synced(file, real_fdatasync()); }
