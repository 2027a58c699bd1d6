"""
The acts of the store, each written once, for every SQL store.

A method here yields named statements and receives rows; the statements themselves live in the `.sql` files of each
dialect, under the same names.
"""

from ninelives.stores.procedures.asking import AskingActs
from ninelives.stores.procedures.deadlines import DeadlineActs
from ninelives.stores.procedures.effects import EffectActs
from ninelives.stores.procedures.events import EventActs
from ninelives.stores.procedures.journal import JournalActs
from ninelives.stores.procedures.keys import KeyActs
from ninelives.stores.procedures.questions import QuestionActs
from ninelives.stores.procedures.queue import QueueActs
from ninelives.stores.procedures.retention import RetentionActs
from ninelives.stores.procedures.threads import ThreadActs
from ninelives.stores.procedures.workers import WorkerActs


class SqlActs(
    WorkerActs,
    ThreadActs,
    QueueActs,
    DeadlineActs,
    AskingActs,
    RetentionActs,
    QuestionActs,
    EffectActs,
    JournalActs,
    EventActs,
    KeyActs,
):
    """All acts together, to be mixed into a store that can perform them."""


__all__ = ["SqlActs"]
