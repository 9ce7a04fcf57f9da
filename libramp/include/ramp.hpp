/*
 * C++ objects that live in a segment, whole: ramp_heap.h for C++17, headers only. Link with -lramp-heap -pthread.
 *
 *   ramp::heap heap = ramp::heap::open(base, size);
 *   auto words = ramp::mig_ptr<ramp::map<ramp::string, ramp::vector<int>>>::make(heap);
 *   { auto in = words.in(); (*words)["one"].push_back(1); }
 *
 * and in the next process, on whichever node the segment is:
 *
 *   auto words = ramp::mig_ptr<ramp::map<ramp::string, ramp::vector<int>>>::open(heap);
 *
 * Context. ramp::allocator has no state, so that any type with a standard allocator parameter can use it, nested as
 * deep as one likes: it allocates in the heap of the innermost ramp::context of this thread. A call that may allocate is made
 * inside of one (mig_ptr::in); with none it throws ramp::no_context. Reading and freeing need none. ramp::scoped holds
 * containers with a stateful allocator, which keeps its heap itself, and needs no context.
 *
 * Rules. An object that moves has nothing outside of its segment: no pointer to ordinary memory, to a static, to
 * code, hence no virtual function, std::function, std::shared_ptr (its control block has a vtable), std::any; no
 * descriptor, no mutex that is held. Types whose layout differs between the two programs must not be shared: both are built
 * with the same standard library, and the same hash functions. All of this that the compiler sees is refused
 * (ramp::fit_to_move); mig_ptr::open compares name, size and alignment of the type; ramp::outside finds the rest at run time.
 * Contents that are moved or spliced between containers of two heaps with ramp::allocator would stay where they are: copy them.
 *
 * ramp_container.hpp adds segments, and moves the objects.
 *
 * Errors are exceptions: no_context, gone (the heap is not open in this process: nothing was touched), no_room (a
 * std::bad_alloc), heap_failure. deallocate in a heap that is gone does nothing: its memory went with it.
 * Threads: contexts are each thread's own; an object is its program's to lock; allocations are safe as in ramp_heap.h.
 */
#ifndef RAMP_HPP
#define RAMP_HPP

#include <any>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <scoped_allocator>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <ramp_heap.h>

namespace ramp
{

/* ---- errors --------------------------------------------------------------------------------- */

/* An allocation outside of any context. */
struct no_context : std::logic_error {
	no_context()
	    : std::logic_error("ramp::allocator: this thread is in no context: make the call "
			       "inside of mig_ptr::in() "
			       "or ramp::context")
	{
	}
};

/* The heap is not open in this process: closed, left with its segment, or the parent's. */
struct gone : std::runtime_error {
	explicit gone(const ramp_heap *heap)
	    : std::runtime_error("the heap at " + hex(heap) + " is not open in this process")
	{
	}

	static std::string hex(const void *address)
	{
		char text[32];

		std::snprintf(text, sizeof(text), "%p", address);
		return text;
	}
};

/* There is no more room: ENOMEM larger than the heap may become; what `grow` said: ENOSPC, EDQUOT. */
struct no_room : std::bad_alloc {
	explicit no_room(int error) noexcept : code(error)
	{
	}
	const char *what() const noexcept override
	{
		return code == ENOMEM ? "the heap in the segment cannot become larger"
				      : "the segment cannot grow for the heap in it";
	}
	int code; /* a positive errno */
};

/* A heap cannot be made or opened, or is damaged, or holds another type. */
struct heap_failure : std::runtime_error {
	heap_failure(int error, const std::string &text) : std::runtime_error(text), code(error)
	{
	}
	int code; /* a positive errno */
};

namespace detail
{
[[noreturn]] inline void throw_for(const ramp_heap *heap, int error)
{
	if (error == ENODEV)
		throw gone(heap);
	throw no_room(error);
}

inline void *allocate(ramp_heap *heap, std::size_t align, std::size_t size)
{
	void *block = align <= 16 ? ramp_heap_malloc(heap, size)
				  : ramp_heap_aligned_alloc(heap, align, size);

	if (!block)
		throw_for(heap, errno);
	return block;
}

inline void deallocate(void *block, std::size_t align, std::size_t size) noexcept
{
	ramp_heap *heap = ramp_heap_of(block);

	if (heap)
		ramp_heap_free_aligned_sized(heap, block, align, size);
}

template <typename T> std::size_t bytes(std::size_t n)
{
	if (n > static_cast<std::size_t>(-1) / 2 / sizeof(T))
		throw no_room(ENOMEM);
	return n * sizeof(T);
}

/* Library types whose contents are in ordinary memory, or are code, wherever they themselves are. */
template <typename T> struct stays : std::false_type {
};
template <typename S> struct stays<std::function<S>> : std::true_type {
};
template <typename T> struct stays<std::shared_ptr<T>> : std::true_type {
};
template <typename T> struct stays<std::weak_ptr<T>> : std::true_type {
};
template <typename T> struct stays<std::unique_ptr<T>> : std::true_type {
};
template <typename T> struct stays<std::reference_wrapper<T>> : std::true_type {
};
template <> struct stays<std::any> : std::true_type {
};

template <typename T, typename = void> struct fits : std::negation<stays<T>> {
};
/* A container: its allocator, and its elements. */
template <typename T>
struct fits<T, std::void_t<typename T::allocator_type, typename T::value_type>>
    : std::conjunction<std::negation<std::is_same<typename T::allocator_type,
						  std::allocator<typename T::value_type>>>,
		       fits<typename T::value_type>> {
};
template <typename A, typename B>
struct fits<std::pair<A, B>> : std::conjunction<fits<std::remove_cv_t<A>>, fits<B>> {
};
template <typename... T> struct fits<std::tuple<T...>> : std::conjunction<fits<T>...> {
};
template <typename... T> struct fits<std::variant<T...>> : std::conjunction<fits<T>...> {
};
template <typename T> struct fits<std::optional<T>> : fits<T> {
};
template <typename T, std::size_t n> struct fits<std::array<T, n>> : fits<T> {
};
} // namespace detail

/* Whether nothing that is seen at compile time speaks against moving a T; not seen: the members of a class. */
template <typename T>
inline constexpr bool fit_to_move =
	!std::is_polymorphic_v<T> && !std::is_reference_v<T> &&
	!std::is_member_function_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>> &&
	detail::fits<std::remove_cv_t<T>>::value;

/* ---- heaps and contexts --------------------------------------------------------------------- */

/* An open heap; closed at its end. */
class heap
{
      public:
	/* Throw heap_failure. ramp_heap.h says more. */
	static heap format(void *base, std::uint64_t size, const ramp_heap_options &options = {})
	{
		ramp_heap_err err{};

		return heap(ramp_heap_format(base, size, &options, &err), err);
	}
	static heap open(void *base, std::uint64_t size, const ramp_heap_options &options = {})
	{
		ramp_heap_err err{};

		return heap(ramp_heap_open(base, size, &options, &err), err);
	}
	heap(heap &&other) noexcept : m_heap(std::exchange(other.m_heap, nullptr))
	{
	}
	heap &operator=(heap &&other) noexcept
	{
		std::swap(m_heap, other.m_heap);
		return *this;
	}
	~heap()
	{
		close();
	}

	ramp_heap *get() const noexcept
	{
		return m_heap;
	}
	operator ramp_heap *() const noexcept
	{
		return m_heap;
	}
	void close() noexcept
	{
		if (m_heap)
			ramp_heap_close(std::exchange(m_heap, nullptr));
	}
	/* Closes without touching the memory, which has left. */
	void forget() noexcept
	{
		if (m_heap)
			ramp_heap_forget(std::exchange(m_heap, nullptr));
	}

      private:
	heap(ramp_heap *made, const ramp_heap_err &err) : m_heap(made)
	{
		if (!made)
			throw heap_failure(err.code, err.text);
	}
	ramp_heap *m_heap;
};

/* As long as it exists, this thread's ramp::allocator allocates in that heap. Contexts nest; they end in the reverse order, so
   they are variables of a block. */
class context
{
      public:
	explicit context(ramp_heap *heap) noexcept : m_heap(heap), m_below(top())
	{
		top() = this;
	}
	context(const context &) = delete;
	context &operator=(const context &) = delete;
	~context()
	{
		top() = m_below;
	}

	/* The heap of this thread's innermost context; throws no_context. */
	static ramp_heap *current()
	{
		if (!top())
			throw no_context();
		return top()->m_heap;
	}

      private:
	static context *&top() noexcept
	{
		static thread_local context *innermost = nullptr;

		return innermost;
	}
	ramp_heap *m_heap;
	context *m_below;
};

/* ---- allocators ----------------------------------------------------------------------------- */

/* Stateless: allocates in the innermost context's heap. */
template <typename T> class allocator
{
      public:
	using value_type = T;
	using is_always_equal = std::true_type;
	using propagate_on_container_move_assignment = std::true_type;

	allocator() noexcept = default;
	template <typename U> allocator(const allocator<U> &) noexcept
	{
	}

	T *allocate(std::size_t n)
	{
		static_assert(
			fit_to_move<T>,
			"virtual functions, code and ordinary memory do not move with a segment");
		return static_cast<T *>(
			detail::allocate(context::current(), alignof(T), detail::bytes<T>(n)));
	}
	void deallocate(T *block, std::size_t n) noexcept
	{
		detail::deallocate(block, alignof(T), n * sizeof(T));
	}
	/* Elements of lists and maps are refused here: what is allocated for them are nodes. */
	template <typename U, typename... Args> void construct(U *at, Args &&...args)
	{
		static_assert(
			fit_to_move<U>,
			"virtual functions, code and ordinary memory do not move with a segment");
		::new (static_cast<void *>(at)) U(std::forward<Args>(args)...);
	}
	template <typename U>
	friend bool operator==(const allocator &, const allocator<U> &) noexcept
	{
		return true;
	}
	template <typename U>
	friend bool operator!=(const allocator &, const allocator<U> &) noexcept
	{
		return false;
	}
};

/* Stateful: allocates in its heap, whose address is the same wherever it moves. A container keeps its heap when it is
   assigned to; a copy of a container is in the same heap. */
template <typename T> class heap_allocator
{
      public:
	using value_type = T;

	/* libstdc++ 14 looks whether an element could be made without an allocator, and must find that it
	   could. In no heap there is nothing to allocate: `gone` is thrown. */
	heap_allocator() noexcept : m_heap(nullptr)
	{
	}
	heap_allocator(ramp_heap *heap) noexcept : m_heap(heap)
	{
	}
	template <typename U>
	heap_allocator(const heap_allocator<U> &other) noexcept : m_heap(other.get())
	{
	}

	T *allocate(std::size_t n)
	{
		static_assert(
			fit_to_move<T>,
			"virtual functions, code and ordinary memory do not move with a segment");
		return static_cast<T *>(detail::allocate(m_heap, alignof(T), detail::bytes<T>(n)));
	}
	void deallocate(T *block, std::size_t n) noexcept
	{
		detail::deallocate(block, alignof(T), n * sizeof(T));
	}
	/* Elements of lists and maps are refused here: what is allocated for them are nodes. */
	template <typename U, typename... Args> void construct(U *at, Args &&...args)
	{
		static_assert(
			fit_to_move<U>,
			"virtual functions, code and ordinary memory do not move with a segment");
		::new (static_cast<void *>(at)) U(std::forward<Args>(args)...);
	}
	ramp_heap *get() const noexcept
	{
		return m_heap;
	}
	template <typename U>
	friend bool operator==(const heap_allocator &a, const heap_allocator<U> &b) noexcept
	{
		return a.get() == b.get();
	}
	template <typename U>
	friend bool operator!=(const heap_allocator &a, const heap_allocator<U> &b) noexcept
	{
		return a.get() != b.get();
	}

      private:
	ramp_heap *m_heap;
};

/* ---- containers ----------------------------------------------------------------------------- */

/* std::hash, and strings' whatever their allocator. */
template <typename T> struct hash : std::hash<T> {
};
template <typename C, typename Traits, typename A> struct hash<std::basic_string<C, Traits, A>> {
	std::size_t operator()(const std::basic_string<C, Traits, A> &text) const noexcept
	{
		return std::hash<std::basic_string_view<C, Traits>>()(text);
	}
};

template <typename T> using vector = std::vector<T, allocator<T>>;
template <typename T> using deque = std::deque<T, allocator<T>>;
template <typename T> using list = std::list<T, allocator<T>>;
using string = std::basic_string<char, std::char_traits<char>, allocator<char>>;
template <typename K, typename V, typename Less = std::less<K>>
using map = std::map<K, V, Less, allocator<std::pair<const K, V>>>;
template <typename K, typename Less = std::less<K>> using set = std::set<K, Less, allocator<K>>;
template <typename K, typename V, typename Hash = hash<K>, typename Equal = std::equal_to<K>>
using unordered_map = std::unordered_map<K, V, Hash, Equal, allocator<std::pair<const K, V>>>;
template <typename K, typename Hash = hash<K>, typename Equal = std::equal_to<K>>
using unordered_set = std::unordered_set<K, Hash, Equal, allocator<K>>;

/* The same with the stateful allocator, which is handed down to elements. */
namespace scoped
{
template <typename T> using allocator = std::scoped_allocator_adaptor<heap_allocator<T>>;
template <typename T> using vector = std::vector<T, allocator<T>>;
template <typename T> using deque = std::deque<T, allocator<T>>;
template <typename T> using list = std::list<T, allocator<T>>;
using string = std::basic_string<char, std::char_traits<char>, allocator<char>>;
template <typename K, typename V, typename Less = std::less<K>>
using map = std::map<K, V, Less, allocator<std::pair<const K, V>>>;
template <typename K, typename Less = std::less<K>> using set = std::set<K, Less, allocator<K>>;
template <typename K, typename V, typename Hash = hash<K>, typename Equal = std::equal_to<K>>
using unordered_map = std::unordered_map<K, V, Hash, Equal, allocator<std::pair<const K, V>>>;
template <typename K, typename Hash = hash<K>, typename Equal = std::equal_to<K>>
using unordered_set = std::unordered_set<K, Hash, Equal, allocator<K>>;
} // namespace scoped

/* ---- pointers that leave -------------------------------------------------------------------- */

/* A word of a block that is an address of this process outside of the heap. */
struct outside_pointer {
	const void *block; /* where it lies... */
	std::size_t offset;
	const void *value;
	std::string mapping; /* ...and what is there: a file, [stack], [heap], or a range */
};

namespace detail
{
struct mapping {
	std::uintptr_t begin, end;
	std::string name;
};

/* This process's mappings that may be accessed, without the heap's and sanitizers' terabytes of shadow. */
inline std::vector<mapping> mappings(const ramp_heap *heap)
{
	std::vector<mapping> found;
	char line[4608];
	std::FILE *maps = std::fopen("/proc/self/maps", "re");

	if (!maps)
		throw heap_failure(errno, "/proc/self/maps cannot be read");
	while (std::fgets(line, sizeof(line), maps)) {
		unsigned long begin, end;
		char access[8];
		int name = 0;

		if (std::sscanf(line, "%lx-%lx %7s %*s %*s %*s %n", &begin, &end, access, &name) !=
			    3 ||
		    access[0] == '-' || end - begin >= std::uintptr_t{1} << 40 ||
		    ramp_heap_contains(heap, reinterpret_cast<void *>(begin)))
			continue;
		line[std::strcspn(line, "\n")] = 0;
		found.push_back(
			{begin, end, name && line[name] ? line + name : "anonymous memory"});
	}
	std::fclose(maps);
	return found;
}

struct search {
	std::vector<mapping> maps;
	std::vector<outside_pointer> found;
	std::size_t most;
};

inline int search_block(void *arg, void *block, std::size_t usable)
{
	auto *s = static_cast<search *>(arg);

	for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= usable && s->found.size() < s->most;
	     at += sizeof(std::uintptr_t)) {
		std::uintptr_t value;

		std::memcpy(&value, static_cast<char *>(block) + at, sizeof(value));
		for (const mapping &m : s->maps) {
			if (value >= m.begin && value < m.end)
				s->found.push_back(
					{block, at, reinterpret_cast<void *>(value), m.name});
		}
	}
	return 0;
}
} // namespace detail

/*
 * Finds words in the heap's blocks that are addresses of this process outside of the heap: pointers, virtual functions'
 * tables, code. Reads every block, for tests and debug builds. A number that happens to be such an address is found,
 * too, and so are bytes of a block that are not in use. Returns `most` of them at most. No other thread is in a call of
 * the heap meanwhile. Throws gone.
 */
inline std::vector<outside_pointer> outside(ramp_heap *heap, std::size_t most = 16)
{
	if (!ramp_heap_contains(heap, heap))
		throw gone(heap);
	detail::search s{detail::mappings(heap), {}, most};

	ramp_heap_each(heap, detail::search_block, &s);
	return s.found;
}

/* ---- objects -------------------------------------------------------------------------------- */

namespace detail
{
/* The heap's root block. */
struct root {
	std::uint64_t magic, type, size, align;
	void *object;
};
inline constexpr std::uint64_t root_magic = 0x31307470676d7072; /* "rpmgpt01" */

/* FNV-1a of the type's name. */
template <typename T> std::uint64_t type_number() noexcept
{
	std::uint64_t number = 0xcbf29ce484222325;

	for (const char *c = typeid(T).name(); *c; c++)
		number = (number ^ static_cast<unsigned char>(*c)) * 0x100000001b3;
	return number;
}

inline root *find_root(ramp_heap *heap)
{
	if (!ramp_heap_contains(heap, heap))
		throw gone(heap);
	return static_cast<root *>(ramp_heap_root(heap));
}
} // namespace detail

/*
 * The one object of a heap, found by the heap's root. The pointer itself is ordinary memory and owns nothing: the object
 * lives in the segment until destroy(), through any number of moves and processes. Movable, not copyable.
 */
template <typename T> class mig_ptr
{
	static_assert(fit_to_move<T>,
		      "virtual functions, code and ordinary memory do not move with a segment");

      public:
	/* Builds a T in the heap, in a context of it. Throws what T's constructor throws, no_room, gone; heap_failure (EEXIST): the
	   heap has an object. A process that is killed meanwhile leaves a heap without an object. */
	template <typename... Args> static mig_ptr make(ramp_heap *heap, Args &&...args)
	{
		if (detail::find_root(heap))
			throw heap_failure(EEXIST, "the heap has an object already");
		context in(heap);
		std::unique_ptr<void, freer> object(detail::allocate(heap, alignof(T), sizeof(T)));
		std::unique_ptr<void, freer> record(
			detail::allocate(heap, alignof(detail::root), sizeof(detail::root)));

		::new (object.get()) T(std::forward<Args>(args)...);
		::new (record.get()) detail::root{detail::root_magic, detail::type_number<T>(),
						  sizeof(T), alignof(T), object.get()};
		ramp_heap_set_root(heap, record.release());
		return mig_ptr(heap, static_cast<T *>(object.release()));
	}
	/* Finds the heap's object. Throws gone; heap_failure: ENOENT there is none, EINVAL it is of another type. */
	static mig_ptr open(ramp_heap *heap)
	{
		const detail::root *record = detail::find_root(heap);

		if (!record)
			throw heap_failure(ENOENT, "the heap has no object");
		if (record->magic != detail::root_magic ||
		    record->type != detail::type_number<T>() || record->size != sizeof(T) ||
		    record->align != alignof(T))
			throw heap_failure(EINVAL, std::string("the heap's object is no ") +
							   typeid(T).name() +
							   ", or this program was built otherwise");
		return mig_ptr(heap, static_cast<T *>(record->object));
	}
	mig_ptr(mig_ptr &&other) noexcept
	    : m_heap(std::exchange(other.m_heap, nullptr)),
	      m_object(std::exchange(other.m_object, nullptr))
	{
	}
	mig_ptr &operator=(mig_ptr &&other) noexcept
	{
		m_heap = std::exchange(other.m_heap, nullptr);
		m_object = std::exchange(other.m_object, nullptr);
		return *this;
	}

	T *get() const noexcept
	{
		return m_object;
	}
	T &operator*() const noexcept
	{
		return *m_object;
	}
	T *operator->() const noexcept
	{
		return m_object;
	}
	explicit operator bool() const noexcept
	{
		return m_object != nullptr;
	}
	ramp_heap *heap() const noexcept
	{
		return m_heap;
	}
	/* A context of the object's heap, for calls that may allocate: auto in = p.in(); */
	[[nodiscard]] context in() const noexcept
	{
		return context(m_heap);
	}
	/* Ends the object; the heap has none then. */
	void destroy()
	{
		detail::root *record = detail::find_root(m_heap);
		context inside(m_heap);

		m_object->~T();
		ramp_heap_set_root(m_heap, nullptr);
		detail::deallocate(m_object, alignof(T), sizeof(T));
		detail::deallocate(record, alignof(detail::root), sizeof(detail::root));
		m_object = nullptr;
	}

      private:
	struct freer {
		void operator()(void *block) const noexcept
		{
			ramp_heap *heap = ramp_heap_of(block);

			if (heap)
				ramp_heap_free(heap, block);
		}
	};
	mig_ptr(ramp_heap *heap, T *object) noexcept : m_heap(heap), m_object(object)
	{
	}
	ramp_heap *m_heap;
	T *m_object;
};

/*
 * Calls run(mig_ptr<T>) for the heap's object, in a context of the heap: the one that has arrived or that an earlier
 * process has left, or else one that is made of `args`. Returns what `run` returns.
 */
template <typename T, typename Run, typename... Args>
decltype(auto) run(ramp_heap *heap, Run &&function, Args &&...args)
{
	context in(heap);

	return std::forward<Run>(function)(
		detail::find_root(heap) ? mig_ptr<T>::open(heap)
					: mig_ptr<T>::make(heap, std::forward<Args>(args)...));
}

} // namespace ramp

#endif
