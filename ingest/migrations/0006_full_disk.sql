-- On a full disk the engine has been seen to commit a part that cannot be read again, after which the
-- facts in it were gone. It must refuse before that: the log keeps them until there is room.
ALTER TABLE events MODIFY SETTING min_free_disk_bytes_to_perform_insert = 67108864;

ALTER TABLE pointers MODIFY SETTING min_free_disk_bytes_to_perform_insert = 67108864;

ALTER TABLE dead_letters MODIFY SETTING min_free_disk_bytes_to_perform_insert = 67108864;

ALTER TABLE dead_letter_replays MODIFY SETTING min_free_disk_bytes_to_perform_insert = 67108864;
