# programs.h is played by pull_world.c, so that pull alone is tested here.
foreach(part pull pull_faults pull_handed pull_lost pull_orders pull_streams pull_wishes pull_give_up)
  rampfs_test(NAME ${part}
    SOURCES unit/test_${part}.c unit/pull_world.c unit/memory_fixture.c unit/lock_keeper.c
    unit/transport_node.c
    NEEDS serve pull LABELS quick threads)
endforeach()
# The source's file is cut between two steps of serve.c; time passes after a look at the clock; no timer ends a wait.
target_link_options(test_pull_faults PRIVATE -Wl,--wrap=seg_size -Wl,--wrap=pull_now_ms -Wl,--wrap=epoll_wait)
# Memory at the source fails, or the kernel does not say where data is.
target_link_options(test_pull_lost PRIVATE -Wl,--wrap=pread -Wl,--wrap=lseek)
# One thread is held between two steps, until another one has come by; a mapping fails; a clock
# is stopped.
target_link_options(test_pull_orders PRIVATE -Wl,--wrap=pages_arrive -Wl,--wrap=pages_claim_cut
  -Wl,--wrap=pages_lose_all -Wl,--wrap=link_post -Wl,--wrap=seg_map -Wl,--wrap=pull_now_ms
  -Wl,--wrap=pull_now_us -Wl,--wrap=pulled_of -Wl,--wrap=programs_pulled)
# In which order pages are asked for.
target_link_options(test_pull_wishes PRIVATE -Wl,--wrap=link_post)
# There are processors, and they idle.
target_link_options(test_pull_streams PRIVATE -Wl,--wrap=kernel_processors -Wl,--wrap=kernel_idle_us)
rampfs_test(NAME serve SOURCES unit/test_serve.c unit/memory_fixture.c unit/lock_keeper.c NEEDS serve LABELS quick threads)
