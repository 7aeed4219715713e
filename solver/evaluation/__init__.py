"""One candidate turned into a judged plan: stages, hops, schedules, exchanges, totals."""
