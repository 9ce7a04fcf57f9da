/*
 * ramp_container.hpp and ramp_host.hpp on two nodes' mounts, in one process: container_user MOUNT_A MOUNT_B, of nodes a and b.
 * Exit status 1, and a line: it is not as it should be.
 */
#include <atomic>
#include <boost/container/flat_map.hpp>
#include <boost/container/string.hpp>
#include <boost/unordered_map.hpp>
#include <cstdlib>
#include <fcntl.h>
#include <iostream>
#include <sys/wait.h>

#include "ramp_host.hpp"

#define must(holds)                                                                                \
	do {                                                                                       \
		if (!(holds))                                                                      \
			throw std::runtime_error(std::string(__func__) +                           \
						 ": does not hold: " #holds);                      \
	} while (0)

static std::string mount_a, mount_b;

struct nodes {
	ramp::cluster a = ramp::cluster::open(mount_a.c_str());
	ramp::cluster b = ramp::cluster::open(mount_b.c_str());
};

/* The errno of the E that the function throws; 0 if it throws none. */
template <typename E, typename F> static int code_of(F &&function)
{
	try {
		function();
	} catch (const E &e) {
		return e.code;
	}
	return 0;
}

/* Returns what the function does, or 1 and a line where it throws. */
template <typename F> static int told(F &&function)
{
	try {
		return function();
	} catch (const std::exception &e) {
		std::cerr << e.what() << "\n";
	}
	return 1;
}

template <typename F> static void eventually(F &&holds)
{
	for (int i = 0; i < 3000 && !holds(); i++)
		usleep(10000);
	if (!holds())
		throw std::runtime_error("something did not come true");
}

static bool is_there(const std::string &mount, const char *node, const char *name)
{
	return access((mount + "/" + node + "/" + name).c_str(), F_OK) == 0;
}

using words = ramp::map<ramp::string, ramp::vector<ramp::string>>;
using words_box = ramp::container<words>;

static void fill(words_box &c, int from, int to)
{
	auto in = c.in();

	for (int i = from; i < to; i++) {
		ramp::string key("a key that is too long for the object ");

		key += std::to_string(i).c_str();
		(*c)[key].assign(20, key);
	}
}

static bool is_filled(const words_box &c, std::size_t count)
{
	for (const auto &[key, list] : *c)
		if (list.size() != 20 || list.front() != key || list.back() != key)
			return false;
	return c->size() == count;
}

/* Of a box at node a, which has lost its first word: closed, opened again, and handed over. */
static void in_two_steps(words_box &c)
{
	c.connect("b");
	must(code_of<ramp::failure>([&] { c.finish_write(); }) == EOPNOTSUPP);
	must(code_of<ramp::failure>([&] { c.finish_read(); }) == ENOTCONN);
	c.connect("b", RAMP_PRECOPY);
	must(code_of<ramp::failure>([&] { c.finish_read(); }) == EINVAL && c.heap());
	must(c.finish_write().size() == 5999 && !c.heap());
	c.prepare();
	must(code_of<ramp::failure>([&] { c.finish_write(); }) == EBUSY && !c.heap());
	c.abort();
	fill(c, 6000, 6500);
	c.connect("b", RAMP_PRECOPY);
	const words *closed;
	while (!(closed = c.try_finish_write()))
		must(c->size() == 6499); /* the heap is open again */
	must(closed->size() == 6499 && closed->begin()->second.size() == 20);
	while (!c.try_finish_read())
		must(closed->size() == 6499);
	must(!c && !c.segment());
}

/* Made small, grown on both nodes, back and forth. */
static void life(const nodes &on)
{
	ramp::receiver to_a(on.a, "words"), to_b(on.b, "words");
	ramp::container_options options;

	options.max_bytes = 256 << 20;
	auto c = words_box::make(on.a, "words", options);
	const void *address = c.get();

	fill(c, 0, 4000); /* 8 MiB: more than it began with */
	must(code_of<ramp::failure>([&] { c.transfer(); }) == ENOTCONN);
	must(code_of<ramp::failure>([&] { c.connect("nowhere"); }) == ENOENT);
	must(code_of<ramp::failure>([&] { c.connect("a"); }) == EALREADY);
	c.connect("b");
	must(code_of<ramp::failure>([&] { c.connect("b"); }) == EISCONN);
	fill(c, 4000, 4500); /* between the two it is in use */
	c.abort();
	must(code_of<ramp::failure>([&] { c.transfer(); }) == ENOTCONN);
	c.connect("b");
	must(c.extend(60000) > 30000);
	c.prepare();
	fill(c, 4500, 5000);
	c.transfer();
	must(!c && !c.heap() && !c.segment() && !c.id());
	must(code_of<ramp::failure>([&] { c.connect("b"); }) == ENODEV);
	must(code_of<ramp::failure>([&] { c.pull(); }) == ENODEV);
	must(code_of<ramp::failure>([&] { c.destroy(); }) == ENODEV);

	c = words_box::receive(to_b);
	must(c.get() == address && is_filled(c, 5000));
	fill(c, 5000, 6000);
	c->erase(c->begin());
	c.migrate("a", RAMP_DEMAND);
	auto again = words_box::receive(to_a);
	again.pull();
	must(is_filled(again, 5999));
	again.check();
	must(code_of<ramp::failure>([&] { again.pull(nullptr, 4096); }) != 0);
	in_two_steps(again);
	again = words_box::receive(to_b);
	again.destroy();
	must(!again && !is_there(mount_a, "a", "words"));
}

/* Node b's program. A receiver that waits has a segment as soon as it is taken: before lists show it there, under another
   name. It ends such a one at once, or moves it on. */
static int at_once_b(int armed, int count)
{
	auto b = ramp::cluster::open(mount_b.c_str());
	ramp::receiver to_b(b, "renamed-*");

	must(write(armed, "", 1) == 1);
	for (int i = 0; i < count; i++) {
		auto c = words_box::receive(to_b, 20000);
		if (i % 2)
			c.migrate("a");
		else
			c.destroy();
		must(!c);
	}
	return 0;
}

/* Before any other function: it forks. */
static void at_once()
{
	int armed[2], status = 1, count = 8;
	char byte;

	must(pipe2(armed, O_CLOEXEC) == 0);
	pid_t b = fork();
	if (b == 0)
		_exit(told([&] { return at_once_b(armed[1], count); }));
	must(b > 0 && read(armed[0], &byte, 1) == 1);
	auto a = ramp::cluster::open(mount_a.c_str());
	ramp::receiver back(a, "renamed-*");
	for (int i = 0; i < count; i++) {
		auto c = words_box::make(a, ("first-" + std::to_string(i)).c_str());
		std::string name = "renamed-" + std::to_string(i);
		ramp_move_options renamed{};

		renamed.new_name = name.c_str();
		must(ramp_connect(c.segment(), "b", &renamed) == 0);
		c.transfer();
		if (i % 2)
			words_box::receive(back, 20000).destroy();
	}
	must(waitpid(b, &status, 0) == b && status == 0);
	must(ramp_list(
		     a, nullptr, [](void *, const ramp_info *) { return 1; }, nullptr) == 0);
}

namespace bc = boost::container;
using boost_string = bc::basic_string<char, std::char_traits<char>, ramp::allocator<char>>;
/* Each of the containers, in one another. */
struct nest {
	ramp::map<ramp::string, ramp::vector<ramp::list<ramp::deque<ramp::string>>>> ordered;
	ramp::unordered_map<ramp::string, ramp::vector<long>> hashed;
	bc::flat_map<int, boost_string, std::less<int>,
		     ramp::allocator<std::pair<int, boost_string>>>
		flat;
	boost::unordered_map<int, boost_string, boost::hash<int>, std::equal_to<int>,
			     ramp::allocator<std::pair<const int, boost_string>>>
		hashed_by_boost;
};

static bool is_filled(const nest &n, int to)
{
	bool right = true;

	for (int i = 0; i < to; i++) {
		std::string text = "a text that is too long for the object " + std::to_string(i);
		const auto &list = n.ordered.begin()->second;

		right &= list.size() == static_cast<std::size_t>(to);
		right &= list[static_cast<std::size_t>(i)].front().back() == text.c_str();
		right &= n.flat.at(i) == text.c_str() && n.hashed_by_boost.at(i) == text.c_str();
	}
	return right && n.hashed.begin()->second.size() == static_cast<std::size_t>(to);
}

/* Nested, on either node; no pointer leaves the segment. */
static void nested(const nodes &on)
{
	ramp::receiver to_b(on.b, "nest");
	ramp::container_options debug;

	debug.debug = true;
	auto c = ramp::container<nest>::make(on.a, "nest", debug);
	for (int i = 0; i < 200; i++) {
		auto in = c.in();
		std::string text = "a text that is too long for the object " + std::to_string(i);
		ramp::string key("the same key for all of them, which is long");

		c->ordered[key].resize(static_cast<std::size_t>(i) + 1);
		c->ordered[key].back().emplace_back().emplace_back(text.c_str());
		c->hashed[key].push_back(i);
		c->flat[i] = text.c_str();
		c->hashed_by_boost[i] = text.c_str();
		if (i != 99)
			continue;
		c.migrate("b");
		c = ramp::container<nest>::receive(to_b, 20000, debug);
		must(is_filled(*c, 100));
	}
	must(is_filled(*c, 200));
	c.destroy();
}

/* Containers that hold their heap get it from make(). */
static void scoped(const nodes &on)
{
	namespace s = ramp::scoped;
	using deep = ramp::container<s::map<int, s::vector<s::string>>>;
	ramp::receiver to_b(on.b, "deep");
	auto c = deep::make(on.a, "deep");

	(*c)[1].emplace_back("a string that is too long for the object"); /* in no context */
	c.migrate("b");
	c = deep::receive(to_b);
	(*c)[1].emplace_back((*c)[1][0]);
	must((*c)[1].size() == 2 && ramp_heap_contains(c.heap(), (*c)[1][1].data()));
	c.check();
	c.destroy();
}

/* A move that fails leaves it in use. */
static void refused(const nodes &on)
{
	auto c = words_box::make(on.a, "same");
	int fd = open((mount_b + "/b/same").c_str(), O_CREAT | O_RDWR, 0600);

	must(fd >= 0);
	close(fd);
	fill(c, 0, 100);
	must(code_of<ramp::failure>([&] { c.migrate("b"); }) == EEXIST);
	must(c && is_filled(c, 100));
	fill(c, 100, 200);
	must(is_filled(c, 200));
	must(code_of<ramp::failure>([&] { c.transfer(); }) == ENOTCONN);
	must(unlink((mount_a + "/b/same").c_str()) ==
	     0); /* so that a knows it before it is asked to move */
	c.close();
	must(!c);
	c = words_box::open(on.a, "same");
	must(is_filled(c, 200));
	must(rename((mount_a + "/a/same").c_str(), (mount_a + "/b/same").c_str()) == 0);
	must(code_of<ramp::failure>([&] { c.migrate("b"); }) == EREMOTE);
	c.close(); /* touches nothing */
	words_box::open(on.b, "same").destroy();
}

struct throws {
	throws()
	{
		throw std::runtime_error("no");
	}
};
struct leaky {
	std::string outside{"a string that is in ordinary memory"};
};

/* After an exception there is no segment; what is no T stays; no pointer leaves. */
static void exceptions(const nodes &on)
{
	ramp::container_options small, debug;
	bool thrown = false;

	try {
		ramp::container<throws>::make(on.a, "none");
	} catch (const std::runtime_error &) {
		thrown = true;
	}
	must(thrown && !is_there(mount_a, "a", "none"));
	small.max_bytes = 4096;
	must(code_of<ramp::heap_failure>([&] { words_box::make(on.a, "none", small); }) == EINVAL);
	must(!is_there(mount_a, "a", "none"));
	must(code_of<ramp::failure>([&] { words_box::open(on.a, "none"); }) == ENOENT);

	small.max_bytes = 4 << 20;
	auto full = words_box::make(on.a, "full", small);
	must(code_of<ramp::no_room>([&] { fill(full, 0, 100000); }) == ENOMEM);
	must(ramp_heap_check(full.heap(), nullptr) == 0);
	full.destroy();

	ramp::receiver to_b(on.b, "leaky");
	debug.debug = true;
	auto c = ramp::container<leaky>::make(on.a, "leaky", debug);
	must(code_of<ramp::heap_failure>([&] { c.migrate("b"); }) == EFAULT);
	must(is_there(mount_a, "a", "leaky"));
	c->outside = "short";
	c->outside.shrink_to_fit();
	c.migrate("b");
	must(code_of<ramp::heap_failure>([&] { words_box::receive(to_b); }) == EINVAL);
	ramp::container<leaky>::open(on.b, "leaky").destroy();
	must(code_of<ramp::failure>([&] { words_box::receive(to_b, 10); }) == ETIMEDOUT);
}

struct counter {
	long value = 0;
};
using counters = ramp::host<counter>;

/* `run` for what is made, found and arrives; there and back. */
static void hosts(const nodes &on)
{
	std::atomic<int> runs_a{0}, runs_b{0};
	std::atomic<counter *> at_b{nullptr};
	{
		counters before(on.a, "count-*", [](auto) {});
		before.make("count-old")->value = 7;
	}
	counters a(on.a, "count-*", [&](auto p) { runs_a += p->value == 7 ? 100 : 1; });
	must(a.adopt() == 1 && runs_a == 100 && a.adopt() == 0);
	{
		counters b(on.b, "count-*", [&](auto p) {
			p->value++;
			at_b = p.get();
			runs_b++;
		});
		auto p = a.make("count-new");
		counter *address = p.get();

		must(runs_a == 101 && a.size() == 2);
		/* Both nodes are in this process: b may map it before a has let go of the same addresses. */
		std::atomic<bool> was_mapped{false};
		b.start([&](const std::exception &e) {
			std::cerr << e.what() << "\n";
			was_mapped = true;
		});
		a.migrate(p, "b");
		eventually([&] {
			if (was_mapped.exchange(false))
				b.adopt();
			return runs_b == 1;
		});
		must(at_b == address && a.size() == 1 && b.size() == 1 && address->value == 1);
		must(code_of<ramp::failure>([&] { a.migrate(p, "b"); }) == ENOENT);
		must(code_of<ramp::failure>([&] { b.migrate(p, "nowhere"); }) == ENOENT);
		must(b.size() == 1);
		must(code_of<ramp::failure>([&] {
			     b.migrate(p, "a", RAMP_LAZY, [] { throw ramp::failure(EDOM, "no"); });
		     }) == EDOM);
		must(b.size() == 1 && address->value == 1);
		b.migrate(p, "a", RAMP_LAZY, [&] { address->value++; });
		must(a.receive(20000) && a.size() == 2 && b.size() == 0 && runs_a == 102);
		must(address->value == 2);
		must(!a.receive(0));
		a.destroy(p);
	}
	must(a.size() == 1 && !is_there(mount_a, "a", "count-new"));
}

/* Moved by another program, used there, and back: the heap is opened again. */
static void came_back(const nodes &on)
{
	int runs = 0;
	counters a(on.a, "count-*", [&](auto) { runs++; });
	auto p = a.make("count-mv");

	p->value = 1;
	must(rename((mount_a + "/a/count-mv").c_str(), (mount_a + "/b/count-mv").c_str()) == 0);
	must(code_of<ramp::failure>([&] { a.migrate(p, "b"); }) == EREMOTE && a.size() == 1);
	must(rename((mount_b + "/b/count-mv").c_str(), (mount_b + "/a/count-mv").c_str()) == 0);
	must(a.receive(20000) && a.size() == 1 && runs == 2 && p->value == 1);
	auto in = p.in();
	ramp::vector<int> uses_the_heap(1000);
	must(ramp_heap_of(uses_the_heap.data()) == p.heap());
}

/* A segment that is no T, and a `run` that throws: told; both stay on the node. */
static void failures(const nodes &on)
{
	std::atomic<int> told{0};
	bool throwing = true;
	counters b(on.b, "x-*", [&](auto) {
		if (throwing)
			throw std::runtime_error("run throws");
	});

	b.start([&](const std::exception &) { told++; });
	words_box::make(on.a, "x-words").migrate("b");
	eventually([&] { return told == 1; });
	ramp::container<counter>::make(on.a, "x-count").migrate("b");
	eventually([&] { return told == 2; });
	b.stop();
	must(b.size() == 0);
	throwing = false;
	must(b.adopt() == 1 && b.size() == 1);
	words_box::open(on.b, "x-words").destroy();
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	mount_a = argv[1];
	mount_b = argv[2];
	return told([] {
		at_once();
		nodes on;

		life(on);
		nested(on);
		scoped(on);
		refused(on);
		exceptions(on);
		hosts(on);
		came_back(on);
		failures(on);
		return 0;
	});
}
