# The mount floor.
rampfs_test(NAME park SOURCES unit/test_park.c NEEDS mount LABELS quick threads TIMEOUT 120)
rampfs_test(NAME request SOURCES unit/test_request.c NEEDS mount LABELS quick TIMEOUT 60)
target_link_options(test_request PRIVATE -Wl,--wrap=park_now_ms -Wl,--wrap=pull_progress
  -Wl,--wrap=store_find -Wl,--wrap=seg_put -Wl,--wrap=seg_copying)
rampfs_test(NAME view SOURCES unit/test_view.c NEEDS mount LABELS quick TIMEOUT 60)
target_link_options(test_view PRIVATE -Wl,--wrap=meta_node -Wl,--wrap=store_find
  -Wl,--wrap=transfers_rolled_back)
rampfs_test(NAME handover SOURCES unit/test_handover.c NEEDS mount LABELS quick threads TIMEOUT 120)

