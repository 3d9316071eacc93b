import type { Communicator } from '../communicator.js';
import * as data from './data_programs.js';
import * as faults from './fault_programs.js';
import { TestRank } from './test_rank.js';

/** What ranks run, by name: a worker is told the name. */
const programs = { ...data, ...faults };

type Programs = typeof programs;
export type ProgramName = keyof Programs;
/** A program's arguments; plain data. */
export type ProgramArgs<P extends ProgramName> =
  Parameters<Programs[P]> extends [TestRank, infer Args] ? Args : undefined;
export type ProgramResult<P extends ProgramName> = Awaited<ReturnType<Programs[P]>>;

export async function runProgram<P extends ProgramName>(
  comm: Communicator,
  name: P,
  args: ProgramArgs<P>,
): Promise<ProgramResult<P>> {
  const rank = new TestRank(comm);
  try {
    return (await (programs[name] as (rank: TestRank, args: unknown) => Promise<unknown>)(
      rank,
      args,
    )) as ProgramResult<P>;
  } finally {
    rank.dispose();
  }
}

/** Ranks that are joined by links, ready to run programs. */
export interface TestGroup {
  /** Runs a program on every rank; its results by rank. Rejects when a rank's does. */
  run<P extends ProgramName>(name: P, args: ProgramArgs<P>): Promise<ProgramResult<P>[]>;
  /** Disposes every communicator; buffers that its devices hold then, over what they held before. */
  close(): Promise<{ readonly leaked: number }>;
}

/** A kind of links to test. */
export interface TestLinks {
  readonly worldSize: number;
  /** All ranks share what a lost device takes down: a device, or at least the process. */
  readonly workers: boolean;
  open(options?: { readonly timeoutMs?: number }): Promise<TestGroup>;
  /** Ends workers and devices. */
  end(): Promise<void>;
}
