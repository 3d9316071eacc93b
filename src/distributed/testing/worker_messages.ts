import type { ProgramName } from './programs.js';

/** To a rank's worker. */
export type WorkerCommand =
  | {
      readonly type: 'open';
      readonly rank: number;
      readonly worldSize: number;
      readonly ports: ReadonlyMap<number, MessagePort>;
      readonly adapterName: string;
      readonly timeoutMs: number | undefined;
      readonly sharedMemory: boolean;
    }
  | { readonly type: 'run'; readonly name: ProgramName; readonly args: unknown }
  | { readonly type: 'close' };

/** One answer to each command. */
export type WorkerAnswer = { readonly result: unknown } | { readonly error: string };
