import type { Device, Program, ProgramStep } from '../../gpu/index.js';

/** A program without exchanges, and the step that it is run at. */
export interface Timed {
  readonly device: Device;
  readonly program: Program;
  readonly step: ProgramStep;
}

/** A round lasts this long at least, so that submitting and waiting count for little. Short ones are rarely disturbed. */
const MIN_SECONDS = 0.004;
/** No new round begins after this long on the CPU. */
const MAX_SECONDS = 0.15;
/** Nor on a GPU, whose clock is low when it has had nothing to do: an H200 begins at a sixth of its speed. */
const GPU_MAX_SECONDS = 1;
/** A time is settled when so many rounds in a row found no better one. */
const ROUNDS = 12;
/** Better is less than this share of it. */
const BETTER = 0.98;
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
  const most = all.every(({ device }) => device.adapter.software) ? MAX_SECONDS : GPU_MAX_SECONDS;
  await runAll(all, 1);
  let repeats = 1;
  let least = await runAll(all, repeats);
  let spent = least;
  // Again with more of them where the clock has risen meanwhile.
  do {
    let seconds = least * repeats;
    while (seconds < MIN_SECONDS && repeats < MAX_REPEATS) {
      repeats = Math.min(MAX_REPEATS, Math.ceil(repeats * Math.min(10, Math.max(1.5, (1.2 * MIN_SECONDS) / seconds))));
      seconds = await runAll(all, repeats);
      spent += seconds;
    }
    least = await leastOf(
      async () => {
        const round = await runAll(all, repeats);
        spent += round;
        return round / repeats;
      },
      () => spent < most,
    );
  } while (least * repeats < MIN_SECONDS / 2 && repeats < MAX_REPEATS && spent < most);
  return least;
}

/** The least of rounds: some after the last that was clearly better, and none begun when `more` says no. One at least. */
export async function leastOf(round: () => Promise<number>, more: () => boolean): Promise<number> {
  let least = await round();
  for (let since = 1; since < ROUNDS && more(); since++) {
    const seconds = await round();
    if (seconds < BETTER * least) since = 0;
    least = Math.min(least, seconds);
  }
  return least;
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
