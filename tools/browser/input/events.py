"""The events of a person, as they arrive from a viewer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Protocol, Self, TypeAlias

from pydantic import Base64Bytes, BaseModel, ConfigDict, Field, model_validator

MAX_EVENTS: Final = 200
"""The most events of one batch."""
LONGEST_TEXT: Final = 100_000
LONGEST_BATCH: Final = 2 * LONGEST_TEXT
"""Characters of the texts of one batch, which a page takes before the control of the person ends."""
MAX_FILES: Final = 20
MAX_OPTIONS: Final = 1000
LONGEST_LABEL: Final = 200
MAX_POINTS: Final = 10

Coordinate = Annotated[float, Field(ge=-100_000, le=100_000, allow_inf_nan=False)]
"""CSS pixels from the corner of the frame; ScreenFrame.page_point() returns them."""
Modifiers = Annotated[int, Field(ge=0, le=15)]
"""The sum of 1 for Alt, 2 for Control, 4 for Meta and 8 for Shift."""
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Short = Annotated[str, Field(max_length=100)]


class _InputModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _PointerInput(_InputModel):
    scroll_x: Coordinate | None = None
    scroll_y: Coordinate | None = None
    """With a press: the offsets of the frame in which the person saw its place. Without them it is not compared."""


class MouseInput(_PointerInput):
    type: Literal["mouse"]
    action: Literal["move", "down", "up", "wheel"]
    x: Coordinate
    y: Coordinate
    button: Literal["none", "left", "middle", "right", "back", "forward"] = "none"
    clicks: Annotated[int, Field(ge=0, le=3)] = 1
    """1 for a click, 2 for the second press of a double click."""
    modifiers: Modifiers = 0
    delta_x: Coordinate = 0
    delta_y: Coordinate = 0


class TouchPoint(_InputModel):
    id: Annotated[int, Field(ge=0, le=100)]
    x: Coordinate
    y: Coordinate


class TouchInput(_PointerInput):
    type: Literal["touch"]
    action: Literal["start", "move", "end", "cancel"]
    points: Annotated[Sequence[TouchPoint], Field(max_length=MAX_POINTS)] = ()
    """All fingers that touch the screen after the event."""
    modifiers: Modifiers = 0


class KeyInput(_InputModel):
    type: Literal["key"]
    action: Literal["down", "up"]
    key: Short
    """As KeyboardEvent.key, such as `a`, `Enter`, `Dead`."""
    code: Short = ""
    """As KeyboardEvent.code, such as `KeyA`."""
    text: Short | None = None
    """The text that the key types; by default that of `key`."""
    key_code: Annotated[int, Field(ge=0, le=255)] = 0
    """As KeyboardEvent.keyCode; 0 to derive it."""
    location: Annotated[int, Field(ge=0, le=3)] = 0
    modifiers: Modifiers = 0
    repeat: bool = False


class TextInput(_InputModel):
    """Text without keys: the end of a composition, or of a dictation."""

    type: Literal["text"]
    text: Text


class CompositionInput(_InputModel):
    """The state of a composition of an input method. An empty text cancels it, and a TextInput ends it."""

    type: Literal["composition"]
    text: Text
    start: Annotated[int, Field(ge=0)] = 0
    """The selection within the text."""
    end: Annotated[int, Field(ge=0)] = 0


class UploadedFile(_InputModel):
    name: Annotated[str, Field(min_length=1, max_length=255)]
    media_type: Short = "application/octet-stream"
    content: Base64Bytes


class PasteInput(_InputModel):
    """Text or pictures of the viewer's clipboard. The page gets a `paste` event, and the text unless it prevents that."""

    type: Literal["paste"]
    text: Text = ""
    uploads: Annotated[Sequence[UploadedFile], Field(max_length=MAX_FILES)] = ()


class DropInput(_InputModel):
    """Files that the viewer drops at a place of the page."""

    type: Literal["drop"]
    x: Coordinate
    y: Coordinate
    uploads: Annotated[Sequence[UploadedFile], Field(min_length=1, max_length=MAX_FILES)]


class FieldInput(_InputModel):
    """The choice of the viewer in the field of the last outcome that had one: an option of a list, or a value."""

    type: Literal["field"]
    index: Annotated[int | None, Field(ge=0)] = None
    value: Short = ""


class CopyInput(_InputModel):
    """Return the selected text as the outcome of the batch. A password field gives none, as in a browser."""

    type: Literal["copy"]


class AddressInput(_InputModel):
    type: Literal["address"]
    address: Annotated[str, Field(max_length=LONGEST_TEXT)]


class HistoryInput(_InputModel):
    type: Literal["history"]
    action: Literal["back", "forward", "reload", "stop", "renew"]
    """`renew` loads all pages anew in which scripts of the agent may run."""


class TabInput(_InputModel):
    type: Literal["tab"]
    action: Literal["open", "select", "close"]
    index: Annotated[int | None, Field(ge=0)] = None
    """The place of the tab among the entries of the session's tabs; not for `open`."""


class DialogInput(_InputModel):
    type: Literal["dialog"]
    accept: bool
    text: Text | None = None
    """The answer to a prompt."""


class FilesInput(_InputModel):
    """The answer to a file chooser: files of the session by name, or files of the viewer. Without files it is cancelled."""

    type: Literal["files"]
    names: Annotated[Sequence[str], Field(max_length=MAX_FILES)] = ()
    uploads: Annotated[Sequence[UploadedFile], Field(max_length=MAX_FILES)] = ()


class SizeInput(_InputModel):
    """Give the page the size of the viewer's window, in CSS pixels, until the control ends."""

    type: Literal["size"]
    width: Annotated[int, Field(ge=200, le=4000)]
    height: Annotated[int, Field(ge=200, le=4000)]


PageInput: TypeAlias = (
    MouseInput
    | TouchInput
    | KeyInput
    | TextInput
    | CompositionInput
    | PasteInput
    | CopyInput
    | DropInput
    | FieldInput
)
"""The events that go to the page of a tab."""
AnyInput: TypeAlias = (
    PageInput | AddressInput | HistoryInput | TabInput | DialogInput | FilesInput | SizeInput
)


class InputBatch(_InputModel):
    """Events in their order. `epoch` is that of the control lease; `tab` the number of the tab of the frame, or the current
    one.

    A viewer may count its batches by `number`. A batch that it sends again, as no answer came, has no effect then.
    """

    epoch: int
    tab: int | None = None
    number: Annotated[int | None, Field(ge=0)] = None
    events: Annotated[
        Sequence[Annotated[AnyInput, Field(discriminator="type")]], Field(max_length=MAX_EVENTS)
    ]

    @model_validator(mode="after")
    def _check_length(self) -> Self:
        texts = (getattr(event, "text", None) or "" for event in self.events)
        if sum(map(len, texts)) > LONGEST_BATCH:
            raise ValueError(f"its texts have more than {LONGEST_BATCH} characters")
        return self


class InputGrant(Protocol):
    """The right of a person to act, which the caller looks up. Somebody who may only watch has none."""

    def require(self, epoch: int) -> None:
        """Do nothing if the person has control, and the lease has this epoch.

        Raises:
            ControlRefused: It is not so.
        """
        ...


class FieldOption(BaseModel):
    """An option of a list. Its texts are those of the page."""

    index: Annotated[int, Field(ge=0)]
    text: Annotated[str, Field(max_length=LONGEST_LABEL)]
    group: Annotated[str, Field(max_length=LONGEST_LABEL)]
    disabled: bool


class ChoiceField(BaseModel):
    """A field for which the viewer draws the choices. Its texts are those of the page; `x` to `height` are CSS pixels."""

    kind: Literal["select", "date", "datetime-local", "month", "week", "time", "color"]
    label: Annotated[str, Field(max_length=LONGEST_LABEL)]
    x: float
    y: float
    width: float
    height: float
    index: int | None
    value: Annotated[str, Field(max_length=LONGEST_LABEL)]
    min: Annotated[str, Field(max_length=LONGEST_LABEL)]
    max: Annotated[str, Field(max_length=LONGEST_LABEL)]
    step: Annotated[str, Field(max_length=LONGEST_LABEL)]
    options: Annotated[Sequence[FieldOption], Field(max_length=MAX_OPTIONS)]


@dataclass(frozen=True, slots=True)
class InputOutcome:
    """The outcome of a batch. The caller shows it to the person, and keeps it nowhere."""

    copied: str | None = None
    """The text of the last CopyInput."""
    refusals: Sequence[str] = ()
    """The reasons why events had no effect."""
    editing: bool | None = None
    """Whether the page takes text after a tap, which is when a phone shows a keyboard. None without a tap."""
    field: ChoiceField | None = None
    """The field that the events opened last, for which the viewer draws the choices."""
