/* Preloaded: an allocation of 2 KiB to a page ends before a page that nobody may touch, so that a
 * byte beyond it ends the program. Its memory stays forbidden when it is given back: a later use ends
 * the program, too. Other allocations are the C library's, and so are those that find no room.
 *
 *   cc -O2 -shared -fPIC -o guard-pages.so guard-pages.c && LD_PRELOAD=$PWD/guard-pages.so PROGRAM
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE ((size_t)4096)
/* A page, and the forbidden one behind it. */
#define SLOT (2 * PAGE)
#define REGION ((size_t)2 << 30)

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static char *region;
static size_t next;

__attribute__((constructor)) static void map(void)
{
	void *mapped = mmap(NULL, REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mapped != MAP_FAILED)
		region = mapped;
}

static int is_guarded(const void *memory)
{
	return region && (const char *)memory >= region && (const char *)memory < region + REGION;
}

/* The lengths of what runtime/heap gives a page, were there room for its region. */
static void *guarded(size_t align, size_t length)
{
	if (length <= PAGE / 2 || length > PAGE || align > PAGE || !region)
		return NULL;
	size_t at = __sync_fetch_and_add(&next, SLOT);
	/* A process may have so many mappings, and no more. */
	if (at + SLOT > REGION || mprotect(region + at, PAGE, PROT_READ | PROT_WRITE))
		return NULL;
	return region + at + ((PAGE - length) & ~(align - 1));
}

void *malloc(size_t length)
{
	void *memory = guarded(16, length);
	return memory ? memory : __libc_malloc(length);
}

void *calloc(size_t count, size_t length)
{
	size_t all;
	/* Pages of the region are zeros: none is given out twice. */
	void *memory = __builtin_mul_overflow(count, length, &all) ? NULL : guarded(16, all);
	return memory ? memory : __libc_calloc(count, length);
}

int posix_memalign(void **memory, size_t align, size_t length)
{
	*memory = guarded(align, length);
	if (!*memory)
		*memory = __libc_memalign(align, length);
	return *memory ? 0 : ENOMEM;
}

void *aligned_alloc(size_t align, size_t length)
{
	void *memory = guarded(align, length);
	return memory ? memory : __libc_memalign(align, length);
}

void free(void *memory)
{
	if (!is_guarded(memory)) {
		__libc_free(memory);
		return;
	}
	char *page = (char *)((uintptr_t)memory & ~(PAGE - 1));
	madvise(page, PAGE, MADV_DONTNEED);
	mprotect(page, PAGE, PROT_NONE);
}

void *realloc(void *memory, size_t length)
{
	if (!is_guarded(memory))
		return __libc_realloc(memory, length);
	/* Up to the end of its page: at least its own length. */
	size_t held = PAGE - ((uintptr_t)memory & (PAGE - 1));
	void *moved = malloc(length);
	if (moved) {
		memcpy(moved, memory, held < length ? held : length);
		free(memory);
	}
	return moved;
}
