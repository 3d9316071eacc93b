/** One request of a trace. */
export interface TraceRequest {
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Seconds from the start; sent then, or as soon after as a client is free. */
  readonly arrivalSeconds: number;
  readonly priority: number;
  /** Seconds after it is sent by which the first token should be there. */
  readonly ttftDeadlineSeconds: number | undefined;
}

export type Trace = readonly TraceRequest[];

export const meanInput = (trace: Trace): number => mean(trace.map(({ inputTokens }) => inputTokens));
export const meanOutput = (trace: Trace): number => mean(trace.map(({ outputTokens }) => outputTokens));

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
