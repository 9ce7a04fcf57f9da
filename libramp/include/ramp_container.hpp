/*
 * C++ objects with a segment of their own, which move between nodes: ramp.hpp's objects on ramp.h's segments. C++17, headers
 * only; link with libramp (pkg-config libramp).
 *
 *   using index_t = ramp::map<ramp::string, ramp::vector<int>>;
 *   auto ramp = ramp::cluster::open();
 *   auto index = ramp::container<index_t>::make(ramp, "index");
 *   { auto in = index.in(); (*index)["one"].push_back(1); }
 *   index.migrate("b");
 *
 * and on node b, before that:
 *
 *   ramp::receiver arrivals(ramp, "index");
 *   auto index = ramp::container<index_t>::receive(arrivals);
 *
 * The container's calls are those of RAMP (Memon, "RAMP: RDMA Migration Platform", MMath thesis, University of Waterloo 2018,
 * section 3.5): connect, transfer, receive, pull, close. ramp_host.hpp has one function `run` for all objects of a node.
 *
 * Rules. Those of ramp.hpp. While an object moves, no thread of the program is in a call of it, and none keeps a pointer into it
 * afterwards: after transfer() its addresses are not mapped. Where another program moves the segment away (mv), a touch
 * of it is SIGBUS, as ramp.h says; once it is back, forget() the container and open it again.
 *
 * Errors are exceptions: failure, where a call of libramp fails (ENODEV: the container is empty; EREMOTE: another program has
 * moved its segment away); and those of ramp.hpp.
 *
 * Threads. A container is its program's to lock.
 */
#ifndef RAMP_CONTAINER_HPP
#define RAMP_CONTAINER_HPP

#include <algorithm>
#include <chrono>
#include <sys/mman.h>
#include <thread>

#include <ramp.h>
#include <ramp.hpp>

namespace ramp
{

/* A call of libramp has failed, with its words. */
struct failure : std::runtime_error {
	failure(int error, const std::string &text) : std::runtime_error(text), code(error)
	{
	}
	int code; /* a positive errno, as ramp.h has them */
};

namespace detail
{
template <typename Number> Number must(Number rc)
{
	if (rc < 0)
		throw failure(static_cast<int>(-rc), ramp_error());
	return rc;
}

struct putter {
	void operator()(ramp_segment *segment) const noexcept
	{
		ramp_put(segment);
	}
	void operator()(ramp_watch *watch) const noexcept
	{
		ramp_watch_end(watch);
	}
};
/* Whether it takes the stateful allocator, as the containers of ramp::scoped do. */
template <typename T, typename = void> struct is_scoped : std::false_type {
};
template <typename T>
struct is_scoped<T, std::void_t<typename T::allocator_type>>
    : std::is_constructible<typename T::allocator_type, heap_allocator<char>> {
};
using segment_ptr = std::unique_ptr<ramp_segment, putter>;
} // namespace detail

/* ---- a mount, and what arrives there -------------------------------------------------------- */

/* A mount that is in use: copies are the same one, which is closed with the last of them. */
class cluster
{
      public:
	/* None. */
	cluster() noexcept = default;
	/* As ramp_open. */
	static cluster open(const char *mount = nullptr)
	{
		ramp_cluster *opened;

		detail::must(ramp_open(mount, &opened));
		return cluster(opened);
	}
	ramp_cluster *get() const noexcept
	{
		return m_ramp.get();
	}
	operator ramp_cluster *() const noexcept
	{
		return m_ramp.get();
	}
	const char *node() const noexcept
	{
		return ramp_node(m_ramp.get());
	}

      private:
	explicit cluster(ramp_cluster *opened) : m_ramp(opened, ramp_close)
	{
	}
	std::shared_ptr<ramp_cluster> m_ramp;
};

/* Gets the segments of a name's pattern that arrive at the mount's node (ramp_watch_begin with `receive`). */
class receiver
{
      public:
	explicit receiver(const cluster &ramp, const char *pattern = nullptr) : m_ramp(ramp)
	{
		ramp_watch_options options{};
		ramp_watch *watch;

		options.pattern = pattern;
		options.receive = 1;
		detail::must(ramp_watch_begin(ramp, &options, &watch));
		m_watch.reset(watch);
	}
	/* Readable for poll(2) when something may have arrived. */
	int fd() const noexcept
	{
		return ramp_watch_fd(m_watch.get());
	}
	ramp_watch *get() const noexcept
	{
		return m_watch.get();
	}
	const cluster &mount() const noexcept
	{
		return m_ramp;
	}

      private:
	cluster m_ramp;
	std::unique_ptr<ramp_watch, detail::putter> m_watch;
};

/* ---- containers ----------------------------------------------------------------------------- */

struct container_options {
	/* make: how large the segment may become; it begins small, and grows as the heap needs it. */
	std::uint64_t max_bytes = 64 << 20;
	/* make: a heap with guards (RAMP_HEAP_DEBUG). All: transfer() refuses an object with a pointer that leaves its
	   segment. */
	bool debug = false;
};

/* A T that lives in a segment of its own. Movable; empty after transfer(), close() and destroy(). */
template <typename T> class container
{
      public:
	/* An empty one. */
	container() noexcept = default;

	/* Allocates a segment of that name on the mount's node, with a heap, and builds a T in it. After an exception there is no such
	   segment. */
	template <typename... Args>
	static container make(const cluster &ramp, const char *name,
			      const container_options &options, Args &&...args)
	{
		struct ramp_alloc what {
		};
		ramp_segment *segment;

		what.name = name;
		what.size = std::min(options.max_bytes, options.max_bytes / 64 + (2 << 20));
		what.extent = options.max_bytes;
		detail::must(ramp_alloc(ramp, &what, &segment));
		container made(ramp, segment, options);
		try {
			made.m_heap = std::make_unique<ramp::heap>(ramp::heap::format(
				ramp_data(segment), made.size(), made.heap_options()));
			made.build(std::forward<Args>(args)...);
		} catch (...) {
			made.close();
			ramp_free(ramp, nullptr, name);
			throw;
		}
		return made;
	}
	static container make(const cluster &ramp, const char *name)
	{
		return make(ramp, name, container_options());
	}

	/* Maps the segment of that name, which the mount's node owns, and finds its T. */
	static container open(const cluster &ramp, const char *name,
			      const container_options &options = {})
	{
		ramp_segment *segment;

		detail::must(ramp_get(ramp, name, 0, &segment));
		return found(ramp, segment, options);
	}
	static container open_id(const cluster &ramp, std::uint64_t id,
				 const container_options &options = {})
	{
		ramp_segment *segment;

		detail::must(ramp_get_id(ramp, id, 0, &segment));
		return found(ramp, segment, options);
	}

	/* Waits for the next arrival (timeout_ms as ramp_receive has it), whose pages may still follow. A segment without a T stays on the
	   node, unmapped, and is heap_failure. */
	static container receive(const receiver &from, int timeout_ms = -1,
				 const container_options &options = {})
	{
		ramp_segment *segment;

		detail::must(ramp_receive(from.get(), timeout_ms, 0, &segment));
		return found(from.mount(), segment, options);
	}

	container(container &&other) noexcept
	{
		swap(other);
	}
	container &operator=(container &&other) noexcept
	{
		container moved(std::move(other));

		swap(moved);
		return *this;
	}
	~container()
	{
		close();
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
	/* A context of its heap, for calls that may allocate: auto in = c.in(); */
	[[nodiscard]] context in() const noexcept
	{
		return context(heap());
	}
	/* The address of the heap, which is the segment's; NULL: it is empty. */
	ramp_heap *heap() const noexcept
	{
		return m_heap ? m_heap->get() : nullptr;
	}
	ramp_segment *segment() const noexcept
	{
		return m_segment.get();
	}
	/* The segment's number; 0: it is empty. */
	std::uint64_t id() const noexcept
	{
		return m_segment ? ramp_id(m_segment.get()) : 0;
	}
	mig_ptr<T> object() const
	{
		return mig_ptr<T>::open(heap());
	}

	/* Throws heap_failure (EFAULT) where a block has a pointer out of the heap, as ramp::outside finds it. */
	void check() const
	{
		char text[160];

		for (const outside_pointer &o : outside(heap(), 1)) {
			std::snprintf(text, sizeof(text),
				      "the block at %p has at %zu the address %p, in ", o.block,
				      o.offset, o.value);
			throw heap_failure(EFAULT, text + o.mapping);
		}
	}

	/* Returns when that range of it is on this node. */
	void pull(const void *from, std::size_t bytes) const
	{
		std::uintptr_t page = 4096, begin = reinterpret_cast<std::uintptr_t>(from);
		std::uintptr_t end = (begin + bytes + page - 1) & ~(page - 1);

		begin &= ~(page - 1);
		while (madvise(reinterpret_cast<void *>(begin), end - begin, MADV_POPULATE_READ))
			if (errno != EINTR && errno != EAGAIN)
				throw failure(errno, std::string("a range can't be pulled: ") +
							     std::strerror(errno));
	}
	/* Returns when all of its blocks are on this node; free pages are left alone. As of ramp_heap_each, no other thread is in a
	   call of the heap meanwhile. */
	void pull() const
	{
		std::vector<std::pair<char *, char *>> runs;

		must_be_here();
		ramp_heap_each(
			heap(),
			[](void *arg, void *block, std::size_t usable) {
				auto *to =
					static_cast<std::vector<std::pair<char *, char *>> *>(arg);
				char *begin = static_cast<char *>(block);

				if (to->empty() || begin > to->back().second + 65536)
					to->emplace_back(begin, begin);
				to->back().second = begin + usable;
				return 0;
			},
			&runs);
		for (const auto &[begin, end] : runs)
			pull(begin, static_cast<std::size_t>(end - begin));
	}

	/* Makes ready to move to that node, while the program still uses the object (ramp_connect): free pages are punched out, since
	   holes travel for free, and the node takes room. It stays ready for 30 s, or as extend() says. ENOENT: there is no
	   such node; EALREADY: it is this one; EISCONN: it is connected. */
	void connect(const char *node, ramp_mode mode = RAMP_LAZY)
	{
		ramp_move_options options{};

		must_be_here();
		options.mode = mode;
		ramp_heap_trim(heap());
		detail::must(ramp_connect(m_segment.get(), node, &options));
	}
	/* As ramp_extend. Returns for how many ms it stays ready. */
	int extend(unsigned ms)
	{
		must_be_here();
		return detail::must(ramp_extend(m_segment.get(), ms));
	}
	/* The commit, 5 s before transfer() at most, which does it otherwise (ramp_prepare). */
	void prepare()
	{
		must_be_here();
		detail::must(ramp_prepare(m_segment.get()));
	}
	/* Gives connect() up (ramp_abort). */
	void abort()
	{
		must_be_here();
		detail::must(ramp_abort(m_segment.get()));
		if (!m_heap)
			reopen();
	}
	/* The hand-over in two steps, of an object that is connected in mode RAMP_PRECOPY. finish_write() waits until the node has read
	   ahead; from its return on nothing changes the object, and it is read through what is returned. finish_read() waits until
	   the node has all of it, and moves it as transfer() does. The heap is closed between them. Where one of them fails the object
	   is as it was, connected to no node; finish_write() after prepare() is EBUSY, and changes nothing. The forms with try wait for neither: nullptr, false: not yet. */
	const T &finish_write()
	{
		return *finish_write_by(ramp_finish_write);
	}
	const T *try_finish_write()
	{
		return finish_write_by(ramp_try_finish_write);
	}
	void finish_read()
	{
		finish_read_by(ramp_finish_read);
	}
	bool try_finish_read()
	{
		return finish_read_by(ramp_try_finish_read);
	}
	/* Moves it to the node of connect(); it is empty then. Where that fails (ramp_transfer says how) it is as it was, connected to
	   no node; but after EINPROGRESS, when the move may continue, it is empty. ENOTCONN: there was no connect(). */
	void transfer()
	{
		must_be_here();
		if (m_options.debug)
			check();
		close_heap();
		int rc = ramp_transfer(m_segment.get());
		failure failed(-rc, ramp_error());

		if (rc && rc != -EINPROGRESS)
			reopen();
		if (!rc || !m_object)
			close();
		if (rc)
			throw failed;
	}
	/* Both; `ready` is called between them. Where it throws, or they do, the object is connected to no node. */
	void migrate(const char *node, ramp_mode mode = RAMP_LAZY,
		     const std::function<void()> &ready = {})
	{
		connect(node, mode);
		try {
			if (ready)
				ready();
			transfer();
		} catch (...) {
			if (m_segment)
				ramp_abort(m_segment.get());
			throw;
		}
	}

	/* Unmaps it. Object and segment stay on their node. */
	void close() noexcept
	{
		close_heap();
		m_object = nullptr;
		m_segment.reset();
	}
	/* The same where another program has used the heap since this one opened it: touches nothing. */
	void forget() noexcept
	{
		if (m_heap)
			m_heap->forget();
		close();
	}
	/* Ends the object, and frees its segment. */
	void destroy()
	{
		must_be_here();
		std::string name = listed_name();
		object().destroy();
		close();
		detail::must(ramp_free(m_ramp, nullptr, name.c_str()));
	}

      private:
	container(const cluster &ramp, ramp_segment *segment, const container_options &options)
	    : m_ramp(ramp), m_segment(segment), m_options(options)
	{
	}

	/* The containers of ramp::scoped get their heap behind the other arguments. */
	template <typename... Args> void build(Args &&...args)
	{
		if constexpr (detail::is_scoped<T>::value)
			m_object = mig_ptr<T>::make(
					   heap(), std::forward<Args>(args)...,
					   typename T::allocator_type(heap_allocator<char>(heap())))
					   .get();
		else
			m_object = mig_ptr<T>::make(heap(), std::forward<Args>(args)...).get();
	}

	static container found(const cluster &ramp, ramp_segment *segment,
			       const container_options &options)
	{
		container is(ramp, segment, options);

		is.m_heap = std::make_unique<ramp::heap>(
			ramp::heap::open(ramp_data(segment), is.size(), is.heap_options()));
		is.m_object = is.object().get();
		return is;
	}

	std::uint64_t size() const
	{
		return static_cast<std::uint64_t>(detail::must(ramp_size(m_segment.get())));
	}

	ramp_heap_options heap_options() const
	{
		ramp_heap_options options{};

		options.max_bytes = m_options.max_bytes;
		options.flags = m_options.debug ? RAMP_HEAP_DEBUG : 0;
		options.grow = [](void *segment, std::uint64_t bytes) {
			return ramp_resize(static_cast<ramp_segment *>(segment), bytes);
		};
		options.arg = m_segment.get();
		return options;
	}

	/* The heap notes in the segment that it is closed, so that comes first. */
	const T *finish_write_by(int (*call)(ramp_segment *))
	{
		must_be_here();
		if (m_options.debug && m_heap)
			check();
		bool closed_before = !m_heap;
		close_heap();
		int rc = call(m_segment.get());
		failure failed(-rc, ramp_error());

		if (!rc)
			return m_object;
		/* A store into what is still closed would wait for the hand-over. */
		if (!(closed_before && rc == -EBUSY && is_prepared()))
			reopen();
		if (rc != -EAGAIN)
			throw failed;
		return nullptr;
	}
	/* Whether the refusal was for that: else it is connected no more. */
	bool is_prepared() const noexcept
	{
		return ramp_extend(m_segment.get(), 0) == -EBUSY;
	}
	bool finish_read_by(int (*call)(ramp_segment *))
	{
		must_be_here();
		int rc = call(m_segment.get());
		failure failed(-rc, ramp_error());

		if (rc == -EAGAIN)
			return false;
		if (rc && rc != -EINPROGRESS && !m_heap)
			reopen();
		if (!rc || !m_object)
			close();
		if (rc)
			throw failed;
		return true;
	}

	/* A load of what has left is SIGBUS; this says so. */
	bool is_here() const noexcept
	{
		return madvise(ramp_data(m_segment.get()), 4096, MADV_POPULATE_READ) == 0;
	}
	void must_be_here() const
	{
		if (!m_object)
			throw failure(ENODEV, "the container is empty");
		if (!is_here())
			throw failure(EREMOTE, "another program has moved the segment away");
	}

	/* Touches the memory only where it is still here. */
	void close_heap() noexcept
	{
		if (!m_heap)
			return;
		if (!is_here())
			m_heap->forget();
		m_heap.reset();
	}

	/* Its name on this node. Lists show a segment that was just received some milliseconds later than it is here, until then
	   under the name that it had where it comes from. */
	std::string listed_name() const
	{
		ramp_info info;

		for (int looks = 0; looks < 2500; looks++) {
			detail::must(ramp_stat(m_segment.get(), &info));
			if (!std::strcmp(info.node, m_ramp.node()))
				return info.name;
			std::this_thread::sleep_for(std::chrono::milliseconds(2));
		}
		throw failure(EREMOTE, std::string("it is on node ") + info.node);
	}

	/* After a move that failed: the object is where it was, unless something else has moved it. */
	void reopen() noexcept
	{
		try {
			must_be_here();
			m_heap = std::make_unique<ramp::heap>(ramp::heap::open(
				ramp_data(m_segment.get()), size(), heap_options()));
		} catch (const std::exception &) {
			m_object = nullptr;
		}
	}

	void swap(container &other) noexcept
	{
		std::swap(m_ramp, other.m_ramp);
		std::swap(m_segment, other.m_segment);
		std::swap(m_heap, other.m_heap);
		std::swap(m_object, other.m_object);
		std::swap(m_options, other.m_options);
	}

	cluster m_ramp;
	detail::segment_ptr m_segment;
	std::unique_ptr<ramp::heap> m_heap; /* goes before the segment */
	T *m_object = nullptr;
	container_options m_options;
};

} // namespace ramp

#endif
