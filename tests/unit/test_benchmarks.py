"""The benchmarks: the text is the same each time, the goals are judged rightly, and every subject can be measured."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from benchmarks.corpus import Corpus, load_corpus
from benchmarks.figures import Figure, exponent, stored, superstep_s
from benchmarks.goals import LONG, SHORT, goals
from benchmarks.judging import Goal, Limit, judge
from benchmarks.machine import machine
from benchmarks.messages import BIG_EVERY, CorpusTooShortError, new_bytes, turn_number, turns
from benchmarks.plan import carry_out, planned
from benchmarks.record import About, Record, keep, kept, record
from benchmarks.report import PAGE, page, read_notes
from benchmarks.spec import Saver, Spec, Workload
from benchmarks.subjects import DATABASE, stored_bytes
from benchmarks.tables import in_words
from benchmarks.workloads import crowds, measure, payloads

TURNS = 3
ANYTHING = Spec("disk", "nosaver")


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return load_corpus()


# -- the text ---------------------------------------------------------------------------------------------------------


def test_the_same_seed_says_the_same(corpus: Corpus) -> None:
    """Whoever repeats a run measures the same bytes; another seed is another chat."""
    first, again, other = (b"".join(map(new_bytes, islice(turns(corpus, seed), 5))) for seed in (7, 7, 8))

    assert first == again
    assert first != other


def test_a_turn_is_the_same_wherever_one_begins(corpus: Corpus) -> None:
    """A process that takes turn 4 alone says what one says that has been there all along."""
    fourth = [*islice(turns(corpus, 7), 4)][3]

    assert turn_number(corpus, 7, 4) == fourth


def test_a_turn_has_the_shape_of_an_agents(corpus: Corpus) -> None:
    """A question, a call, what the tool read for that call, an answer; now and then a big file."""
    told = [*islice(turns(corpus, 7), BIG_EVERY)]

    calls = [turn.call.tool_calls[0]["id"] for turn in told if isinstance(turn.call, AIMessage)]
    read = [turn.result for turn in told if isinstance(turn.result, ToolMessage)]
    assert calls == [result.tool_call_id for result in read]
    assert [len(result.text) for result in read if len(result.text) > 7500] == [50_000]


def test_nothing_of_this_repository_is_in_the_text(corpus: Corpus) -> None:
    """Our compression dictionary is made of this repository: it must not be measured on what it knows."""
    assert "ninelives" not in f"{corpus.prose}{corpus.code}".lower()


def test_noise_is_as_long_as_the_text_and_cannot_be_made_smaller(corpus: Corpus) -> None:
    """The incompressible chat has the bytes of the other, and all but the labels around them stays."""
    plain = b"".join(map(new_bytes, islice(turns(corpus, 7), 20)))
    noise = b"".join(map(new_bytes, islice(turns(corpus, 7, "random"), 20)))

    assert len(noise) == pytest.approx(len(plain), rel=0.1)
    assert len(zlib.compress(noise, 9)) > 0.8 * len(noise)


def test_no_passage_is_said_twice() -> None:
    """A text that is used up ends the measurement: what is said again would be stored for nothing."""
    short = Corpus(prose="A few words. " * 400, code="pass\n" * 4000)

    with pytest.raises(CorpusTooShortError):
        [*islice(turns(short, 7), 10)]


# -- the arithmetic ---------------------------------------------------------------------------------------------------


def fixed(*rounds: float, workload: Workload = "disk", saver: Saver = "nosaver") -> tuple[Figure, dict[Spec, Any]]:
    """A figure with these values, and the measurements to read it off."""
    spec = Spec(workload, saver)
    return Figure((spec,), lambda measured: float(measured["value"])), {spec: [{"value": value} for value in rounds]}


def judged(stock: tuple[float, ...], ours: tuple[float, ...], limit: Limit) -> Any:
    theirs, their_results = fixed(*stock, saver="stock")
    mine, my_results = fixed(*ours, saver="ninelives")
    return judge(Goal("g", "a goal", "s", theirs, mine, limit), {**their_results, **my_results})


@pytest.mark.parametrize(
    ("limit", "met"),
    [
        (Limit(3.0), True),
        (Limit(2.9), False),
        (Limit(3.0, strict=True), False),
        (Limit(0.5, "ratio"), True),
        (Limit(0.4, "ratio"), False),
        (Limit(0.6, "ratio", at_least=True), False),
        (Limit(0.5, "ratio", at_least=True), True),
    ],
)
def test_a_goal_is_met_up_to_its_limit(limit: Limit, met: bool) -> None:
    """Ours is 3, stock's is 6: a limit binds the one or their ratio, from above or below, itself included or not."""
    assert judged((6.0,), (3.0,), limit).met is met


def test_a_goal_may_be_more_than_met() -> None:
    """What we would like better still is told apart; where nothing is said, nothing is."""
    rows = [judged((6.0,), (3.0,), Limit(4.0, stretch=stretch)) for stretch in (3.5, 2.5, None)]

    assert [row.stretch_met for row in rows] == [True, False, None]


def test_figures_are_medians_and_ratios_are_of_pairs() -> None:
    """A round in which the machine was slow for both does not spoil their ratio."""
    row = judged((10.0, 100.0, 12.0), (5.0, 50.0, 3.0), Limit(1.0, "ratio"))

    assert (row.stock, row.ours, row.ratio, row.rounds) == (12.0, 5.0, 0.5, 3)


def test_stock_may_be_missing_with_a_reason() -> None:
    """Where stock was not run, the row says why, and has no ratio."""
    ours, results = fixed(3.0)
    row = judge(Goal("g", "a goal", "s", "not run: about 25 GB", ours, Limit(4.0)), results)

    assert (row.stock, row.ratio, row.met) == ("not run: about 25 GB", None, True)


@pytest.mark.parametrize("power", [1, 2])
def test_growth_is_the_power_of_the_text(power: int) -> None:
    """The bytes of an empty store do not count; nor is it turns that count, but what was said in them."""
    text = {"50": 400, "100": 1000, "200": 1900}
    chat = {"new_bytes": text, "bytes": {"0": 77, **{mark: 77 + 3 * new**power for mark, new in text.items()}}}

    assert exponent(chat) == pytest.approx(power)


def test_time_is_over_no_saver() -> None:
    """What LangGraph takes by itself is subtracted, turn by turn of the same round."""
    chat, floor = superstep_s("stock", 200).needs
    results = {
        chat: [{"supersteps": 5, "turn_s": {"200": 0.030}}],
        floor: [{"supersteps": 5, "turn_s": {"200": 0.010}}],
    }

    assert superstep_s("stock", 200).rounds(results) == [pytest.approx(0.004)]


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (967.7e6, "bytes", "968 MB"),
        (0, "bytes", "0 B"),
        (0.000236, "s", "236 µs"),
        (1883.4, "/s", "1,883/s"),
        (0.5, "", "0.5"),
    ],
)
def test_values_are_told_with_three_digits(value: float, unit: Any, words: str) -> None:
    """A value has the unit that suits its size."""
    assert in_words(value, unit) == words


# -- the plan ---------------------------------------------------------------------------------------------------------


def reading(spec: Spec) -> Figure:
    """A figure that is read off this alone."""
    return Figure((spec,), float)


@pytest.mark.parametrize("turns", [SHORT, LONG])
def test_goals_have_names_and_all_they_need_is_planned(turns: int) -> None:
    """No name is given twice; whatever begins with a database comes after what leaves it."""
    wanted = goals(turns)
    figures = [figure for goal in wanted for figure in goal.figures]
    plan = [round.spec for round in planned(figures)]

    assert len({goal.name for goal in wanted}) == len(wanted)
    assert {spec for figure in figures for spec in figure.needs} <= {*plan}
    assert all(plan.index(spec.base) < plan.index(spec) for spec in plan if spec.base)


def test_what_is_compared_takes_turns() -> None:
    """No saver, stock, ours, and again from the start."""
    savers: tuple[Saver, ...] = ("nosaver", "stock", "ninelives")
    plan = planned([reading(Spec("chat", saver, 200)) for saver in reversed(savers)], rounds=2)

    assert [(round.spec.saver, round.number) for round in plan] == [(s, number) for number in (0, 1) for s in savers]


def test_a_size_is_measured_once() -> None:
    """A size is the same each time, a time is not."""
    sizes, times = stored("stock", 200), superstep_s("stock", 200)

    assert [round.number for round in planned([sizes], rounds=3)] == [0]
    assert len(planned([sizes, times], rounds=3)) == 2 * 3


def test_stock_is_never_asked_for_what_does_not_fit() -> None:
    """A plain chat of 1,000 turns in stock's database would be 25 GB."""
    plan = [round.spec for round in planned(figure for goal in goals(LONG) for figure in goal.figures)]

    plain = [spec for spec in plan if spec.workload == "chat" and spec.saver == "stock" and not spec.delta]
    assert {spec.turns for spec in plain} == {SHORT}


# -- the page ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(corpus: Corpus) -> Record:
    """A run with one goal met, one missed and one without stock."""
    ours, results = fixed(3.0, 4.0)
    made = [
        Goal("first", "the first", "s", ours, ours, Limit(5.0)),
        Goal("second", "the second", "bytes", ours, ours, Limit(0.5, "ratio"), beside=(("no saver", ours),)),
        Goal("third", "the third", "", "not run: about 25 GB", ours, Limit(5.0)),
    ]
    rows = [judge(goal, results) for goal in made]
    results[ANYTHING] = [{"value": value, "sync_s": 0.001, "commit_s": 0.002} for value in (3.0, 4.0)]
    return record(About("bench", 7, "2026-11-30T12:00:00+00:00", machine(), 61.0), corpus, rows, results)


def test_the_page_tells_every_goal(run: Record) -> None:
    """Each is a row with both figures, the limit and the verdict."""
    text = page([run], {})

    assert "| `first` | the first | 3.5 s | 3.5 s | 1 | ≤ 5 s | met |" in text
    assert "| `second` | the second | 3.5 B | 3.5 B | 1 | ≤ 0.5 of stock | missed |" in text
    assert "| `third` | the third | not run: about 25 GB | 3.5 |  | ≤ 5 | met |" in text
    assert "- `second`: no saver 3.5 B." in text
    assert "2 of 3 goals are met" in text


def test_what_was_written_by_hand_stays(run: Record) -> None:
    """A miss is explained by its note; one that has none says so."""
    noted, bare = page([run], {"second": "Because of the weather."}), page([run], {})

    assert "- **the second** (`second`): Because of the weather." in noted
    assert "- **the second** (`second`): not looked into yet." in bare
    assert "**the first**" not in noted


def test_a_run_is_kept_once_per_kind(run: Record, tmp_path: Path) -> None:
    """The next run of a kind takes the place of the last; what is kept makes the same page."""
    keep({**run, "seed": 1}, tmp_path)
    keep(run, tmp_path)

    assert [found["seed"] for found in kept(tmp_path)] == [7]
    assert page(kept(tmp_path), {}) == page([run], {})


def test_the_page_is_what_the_results_say() -> None:
    """Nobody has changed docs/benchmarks.md by hand, or the results and not the page."""
    assert PAGE.read_text("utf-8") == page(kept(), read_notes())


def test_notes_are_of_goals_that_there_are() -> None:
    """A note on a goal that is gone would be lost."""
    assert set(read_notes()) <= {goal.name for goal in goals(LONG)}


# -- the measuring ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0, 2])
@pytest.mark.parametrize("saver", ["nosaver", "stock", "stock-zstd", "ninelives"])
def test_a_chat_can_be_measured(saver: Saver, delta: int, tmp_path: Path) -> None:
    """Bytes, time and puts of a few turns, for each side and both forms of the channel."""
    figures = measure(Spec("chat", saver, TURNS, delta), tmp_path)

    assert figures["supersteps"] == 5
    assert figures["turn_s"][TURNS] > 5 * figures["put_s"][TURNS] > 0
    assert (figures["bytes"][TURNS] > figures["bytes"][0]) is (saver != "nosaver")


@pytest.mark.parametrize("saver", ["stock", "ninelives"])
def test_a_kept_chat_can_be_gone_on_with_and_read(saver: Saver, tmp_path: Path) -> None:
    """What begins with a database finds all of the chat there, and the turn that was taken since."""
    measure(Spec("chat", saver, TURNS), tmp_path)

    read = measure(Spec("load", saver, TURNS), tmp_path)
    went_on = measure(Spec("turn", saver, TURNS), tmp_path)
    whole = measure(Spec("history", saver, TURNS + 1), tmp_path)

    assert read["total_s"] > read["state_s"] > 0
    assert went_on["supersteps"] == 5
    assert whole["history_s"] > 0


def test_the_floor_goes_on_from_stocks_database(tmp_path: Path) -> None:
    """Without a saver, the process that takes one more turn is handed the same state, and stores nothing."""
    measure(Spec("chat", "stock", TURNS, 50), tmp_path)
    before = stored_bytes(tmp_path)

    figures = measure(Spec("turn", "nosaver", TURNS, 50), tmp_path)

    assert figures["supersteps"] == 5
    assert stored_bytes(tmp_path) == before


def test_the_last_state_alone_can_be_read(tmp_path: Path) -> None:
    """What stock is given in place of 25 GB holds the whole newest state, in one row."""
    measure(Spec("head", "stock", TURNS), tmp_path)
    figures = measure(Spec("load", "stock", TURNS), tmp_path)

    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection:
        assert connection.execute("select count(*) from checkpoints").fetchone() == (1,)
    assert figures["state_s"] > 0


@pytest.mark.parametrize("saver", ["nosaver", "stock-async", "ninelives"])
def test_many_threads_can_be_measured(saver: Saver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All take all of their steps, at once."""
    monkeypatch.setattr(crowds, "THREADS", 3)
    monkeypatch.setattr(crowds, "STEPS", 2)

    figures = measure(Spec("threads", saver), tmp_path)

    assert figures["steps_per_s"] == pytest.approx(6 / figures["total_s"])


@pytest.mark.parametrize("saver", ["nosaver", "stock", "ninelives"])
def test_a_fan_out_can_be_measured(saver: Saver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tasks in one superstep."""
    monkeypatch.setattr(crowds, "WIDTH", 3)
    monkeypatch.setattr(crowds, "FAN_OUTS", 1)

    assert measure(Spec("fanout", saver), tmp_path)["run_s"] > 0


@pytest.mark.parametrize("workload", ["files", "constant"])
@pytest.mark.parametrize("saver", ["stock", "ninelives"])
def test_growth_per_step_can_be_measured(
    workload: Workload, saver: Saver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large value that hardly changes; stock stores it anew in each step."""
    monkeypatch.setattr(payloads, "STEPS", 4)
    monkeypatch.setattr(payloads, "FILES", 2)
    monkeypatch.setattr(payloads, "CONSTANT_CHARS", 40_000)

    grown = measure(Spec(workload, saver), tmp_path)["bytes_per_step"]

    assert grown > 30_000 if saver == "stock" else grown >= 0


def test_a_measurement_is_a_process_of_its_own(tmp_path: Path) -> None:
    """Carried out by plan, each in a new process, it gives the figures that one alone prints."""
    wanted = Spec("load", "stock", TURNS)

    told: list[str] = []
    results = carry_out(planned([reading(wanted)], rounds=1)[:2], tmp_path, 7, told.append)

    assert [*results] == [Spec("chat", "stock", TURNS), wanted]
    assert results[wanted][0]["state_s"] > 0
    assert len(told) == 2
