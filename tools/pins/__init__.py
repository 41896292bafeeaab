"""The pins of what services offer: a definition that changes is held back or told until a person has accepted it."""
