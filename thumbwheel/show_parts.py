"""What was asked beside a report: effects by part of the units, and by day since exposure."""

from rich.console import Console
from rich.table import Table

from thumbwheel.figures import Json, interval_of, number, p_of, printable, tell


def show_segments(out: Console, found: Json) -> None:
    out.print()
    planned = (
        "planned" if found["is_planned"] else "exploratory: the plan did not name this segment"
    )
    out.print(f"[bold]By {found['title']}[/] ({planned})")
    if not found["effects"][0]["parts"]:
        out.print("  no part has 50 units in every arm yet")
    for each in found["effects"]:
        if each["parts"]:
            _show_parts(out, each)
    if found["left_out_units"]:
        out.print(f"  {found['left_out_units']:,} units are in smaller parts, which are left out")
    out.print(
        f"  {100 * (1 - found['interval_alpha']):.4g}% intervals, which hold together; Holm's p over all that "
        "is shown here; not adjusted for what units did before",
        style="dim",
    )


def _show_parts(out: Console, each: Json) -> None:
    p_value = each["interaction_p"]
    if p_value is None:
        verdict = f"whether parts differ: {each['interaction_reason']}"
    elif each["differ"]:
        verdict = f"PARTS DIFFER (p = {p_of(p_value)}, for one look)"
    else:
        verdict = (
            f"no difference between parts is certain (p = {p_of(p_value)}, for one look): go by the "
            "overall effect"
        )
    out.print(f"  [bold]{each['title']}[/], {each['variant']}: {verdict}")
    if each["is_reversed"]:
        out.print(
            "  the arms' mixes differ so much that the overall effect has the wrong sign: with the "
            f"control's mix it is {number(each['standardised'], signed=True)}"
        )
    units = "units: control", each["variant"]
    table = Table("part", *units, "difference", "interval", "p, Holm", "pulled in", box=None)
    for part in each["parts"]:
        table.add_row(
            printable(part["part"]) or "(unknown)",
            f"{part['units'][0]:,}",
            f"{part['units'][1]:,}",
            number(part["effect"], signed=True),
            interval_of(part["interval"]),
            p_of(part["adjusted_p"]),
            number(part["shrunk"], signed=True),
        )
    out.print(table)
    tell(
        out,
        [{"variant": printable(part["part"]) or "(unknown)", **part} for part in each["parts"]],
        lambda part: part["reason"],
    )


def show_novelty(out: Console, each: Json, experiment: Json) -> None:
    out.print()
    units = sum(each["units"])
    out.print(
        f"[bold]{each['title']}[/], {each['variant']}, by day since exposure: {units:,} "
        f"{experiment['unit']}s who came {each['cohort_days']} days ago or more"
    )
    if each["reason"]:
        out.print(f"  no trend can be asked: {each['reason']}")
    else:
        slope, interval = number(each["slope"], signed=True), interval_of(each["interval"])
        out.print(
            f"  {each['trend']}: slope {slope} a day ({interval}), p = {p_of(each['p_value'])}, "
            "for one look"
        )
    if all(day["effect"] is None for day in each["days"]):
        return
    table = Table("day", "difference", "interval", box=None)
    for day in each["days"]:
        difference, interval = number(day["effect"], signed=True), interval_of(day["interval"])
        table.add_row(str(day["day"]), difference, interval)
    out.print(table)
