# programs.h is played by pull_world.c, so that what is tested here is pull alone.
foreach(part pull pull_faults pull_handed pull_lost pull_orders)
  rampfs_test(NAME ${part}
    SOURCES unit/test_${part}.c unit/pull_world.c unit/memory_fixture.c unit/lock_keeper.c
    unit/transport_node.c
    NEEDS serve pull LABELS quick threads)
endforeach()
# A file of the source is cut between two steps of serve.c; a clock is looked at, and time passes.
target_link_options(test_pull_faults PRIVATE -Wl,--wrap=seg_size -Wl,--wrap=pull_now_ms)
# Memory at the source fails, or the kernel does not say where data is.
target_link_options(test_pull_lost PRIVATE -Wl,--wrap=pread -Wl,--wrap=lseek)
# One thread is held between two steps, until another one has come by; a mapping fails; a clock
# stands still.
target_link_options(test_pull_orders PRIVATE -Wl,--wrap=pages_arrive -Wl,--wrap=pages_claim_cut
  -Wl,--wrap=pages_lose_all -Wl,--wrap=link_post -Wl,--wrap=seg_map -Wl,--wrap=pull_now_ms)
