-- The engine notes a token before it stores the rows, so that a token can stand for rows that were never
-- stored. The drain asks for those of `events`. These tables may have a row twice, until the next merge.
ALTER TABLE pointers MODIFY SETTING non_replicated_deduplication_window = 0;

ALTER TABLE dead_letters MODIFY SETTING non_replicated_deduplication_window = 0;

ALTER TABLE dead_letter_replays MODIFY SETTING non_replicated_deduplication_window = 0;
