import type { Device, Program, ProgramStep } from '../../gpu/index.js';

/** A program without exchanges, and the step that it is run at. */
export interface Timed {
  readonly device: Device;
  readonly program: Program;
  readonly step: ProgramStep;
}

/** A round lasts this long at least, so that submitting and waiting count for little. Short ones are rarely disturbed. */
const MIN_SECONDS = 0.004;
/** No new round begins after this long. */
const MAX_SECONDS = 0.15;
const ROUNDS = 12;
const MAX_REPEATS = 512;

export function submitPass({ gpu }: Device, encode: (pass: GPUComputePassEncoder) => void): void {
  const encoder = gpu.createCommandEncoder();
  const pass = encoder.beginComputePass();
  encode(pass);
  pass.end();
  gpu.queue.submit([encoder.finish()]);
}

/** Seconds of one run, with many of them submitted at once: the least of some rounds, as whatever else goes on only adds to it. */
export const timeProgram = (timed: Timed): Promise<number> => timeAtOnce([timed]);

/** As `timeProgram`, with the same number of runs on each at the same time; until the last has ended. */
export async function timeAtOnce(all: readonly Timed[]): Promise<number> {
  await runAll(all, 1);
  let repeats = 1;
  let seconds = await runAll(all, repeats);
  while (seconds < MIN_SECONDS && repeats < MAX_REPEATS) {
    repeats = Math.min(MAX_REPEATS, Math.ceil(repeats * Math.min(10, Math.max(1.5, (1.2 * MIN_SECONDS) / seconds))));
    seconds = await runAll(all, repeats);
  }
  const samples = [seconds / repeats];
  let spent = seconds;
  while (samples.length < ROUNDS && spent < MAX_SECONDS) {
    seconds = await runAll(all, repeats);
    spent += seconds;
    samples.push(seconds / repeats);
  }
  return Math.min(...samples);
}

async function runAll(all: readonly Timed[], repeats: number): Promise<number> {
  const started = performance.now();
  for (const { device, program, step } of all) {
    submitPass(device, (pass) => {
      for (let i = 0; i < repeats; i++) program.encode(pass, step);
    });
  }
  await Promise.all(all.map(({ device }) => device.wait(device.gpu.queue.onSubmittedWorkDone())));
  return (performance.now() - started) / 1000;
}
