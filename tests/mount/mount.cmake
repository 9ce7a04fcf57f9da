rampfs_test(NAME park SOURCES mount/test_park.c NEEDS mount LABELS quick TIMEOUT 120)
rampfs_test(NAME handover SOURCES mount/test_handover.c NEEDS mount LABELS quick TIMEOUT 120)
