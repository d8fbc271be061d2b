-- A fact has few of the numbers of `data`, and reports read all rows: twelve columns that are mostly
-- NULL cost more than four that each kind of fact uses for its own. NaN where a fact does not say it.
ALTER TABLE events ADD COLUMN numbers Tuple(Float64, Float64, Float64, Float64) MATERIALIZED multiIf(
    type = 'thumbwheel.turn.submitted.v1', (ifNull(data.similarity, nan), 0., 0., 0.),
    type = 'thumbwheel.inference.completed.v1', (
        ifNull(data.`gen_ai.usage.input_tokens`, nan), ifNull(data.`gen_ai.usage.output_tokens`, nan),
        ifNull(data.duration_s, nan), ifNull(data.cost_usd, nan)
    ),
    type = 'thumbwheel.completion.finished.v1', (
        ifNull(data.`gen_ai.usage.input_tokens`, nan), ifNull(data.`gen_ai.usage.output_tokens`, nan),
        ifNull(data.duration_s, nan), ifNull(data.time_to_first_token_s, nan)
    ),
    type IN (
        'thumbwheel.turn.completed.v1', 'thumbwheel.turn.cancelled.v1', 'thumbwheel.tool.called.v1'
    ), (ifNull(data.duration_s, nan), 0., 0., 0.),
    type = 'thumbwheel.diff.proposed.v1', (toFloat64(lines_added), toFloat64(lines_removed), 0., 0.),
    type IN (
        'thumbwheel.diff.shown.v1', 'thumbwheel.completion.shown.v1', 'thumbwheel.completion.accepted.v1',
        'thumbwheel.completion.partially_accepted.v1', 'thumbwheel.completion.ended.v1'
    ), (ifNull(data.visible_s, nan), 0., 0., 0.),
    type = 'thumbwheel.diff.decided.v1', (ifNull(data.decision_s, nan), 0., 0., 0.),
    type = 'thumbwheel.diff.first_edit.v1', (ifNull(data.time_to_edit_s, nan), 0., 0., 0.),
    type = 'thumbwheel.diff.survival.v1', (
        ifNull(data.kept_ratio, nan), ifNull(data.checkpoint_s, nan), 0., 0.
    ),
    type = 'thumbwheel.diff.reverted.v1', (ifNull(data.after_s, nan), 0., 0., 0.),
    type = 'thumbwheel.diff.committed.v1', (
        ifNull(data.after_s, nan), ifNull(data.kept_ratio, nan), 0., 0.
    ),
    (0., 0., 0., 0.)
) COMMENT 'what the places mean for each type: experiments/_fields.py';

ALTER TABLE events MATERIALIZE COLUMN numbers;
