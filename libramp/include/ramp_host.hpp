/*
 * The objects of one type that are on a node: made there, found there, or arrived. C++17, headers only; link with libramp.
 *
 *   std::map<std::string, ramp::mig_ptr<table>> tables;
 *   ramp::host<table> host(ramp, "table-*", [&](auto t) { tables.emplace(t->name, std::move(t)); });
 *   host.adopt();                       those of an earlier process
 *   host.make("table-1", "fruit");      a new one
 *   while (host.receive()) ...          those that arrive
 *   host.migrate(tables.at("fruit"), "b");
 *
 * The model is Slope's (Nasirifar, MASc thesis, University of Toronto 2020): the program's work is in partitions, each an object, and
 * `run` is called for each that the program has from now on, wherever it was made. So it is written once how a
 * partition gets its work: entered into a table of listeners, filled where it is empty.
 *
 * Rules, errors: as ramp_container.hpp. After migrate() and destroy() the object's mig_ptr points nowhere. A program that
 * moves objects away is itself to keep its threads out of them.
 *
 * Threads. All functions may be called by any thread, but start(), stop() and the destructor by one at a time, and not by `run`. `run` is called by the thread that made, adopted or
 * received the object, and may call the host's other functions.
 */
#ifndef RAMP_HOST_HPP
#define RAMP_HOST_HPP

#include <chrono>
#include <fnmatch.h>
#include <mutex>
#include <poll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

#include <ramp_container.hpp>

namespace ramp
{

namespace detail
{
/* Wakes a thread that polls. */
class waker
{
      public:
	waker() : m_fd(eventfd(0, EFD_CLOEXEC))
	{
		if (m_fd < 0)
			throw failure(errno, "there is no descriptor for a thread's end");
	}
	waker(const waker &) = delete;
	waker &operator=(const waker &) = delete;
	~waker()
	{
		::close(m_fd);
	}
	void wake() const noexcept
	{
		eventfd_write(m_fd, 1);
	}
	/* Waits for the other descriptor. Returns false where it was woken. */
	bool wait(int other) const noexcept
	{
		pollfd fds[] = {{m_fd, POLLIN, 0}, {other, POLLIN, 0}};

		while (poll(fds, 2, -1) < 0 && errno == EINTR)
			;
		return !fds[0].revents;
	}

      private:
	int m_fd;
};
} // namespace detail

template <typename T> class host
{
      public:
	using run_function = std::function<void(mig_ptr<T>)>;
	/* Is told of an arrival that is no T, or whose `run` threw. */
	using failed_function = std::function<void(const std::exception &)>;

	/* Receives segments of that pattern from now on; receive(), or start()'s thread, handles them. */
	host(const cluster &ramp, const char *pattern, run_function run,
	     const container_options &options = {})
	    : m_ramp(ramp), m_pattern(pattern), m_run(std::move(run)), m_options(options),
	      m_arrivals(ramp, pattern)
	{
	}
	host(const host &) = delete;
	host &operator=(const host &) = delete;
	/* Its objects stay on the node. */
	~host()
	{
		stop();
	}

	/* Makes an object of `args`, in a segment of that name, and calls `run`. */
	template <typename... Args> mig_ptr<T> make(const char *name, Args &&...args)
	{
		return enter(
			container<T>::make(m_ramp, name, m_options, std::forward<Args>(args)...));
	}
	/* Opens one that is on the node, and calls `run`. */
	mig_ptr<T> open(const char *name)
	{
		return enter(container<T>::open(m_ramp, name, m_options));
	}
	/* Opens every T on the node whose segment's name matches the pattern, and which no program has open. Returns how many. */
	std::size_t adopt()
	{
		std::size_t count = 0;

		for (std::uint64_t id : on_node()) {
			container<T> found = holds(id) ? container<T>() : open_if_free(id);

			if (found) {
				enter(std::move(found));
				count++;
			}
		}
		return count;
	}

	/* Waits for an arrival, timeout_ms at most (-1: for as long as it takes), and calls `run`. Returns false where none has
	   come. Throws what `run` throws; heap_failure: it is no T, and stays on the node. */
	bool receive(int timeout_ms = -1)
	{
		ramp_event event;
		int rc;

		do {
			rc = ramp_watch_next(m_arrivals.get(), timeout_ms, &event);
			if (rc == -ETIMEDOUT)
				return false;
			detail::must(rc);
			if (event.kind == RAMP_ARRIVED && arrived(event.id))
				return true;
			/* The daemon was followed by another one: all that came meanwhile is there. */
		} while (event.kind != RAMP_MISSED || !adopt());
		return true;
	}
	/* For poll(2): receive(0) may have something to handle. */
	int fd() const noexcept
	{
		return m_arrivals.fd();
	}

	/* Begins a thread that receives until stop(). */
	void start(failed_function failed)
	{
		stop();
		m_waker = std::make_unique<detail::waker>();
		m_thread = std::thread([this, failed = std::move(failed)] {
			while (m_waker->wait(fd()))
				receive_all(failed);
		});
	}
	void stop()
	{
		if (!m_thread.joinable())
			return;
		m_waker->wake();
		m_thread.join();
	}

	/* Moves an object to that node. `ready` is called before the hand-over, when all is done that takes long: until then the
	   program may use the object. Where it throws, or `ready` does, the object is still here, as container::transfer says. */
	void migrate(const mig_ptr<T> &object, const char *node, ramp_mode mode = RAMP_LAZY,
		     const std::function<void()> &ready = {})
	{
		leave(object, [&](container<T> &c) { c.migrate(node, mode, ready); });
	}
	/* Ends an object, and frees its segment. */
	void destroy(const mig_ptr<T> &object)
	{
		leave(object, [&](container<T> &c) { c.destroy(); });
	}
	/* How many objects it has. */
	std::size_t size() const
	{
		std::lock_guard<std::mutex> lock(m_lock);

		return m_here.size();
	}

      private:
	/* Where `run` throws, the object stays on the node, and the host lets go of it. */
	mig_ptr<T> enter(container<T> made)
	{
		mig_ptr<T> object = made.object();
		std::uint64_t id = made.id();
		context in(made.heap());
		{
			std::lock_guard<std::mutex> lock(m_lock);

			m_here.push_back(std::move(made));
		}
		try {
			m_run(mig_ptr<T>::open(object.heap()));
		} catch (...) {
			take_id(id);
			throw;
		}
		return object;
	}

	/* Takes a container out; an empty one where there is none. */
	template <typename Is> container<T> take(Is is)
	{
		std::lock_guard<std::mutex> lock(m_lock);
		auto at = std::find_if(m_here.begin(), m_here.end(), is);
		container<T> taken;

		if (at != m_here.end()) {
			taken = std::move(*at);
			m_here.erase(at);
		}
		return taken;
	}
	container<T> take_id(std::uint64_t id)
	{
		return take([id](const container<T> &c) { return c.id() == id; });
	}
	bool holds(std::uint64_t id) const
	{
		std::lock_guard<std::mutex> lock(m_lock);

		return std::any_of(m_here.begin(), m_here.end(),
				   [id](const container<T> &c) { return c.id() == id; });
	}

	/* While it is under way the container is in no list: an arrival of the same segment is another one. */
	template <typename Way> void leave(const mig_ptr<T> &object, Way way)
	{
		ramp_heap *heap = object.heap();
		container<T> leaves =
			take([heap](const container<T> &c) { return c.heap() == heap; });

		if (!leaves)
			throw failure(ENOENT, "the host does not have that object");
		try {
			way(leaves);
		} catch (...) {
			std::lock_guard<std::mutex> lock(m_lock);

			if (leaves)
				m_here.push_back(std::move(leaves));
			throw;
		}
	}

	/* Returns false where it has gone again. */
	bool arrived(std::uint64_t id)
	{
		container<T> came;

		/* One that it has still was moved away by another program, and has come back. */
		take_id(id).forget();
		for (int tries = 0; !came; tries++) {
			try {
				came = container<T>::open_id(m_ramp, id, m_options);
			} catch (const failure &f) {
				if (f.code == ENOENT || f.code == EREMOTE || f.code == EAGAIN)
					return false;
				/* It is back before the thread that moved it away has unmapped it. */
				if (f.code != EBUSY || tries == 200)
					throw;
				std::this_thread::sleep_for(std::chrono::milliseconds(10));
			}
		}
		enter(std::move(came));
		return true;
	}

	void receive_all(const failed_function &failed)
	{
		bool more = true;

		while (more) {
			try {
				more = receive(0);
			} catch (const std::exception &e) {
				failed(e);
			}
		}
	}

	/* An empty one: another program has it open, it is no T, or it has gone. */
	container<T> open_if_free(std::uint64_t id)
	{
		try {
			return container<T>::open_id(m_ramp, id, m_options);
		} catch (const failure &) {
			return {};
		} catch (const heap_failure &) {
			return {};
		}
	}
	/* The numbers of the node's segments that match the pattern. */
	std::vector<std::uint64_t> on_node() const
	{
		struct search {
			const host *self;
			std::vector<std::uint64_t> found;
		} s{this, {}};

		detail::must(ramp_list(
			m_ramp, m_ramp.node(),
			[](void *arg, const ramp_info *info) {
				auto *by = static_cast<search *>(arg);

				if (!std::strcmp(info->node, by->self->m_ramp.node()) &&
				    !fnmatch(by->self->m_pattern.c_str(), info->name, 0))
					by->found.push_back(info->id);
				return 0;
			},
			&s));
		return s.found;
	}

	cluster m_ramp;
	std::string m_pattern;
	run_function m_run;
	container_options m_options;
	receiver m_arrivals;
	mutable std::mutex m_lock; /* protects m_here */
	std::vector<container<T>> m_here;
	std::unique_ptr<detail::waker> m_waker;
	std::thread m_thread;
};

} // namespace ramp

#endif
