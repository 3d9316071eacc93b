/** Told when GPU work of a software adapter is awaited, so that the wait leaves the CPU to the work. Calls come in pairs. */
export interface Pacer {
  begin(): void;
  end(): void;
}

let current: Pacer | undefined;

/** Browsers need none: their GPU process doesn't poll. Node's is in node_pacing.ts. */
export const usePacer = (pacer: Pacer): void => {
  current = pacer;
};

export const currentPacer = (): Pacer | undefined => current;
