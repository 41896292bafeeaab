"""The cost of the checks of callers, and the times of answers about foreign and unknown sessions."""
