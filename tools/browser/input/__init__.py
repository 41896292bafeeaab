"""The input of a person who has control of a session: mouse, keys, touch, addresses, tabs and answers to questions."""
