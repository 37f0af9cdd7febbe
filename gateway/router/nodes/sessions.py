"""Which node has which session, as far as this router has seen."""

from collections import OrderedDict

from gateway.router.nodes.node import Node


class SessionTable:
    """The nodes of the latest sessions. What is forgotten is found again by asking the nodes in the session's order."""

    def __init__(self, most: int) -> None:
        """`most`: sessions that are remembered."""
        self._most = most
        self._nodes: OrderedDict[str, Node] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, session_id: str) -> Node | None:
        """The node that has a session; None: it is not known."""
        found = self._nodes.get(session_id)
        if found is not None:
            self._nodes.move_to_end(session_id)
        return found

    def note(self, session_id: str, node: Node) -> None:
        """Note that a node has a session."""
        self._nodes[session_id] = node
        self._nodes.move_to_end(session_id)
        if len(self._nodes) > self._most:
            self._nodes.popitem(last=False)

    def forget(self, session_id: str) -> None:
        """A session was deleted, or no node has it."""
        self._nodes.pop(session_id, None)
