"""The notice that one answer carries to a caller."""

from __future__ import annotations

from dataclasses import dataclass

from ..live.session import Binding, Session


@dataclass(frozen=True, slots=True)
class NoticePart:
    """The notice of one replaced connection, with the values of the binding that are needed to repeat it."""

    binding: Binding
    notice: str
    unreported_losses: str
    generation: int
    reported_before: int


class Delivery:
    """The notice that one answer carries. It counts as delivered unless the transport calls revert()."""

    def __init__(self, session: Session, general: str | None, parts: list[NoticePart]) -> None:
        self.session = session
        self._general = general
        self._parts = parts
        self._is_reverted = False
        self.text = "\n".join(filter(None, [general, *(part.notice for part in parts)]))

    @property
    def bindings(self) -> list[Binding]:
        """The bindings whose notices it carries."""
        return [part.binding for part in self._parts]

    def revert(self) -> bool:
        """Make the notice due again, ahead of newer ones; return False when it was reverted before."""
        if self._is_reverted:
            return False
        self._is_reverted = True
        self.session.notice = _join("\n", self._general, self.session.notice)
        for part in self._parts:
            binding = part.binding
            binding.notice = _join("\n", part.notice, binding.notice)
            binding.unreported_losses = (
                _join(", ", part.unreported_losses, binding.unreported_losses) or ""
            )
            if binding.record.told_generation == part.generation:
                binding.update(told_generation=part.reported_before)
        return True


def take_notices(session: Session, *bindings: Binding) -> Delivery | None:
    """Take the notices of the session and of replaced connections for the next result; None when none is due."""
    general, session.notice = session.notice, None
    parts: list[NoticePart] = []
    for binding in bindings:
        if binding.notice is not None:
            record = binding.record
            reported_before = record.told_generation
            parts.append(
                NoticePart(
                    binding,
                    binding.notice,
                    binding.unreported_losses,
                    record.generation,
                    reported_before,
                )
            )
            binding.notice, binding.unreported_losses = None, ""
            binding.update(told_generation=record.generation)
    return Delivery(session, general, parts) if general is not None or parts else None


def _join(separator: str, *texts: str | None) -> str | None:
    return separator.join(dict.fromkeys(text for text in texts if text)) or None


__all__ = ["Delivery", "take_notices"]
