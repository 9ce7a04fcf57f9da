/*
 * ramp.hpp: C++ containers that live in a segment, from one process to the next. Boost's, too.
 */
#include <boost/container/deque.hpp>
#include <boost/container/flat_map.hpp>
#include <boost/container/list.hpp>
#include <boost/container/map.hpp>
#include <boost/container/string.hpp>
#include <boost/container/vector.hpp>
#include <boost/unordered_map.hpp>
#include <check.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "ramp.h" /* for programs that use both */
#include "ramp.hpp"

extern "C" {
#include "heap_fixture.h"
#include "lib/run_suite.h"
}

static constexpr std::uint64_t MIB = 1 << 20;
static int file;

static ramp_heap_options options()
{
	ramp_heap_options o{};

	o.max_bytes = 64 * MIB;
	o.grow = heap_grow_file;
	o.arg = &file;
	return o;
}

static ramp::heap begin()
{
	file = heap_map(2 * MIB, 64 * MIB);
	return ramp::heap::format(HEAP_BASE, 2 * MIB, options());
}

static ramp::heap again()
{
	return ramp::heap::open(HEAP_BASE, static_cast<std::uint64_t>(lseek(file, 0, SEEK_END)),
				options());
}

static void sound(ramp_heap *heap)
{
	ramp_heap_err err;

	ck_assert_msg(ramp_heap_check(heap, &err) == 0, "%s", err.text);
}

static void no_pointer_leaves(ramp_heap *heap)
{
	for (const ramp::outside_pointer &o : ramp::outside(heap))
		ck_abort_msg("the block at %p has at %zu the address %p, in %s", o.block, o.offset,
			     o.value, o.mapping.c_str());
}

static std::size_t blocks(ramp_heap *heap)
{
	std::size_t n = 0;

	ramp_heap_each(
		heap,
		[](void *arg, void *, std::size_t) {
			++*static_cast<std::size_t *>(arg);
			return 0;
		},
		&n);
	return n;
}

/* The text of the exception E that the function throws; "" if it throws none. */
template <typename E, typename F> static std::string thrown(F &&function)
{
	try {
		function();
	} catch (const E &e) {
		return e.what();
	}
	return "";
}

/* Runs in a child, which has ended when this returns. */
template <typename F> static void in_another_process(F &&function)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		try {
			function();
		} catch (const std::exception &e) {
			std::fprintf(stderr, "%s\n", e.what());
			_exit(1);
		}
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

#define must(holds)                                                                                \
	do {                                                                                       \
		if (!(holds))                                                                      \
			throw std::runtime_error("does not hold: " #holds);                        \
	} while (0)

using words = ramp::map<ramp::string, ramp::vector<ramp::string>>;
struct all {
	words by_name;
	ramp::unordered_map<ramp::string, ramp::list<ramp::deque<int>>> deep;
	ramp::set<int> numbers;
	ramp::unordered_set<ramp::string> known;
	ramp::vector<ramp::vector<ramp::vector<long>>> cube;
};

static const char *const long_text = "a string that is too long for the object itself";

static void fill(all &a)
{
	for (int i = 0; i < 500; i++) {
		ramp::string key(long_text);

		key += std::to_string(i).c_str();
		a.by_name[key].emplace_back(key);
		a.by_name[key].emplace_back("short");
		a.deep[key].emplace_back(100, i);
		a.numbers.insert(i);
		a.known.insert(key);
	}
	a.cube.assign(10, ramp::vector<ramp::vector<long>>(10, ramp::vector<long>(10, 7)));
}

static bool is_filled(all &a)
{
	bool right = a.by_name.size() == 500 && a.deep.size() == 500 && a.known.size() == 500 &&
		     a.numbers.size() == 500;

	for (const auto &[key, list] : a.by_name)
		right &= list.size() == 2 && list[0] == key && list[1] == "short" &&
			 a.known.count(key) && a.deep.at(key).front().size() == 100;
	return right && a.cube.at(9).at(9).at(9) == 7;
}

START_TEST(containers_nested_in_one_another_go_to_the_next_process)
{
	{
		ramp::heap heap = begin();
		auto p = ramp::mig_ptr<all>::make(heap);
		auto in = p.in();

		ck_assert(ramp_heap_contains(heap, p.get()));
		fill(*p);
		no_pointer_leaves(heap);
		sound(heap);
	}
	in_another_process([] {
		ramp::heap heap = again();
		auto p = ramp::mig_ptr<all>::open(heap);

		must(is_filled(*p));
		p->by_name.erase(p->by_name.begin()); /* needs no context */
		auto in = p.in();
		p->by_name["another"].emplace_back(long_text);
		p->numbers.erase(7);
	});
	ramp::heap heap = again();
	auto p = ramp::mig_ptr<all>::open(heap);

	ck_assert_uint_eq(p->by_name.size(), 500);
	ck_assert_str_eq(p->by_name.at("another")[0].c_str(), long_text);
	ck_assert_uint_eq(p->numbers.count(7), 0);
	no_pointer_leaves(heap);
	p.destroy();
	ck_assert_uint_eq(blocks(heap), 0);
	sound(heap);
}
END_TEST

START_TEST(without_a_context_an_allocation_is_a_clear_error)
{
	ramp::heap heap = begin();
	ramp::vector<int> v;
	std::string text = thrown<ramp::no_context>([&] { v.push_back(1); });

	ck_assert_msg(text.find("mig_ptr::in()") != std::string::npos, "%s", text.c_str());
	{
		ramp::context in(heap);

		v.push_back(1);
		std::thread([&] {
			ramp::vector<int> other;

			ck_assert(!thrown<ramp::no_context>([&] { other.push_back(1); }).empty());
		}).join();
	}
	ck_assert(!thrown<ramp::no_context>([&] { v.reserve(100); }).empty());
	ck_assert_uint_eq(v.size(), 1);
	ck_assert(ramp_heap_contains(heap, v.data()));
}
END_TEST

START_TEST(contexts_nest)
{
	ramp::heap outer = begin();
	char *base = HEAP_BASE + 128 * MIB;

	ck_assert(mmap(base, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
		       -1, 0) == base);
	{
		ramp::heap inner = ramp::heap::format(base, MIB);
		ramp::context in(outer);
		ramp::vector<int> a(10), b;

		{
			ramp::context inside(inner);

			b.resize(10);
			ck_assert(ramp::context::current() == inner.get());
		}
		ck_assert(ramp::context::current() == outer.get());
		ck_assert(ramp_heap_of(a.data()) == outer.get() &&
			  ramp_heap_of(b.data()) == inner.get());
	}
	sound(outer);
}
END_TEST

START_TEST(a_heap_that_is_gone_is_an_exception_and_no_signal)
{
	ramp::heap heap = begin();
	auto p = ramp::mig_ptr<words>::make(heap);
	ramp_heap *raw = heap;

	heap.forget();
	munmap(HEAP_BASE, 64 * MIB);
	{
		auto in = p.in();

		ck_assert(!thrown<ramp::gone>([] { ramp::vector<int> v(10); }).empty());
	}
	ck_assert(!thrown<ramp::gone>([&] { ramp::mig_ptr<words>::open(raw); }).empty());
	ck_assert(!thrown<ramp::gone>([&] { ramp::outside(raw); }).empty());
}
END_TEST

START_TEST(a_full_heap_is_bad_alloc_and_stays_sound)
{
	ramp::heap heap = begin();
	auto p = ramp::mig_ptr<ramp::list<ramp::string>>::make(heap);
	auto in = p.in();
	std::size_t before;

	ck_assert(!thrown<std::bad_alloc>([&] {
			   for (;;)
				   p->emplace_back(100000, 'x');
		   }).empty());
	before = p->size();
	ck_assert_uint_gt(before, 500);
	sound(heap);
	p->clear();
	p->emplace_back(100000, 'x');
	ck_assert(!thrown<std::bad_alloc>([&] { ramp::vector<long> v(SIZE_MAX / 16); }).empty());
	sound(heap);
}
END_TEST

struct throws {
	explicit throws(int)
	{
		m_list.resize(100);
		throw std::runtime_error("no");
	}
	ramp::vector<int> m_list;
};

START_TEST(an_object_is_made_whole_or_not_and_found_by_its_type)
{
	ramp::heap heap = begin();

	ck_assert(thrown<ramp::heap_failure>([&] { ramp::mig_ptr<words>::open(heap); }) ==
		  "the heap has no object");
	ck_assert(thrown<std::runtime_error>([&] { ramp::mig_ptr<throws>::make(heap, 1); }) ==
		  "no");
	ck_assert_uint_eq(blocks(heap), 0);
	auto p = ramp::mig_ptr<ramp::vector<int>>::make(heap, 5, 42);
	ck_assert_int_eq((*p)[4], 42);
	ck_assert(!thrown<ramp::heap_failure>([&] {
			   ramp::mig_ptr<ramp::vector<long>>::open(heap);
		   }).empty());
	ck_assert(!thrown<ramp::heap_failure>([&] {
			   ramp::mig_ptr<ramp::vector<int>>::make(heap);
		   }).empty());
	ck_assert_uint_eq(ramp::run<ramp::vector<int>>(heap,
						       [](auto q) {
							       q->push_back(1);
							       return q->size();
						       }),
			  6);
	p.destroy();
	ck_assert_uint_eq(ramp::run<ramp::vector<int>>(
				  heap, [](auto q) { return q->size(); }, 3, 0),
			  3);
}
END_TEST

static_assert(std::is_empty_v<ramp::allocator<int>> &&
	      std::is_nothrow_default_constructible_v<ramp::allocator<int>> &&
	      std::allocator_traits<ramp::allocator<int>>::is_always_equal::value &&
	      sizeof(ramp::vector<int>) == sizeof(std::vector<int>));

struct has_virtual {
	virtual ~has_virtual() = default;
};
static_assert(!ramp::fit_to_move<has_virtual> && !ramp::fit_to_move<void (*)()> &&
	      ramp::fit_to_move<words>);
static_assert(!ramp::fit_to_move<std::string> && !ramp::fit_to_move<ramp::vector<std::string>> &&
	      !ramp::fit_to_move<ramp::map<ramp::string, std::vector<int>>> &&
	      !ramp::fit_to_move<ramp::unordered_map<std::string, int>> &&
	      !ramp::fit_to_move<ramp::list<std::shared_ptr<int>>> &&
	      !ramp::fit_to_move<std::function<void()>> &&
	      !ramp::fit_to_move<std::optional<std::any>> &&
	      !ramp::fit_to_move<ramp::vector<std::tuple<int, std::unique_ptr<int>>>> &&
	      ramp::fit_to_move<ramp::scoped::map<ramp::scoped::string, ramp::scoped::list<int>>> &&
	      ramp::fit_to_move<ramp::vector<std::array<std::optional<std::pair<int, long>>, 3>>>);

struct leaky {
	std::string outside{long_text}; /* ordinary memory */
	void (*code)() = nullptr;
};
/* Its member's table of virtual functions is not seen at compile time. */
struct hides_virtual {
	has_virtual member;
};

START_TEST(pointers_that_leave_the_heap_are_found)
{
	ramp::heap heap = begin();
	auto p = ramp::mig_ptr<leaky>::make(heap);
	auto found = ramp::outside(heap);

	ck_assert_uint_eq(found.size(), 1);
	ck_assert(found[0].block == p.get() && found[0].value == p->outside.data() &&
		  !found[0].mapping.empty());
	p->code = reinterpret_cast<void (*)()>(_exit);
	ck_assert_uint_eq(ramp::outside(heap).size(), 2);
	ck_assert_uint_eq(ramp::outside(heap, 1).size(), 1);
	p->code = nullptr;
	p->outside = "short";
	p->outside.shrink_to_fit();
	ck_assert_uint_eq(ramp::outside(heap).size(), 0);
	p.destroy();
	auto q = ramp::mig_ptr<hides_virtual>::make(heap);
	found = ramp::outside(heap);
	ck_assert_uint_eq(found.size(), 1);
	ck_assert(found[0].block == q.get() && found[0].offset == 0);
	q.destroy();
}
END_TEST

START_TEST(the_stateful_allocator_is_handed_down)
{
	namespace s = ramp::scoped;
	using deep = s::map<s::string, s::vector<s::list<s::string>>>;
	{
		ramp::heap heap = begin();
		auto p = ramp::mig_ptr<deep>::make(heap, deep::allocator_type(heap.get()));

		(*p)[s::string(long_text, heap.get())].emplace_back(); /* in no context */
		p->begin()->second[0].emplace_back(long_text); /* libstdc++ 14 did not compile it */
		ck_assert(!thrown<ramp::gone>([] { s::string(long_text).clear(); }).empty());
		ck_assert(ramp_heap_contains(heap, p->begin()->second[0].front().data()));
		no_pointer_leaves(heap);
	}
	in_another_process([] {
		ramp::heap heap = again();
		auto p = ramp::mig_ptr<deep>::open(heap);

		must(p->begin()->second[0].front() == long_text);
		p->begin()->second.resize(100);
		p->begin()->second[99].emplace_back(long_text);
	});
	ramp::heap heap = again();
	auto p = ramp::mig_ptr<deep>::open(heap);

	ck_assert_str_eq(p->begin()->second[99].front().c_str(), long_text);
	no_pointer_leaves(heap);
	p.destroy();
	ck_assert_uint_eq(blocks(heap), 0);
}
END_TEST

namespace bc = boost::container;
using boost_string = bc::basic_string<char, std::char_traits<char>, ramp::allocator<char>>;
struct boosts {
	bc::vector<boost_string, ramp::allocator<boost_string>> v;
	bc::map<int, boost_string, std::less<int>,
		ramp::allocator<std::pair<const int, boost_string>>>
		m;
	bc::flat_map<int, int, std::less<int>, ramp::allocator<std::pair<int, int>>> f;
	bc::list<boost_string, ramp::allocator<boost_string>> l;
	bc::deque<int, ramp::allocator<int>> d;
	boost::unordered_map<int, boost_string, boost::hash<int>, std::equal_to<int>,
			     ramp::allocator<std::pair<const int, boost_string>>>
		u;
};

START_TEST(boost_containers)
{
	{
		ramp::heap heap = begin();
		auto p = ramp::mig_ptr<boosts>::make(heap);
		auto in = p.in();

		for (int i = 0; i < 300; i++) {
			p->v.emplace_back(long_text);
			p->m[i] = long_text;
			p->f[i] = i;
			p->l.emplace_back(long_text);
			p->d.push_back(i);
			p->u[i] = long_text;
		}
		no_pointer_leaves(heap);
	}
	in_another_process([] {
		ramp::heap heap = again();
		auto p = ramp::mig_ptr<boosts>::open(heap);

		must(p->v.size() == 300 && p->v[299] == long_text && p->m.at(299) == long_text &&
		     p->f.at(299) == 299);
		must(p->l.back() == long_text && p->d[299] == 299 && p->u.at(299) == long_text);
		p.destroy();
		must(blocks(heap) == 0);
	});
	ramp::heap heap = again();

	sound(heap);
}
END_TEST

int main()
{
	TCase *tcase = tcase_create("containers");
	Suite *suite = suite_create("containers");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, containers_nested_in_one_another_go_to_the_next_process);
	tcase_add_test(tcase, without_a_context_an_allocation_is_a_clear_error);
	tcase_add_test(tcase, contexts_nest);
	tcase_add_test(tcase, a_heap_that_is_gone_is_an_exception_and_no_signal);
	tcase_add_test(tcase, a_full_heap_is_bad_alloc_and_stays_sound);
	tcase_add_test(tcase, an_object_is_made_whole_or_not_and_found_by_its_type);
	tcase_add_test(tcase, pointers_that_leave_the_heap_are_found);
	tcase_add_test(tcase, the_stateful_allocator_is_handed_down);
	tcase_add_test(tcase, boost_containers);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
