"""
An agent that settles an order: it charges a card and sends a mail, and a person is asked before each.

Both are outside acts. The payment can be asked about (`was_charged`), so a charge that was cut off is settled without
anybody's help; a mail cannot, so one that was cut off is *unknown* until somebody has looked.

Set `SHOP_PAYMENTS` (a URL) and `SHOP_MAIL` (a port): `python examples/shop/sinks.py FOLDER` says both.
"""

from __future__ import annotations

import json
import os
import smtplib
from email.message import EmailMessage
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

from ninelives import Done, NotDone, effect, idempotency_key

TIMEOUT_S = 10.0


def was_charged(order: str, cents: int) -> Done[str] | NotDone:
    """Ask the payment service what became of a charge that was cut off."""
    try:
        with urlopen(
            f"{os.environ['SHOP_PAYMENTS']}/charges?key={quote(idempotency_key())}", timeout=TIMEOUT_S
        ) as told:
            return Done(str(json.load(told)["receipt"]))
    except HTTPError as error:
        if error.code == 404:
            return NotDone()
        raise


@effect(probe=was_charged)
@tool
def charge(order: str, cents: int) -> str:
    """Charge the card of whoever ordered; gives the receipt."""
    body = json.dumps({"order": order, "cents": cents}).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": idempotency_key()}
    asked = Request(f"{os.environ['SHOP_PAYMENTS']}/charges", body, headers, method="POST")
    with urlopen(asked, timeout=TIMEOUT_S) as answer:
        return str(json.load(answer)["receipt"])


@effect
@tool
def mail(to: str, text: str) -> str:
    """Send a mail."""
    message = EmailMessage()
    message["Message-ID"] = f"<{idempotency_key()}@shop.example>"
    message["From"], message["To"], message["Subject"] = "shop@shop.example", to, "Your order"
    message.set_content(text)
    with smtplib.SMTP("127.0.0.1", int(os.environ["SHOP_MAIL"]), timeout=TIMEOUT_S) as post:
        post.send_message(message)
    return f"mailed {to}"


class Clerk(BaseChatModel):
    """Stands in for a model: what it says follows from the messages alone, so it needs no key and no network."""

    @property
    def _llm_type(self) -> str:
        return "clerk"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Clerk:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        asked = max(i for i, message in enumerate(messages) if isinstance(message, HumanMessage))
        order = str(messages[asked].content).split()[-1]
        said = sum(isinstance(message, AIMessage) for message in messages[asked:])
        calls: list[tuple[str, dict[str, Any]]] = [
            ("charge", {"order": order, "cents": 990}),
            ("mail", {"to": "ann@shop.example", "text": f"Order {order} is paid."}),
        ]
        if said == len(calls):
            message = AIMessage(f"Order {order} is settled.")
        else:
            name, given = calls[said]
            message = AIMessage("", tool_calls=[{"name": name, "args": given, "id": f"{name}-{order}"}])
        return ChatResult(generations=[ChatGeneration(message=message)])


agent = create_agent(
    Clerk(), [charge, mail], middleware=[HumanInTheLoopMiddleware(interrupt_on={"charge": True, "mail": True})]
)
