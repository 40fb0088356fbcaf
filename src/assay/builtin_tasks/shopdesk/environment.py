"""The shop of the desk: customers, products and orders, six tools that read and change them, and what should come out.

A row of `data/tasks.jsonl`: `message` (what the customer wants), `script` (the same in single lines), `turns` (what a perfect
agent does), `outputs` (texts that the customer must hear).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from assay.agents import EnvironmentContext, tool
from assay.core.records.agents import compare_states

_SHOP = Path(__file__).parent / "data" / "shop.json"


class Shop:
    """The environment: a copy of the shop for each agent."""

    def __init__(self, context: EnvironmentContext) -> None:
        self._document = context.document
        self._data = _load_shop()

    def tools(self) -> Sequence[Any]:
        return [
            self.find_customer,
            self.get_order,
            self.search_products,
            self.place_order,
            self.cancel_order,
            self.change_address,
        ]

    def state(self) -> Any:
        return self._data

    def snapshot(self) -> str:
        return json.dumps(self._data)

    def restore(self, snapshot: str) -> None:
        self._data = json.loads(snapshot)

    def close(self) -> None:
        """Nothing to close."""

    # --- what should come out -----------------------------------------------------------------------

    def expected_state(self) -> Any:
        self._data = _load_shop()
        for turn in self._document["turns"]:
            for call in turn if isinstance(turn, list) else ():
                getattr(self, call["name"])(**call["arguments"])
        return self._data

    def expected_outputs(self) -> Sequence[str]:
        return list(self._document["outputs"])

    def checks(self) -> Mapping[str, float]:
        """A milestone for each change that the customer wants, and one for not changing anything else."""
        reached, start = self._data, _load_shop()
        wanted = {change.path: change.after for change in compare_states(start, self.expected_state())}
        self._data = reached
        made = {change.path: change.after for change in compare_states(start, reached)}
        milestones = {path: float(made.get(path) == value) for path, value in wanted.items()}
        milestones["nothing_else"] = float(all(path in wanted for path in made))
        return milestones

    # --- tools --------------------------------------------------------------------------------------

    @tool(effect="pure")
    def find_customer(self, email: str) -> dict[str, Any]:
        """Find a customer by mail address. Returns the customer and the numbers of all orders.

        Args:
            email: The mail address of the customer.
        """
        for number, customer in self._data["customers"].items():
            if customer["email"] == email.strip().lower():
                orders = [key for key, one in self._data["orders"].items() if one["customer"] == number]
                return {"customer": number, **customer, "orders": orders}
        raise LookupError("no customer has this mail address")

    @tool(effect="pure")
    def get_order(self, order: str) -> dict[str, Any]:
        """Look up an order: customer, items, total, status.

        Args:
            order: The number of the order, such as O104.
        """
        return {"order": order, **self._find("orders", order)}

    @tool(effect="pure")
    def search_products(self, text: str) -> list[dict[str, Any]]:
        """Find products whose name contains a text. Returns number, name, price and stock.

        Args:
            text: A part of the name.
        """
        found = [{"product": key, **one} for key, one in self._data["products"].items()]
        return [one for one in found if text.lower() in one["name"].lower()]

    @tool(effect="repeatable")
    def place_order(self, customer: str, product: str, quantity: int) -> dict[str, Any]:
        """Order a product for a customer. Returns the number and the total of the order.

        Args:
            customer: The number of the customer.
            product: The number of the product.
            quantity: How many pieces.
        """
        self._find("customers", customer)
        goods = self._find("products", product)
        if quantity < 1:
            raise ValueError("the quantity must be at least 1")
        if goods["stock"] < quantity:
            raise ValueError(f"only {goods['stock']} pieces are in stock")
        goods["stock"] -= quantity
        number = f"O{101 + len(self._data['orders'])}"
        self._data["orders"][number] = {
            "customer": customer,
            "product": product,
            "quantity": quantity,
            "total": round(goods["price"] * quantity, 2),
            "status": "pending",
        }
        return {"order": number, "total": self._data["orders"][number]["total"]}

    @tool(effect="repeatable")
    def cancel_order(self, order: str, reason: Literal["mistake", "too late", "other"]) -> str:
        """Cancel a pending order. The pieces go back to stock.

        Args:
            order: The number of the order.
            reason: Why it is cancelled.
        """
        found = self._find("orders", order)
        if found["status"] != "pending":
            raise ValueError(f"the order is {found['status']}: only pending orders can be cancelled")
        found["status"] = "cancelled"
        found["reason"] = reason
        self._data["products"][found["product"]]["stock"] += found["quantity"]
        return f"order {order} is cancelled"

    @tool(effect="repeatable")
    def change_address(self, customer: str, address: str) -> str:
        """Change the address of a customer.

        Args:
            customer: The number of the customer.
            address: The new address.
        """
        self._find("customers", customer)["address"] = address.strip()
        return f"the address of {customer} is changed"

    def _find(self, table: str, key: str) -> Any:
        if key not in self._data[table]:
            raise LookupError(f"there is no {table[:-1]} {key!r}")
        return self._data[table][key]


def _load_shop() -> Any:
    return json.loads(_SHOP.read_text("utf-8"))
