/*
 * A program that keeps a map in a segment's heap (ramp.hpp), and a table of blocks that are taken and freed in one step.
 *
 *	heap_user make|check|drop|busy FILE COUNT
 *
 * make fills the map up to COUNT entries, and makes heap and segment where they are missing; check looks at COUNT of
 * them and at the whole heap; drop erases all entries but COUNT and punches free pages out; they print the heap's
 * address. busy prints "busy" and takes and frees blocks until it is killed. Exit status 1: it is not as it was.
 */
#include <cstdlib>
#include <fcntl.h>
#include <iostream>
#include <sys/mman.h>
#include <unistd.h>

#include "ramp.hpp"

static constexpr std::uint64_t longest = 64 << 20; /* of an extent, at least */
static int file;

struct contents {
	ramp::map<int, ramp::vector<ramp::string>> map;
	void *blocks[64];
};

static int grow(void *, std::uint64_t size)
{
	return ftruncate(file, static_cast<off_t>(size)) ? -errno : 0;
}

static ramp::heap open_heap(const char *path)
{
	ramp_heap_options options{};
	std::uint64_t size;
	void *base;

	options.max_bytes = longest;
	options.grow = grow;
	file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	size = static_cast<std::uint64_t>(lseek(file, 0, SEEK_END));
	if (size == 0 && ftruncate(file, 2 << 20))
		throw std::runtime_error("ftruncate");
	base = mmap(nullptr, longest, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (base == MAP_FAILED)
		throw std::runtime_error("mmap");
	return size ? ramp::heap::open(base, size, options)
		    : ramp::heap::format(base, 2 << 20, options);
}

static ramp::string text_of(int key)
{
	return ramp::string(static_cast<std::size_t>(key % 900 + 20),
			    static_cast<char>('a' + key % 26));
}

static bool is_right(ramp_heap *heap, const contents &c, int count)
{
	ramp_heap_err err{};

	if (ramp_heap_check(heap, &err)) {
		std::cerr << err.text << std::endl;
		return false;
	}
	if (c.map.size() != static_cast<std::size_t>(count))
		return false;
	for (const auto &[key, texts] : c.map) {
		if (texts.size() != 1 || texts[0] != text_of(key))
			return false;
	}
	for (void *block : c.blocks) {
		if (block && !ramp_heap_usable_size(heap, block))
			return false;
	}
	return true;
}

[[noreturn]] static void be_busy(ramp_heap *heap, contents &c)
{
	std::cout << "busy" << std::endl;
	for (unsigned int i = 0;; i = i * 1664525 + 1013904223) {
		void **slot = &c.blocks[i >> 26];

		if (*slot)
			ramp_heap_free_from(heap, slot);
		else
			ramp_heap_alloc_to(heap, slot, (i >> 8) % 60000);
	}
}

int main(int argc, char **argv)
try {
	if (argc != 4)
		return 2;
	std::string what = argv[1];
	int count = std::atoi(argv[3]);
	ramp::heap heap = open_heap(argv[2]);

	return ramp::run<contents>(heap, [&](auto c) {
		if (what == "busy")
			be_busy(heap, *c);
		for (int key = static_cast<int>(c->map.size()); what == "make" && key < count;
		     key++)
			c->map[key].push_back(text_of(key));
		if (what == "drop") {
			c->map.erase(c->map.lower_bound(count), c->map.end());
			ramp_heap_trim(heap);
		}
		if (!is_right(heap, *c, count) || !ramp::outside(heap).empty())
			return 1;
		std::cout << heap.get() << std::endl;
		return 0;
	});
} catch (const std::exception &e) {
	std::cerr << "heap_user: " << e.what() << std::endl;
	return 1;
}
