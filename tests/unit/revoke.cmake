programs_test(revoke)
# A call that was put into a stopped process takes long to come out of it.
target_link_options(test_revoke PRIVATE -Wl,--wrap=waitpid)
# Memory is short.
target_link_options(test_revoke PRIVATE -Wl,--wrap=malloc,--wrap=mseg_refs)
programs_test(away)
# Looks at all mappings of a program are counted; an event has been read and is not noted yet.
target_link_options(test_away PRIVATE -Wl,--wrap=client_learn -Wl,--wrap=away_places)
programs_test(closed)
programs_test(watch)
# An mremap is under way for a moment longer.
target_link_options(test_watch PRIVATE -Wl,--wrap=uffd_remaps -Wl,--wrap=kernel_pagemap_each)
