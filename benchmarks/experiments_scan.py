"""From ten million facts to the moments of ten metrics: how long one scan takes.

`python -m benchmarks.experiments_scan [--events N] [--folder F]` fills a store in the folder, unless
it is there already, and prints the best of five readings. A tenth of the facts is from before the
experiment; a user has a hundred.
"""

import argparse
import resource
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from experiments.assign import ExperimentSpec, Variant
from experiments.metrics import METRICS, Reading, read
from ingest.store import Store

TEN = (
    "thumbs_net", "thumbs_response", "undo_rate", "error_rate", "acceptance", "kept_ratio_15m",
    "time_to_first_token_p95", "tokens_per_kept_line", "tool_error_rate", "rephrase_rate",
)  # fmt: skip
SPEC = ExperimentSpec("bench", 1, "user", (Variant("a", "m1", 1), Variant("b", "m2", 1)), "salt")
_FAR = datetime(2100, 1, 1, tzinfo=UTC)
_A_USER = 100
_AT_ONCE = 1_000_000

_FILL = r"""
INSERT INTO events (source,id,type,time,sent_at,received_at,clock,sequence,subject,user,organization,conversation,turn,completion,diff,experiment,variant,consent,position,body,raw)
WITH
 {users:UInt64} AS users,
 number % users AS u, intDiv(number, users) AS step, intDiv(step, 10) AS t, step % 10 AS slot,
 cityHash64(u, 'arm') % 2 AS arm_n, ['a','b'][arm_n+1] AS arm,
 cityHash64(number) AS h, h % 1000 AS p,
 concat('user-', toString(u)) AS user_, concat('turn-', hex(cityHash64(u, t)), hex(cityHash64(t,u,1))) AS turn_,
 concat('cmp-', hex(cityHash64(u, t, 'c')), hex(cityHash64(t,u,2))) AS cmp_,
 concat('dif-', hex(cityHash64(u, t, 'd')), hex(cityHash64(t,u,3))) AS dif_,
 concat('cnv-', hex(cityHash64(u, intDiv(t,3)))) AS conv_,
 t >= 3 AS inside,
 multiIf(slot=0,'completion.finished',slot=1,'turn.submitted',slot=2,'turn.completed',slot IN (3,4),'tool.called',
   slot=5,'diff.proposed',slot=6,'diff.shown',slot=7,'diff.decided',slot=8,'diff.survival',
   p<20,'feedback.submitted',p<100,'diff.reverted',p<250,'diff.committed','diff.survival') AS kind,
 kind = 'completion.finished' AS served,
 multiIf(
  served, concat('{"completion.id":"',cmp_,'","turn.id":"',turn_,'","gen_ai.conversation.id":"',conv_,'","checkpoint":"model-',arm,'","route":"agent","reason":"', if(inside,'randomised','default'), '"', if(inside, concat(',"experiment":"bench","version":1,"variant":"',arm,'","assignment":"', hex(cityHash64(u)),'"'), ''), ',"outcome":"', if(p<20,'error','ok'),'","stream":true,"gen_ai.usage.input_tokens":',toString(1000+h%5000),',"gen_ai.usage.output_tokens":',toString(100+h%700),',"time_to_first_token_s":0.',toString(100000+h%800000),',"duration_s":',toString(2+h%20),'.25,"tokens_per_s":51.5,"sampling":{"temperature":0.2,"max_tokens":2048},"tools_sha256":"',hex(h),hex(h),'"}'),
  kind='turn.submitted', concat('{"turn.id":"',turn_,'","gen_ai.conversation.id":"',conv_,'","index":',toString(t),',"prompt_u16":',toString(h%900),',"attachments":{"file":2},"trigger":"', if(p<80,'regenerate','typed'),'","similarity":0.',toString(h%100),'}'),
  kind='turn.completed', concat('{"turn.id":"',turn_,'","gen_ai.conversation.id":"',conv_,'","outcome":"', if(p<30,'cancelled','ok'),'","llm_calls":1,"tool_calls":2,"duration_s":',toString(3+h%30),'.5,"user_left_during":false}'),
  kind='tool.called', concat('{"turn.id":"',turn_,'","gen_ai.conversation.id":"',conv_,'","gen_ai.tool.name":"read_file","gen_ai.tool.type":"function","gen_ai.tool.call.id":"call_',hex(h),'","approval":"auto","duration_s":0.',toString(h%1000),',"outcome":"', if(p<50,'error','ok'),'"}'),
  kind='diff.proposed', concat('{"diff.id":"',dif_,'","turn.id":"',turn_,'","completion.id":"',cmp_,'","file.id":"',hex(h),hex(h),'","file.extension":".py","thumbwheel.language_id":"python","hunks":[{"id":"h1","lines_added":',toString(h%40),',"lines_removed":3},{"id":"h2","lines_added":5,"lines_removed":1}],"base_sha256":"',hex(h),hex(h),hex(h),hex(h),'","auto_applied":false}'),
  kind='diff.shown', concat('{"diff.id":"',dif_,'","visible_s":',toString(h%30),'.5,"hunks_in_viewport":2}'),
  kind='diff.decided', concat('{"diff.id":"',dif_,'","turn.id":"',turn_,'","scope":"file","outcome":"', if(p<700,'accepted','rejected'),'","actor":"user","decision_s":',toString(h%60),'.125}'),
  kind='diff.survival', concat('{"diff.id":"',dif_,'","checkpoint_s":',if(slot=8,'900','30'),',"kept_u16":',toString(h%900),',"candidate_u16":900,"kept_ratio":0.',toString(h%1000),',"recall_ratio":0.5,"four_gram":0.75,"no_revert":1.0,"state":"observed","formatter_ran":false}'),
  kind='diff.reverted', concat('{"diff.id":"',dif_,'","turn.id":"',turn_,'","by":"undo","after_s":12.5,"reverted_ratio":1.0}'),
  kind='diff.committed', concat('{"diff.ids":["',dif_,'"],"turn.id":"',turn_,'","after_s":900.5,"kept_ratio":0.',toString(h%1000),',"commit_kind":"edit"}'),
  concat('{"target":{"kind":"turn","id":"',turn_,'"},"gen_ai.evaluation.name":"user_vote","gen_ai.evaluation.score.value":',toString(h%2),',"gen_ai.evaluation.score.label":"up","revision":1,"rater_source":"human"}')
 ) AS data
SELECT
 if(served, '/serving', concat('/ext/', hex(cityHash64(u,'i')), hex(cityHash64(u,'j')), '/', hex(cityHash64(u, intDiv(t,3))))) AS source,
 if(served, concat(cmp_, '-finished'), lower(concat('0196', hex(h), hex(cityHash64(number,1))))) AS id,
 concat('thumbwheel.', kind, '.v1') AS type,
 toDateTime64('2026-10-01 00:00:00', 6, 'UTC') + toIntervalSecond(intDiv(number * 2592000, users*100)) AS time,
 time AS sent_at, time + toIntervalMillisecond(50) AS received_at,
 '' AS clock, step AS sequence, '' AS subject, user_ AS user, concat('org-', toString(u % 500)) AS organization,
 conv_ AS conversation, if(kind IN ('diff.shown','diff.survival','feedback.submitted'), '', turn_) AS turn,
 if(served OR kind='diff.proposed', cmp_, '') AS completion, if(slot>=5 AND kind NOT IN ('feedback.submitted','diff.committed'), dif_, '') AS diff,
 if(served AND inside, 'bench', '') AS experiment, if(served AND inside, arm, '') AS variant, 'metrics' AS consent,
 concat('local/', toString(number)) AS position,
 concat('{"specversion":"1.0","id":"',id,'","source":"',source,'","type":"',type,'","time":"2026-10-01T00:00:00Z","dataschema":"urn:thumbwheel:events:1.0","sequence":',toString(step),',"consent":"metrics","partitionkey":"',conv_,'","user":"',user_,'","organization":"',organization,'","data":',data,'}') AS body,
 '' AS raw
FROM numbers({first:UInt64}, {events:UInt64})
"""
_EXPOSE = r"""
INSERT INTO events (source,id,type,time,sent_at,received_at,user,organization,conversation,experiment,variant,consent,position,body)
WITH ['a','b'][cityHash64(number, 'arm') % 2 + 1] AS arm, concat('user-', toString(number)) AS user_
SELECT '/serving', concat(hex(cityHash64(number)), hex(cityHash64(number,1)), '-', arm), 'thumbwheel.experiment.exposed.v1',
 toDateTime64('2026-10-01 00:00:00', 6, 'UTC') + toIntervalSecond(intDiv((number + 30 * {users:UInt64} ) * 2592000, {users:UInt64}*100)) AS time, time, time - toIntervalSecond(1),
 user_, concat('org-', toString(number % 500)), '', 'bench', arm, 'metrics', 'local/x',
 concat('{"specversion":"1.0","id":"x","source":"/serving","data":{"assignment":"a","experiment":"bench","version":1,"unit_type":"user","unit":"',user_,'","assigned":"',arm,'","received":"',arm,'","propensity":0.5,"reason":"randomised","first_use":true}}')
FROM numbers({users:UInt64})
"""


@dataclass(frozen=True)
class Times:
    wall_s: float
    cpu_s: float


def fill(store: Store, events: int) -> None:
    """So many facts, and an exposure for every user."""
    users = events // _A_USER
    for first in range(0, events, _AT_ONCE):
        store.command(_FILL, users=users, first=first, events=min(_AT_ONCE, events - first))
    store.command(_EXPOSE, users=users)


def reading(store: Store, keys: tuple[str, ...] = TEN) -> tuple[Reading, Times]:
    began, used = time.perf_counter(), _cpu()
    found = read(store, SPEC, [METRICS[key] for key in keys], as_of=_FAR)
    return found, Times(time.perf_counter() - began, _cpu() - used)


def _cpu() -> float:
    """Seconds of this process, in which the engine runs."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as spare:
        store = Store.open(f"chdb://{(asked.folder or Path(spare)) / 'store'}")
        if not store.rows("SELECT 1 FROM events LIMIT 1"):
            fill(store, asked.events)
        rounds = [reading(store) for _ in range(5)]
        assert len({repr(found) for found, _ in rounds}) == 1
        found, best = min(rounds, key=lambda each: each[1].wall_s)
        (size,) = store.rows("SELECT count() AS n, uniqExact(_part) AS parts FROM events")
        units = sum(arm.units for arm in found.arms.values())
        print(f"{size['n']:,} facts in {size['parts']} parts, {units:,} users, {len(TEN)} metrics")
        print(f"best of {len(rounds)}: {best.wall_s:.2f} s, {best.cpu_s:.2f} s of processor time")
        store.close()


if __name__ == "__main__":
    main()
