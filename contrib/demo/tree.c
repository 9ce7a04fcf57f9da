/*
 * A live program for the quickstart: a search tree with plain pointers, built inside a segment.
 *
 *	tree grow FILE		inserts random keys as fast as it can, until the segment is taken
 *				away under its hands; then prints how many it has inserted
 *	tree follow FILE	waits until FILE is here, walks the tree by the pointers that the
 *				other process stored, checks its order, inserts 1000 more keys
 *
 * There is not a line of rampfs in it: open(2), mmap(2), pointers. It is run by rampfs-run.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILE_BYTES (UINT64_C(256) << 20)

struct node {
	uint64_t key;
	struct node *left, *right;
};

struct tree {
	struct node *root;
	struct node *next; /* where the next node goes */
	volatile uint64_t count;
};

static sigjmp_buf taken_away;

static void on_bus(int signal_number)
{
	(void)signal_number;
	siglongjmp(taken_away, 1);
}

static uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

/* The node is complete before the tree points to it: the tree is whole whenever the memory goes. */
static void insert(struct tree *tree, uint64_t key)
{
	struct node **at = &tree->root, *node = tree->next;

	while (*at)
		at = key < (*at)->key ? &(*at)->left : &(*at)->right;
	*node = (struct node){.key = key};
	tree->next = node + 1;
	__atomic_store_n(at, node, __ATOMIC_RELEASE);
	tree->count++;
}

static struct tree *map(const char *path, int flags)
{
	int fd = open(path, flags, 0600);
	struct tree *tree;

	if (fd < 0)
		return NULL;
	if ((flags & O_CREAT) && ftruncate(fd, (off_t)FILE_BYTES) < 0) {
		perror(path);
		exit(1);
	}
	tree = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (tree == MAP_FAILED) {
		perror(path);
		exit(1);
	}
	return tree;
}

static int grow(const char *path)
{
	struct tree *tree = map(path, O_RDWR | O_CREAT | O_TRUNC);
	volatile uint64_t inserted = 0;
	uint64_t seed = 88172645463325252u,
		 most = (FILE_BYTES - sizeof(*tree)) / sizeof(struct node);

	if (!tree) {
		perror(path);
		return 1;
	}
	tree->next = (struct node *)(tree + 1);
	printf("growing a tree at %p\n", (void *)tree);
	fflush(stdout);
	signal(SIGBUS, on_bus);
	if (!sigsetjmp(taken_away, 1))
		while (inserted < most) {
			insert(tree, next_random(&seed));
			inserted++;
		}
	else
		printf("taken away after %llu inserts\n", (unsigned long long)inserted);
	return inserted < most ? 0 : 1;
}

/* Walks in order, without recursion: the stack has the nodes that are still to be visited. */
static uint64_t walk(const struct tree *tree)
{
	const struct node **stack = calloc(4096, sizeof(*stack)), *at = tree->root;
	uint64_t n = 0, last = 0;
	size_t depth = 0;

	while (stack && (at || depth)) {
		while (at) {
			if (depth == 4096)
				exit(3);
			stack[depth++] = at;
			at = at->left;
		}
		at = stack[--depth];
		if (at->key < last)
			exit(3);
		last = at->key;
		n++;
		at = at->right;
	}
	free(stack);
	return n;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int follow(const char *path)
{
	struct tree *tree;
	struct stat st;
	uint64_t found, seed = 1;
	double begin;

	while (stat(path, &st) < 0)
		;
	begin = now();
	tree = map(path, O_RDWR);
	if (!tree) {
		perror(path);
		return 1;
	}
	found = walk(tree);
	printf("found %llu nodes at %p, in order, in %.0f ms while pages were still coming\n",
	       (unsigned long long)found, (void *)tree, (now() - begin) * 1e3);
	for (int i = 0; i < 1000; i++)
		insert(tree, next_random(&seed));
	printf("inserted 1000 more: %llu\n", (unsigned long long)walk(tree));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "grow") == 0)
		return grow(argv[2]);
	if (argc == 3 && strcmp(argv[1], "follow") == 0)
		return follow(argv[2]);
	fprintf(stderr, "Usage: tree grow|follow FILE\n");
	return 2;
}
