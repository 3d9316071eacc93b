/**
 * Priorities and fairness. Every queue is in order of virtual arrival: a point of priority counts as having come
 * `agingIterations` iterations earlier. Requests age at the same rate, so the order of two never changes, and a request waits
 * only for those that came before it or at most `(their priority - its own) * agingIterations` iterations after it: none
 * starves, however many urgent ones keep coming. Equal virtual arrivals go by submission.
 */
export const virtualArrival = (iteration: number, priority: number, agingIterations: number): number =>
  iteration - priority * agingIterations;
