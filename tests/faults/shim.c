/* A file system that fails: preloaded, it counts the operations on files inside of one folder, and
   at one of them gives an error, gives errors from then on, or kills the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { ONCE, FROM_NOW_ON, KILL };
static char folder[PATH_MAX];
static size_t length;
static int mode, note = -1;
static long count, moment = -1;

/* Begin to count; operation number `at` (from 1; 0: none) fails. Each operation is noted in `log`. */
void fault_arm(const char *root, long at, int how, int log) {
    strncpy(folder, root, sizeof folder - 1);
    length = strlen(folder), mode = how, moment = at, note = log, count = 0;
}

long fault_disarm(void) {
    length = 0;
    return count;
}

static int here(const char *path) {
    char full[PATH_MAX];
    if (!length || !path) return 0;
    if (path[0] != '/') {
        size_t used;
        if (!getcwd(full, sizeof full)) return 0;
        used = strlen(full);
        snprintf(full + used, sizeof full - used, "/%s", path);
        path = full;
    }
    return !strncmp(path, folder, length);
}

static const char *name_of(int fd) {
    static char name[PATH_MAX];
    char link[64];
    if (!length) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, name, sizeof name - 1);
    if (size < 0) return NULL;
    name[size] = 0;
    return name;
}

/* What happens to this operation: 0 nothing, 1 an error, 2 a kill. */
static int fate(const char *what, const char *path, const char *other) {
    if (!here(path)) return 0;
    count++;
    if (note >= 0) {
        char line[3 * PATH_MAX];
        int size = snprintf(line, sizeof line, "%s\t%s\t%s\n", what, path, other ? other : "");
        ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
        real(note, line, size);
    }
    if (moment <= 0 || count < moment || (count > moment && mode != FROM_NOW_ON)) return 0;
    return mode == KILL ? 2 : 1;
}

static void die(void) { kill(getpid(), SIGKILL); pause(); }

#define FAIL(what, path, other, code)              \
    switch (fate(what, path, other)) {             \
    case 1: errno = code; return -1;               \
    case 2: die();                                 \
    }
#define REAL(type, name, ...) type (*real)(__VA_ARGS__) = dlsym(RTLD_NEXT, name)

/* A write that fails, or during which the process dies, has written half. */
#define WRITE(name, arguments, ...)                                            \
    {                                                                          \
        REAL(ssize_t, name, __VA_ARGS__);                                      \
        int how = fate("write", name_of(fd), NULL);                            \
        if (how) {                                                             \
            size = size / 2;                                                   \
            if (size) real arguments;                                          \
            if (how == 2) die();                                               \
            errno = ENOSPC;                                                    \
            return -1;                                                         \
        }                                                                      \
        return real arguments;                                                 \
    }

ssize_t write(int fd, const void *data, size_t size)
    WRITE("write", (fd, data, size), int, const void *, size_t)
ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
    WRITE("pwrite", (fd, data, size, at), int, const void *, size_t, off_t)
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
    WRITE("pwrite64", (fd, data, size, at), int, const void *, size_t, off64_t)

int fsync(int fd) {
    REAL(int, "fsync", int);
    FAIL("sync", name_of(fd), NULL, EIO)
    return real(fd);
}
int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    FAIL("sync", name_of(fd), NULL, EIO)
    return real(fd);
}
int ftruncate(int fd, off_t size) {
    REAL(int, "ftruncate", int, off_t);
    FAIL("truncate", name_of(fd), NULL, EIO)
    return real(fd, size);
}
int ftruncate64(int fd, off64_t size) {
    REAL(int, "ftruncate64", int, off64_t);
    FAIL("truncate", name_of(fd), NULL, EIO)
    return real(fd, size);
}
int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    FAIL("rename", from, to, EIO)
    return real(from, to);
}
int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    FAIL("unlink", path, NULL, EIO)
    return real(path);
}
int mkdir(const char *path, mode_t rights) {
    REAL(int, "mkdir", const char *, mode_t);
    FAIL("mkdir", path, NULL, ENOSPC)
    return real(path, rights);
}

#define OPEN(name)                                                             \
    int name(const char *path, int flags, ...) {                               \
        REAL(int, #name, const char *, int, ...);                              \
        va_list more;                                                          \
        va_start(more, flags);                                                 \
        mode_t rights = flags & O_CREAT ? va_arg(more, mode_t) : 0;            \
        va_end(more);                                                          \
        if (flags & O_CREAT && access(path, F_OK)) FAIL("create", path, NULL, ENOSPC) \
        return real(path, flags, rights);                                      \
    }
OPEN(open)
OPEN(open64)
