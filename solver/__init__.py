"""The mathematics of Isthmus: data in, data out. Clock, progress and cancellation are arguments."""
